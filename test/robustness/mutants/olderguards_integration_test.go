// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// olderGuards registers new guards as another replica's controller does, while this replica hears nothing of leases, and writes
// to what they guard without a token. Nobody may be admitted by guards that were before.
func olderGuards(t env.T, b *bench) (wrong []string, err error) {
	ctx := t.Context()
	s, err := b.begin(t, func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil })
	if err != nil {
		return nil, err
	}
	o, err := s.create(ctx, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
	if err != nil {
		return nil, err
	}
	// What the manager that has heard nothing would put back is not stored.
	lift := b.proxy.add(storedNot())
	defer lift()
	b.proxy.freeze()
	defer b.proxy.thaw()
	if err := s.admin.Patch(ctx, s.Lease, client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"guards":[{"apiGroups":["`+env.GuardedGroup+`"],"resources":["reports/*"]}]}}`))); err != nil {
		return nil, err
	}
	write := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"second"}}`))
	// The API server is known to have the entry when it calls where nobody listens, and to have the right one when it no longer does.
	nobody := "https://" + net.JoinHostPort("127.0.0.1", "1")
	for _, at := range []string{nobody, ""} {
		if err := s.registerFor(t, at); err != nil {
			return nil, err
		}
		err = until(ctx, func(ctx context.Context) error {
			err := s.admin.Patch(ctx, bare(o), write, client.DryRunAll)
			if calls := err != nil && strings.Contains(err.Error(), nobody); calls != (at == nobody) {
				return errors.Join(fmt.Errorf("the API server does not call %q", at), err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	switch err := s.admin.Patch(ctx, bare(o), write); {
	case err == nil:
		return []string{"a write without a token is admitted by guards from before the registration"}, nil
	case !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err):
		return nil, fmt.Errorf("a write that cannot be judged: %w", err)
	}
	b.proxy.thaw()
	return unless("a write once the guards are heard of", s.admin.Patch(ctx, bare(o), write), "MissingToken"), nil
}

// registerFor puts an entry for the guards of the lease, as it is stored, into the webhook's registration. It calls the webhook,
// or another place if one is given.
func (s *scene) registerFor(t env.T, at string) error {
	ctx := t.Context()
	c, err := product.AsManager(ctx, s.cluster)
	if err != nil {
		return err
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := s.admin.Get(ctx, client.ObjectKey{Name: "fencedlease-guards"}, configuration); err != nil {
		return err
	}
	entry := *configuration.Webhooks[0].DeepCopy()
	base, _, found := strings.Cut(*entry.ClientConfig.URL, "/fence/")
	if !found {
		return fmt.Errorf("the registration calls %s", *entry.ClientConfig.URL)
	}
	url := cmp.Or(at, base) + "/fence/" + s.Lease.ResourceVersion
	const name = "by-hand.guards.fencedlease.io"
	entry.Name, entry.ClientConfig.URL = name, &url
	entry.MatchConditions, entry.ObjectSelector = nil, &metav1.LabelSelector{}
	entry.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}}
	all := admissionregistrationv1.NamespacedScope
	entry.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports"}, Scope: &all},
	}}
	configuration.Webhooks = slices.DeleteFunc(configuration.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
	configuration.Webhooks = append(configuration.Webhooks, entry)
	return c.Update(ctx, configuration)
}
