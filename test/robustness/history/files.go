// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const (
	metaFile   = "run.json"
	truthFile  = "truth.jsonl"
	faultsFile = "faults.jsonl"
	opsPattern = "ops-*.jsonl"
)

// Log appends lines of JSON to a file, each by one write, so that nothing is lost when the process is killed.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// Append opens a log for appending.
func Append(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &Log{file: file}, nil
}

// Write appends a line.
func (l *Log) Write(line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode line of log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// OpsFile returns the path of the operations of a process.
func OpsFile(dir, process string) string { return filepath.Join(dir, "ops-"+process+".jsonl") }

// TruthFile returns the path of the committed states.
func TruthFile(dir string) string { return filepath.Join(dir, truthFile) }

// FaultsFile returns the path of the faults.
func FaultsFile(dir string) string { return filepath.Join(dir, faultsFile) }

// WriteMeta writes which run it was.
func WriteMeta(dir string, meta Meta) error {
	data, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, metaFile), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write run: %w", err)
	}
	return nil
}

// Load reads a whole history: operations in the order of their calls, committed states in that of their revisions.
func Load(dir string) (*Run, error) {
	run := &Run{}
	data, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if err := json.Unmarshal(data, &run.Meta); err != nil {
		return nil, fmt.Errorf("decode run: %w", err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, opsPattern))
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	byID := map[int64]*Op{}
	for _, path := range paths {
		err := readLines(path, func(op *Op) error {
			first := byID[op.ID]
			switch {
			case op.Outcome == "" && first == nil:
				op.Return, op.Outcome = Never, Unknown
				byID[op.ID] = op
			case op.Outcome != "" && first != nil && first.Return == Never:
				*first = *op
			default:
				return fmt.Errorf("operation %d is there twice, or returns without a call", op.ID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, op := range byID {
		run.Ops = append(run.Ops, op)
	}
	slices.SortFunc(run.Ops, func(a, b *Op) int { return cmp.Or(cmp.Compare(a.Invoke, b.Invoke), cmp.Compare(a.ID, b.ID)) })
	err = errors.Join(
		readLines(TruthFile(dir), func(event *Event) error { run.Truth = append(run.Truth, event); return nil }),
		readLines(FaultsFile(dir), func(fault *Fault) error { run.Faults = append(run.Faults, *fault); return nil }),
	)
	return run, err
}

// readLines decodes each line of a file. The last line may be incomplete: its process was killed.
func readLines[T any](path string, take func(*T) error) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = file.Close() }()
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(path), err)
		}
		entry := new(T)
		if err := json.Unmarshal(line, entry); err != nil {
			return fmt.Errorf("decode line of %s: %w", filepath.Base(path), err)
		}
		if err := take(entry); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
}
