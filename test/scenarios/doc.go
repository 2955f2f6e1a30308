// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenarios plays stories of handovers from scripts, against the pure decision and against the product on a real
// API server. Both must end as the script says.
//
// A script is a text file. A line that begins at the margin is a command, or a comment (#); the indented lines below it are
// what came of it, which `go test ./test/scenarios -update` writes anew. Terms are named T1, T2, … in the order of their
// acquisition, whatever their generations are.
//
//	lease <name> [handover=Seal] [enforcement=Audit] [lateCreates=Delete]   creates a FencedLease, or changes its spec
//	delete-lease <name>
//	acquire <holder> [lease=<name>]         returns when the term may write
//	release <holder> [lease=<name>]         ends the holder's last term, as the holder knows it
//	create|write|replace|strip|intend|status|scale|delete|finalize <writer> <object> [<value>] [<setting>...]
//	pause <name> <write>                    keeps a write between its check and its commit
//	resume <name>                           lets it go on
//	settle <object>                         waits until a late create has been dealt with
//
// A write presents the last token of its writer by an annotation, with an operation of its own. Settings change this:
// by=request|nothing, as=<term>|<term>~|<term>+<n> (the same generation under another term, a generation n above),
// lease=<name>[,<name>], reason=<text> (break-glass), finalizer (of a create).
package scenarios
