// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// Exit codes of the plugin. `run` returns that of its command instead.
const (
	// ExitOK says that what was asked for was done.
	ExitOK = 0
	// ExitError says that it was not done, or that there is no telling.
	ExitError = 1
	// ExitRefused says that a write was refused or, to explain, would be; or that another holds the lease.
	ExitRefused = 2
	// ExitNotRecorded says that an object has no record of the operation that was looked up.
	ExitNotRecorded = 3
	// ExitInterrupted is 128 and the number of SIGINT.
	ExitInterrupted = 130
)

// CodeError is an error with an exit code of its own.
type CodeError struct {
	// Code is the exit code.
	Code int
	// Err is what to say, or nil if everything was said.
	Err error
}

// Error returns what to say.
func (e *CodeError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns what to say.
func (e *CodeError) Unwrap() error { return e.Err }

// Refused returns an error with the exit code for refusals.
func Refused(err error) error { return &CodeError{Code: ExitRefused, Err: err} }

// UsageError is a command that was called in a wrong way.
type UsageError struct {
	// Message says what was wrong and what to do.
	Message string
}

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{Message: fmt.Sprintf(format, args...)}
}

// ExitCode returns the exit code for what a command returned.
func ExitCode(err error) int {
	var coded *CodeError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.Code
	default:
		return ExitError
	}
}
