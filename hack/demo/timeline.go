// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	lineWidth = 116
	margin    = 11
)

// timeline prints what happens and when.
type timeline struct {
	out   io.Writer
	begin time.Time
}

func newTimeline(out io.Writer) *timeline { return &timeline{out: out, begin: time.Now()} }

// title begins a part.
func (t *timeline) title(text string) {
	_, _ = fmt.Fprintf(t.out, "\n%s\n", text)
}

// step prints an event with the seconds since the demo began.
func (t *timeline) step(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, "%7.1f s  %s\n", time.Since(t.begin).Seconds(), fmt.Sprintf(format, args...))
}

// quote prints a text of the API server, word for word, broken into lines.
func (t *timeline) quote(text string) {
	line := ""
	flush := func() {
		if line != "" {
			_, _ = fmt.Fprintf(t.out, "%s| %s\n", strings.Repeat(" ", margin+2), line)
		}
		line = ""
	}
	for paragraph := range strings.SplitSeq(text, "\n") {
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+1+len(word) > lineWidth-margin-4 {
				flush()
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		flush()
	}
}

// block prints a table as it is.
func (t *timeline) block(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		_, _ = fmt.Fprintf(t.out, "%s%s\n", strings.Repeat(" ", margin), line)
	}
}
