// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/fencedlease/fencedlease/internal/fence"
)

func BenchmarkDecide(b *testing.B) {
	const markB, nowA, nowB = "34.bbbbbbbb/1", "33.aaaaaaaa/2", "34.bbbbbbbb/2"
	for _, bc := range []named[row]{
		{"current by annotation", row{update(marked(markB), marked(nowB)), fresh(held()), allow(fence.CurrentToken)}},
		{"current by request", row{update(marked(markB), marked(nowB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)}},
		{"current on the cached lease", row{update(marked(markB), marked(nowB)), cached(held()), needsRead}},
		{"not a subject", row{update(marked(markB), marked(markB)), freshForOthers(held()), allow(fence.NotSubject)}},
		{"system writer", row{remove(marked(markB), by(collector, fence.ChangeOther)), cached(held()), allow(fence.SystemWriter)}},
		{"stale", row{update(marked(markB), marked(nowA)), cached(held()), deny(fence.StaleToken)}},
		{"missing", row{update(marked(markB), marked(markB)), fresh(held()), deny(fence.MissingToken)}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			if got := essenceOf(fence.Decide(bc.value.write, bc.value.view)); got != bc.value.want {
				b.Fatalf("verdict %+v, want %+v", got, bc.value.want)
			}
			b.ReportAllocs()
			for b.Loop() {
				fence.Decide(bc.value.write, bc.value.view)
			}
		})
	}
}
