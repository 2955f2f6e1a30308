// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package outage_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// A restore without raised revisions brings a lease back that was deleted. The store is soon as far again as it was, and then
// watches go on from the revision that they know, and hear nothing of what is different before it.
func TestALeaseIsBroughtBackByARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, env.Options{})
	m := w.start()
	w.hold("a")
	other := env.NewLease(w.cluster.CreateNamespace(t), "brought-back")
	must(t, product.CreateLease(t.Context(), w.admin, other))
	w.eventually("acquire", func() error { return env.Acquire(t.Context(), w.admin, other, "a") })
	writes := 0
	unguarded := func() error {
		writes++
		return w.admin.Create(t.Context(), env.NewReport(other.Namespace, fmt.Sprint("report-", writes), "x"))
	}
	w.eventually("a write without a token is refused", func() error {
		if err := unguarded(); !fenced(err) {
			return fmt.Errorf("want a refusal, got %w", err)
		}
		return nil
	})
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	must(t, w.cluster.EtcdSnapshot(t.Context(), snapshot))

	must(t, w.admin.Delete(t.Context(), other))
	w.eventually("nothing guards any more", unguarded)
	must(t, w.cluster.RestoreSnapshot(t.Context(), snapshot, 0))
	w.eventually("the manager is ready again", func() error { return m.Ready(t.Context()) })
	w.eventually("a write without a token is refused again", func() error {
		err := unguarded()
		if err == nil {
			return errors.New("it was admitted")
		}
		if !fenced(err) {
			return err
		}
		return nil
	})
}
