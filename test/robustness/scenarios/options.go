// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenarios runs the robustness test: it starts a control plane with the product, lets actors write, breaks things
// meanwhile, and leaves a history.
package scenarios

import (
	"time"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Options say what is run.
type Options struct {
	// Name is the scenario's.
	Name string
	Seed uint64
	// APIServers and EtcdMembers are how many there are.
	APIServers, EtcdMembers int
	// Leases are those that actors campaign for, each in a namespace of its own.
	Leases []Lease
	// LeaseSeconds is how long a lease lasts.
	LeaseSeconds int32
	// Workers is how many writers a term has, Pace the mean pause of each, Zombie how many operations each makes after the
	// term.
	Workers int
	Pace    time.Duration
	Zombie  int
	// Steal is the mean time after which each actor takes the lease by force.
	Steal time.Duration
	// Faults returns the faults of one round. Rounds follow each other, in an order that the seed decides, until at least one
	// is over and the Duration, too.
	Faults   func(*World) []Choice
	Duration time.Duration
	// Between is the pause after each fault, and Quiet that before the first and after the last one.
	Between, Quiet time.Duration
	// Manager is the path of the manager's binary; empty to build it.
	Manager string
	// Executable is the test binary, which becomes an actor by the environment.
	Executable string
	// Dir is the folder of the history.
	Dir string
	// Say is told what happens.
	Say func(format string, args ...any)
}

// Lease is a FencedLease of a scenario.
type Lease struct {
	Name     string
	Handover v1alpha1.Handover
	// LateCreates is what becomes of late creates, empty for the default.
	LateCreates v1alpha1.LateCreates
	// History is how many operations an object records, 0 for the default.
	History int32
	// Labels, if there are any, are those of guarded objects: the guard has an objectSelector then.
	Labels map[string]string
	// Elsewhere puts the guarded objects into a namespace of their own: the guard has a namespaceSelector then.
	Elsewhere bool
}

// ManagerVariable names a binary of the manager to run instead of one that is built.
const ManagerVariable = "FENCEDLEASE_ROBUSTNESS_MANAGER"

// defaultHistory is the product's.
const defaultHistory = 32

func (l Lease) history() int {
	if l.History == 0 {
		return defaultHistory
	}
	return int(l.History)
}
