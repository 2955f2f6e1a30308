// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package formal holds the Promela model of FencedLease and the tests that check it with SPIN: the promise holds in every
// state of the model, and with each guard taken out SPIN finds a history that breaks it. See README.md.
package formal
