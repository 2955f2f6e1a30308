// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package postgres runs a real PostgreSQL for tests: a server of its own in a temporary folder, by an unprivileged user, that
// is reached by a unix socket only and is gone afterwards.
//
// It takes the newest server that is installed where Debian puts it, or that of the folder in FENCEDLEASE_POSTGRES_BIN, and
// fails with what to install if there is none. On a developer's machine FENCEDLEASE_SKIP_POSTGRES=1 skips the tests that need
// one; where CI is set it does not.
//
// A Proxy stands between a client and the server. It knows the protocol, so that a test can stop a client at any one of its
// messages, and lose the answer to one.
package postgres
