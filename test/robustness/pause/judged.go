// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Judgements reads a manager's log, one JSON object a line at the level of debugging, for what its webhook has admitted.
type Judgements struct {
	mu      sync.Mutex
	rest    []byte
	allowed map[types.NamespacedName]int
	// verdicts are the last ones, in the words of the log.
	verdicts map[types.NamespacedName]string

	// path is the log file that is followed, and offset how far it has been read.
	path   string
	offset int64
}

// NewJudgements returns an empty one.
func NewJudgements() *Judgements {
	return &Judgements{allowed: map[types.NamespacedName]int{}, verdicts: map[types.NamespacedName]string{}}
}

// judgement is the line that the webhook logs for each review.
type judgement struct {
	Message string `json:"msg"`
	Object  struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"object"`
	DryRun   bool   `json:"dryRun"`
	Allowed  bool   `json:"allowed"`
	Verdicts string `json:"verdicts"`
}

// Write takes a part of the log.
func (j *Judgements) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.take(p)
	return len(p), nil
}

// take reads a part of the log. The caller holds mu.
func (j *Judgements) take(p []byte) {
	j.rest = append(j.rest, p...)
	for {
		line, rest, found := bytes.Cut(j.rest, []byte("\n"))
		if !found {
			return
		}
		j.rest = rest
		var is judgement
		// Lines of other shapes are of no interest.
		if json.Unmarshal(line, &is) != nil || is.Message != "Judged a guarded write" {
			continue
		}
		key := types.NamespacedName{Namespace: is.Object.Namespace, Name: is.Object.Name}
		j.verdicts[key] = is.Verdicts
		if is.Allowed && !is.DryRun {
			j.allowed[key]++
		}
	}
}

// Admissions counts the writes to an object that the webhook has admitted.
func (j *Judgements) Admissions(namespace, name string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.catchUp()
	return j.allowed[types.NamespacedName{Namespace: namespace, Name: name}]
}

// LastVerdicts returns the last verdicts on writes to an object, as <namespace>/<lease>=<reason>.
func (j *Judgements) LastVerdicts(namespace, name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.catchUp()
	return j.verdicts[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Follow makes it read the log file at path from now on, from its beginning.
func (j *Judgements) Follow(path string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.path, j.offset, j.rest = path, 0, nil
}

// catchUp reads what the followed log has got. The caller holds mu.
func (j *Judgements) catchUp() {
	if j.path == "" {
		return
	}
	file, err := os.Open(j.path)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	// What cannot be read now is read the next time.
	if data, err := io.ReadAll(io.NewSectionReader(file, j.offset, math.MaxInt64-j.offset)); err == nil {
		j.offset += int64(len(data))
		j.take(data)
	}
}
