// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands of the plugin share: clients, exit codes, tokens, and how a lease is read and told of.
//
// A command is a struct of options with Complete, Validate and Run. It gets everything it needs from a Factory: streams, a
// clock and the flags that every kubectl command has. Data goes to standard output, everything said about it to standard
// error.
package cli
