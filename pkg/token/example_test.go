// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"errors"
	"fmt"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// A holder takes the token from the lease's status, puts another operation on each write and presents the text.
func Example() {
	held, err := token.Parse("48215.k3v9x2ab")
	if err != nil {
		fmt.Println(err)
		return
	}
	write, err := held.WithOperation("17")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(write)

	mark, err := token.Parse("48216.m1n2b3v4/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stale:", token.Compare(write, mark) < 0)
	// Output:
	// 48215.k3v9x2ab/17
	// stale: true
}

func ExampleParse_malformed() {
	_, err := token.Parse("048215.k3v9x2ab")
	fmt.Println(err)
	fmt.Println(errors.Is(err, token.ErrMalformed))
	// Output:
	// malformed fencing token "048215.k3v9x2ab": the generation must not be zero or start with a zero
	// true
}
