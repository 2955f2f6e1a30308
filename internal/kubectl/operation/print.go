// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/operation"
)

// answer is what is printed.
type answer struct {
	Namespace string
	Object    string
	Operation string
	// Lease is empty if the object has records of none and none was asked for.
	Lease string

	outcome fenced.OperationOutcome
}

// record is a record in JSON.
type record struct {
	Operation  string `json:"operation"`
	Generation int64  `json:"generation"`
	Time       string `json:"time,omitempty"`
}

func recordOf(r operation.Record) *record {
	if r.Operation == "" {
		return nil
	}
	out := &record{Operation: r.Operation, Generation: r.Generation}
	if !r.Time.IsZero() {
		out.Time = r.Time.UTC().Format(time.RFC3339)
	}
	return out
}

func (a answer) print(out io.Writer, output string) error {
	if output != outputJSON {
		_, err := fmt.Fprintln(out, a.say())
		return err
	}
	problem := ""
	if a.outcome.Problem != nil {
		problem = a.outcome.Problem.Error()
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "    ")
	return encoder.Encode(struct {
		Namespace string                `json:"namespace,omitempty"`
		Object    string                `json:"object"`
		Operation string                `json:"operation"`
		Lease     string                `json:"lease,omitempty"`
		State     fenced.OperationState `json:"state"`
		Record    *record               `json:"record,omitempty"`
		Horizon   *record               `json:"horizon,omitempty"`
		Problem   string                `json:"problem,omitempty"`
	}{a.Namespace, a.Object, a.Operation, a.Lease, a.outcome.State, recordOf(a.outcome.Record), recordOf(a.outcome.Horizon), problem})
}

func (a answer) say() string {
	of := ""
	if a.Lease != "" {
		of = " of FencedLease " + a.Lease
	}
	switch a.outcome.State {
	case fenced.OperationApplied:
		return fmt.Sprintf("%s: operation %s was applied under generation %d%s%s", a.Object, a.Operation, a.outcome.Record.Generation, of, at(a.outcome.Record))
	case fenced.OperationNotRecorded:
		h := a.outcome.Horizon
		return fmt.Sprintf("%s: operation %s is not recorded; the horizon%s starts at operation %s under generation %d%s\n"+
			"It was not applied since then. Whether it was applied before is not known.", a.Object, a.Operation, of, h.Operation, h.Generation, at(h))
	case fenced.OperationUnknown:
	}
	if a.outcome.Problem != nil {
		return fmt.Sprintf("%s: the records%s cannot be read (%v). Whether operation %s was applied is not known.", a.Object, of, a.outcome.Problem, a.Operation)
	}
	return fmt.Sprintf("%s: no operation%s is recorded at all. Whether operation %s was applied is not known.", a.Object, of, a.Operation)
}

func at(r operation.Record) string {
	if r.Time.IsZero() {
		return ""
	}
	return " at " + r.Time.UTC().Format(time.RFC3339)
}

// exit returns an error without a text for the exit code: everything was said.
func (a answer) exit() error {
	switch a.outcome.State {
	case fenced.OperationApplied:
		return nil
	case fenced.OperationNotRecorded:
		return &cli.CodeError{Code: cli.ExitNotRecorded}
	default:
		return &cli.CodeError{Code: cli.ExitError}
	}
}
