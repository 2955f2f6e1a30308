// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fenced lets a process present the token of one possession of a FencedLease with its writes.
//
// There are two ways. Wrap turns a rest.Config into one whose clients carry the token with the request, whatever the verb
// and the kind of client: by impersonating the caller's own user with one extra key. It needs the rights that
// ServiceAccountRules or UserRules list. Client turns a client of controller-runtime into one that writes the token into an annotation of the objects
// that the lease guards, and needs no rights beyond those of its writes (a delete needs patch as well). An object that was
// given to either must not pass through the other: a token in the annotation and another one in the request are refused.
//
// Both are bound to the possession and not to the process: once it has ended, writes are refused before they leave, also
// while the same process holds the lease again. A write that had left before is refused by the API server.
//
// IsFenced and Cause tell a refusal by the fence from other errors.
package fenced
