// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traffic is what clients do in a run of the robustness test. An actor is a process that campaigns for a lease by
// the library and writes under each term that it wins. The writers of a term do not end with it: they go on with its token
// for a while, as a leader does that does not know that it was deposed.
package traffic

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Variable is the environment variable that makes a test binary an actor. Its value is a Config.
const Variable = "FENCEDLEASE_ROBUSTNESS_ACTOR"

// Kind is how an actor campaigns.
type Kind string

const (
	// Elector campaigns by pkg/leader.
	Elector Kind = "elector"
	// Lock campaigns by client-go's elector on pkg/resourcelock.
	Lock Kind = "lock"
	// Assistant does not campaign: it writes by the token that the lease shows. Each actor has one.
	Assistant Kind = "assistant"
)

// Config is what an actor is started with.
type Config struct {
	// Name is the actor's. Number is that of its process among all processes of the run: each has IDs of its own.
	Name   string `json:"name"`
	Number int64  `json:"number"`
	Seed   uint64 `json:"seed"`
	Kind   Kind   `json:"kind"`
	// Kubeconfig is that of ServiceAccount, in the namespace of the lease.
	Kubeconfig     string        `json:"kubeconfig"`
	ServiceAccount string        `json:"serviceAccount"`
	Lease          history.Lease `json:"lease"`
	// Labels are those of the objects that the actor creates.
	Labels map[string]string `json:"labels"`
	// LeaseDuration is that of the lease.
	LeaseDuration time.Duration `json:"leaseDuration"`
	// Dir is the folder of the history.
	Dir string `json:"dir"`
	// Workers is how many writers a term has.
	Workers int `json:"workers"`
	// Pace is the mean pause between two operations of a writer whose term is valid.
	Pace time.Duration `json:"pace"`
	// Steal is the mean time after which the actor takes the lease whoever holds it; 0 for never.
	Steal time.Duration `json:"steal"`
	// Zombie is how many operations a writer makes after its term has ended.
	Zombie int `json:"zombie"`
}

// idsPerProcess is how many operations a process can make. IDs fit an int32, as replicas are one.
const idsPerProcess = 1_000_000

// Environ returns the environment that makes a process an actor.
func (c Config) Environ() ([]string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode actor: %w", err)
	}
	return append(os.Environ(), Variable+"="+string(text)), nil
}
