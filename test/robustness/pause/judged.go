// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"bytes"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Judgements reads a manager's log, one JSON object a line at the level of debugging, for what its webhook has admitted.
type Judgements struct {
	mu      sync.Mutex
	rest    []byte
	allowed map[types.NamespacedName]int
}

// NewJudgements returns an empty one.
func NewJudgements() *Judgements { return &Judgements{allowed: map[types.NamespacedName]int{}} }

// judgement is the line that the webhook logs for each review.
type judgement struct {
	Message string `json:"msg"`
	Object  struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"object"`
	DryRun  bool `json:"dryRun"`
	Allowed bool `json:"allowed"`
}

// Write takes a part of the log.
func (j *Judgements) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rest = append(j.rest, p...)
	for {
		line, rest, found := bytes.Cut(j.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		j.rest = rest
		var is judgement
		// Lines of other shapes are of no interest.
		if json.Unmarshal(line, &is) == nil && is.Message == "Judged a guarded write" && is.Allowed && !is.DryRun {
			j.allowed[types.NamespacedName{Namespace: is.Object.Namespace, Name: is.Object.Name}]++
		}
	}
}

// Admissions counts the writes to an object that the webhook has admitted.
func (j *Judgements) Admissions(namespace, name string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.allowed[types.NamespacedName{Namespace: namespace, Name: name}]
}
