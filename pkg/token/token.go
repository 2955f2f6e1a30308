// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package token parses, formats and compares fencing tokens.
//
// A token is the text a writer presents with each write to a guarded object:
//
//	<generation>[.<term>][/<operation>]
//
// for example 48215, 48215.k3v9x2ab or 48215.k3v9x2ab/17. The generation orders the holders of a FencedLease, the term
// tells two histories apart that reached the same generation, and the operation makes each write of a term different
// from the one before. The package needs the standard library only.
package token

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxGeneration is the largest generation that a FencedLease can reach: 18 decimal digits, which every int64 and
	// every CEL int holds.
	MaxGeneration int64 = 999_999_999_999_999_999

	// MaxPlausibleGeneration is the largest generation that a real history can have produced. Larger ones are well
	// formed but forged or corrupted, and never raise the floor of a FencedLease.
	MaxPlausibleGeneration int64 = 1_000_000_000_000_000

	// TermLength is the number of characters of a term.
	TermLength = 8

	// MaxOperationLength is the largest number of characters of an operation.
	MaxOperationLength = 128

	// MaxLength is the length of the longest well-formed token.
	MaxLength = maxDigits + 1 + TermLength + 1 + MaxOperationLength

	// OperationDelete is the operation of a delete intent: an object whose stored mark carries it with the current
	// generation may be deleted by a request that cannot carry a token itself.
	OperationDelete = "delete"

	// NoncePrefix begins an operation that only tells writes apart. It names no business operation: it is not recorded on
	// the object and never looked up.
	NoncePrefix = "_"

	maxDigits = 18
)

// ErrMalformed is wrapped by every error that Parse returns.
var ErrMalformed = errors.New("malformed fencing token")

// Token is a parsed fencing token. The zero value is not a valid token: generations start at 1.
type Token struct {
	// Generation is the generation of the FencedLease that the token was issued under, from 1 to MaxGeneration.
	Generation int64
	// Term is the id of the holder's possession: eight characters of a-z and 0-9, or empty where the token names none.
	Term string
	// Operation tells the writes of one term apart, or is empty.
	Operation string
}

// Parse reads a token from its text form. It accepts exactly what String writes: no space, no sign, no leading zero.
// Every error wraps ErrMalformed and says which part is wrong.
func Parse(text string) (Token, error) {
	if text == "" {
		return Token{}, malformed(text, "it is empty")
	}
	if len(text) > MaxLength {
		return Token{}, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrMalformed, len(text), MaxLength)
	}
	head, operation, hasOperation := strings.Cut(text, "/")
	digits, term, hasTerm := strings.Cut(head, ".")

	generation, problem := parseGeneration(digits)
	if problem == "" && hasTerm {
		problem = checkTerm(term)
	}
	if problem == "" && hasOperation {
		problem = checkOperation(operation)
	}
	if problem != "" {
		return Token{}, malformed(text, problem)
	}
	return Token{Generation: generation, Term: term, Operation: operation}, nil
}

// New returns the token of a generation and a term without an operation. It refuses what Parse would refuse.
func New(generation int64, term string) (Token, error) {
	t := Token{Generation: generation, Term: term}
	if generation < 1 || generation > MaxGeneration {
		return Token{}, fmt.Errorf("%w: generation %d is outside 1 to %d", ErrMalformed, generation, MaxGeneration)
	}
	if term != "" {
		if problem := checkTerm(term); problem != "" {
			return Token{}, malformed(t.String(), problem)
		}
	}
	return t, nil
}

// WithOperation returns the token with another operation. It refuses an operation that Parse would refuse; the empty
// operation is allowed and removes the one that is there.
func (t Token) WithOperation(operation string) (Token, error) {
	if operation != "" && t.Generation == 0 {
		return Token{}, fmt.Errorf("%w: the zero token can have no operation", ErrMalformed)
	}
	t.Operation = operation
	if operation != "" {
		if problem := checkOperation(operation); problem != "" {
			return Token{}, malformed(t.String(), problem)
		}
	}
	return t, nil
}

// String returns the text form that Parse reads.
func (t Token) String() string {
	s := strconv.FormatInt(t.Generation, 10)
	if t.Term != "" {
		s += "." + t.Term
	}
	if t.Operation != "" {
		s += "/" + t.Operation
	}
	return s
}

// Possession returns the token without its operation: what all writes of one term share.
func (t Token) Possession() Token {
	t.Operation = ""
	return t
}

// Business reports whether the token's operation is a business operation: one that the object records, so that no other
// write can repeat it. The empty operation, those that begin with NoncePrefix and the delete intent are not.
func (t Token) Business() bool { return IsBusinessOperation(t.Operation) }

// IsBusinessOperation reports whether an operation that Parse accepts is recorded on the object that it is applied to.
func IsBusinessOperation(operation string) bool {
	return operation != "" && operation != OperationDelete && !strings.HasPrefix(operation, NoncePrefix)
}

// CheckOperation returns an error that says what keeps a text from being the operation of a token. It wraps ErrMalformed.
func CheckOperation(text string) error {
	if problem := checkOperation(text); problem != "" {
		return fmt.Errorf("%w: %s", ErrMalformed, problem)
	}
	return nil
}

// IsZero reports whether t is the zero value, which stands for no token.
func (t Token) IsZero() bool { return t == Token{} }

// Compare orders tokens by generation alone: -1 if a is older than b, 0 if both have the same generation, +1 if a is
// newer. Terms and operations have no order.
func Compare(a, b Token) int { return cmp.Compare(a.Generation, b.Generation) }

// Plausible reports whether a real history can have produced the token's generation.
func (t Token) Plausible() bool { return t.Generation <= MaxPlausibleGeneration }

func parseGeneration(digits string) (generation int64, problem string) {
	switch {
	case digits == "":
		return 0, "the generation is missing"
	case strings.TrimLeft(digits, "0123456789") != "":
		return 0, "the generation must be decimal digits only"
	case len(digits) > maxDigits:
		return 0, fmt.Sprintf("the generation has %d digits, at most %d are allowed", len(digits), maxDigits)
	case digits[0] == '0':
		return 0, "the generation must not be zero or start with a zero"
	}
	// Eighteen digits always fit into an int64.
	for _, d := range []byte(digits) {
		generation = generation*10 + int64(d-'0')
	}
	return generation, ""
}

func checkTerm(term string) (problem string) {
	// The characters first: where all are ASCII, bytes are characters.
	for _, c := range []byte(term) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "the term may hold a-z and 0-9 only"
		}
	}
	if len(term) != TermLength {
		return fmt.Sprintf("the term has %d characters, it must have %d", len(term), TermLength)
	}
	return ""
}

func checkOperation(operation string) (problem string) {
	if operation == "" {
		return "the operation after the slash is empty"
	}
	for _, c := range []byte(operation) {
		if !isOperationByte(c) {
			return "the operation may hold letters, digits and the characters - _ . : only"
		}
	}
	if len(operation) > MaxOperationLength {
		return fmt.Sprintf("the operation has %d characters, at most %d are allowed", len(operation), MaxOperationLength)
	}
	return ""
}

func isOperationByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	case c == '-', c == '_', c == '.', c == ':':
		return true
	default:
		return false
	}
}

// malformed names the text, unless it is too long to be repeated.
func malformed(text, problem string) error {
	if len(text) > MaxLength {
		return fmt.Errorf("%w: %s", ErrMalformed, problem)
	}
	return fmt.Errorf("%w %q: %s", ErrMalformed, text, problem)
}
