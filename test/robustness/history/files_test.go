// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path string, lines ...any) {
	t.Helper()
	log, err := Append(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		err = errors.Join(err, log.Write(line))
	}
	if err := errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	meta := Meta{Scenario: "s", Seed: 1, Epochs: []Epoch{{}}, End: 9}
	if err := WriteMeta(dir, meta); err != nil {
		t.Fatal(err)
	}
	called, returned := &Op{ID: 2, Verb: Create, Invoke: 5}, &Op{ID: 2, Verb: Create, Invoke: 5, Return: 7, Outcome: OK}
	write(t, OpsFile(dir, "a"), called, returned)
	// The process was killed while a call was in flight, and while it wrote a line.
	write(t, OpsFile(dir, "b"), &Op{ID: 1, Verb: Delete, Invoke: 6})
	torn, err := os.OpenFile(OpsFile(dir, "b"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = torn.WriteString(`{"id":3,"ver`)
	if err := errors.Join(err, torn.Close()); err != nil {
		t.Fatal(err)
	}
	event, fault := &Event{Revision: 3, Name: "n"}, Fault{Kind: "k", Begin: 1, End: 2}
	write(t, TruthFile(dir), event)
	write(t, FaultsFile(dir), fault)

	run, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := &Run{
		Meta: meta, Truth: []*Event{event}, Faults: []Fault{fault},
		Ops: []*Op{returned, {ID: 1, Verb: Delete, Invoke: 6, Return: Never, Outcome: Unknown}},
	}
	if diff := cmp.Diff(want, run); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}

	write(t, OpsFile(dir, "c"), returned)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("want an error for an operation that is there twice, got %v", err)
	}
}
