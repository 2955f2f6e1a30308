// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

func sealing(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal }

// beginSealing begins with a lease that hands over by seal, and an object of A's.
func (b *bench) beginSealing(t env.T) (*scene, *unstructured.Unstructured, error) {
	s, err := b.begin(t, sealing)
	if err != nil {
		return nil, nil, err
	}
	o, err := s.create(t.Context())
	return s, o, err
}

// writeStatus writes an object's status under a holder's token, which the request carries. No policy judges it.
func (s *scene) writeStatus(ctx context.Context, holder pause.Holder, o *unstructured.Unstructured, phase string) error {
	c, err := s.carrying(s.Token(holder))
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, bare(o), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)))
}

// awaitFastPath waits until the webhook admits A's writes by its copy of the sealed term.
func (s *scene) awaitFastPath(ctx context.Context, o *unstructured.Unstructured) error {
	writes := 0
	return until(ctx, func(ctx context.Context) error {
		writes++
		if err := s.writeStatus(ctx, pause.A, o, fmt.Sprint(writes)); err != nil {
			return err
		}
		if verdicts := s.judged.LastVerdicts(s.namespace, o.GetName()); !strings.HasSuffix(verdicts, "=SealedTerm") {
			return errors.New("the write was not admitted by the copy: " + verdicts)
		}
		return nil
	})
}

// sealByHand seals B's term as another replica's controller does: it stamps the objects, and says that it has.
func (s *scene) sealByHand(ctx context.Context, objects ...*unstructured.Unstructured) error {
	c, err := product.AsManager(ctx, s.cluster)
	if err != nil {
		return err
	}
	manager := client.FieldOwner(seal.FieldManager(s.Lease.Name, s.Token(pause.B)))
	for _, o := range objects {
		if err := c.Patch(ctx, bare(o), client.RawPatch(types.MergePatchType, []byte("{}")), manager); err != nil {
			return fmt.Errorf("stamp: %w", err)
		}
	}
	status := &s.Lease.Status
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"generation": status.Generation, "term": status.Term, "sealedGeneration": status.Generation,
	}})
	if err != nil {
		return err
	}
	return s.admin.Status().Patch(ctx, s.Lease.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// staleSealedTerm lets B take over and seal while the webhook hears nothing, and A writes afterwards.
func staleSealedTerm(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, o, err := b.beginSealing(t)
	if err != nil {
		return nil, err
	}
	if err := s.awaitFastPath(ctx, o); err != nil {
		return nil, err
	}
	b.proxy.freeze()
	defer b.proxy.thaw()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	if err := s.sealByHand(ctx, o); err != nil {
		return nil, err
	}
	return unless("a status after the seal", s.writeStatus(ctx, pause.A, o, "late"), pause.StaleToken), nil
}

// lazyAfterSeal lets A hold a lazy term that began with a seal. The term that follows begins with none.
func lazyAfterSeal(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t, sealing)
	if err != nil {
		return nil, err
	}
	if err := s.admin.Patch(ctx, s.Lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"handover":"Lazy"}}`))); err != nil {
		return nil, err
	}
	if err := s.Acquire(ctx, pause.A); err != nil {
		return nil, err
	}
	if err := s.Seal(ctx); err != nil {
		return nil, err
	}
	o, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.awaitHeard(ctx); err != nil {
		return nil, err
	}
	b.proxy.freeze()
	defer b.proxy.thaw()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	return unless("a status after B took over", s.writeStatus(ctx, pause.A, o, "late"), pause.StaleToken), nil
}

// outOfTheSelector takes an object out of the guard, so that B's seal leaves it alone, and lets A put it back, late.
func outOfTheSelector(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t, sealing, func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}
	})
	if err != nil {
		return nil, err
	}
	o, err := s.create(ctx, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"guarded": "yes"}) })
	if err != nil {
		return nil, err
	}
	label := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"guarded":%s},"annotations":{%q:%q}}}`, value, s.Key(), s.Fresh(pause.A, false))
		return s.admin.Patch(ctx, bare(o), client.RawPatch(types.MergePatchType, patch))
	}
	if err := label("null"); err != nil {
		return nil, err
	}
	if err := s.awaitHeard(ctx); err != nil {
		return nil, err
	}
	b.proxy.freeze()
	defer b.proxy.thaw()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	if err := s.sealByHand(ctx); err != nil {
		return nil, err
	}
	return unless("a write that puts the object under the guard", label(`"yes"`), pause.StaleToken), nil
}

// unfinishedSeal keeps the first stamp of a seal on its way.
func unfinishedSeal(t env.T, b *bench) (wrong []string, err error) {
	ctx := t.Context()
	s, err := b.begin(t, sealing)
	if err != nil {
		return nil, err
	}
	for range 3 {
		if _, err := s.create(ctx); err != nil {
			return nil, err
		}
	}
	stamping := newHold()
	defer b.proxy.add(&rule{
		match: func(r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/namespaces/"+s.namespace+"/reports/")
		},
		request: stamping,
	})()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	sealed := make(chan error, 1)
	go func() { sealed <- s.Seal(ctx) }()
	select {
	case <-stamping.entered:
	case err := <-sealed:
		return nil, fmt.Errorf("the seal stamped nothing: %w", err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-sealed:
		if err != nil {
			return nil, err
		}
		return []string{"the term is sealed while an object waits for its stamp"}, nil
	case <-time.After(lookFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	stamping.release()
	return nil, <-sealed
}

// lookFor is for how long a check looks for something that must not happen.
const lookFor = 2 * time.Second

// sealBeforeGuards changes the guards while their registration does not get through, and lets B take over.
func sealBeforeGuards(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t, sealing, func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"reports"} })
	if err != nil {
		return nil, err
	}
	lift := b.proxy.add(storedNot())
	defer lift()
	if err := s.admin.Patch(ctx, s.Lease, client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"guards":[{"apiGroups":["`+env.GuardedGroup+`"],"resources":["reports/*"]}]}}`))); err != nil {
		return nil, err
	}
	if _, err := awaitProbed(ctx, s.admin, s.Lease); err != nil {
		return nil, err
	}
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	// The controller has looked at the new term when it says whether it is sealed.
	err = until(ctx, func(ctx context.Context) error {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.Lease), s.Lease); err != nil {
			return err
		}
		if held := meta.FindStatusCondition(s.Lease.Status.Conditions, v1alpha1.ConditionHeld); held == nil || !strings.HasSuffix(held.Message, fmt.Sprint(*s.Lease.Status.Generation)) {
			return errors.New("the manager has not heard of the term")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sealed := func() bool { return ptr.Deref(s.Lease.Status.SealedGeneration, 0) == *s.Lease.Status.Generation }
	deadline := time.Now().Add(lookFor)
	for ctx.Err() == nil && !sealed() && time.Now().Before(deadline) {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.Lease), s.Lease); err != nil {
			return nil, err
		}
	}
	if sealed() {
		return []string{"the term is sealed before the guards are in force"}, nil
	}
	lift()
	return nil, s.Seal(ctx)
}

// stampLookalike writes a spec as the manager's own user, in the way of its stamps.
func stampLookalike(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, o, err := b.beginSealing(t)
	if err != nil {
		return nil, err
	}
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	if err := s.Seal(ctx); err != nil {
		return nil, err
	}
	c, err := product.AsManager(ctx, b.cluster)
	if err != nil {
		return nil, err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"second"}}`))
	err = c.Patch(ctx, bare(o), patch, client.FieldOwner(seal.FieldManager(s.Lease.Name, s.Token(pause.B))))
	return unless("a spec in the way of a stamp", err, pause.MissingToken), nil
}
