// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// holder returns who runs the controllers.
func (w *world) holder(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: product.Namespace, Name: "fencedlease-manager.fencedlease.io"}, lease))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// probed returns how often a replica's controllers have seen the registration in force.
func probed(t *testing.T, m *product.Manager) float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() != "fencedlease_registration_probes_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetValue() == "InForce" {
					return metric.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatal("there is no count of probes")
	return 0
}

// awaitControl waits until a replica runs the controllers and they have done all that a start brings.
func awaitControl(t *testing.T, m *product.Manager) {
	t.Helper()
	eventually(t, "control", func() error {
		if probed(t, m) == 0 {
			return errors.New("this replica has not seen the registration in force")
		}
		return nil
	})
}

// replicaBehind makes a manager one of several replicas behind an address.
func replicaBehind(b *env.Balancer) func(*manager.Options) {
	return func(o *manager.Options) {
		o.LeaderElect, o.WebhookURL = true, b.URL
		b.Add(o.WebhookPort)
	}
}

// startBefore starts one more replica, which gets reviews when it is ready, as by a Service.
func (w *world) startBefore(t *testing.T, b *env.Balancer, mutation func(*manager.Options)) *product.Manager {
	t.Helper()
	m := w.start(t, mutation, func(o *manager.Options) { o.LeaderElect, o.WebhookURL = true, b.URL })
	b.Add(m.Port)
	return m
}

func (w *world) testReplicas(t *testing.T) {
	b := w.cluster.StartBalancer(t)
	first := w.start(t, replicaBehind(b))
	g := w.guard(t)
	second := w.start(t, replicaBehind(b))
	c := w.httpClient(t)
	for _, m := range []*product.Manager{first, second} {
		g.mustJudge(t, c, m.Port)
	}
	leader := w.holder(t)
	if leader == "" || probed(t, first) == 0 || probed(t, second) != 0 {
		t.Errorf("want controllers on the first alone; holder %q, probes %v and %v", leader, probed(t, first), probed(t, second))
	}
	before := w.registration(t)
	mustKeep := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, w.registration(t)); diff != "" {
			t.Errorf("%s: the registration was written anew (-want +got):\n%s", when, diff)
		}
	}

	b.Remove(first.Port)
	must(t, first.Stop())
	mustKeep("after the first has ended")
	awaitControl(t, second)
	if next := w.holder(t); next == "" || next == leader {
		t.Errorf("want another holder than %q, got %q", leader, next)
	}
	mustKeep("after the second took over")
	must(t, g.write(t.Context(), "second"))

	must(t, second.Stop())
	b.Remove(second.Port)
	if holder := w.holder(t); holder != "" {
		t.Errorf("want the last replica to release the Lease, it is held by %q", holder)
	}
	mustKeep("scaled to zero")
	third := w.start(t, replicaBehind(b))
	awaitControl(t, third)
	mustKeep("scaled up again")
	eventually(t, "a write", func() error { return g.write(t.Context(), "third") })
}

// testReplacement replaces one replica by the next twice, as a roll-out does: the new one is ready before the old one is
// told to end, and the Service drops the old one some time after it has turned unready.
func (w *world) testReplacement(t *testing.T) {
	b := w.cluster.StartBalancer(t)
	drains := func(o *manager.Options) { o.DrainDelay = 5 * time.Second }
	old := w.start(t, drains, replicaBehind(b))
	writing := w.guard(t).keepWriting(t, 8)
	writing.more(t, 20)
	for range 2 {
		next := w.startBefore(t, b, drains)
		ended := make(chan error, 1)
		go func() { ended <- old.Stop() }()
		eventually(t, "unready", func() error {
			if old.Ready(t.Context()) == nil {
				return errors.New("the old replica is ready")
			}
			return nil
		})
		// The Service hears of it late, and sends new connections to the old replica until then.
		writing.more(t, 20)
		b.Remove(old.Port)
		if err := <-ended; err != nil {
			t.Errorf("run manager: %v", err)
		}
		awaitControl(t, next)
		writing.more(t, 20)
		old = next
	}
	writing.mustNotHaveFailed(t)
}

// testLostElection takes the election from a replica, as its own pause does: it ends, as its controllers must, but the Service
// sends reviews to it until it has seen that it is unready.
func (w *world) testLostElection(t *testing.T) {
	b := w.cluster.StartBalancer(t)
	drains := func(o *manager.Options) { o.DrainDelay = 5 * time.Second }
	first, err := product.StartManager(t.Context(), w.cluster, logOf(t), drains, replicaBehind(b))
	must(t, err)
	defer func() { _ = first.Stop() }()
	writing := w.guard(t).keepWriting(t, 8)
	second := w.startBefore(t, b, drains)
	writing.more(t, 20)

	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = product.Namespace, "fencedlease-manager.fencedlease.io"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"somebody"}}`))
	must(t, w.admin.Patch(t.Context(), lease, patch))
	eventually(t, "unready", func() error {
		if first.Ready(t.Context()) == nil {
			return errors.New("the first replica is ready")
		}
		return nil
	})
	// The Service hears of it late.
	writing.more(t, 20)
	b.Remove(first.Port)
	if err := first.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("want an end by the lost election, got %v", err)
	}
	awaitControl(t, second)
	writing.more(t, 20)
	writing.mustNotHaveFailed(t)
}
