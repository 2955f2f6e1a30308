// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation reads and writes the records of business operations that a guarded object keeps.
//
// The annotation operations.fencedlease.io/<lease name> of a guarded object holds the operations that were applied to it,
// newest first, separated by one space each:
//
//	<operation>=<generation>[@<time>]
//
// for example import-17=48215@2026-05-04T10:11:12Z. The time is that of the API server's clock, and is left out where it
// is not known. The package needs the standard library and package token only.
package operation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencedlease/fencedlease/pkg/token"
)

const (
	// MaxRecords is the largest number of records that an object keeps for one lease.
	MaxRecords = 128

	// MaxRecordLength is the length of the longest record.
	MaxRecordLength = token.MaxOperationLength + len("=999999999999999999") + len("@2006-01-02T15:04:05Z")

	// MaxLength is the length of the longest annotation.
	MaxLength = MaxRecords*(MaxRecordLength+1) - 1

	// timeFormat is the form in which the API server writes times, which is always that of UTC and of whole seconds.
	timeFormat = "2006-01-02T15:04:05Z"
)

// ErrMalformed is wrapped by every error that Parse and ParseRecord return.
var ErrMalformed = errors.New("malformed operation record")

// Record says that an operation was applied.
type Record struct {
	// Operation is the id of the operation: never empty, and one of a business operation. See token.IsBusinessOperation.
	Operation string
	// Generation is the generation of the FencedLease under which it was applied.
	Generation int64
	// Time is when it was applied, in UTC and whole seconds, or zero if that was not recorded.
	Time time.Time
}

// String returns the text form that ParseRecord reads.
func (r Record) String() string {
	s := r.Operation + "=" + strconv.FormatInt(r.Generation, 10)
	if clock := r.Clock(); clock != "" {
		s += "@" + clock
	}
	return s
}

// Clock returns the time as the record writes it, or nothing if it was not recorded.
func (r Record) Clock() string {
	if r.Time.IsZero() {
		return ""
	}
	return r.Time.UTC().Format(timeFormat)
}

// ParseRecord reads one record. It accepts exactly what String writes for records that can be.
func ParseRecord(text string) (Record, error) {
	if len(text) > MaxRecordLength {
		return Record{}, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrMalformed, len(text), MaxRecordLength)
	}
	id, rest, found := strings.Cut(text, "=")
	if !found {
		return Record{}, malformed(text, "the = after the operation is missing")
	}
	digits, clock, hasTime := strings.Cut(rest, "@")
	// A generation and an operation are what they are in a token.
	t, err := token.Parse(digits + "/" + id)
	switch {
	case err != nil:
		return Record{}, malformed(text, err.Error())
	case t.Term != "":
		return Record{}, malformed(text, "the generation must be decimal digits only")
	case !t.Business():
		return Record{}, malformed(text, "the operation is not one of those that are recorded")
	}
	record := Record{Operation: t.Operation, Generation: t.Generation}
	if hasTime {
		at, err := time.Parse(timeFormat, clock)
		// The parser accepts fractions of a second as well. The zero time would not be written.
		if err != nil || at.IsZero() || at.Format(timeFormat) != clock {
			return Record{}, malformed(text, "the time must have the form "+timeFormat)
		}
		record.Time = at
	}
	return record, nil
}

// Parse reads the records of an annotation, newest first. The empty text holds none.
func Parse(text string) ([]Record, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > MaxLength {
		return nil, fmt.Errorf("%w: the records have %d bytes, at most %d are allowed", ErrMalformed, len(text), MaxLength)
	}
	parts := strings.Split(text, " ")
	if len(parts) > MaxRecords {
		return nil, fmt.Errorf("%w: there are %d records, at most %d are allowed", ErrMalformed, len(parts), MaxRecords)
	}
	records := make([]Record, len(parts))
	for i, part := range parts {
		record, err := ParseRecord(part)
		if err != nil {
			return nil, err
		}
		records[i] = record
	}
	return records, nil
}

// Format returns the text form of records, newest first.
func Format(records []Record) string {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}

// Find returns the newest record of an operation in the text of an annotation. What is not a record is passed over. One whose
// time has the form of a time and is none, as 31 February, is a record without a time: the operation was applied.
func Find(text, operation string) (record Record, found bool) {
	if operation == "" {
		return Record{}, false
	}
	for part := range strings.SplitSeq(text, " ") {
		if !strings.HasPrefix(part, operation+"=") {
			continue
		}
		if head, clock, _ := strings.Cut(part, "@"); hasTimeForm(clock) {
			if _, err := ParseRecord(part); err != nil {
				part = head
			}
		}
		if r, err := ParseRecord(part); err == nil {
			return r, true
		}
	}
	return Record{}, false
}

// hasTimeForm reports whether a text has digits where times have them, and is otherwise the same.
func hasTimeForm(text string) bool {
	if len(text) != len(timeFormat) {
		return false
	}
	for i, c := range []byte(timeFormat) {
		isDigit := text[i] >= '0' && text[i] <= '9'
		if wantDigit := c >= '0' && c <= '9'; wantDigit != isDigit || !wantDigit && text[i] != c {
			return false
		}
	}
	return true
}

// Add returns records with one more in front, and of the others as many as the limit leaves room for.
func Add(records []Record, newest Record, limit int) []Record {
	if limit < 1 {
		return records
	}
	return slices.Concat([]Record{newest}, records[:min(len(records), limit-1)])
}

func malformed(text, problem string) error {
	const most = 64
	if len(text) > most {
		return fmt.Errorf("%w %.64q…: %s", ErrMalformed, text, problem)
	}
	return fmt.Errorf("%w %q: %s", ErrMalformed, text, problem)
}
