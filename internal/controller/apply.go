// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager owns everything that the controller applies.
const FieldManager = client.FieldOwner("fencedlease-controller")

// wanted is an object of the registration together with how it is compared and applied.
type wanted struct {
	// kind is the object's kind; it labels a metric.
	kind string
	// object is the complete object, and live one of its type to read into.
	object, live client.Object
	// content returns the part of an object that must be equal.
	content func(client.Object) any
	// configuration is what object is turned into to be applied.
	configuration runtime.ApplyConfiguration
}

// wantedObjects lists the registration's objects in the order in which they are applied: the policies protect marks by
// themselves, and a policy without its binding does nothing.
func wantedObjects(r Registration) []wanted {
	return []wanted{
		{"ValidatingAdmissionPolicy", r.Marks, &admissionv1.ValidatingAdmissionPolicy{},
			contentOf(func(o *admissionv1.ValidatingAdmissionPolicy) any { return o.Spec }),
			applyv1.ValidatingAdmissionPolicy(r.Marks.Name)},
		{"ValidatingAdmissionPolicyBinding", r.MarksBinding, &admissionv1.ValidatingAdmissionPolicyBinding{},
			contentOf(func(o *admissionv1.ValidatingAdmissionPolicyBinding) any { return o.Spec }),
			applyv1.ValidatingAdmissionPolicyBinding(r.MarksBinding.Name)},
		{"MutatingAdmissionPolicy", r.Stamps, &admissionv1.MutatingAdmissionPolicy{},
			contentOf(func(o *admissionv1.MutatingAdmissionPolicy) any { return o.Spec }),
			applyv1.MutatingAdmissionPolicy(r.Stamps.Name)},
		{"MutatingAdmissionPolicyBinding", r.StampsBinding, &admissionv1.MutatingAdmissionPolicyBinding{},
			contentOf(func(o *admissionv1.MutatingAdmissionPolicyBinding) any { return o.Spec }),
			applyv1.MutatingAdmissionPolicyBinding(r.StampsBinding.Name)},
		{"MutatingWebhookConfiguration", r.Status, &admissionv1.MutatingWebhookConfiguration{},
			contentOf(func(o *admissionv1.MutatingWebhookConfiguration) any { return o.Webhooks }),
			applyv1.MutatingWebhookConfiguration(r.Status.Name)},
		{"ValidatingWebhookConfiguration", r.Guards, &admissionv1.ValidatingWebhookConfiguration{},
			contentOf(func(o *admissionv1.ValidatingWebhookConfiguration) any { return o.Webhooks }),
			applyv1.ValidatingWebhookConfiguration(r.Guards.Name)},
	}
}

// contentOf adapts a function of one type. An object of another type has no content.
func contentOf[T client.Object](content func(T) any) func(client.Object) any {
	return func(o client.Object) any {
		typed, ok := o.(T)
		if !ok {
			return nil
		}
		return content(typed)
	}
}

// equal reports whether a live object is what is wanted. Labels, annotations and owners of others do not matter.
func (w wanted) equal(live client.Object) bool {
	for key, value := range w.object.GetLabels() {
		if live.GetLabels()[key] != value {
			return false
		}
	}
	for key, value := range w.object.GetAnnotations() {
		if live.GetAnnotations()[key] != value {
			return false
		}
	}
	owner := w.object.GetOwnerReferences()[0]
	owned := false
	for _, o := range live.GetOwnerReferences() {
		owned = owned || o.UID == owner.UID
	}
	return owned && equality.Semantic.DeepEqual(w.content(w.object), w.content(live))
}

// change is what had to be done to make an object as it is wanted.
type change int

const (
	// unchanged: it was so already.
	unchanged change = iota
	// renewed: it was an earlier registration of ours, or had an earlier CA bundle.
	renewed
	// healed: it was absent, or somebody else had changed it.
	healed
)

// applyWhenDifferent makes one object as it is wanted. It is read from the API server each time, as a watched copy may be of
// a history that a restore of the store has undone: its watch goes on when the store is as far again, and never tells of what
// is different before that. before is the hash of the registration that was applied last.
func applyWhenDifferent(ctx context.Context, writer client.Client, live client.Reader, w wanted, before string) (change, error) {
	key := client.ObjectKeyFromObject(w.object)
	done := healed
	switch err := live.Get(ctx, key, w.live); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return unchanged, fmt.Errorf("get %s %s: %w", w.kind, key.Name, err)
	case w.equal(w.live):
		return unchanged, nil
	case before != "" && w.live.GetAnnotations()[ContentHashAnnotation] == before:
		done = renewed
	}
	if err := w.configure(); err != nil {
		return unchanged, err
	}
	applied := writer.Apply(ctx, w.configuration, FieldManager, client.ForceOwnership)
	if applied != nil && !apierrors.IsInvalid(applied) {
		return unchanged, fmt.Errorf("apply %s %s: %w", w.kind, key.Name, applied)
	}
	// Apply leaves alone what others own, and refuses as invalid what it leaves of an entry of which they own a part. That is
	// replaced.
	if err := live.Get(ctx, key, w.live); err != nil {
		return done, fmt.Errorf("get %s %s after applying it: %w", w.kind, key.Name, errors.Join(err, applied))
	}
	if !w.equal(w.live) {
		done = healed
		if err := w.replace(ctx, writer, live, applied != nil); err != nil {
			return done, errors.Join(err, applied)
		}
	}
	return done, w.disown(ctx, writer)
}

// replace makes the object what is wanted, conditioned on the version read, and reads it again. What Apply could not set, it
// owns afterwards, so that the next one can give it up.
func (w wanted) replace(ctx context.Context, writer client.Client, live client.Reader, again bool) error {
	key := client.ObjectKeyFromObject(w.object)
	w.object.SetResourceVersion(w.live.GetResourceVersion())
	if err := writer.Update(ctx, w.object, FieldManager); err != nil {
		return fmt.Errorf("replace %s %s: %w", w.kind, key.Name, err)
	}
	if again {
		if err := writer.Apply(ctx, w.configuration, FieldManager, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s after replacing it: %w", w.kind, key.Name, err)
		}
	}
	if err := live.Get(ctx, key, w.live); err != nil {
		return fmt.Errorf("get %s %s after replacing it: %w", w.kind, key.Name, err)
	}
	return nil
}

// disown takes the object, as it was read last, from everybody but the controller's Apply, which owns all of it then.
// Whatever else owned a part of an entry would keep that part when the entry is given up. The status is others'.
func (w wanted) disown(ctx context.Context, writer client.Client) error {
	owners := w.live.GetManagedFields()
	ours := slices.DeleteFunc(slices.Clone(owners), func(o metav1.ManagedFieldsEntry) bool {
		return o.Subresource == "" && (o.Manager != string(FieldManager) || o.Operation != metav1.ManagedFieldsOperationApply)
	})
	if len(ours) == len(owners) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": w.live.GetResourceVersion(), "managedFields": ours,
	}})
	if err != nil {
		return fmt.Errorf("encode the owners of %s %s: %w", w.kind, w.object.GetName(), err)
	}
	if err := writer.Patch(ctx, w.live, client.RawPatch(types.MergePatchType, patch), FieldManager); err != nil {
		return fmt.Errorf("set the owner of %s %s: %w", w.kind, w.object.GetName(), err)
	}
	return nil
}

// configure fills the apply configuration. Every field of the object is set on purpose, so it can be taken over as it is;
// the status is not ours.
func (w wanted) configure() error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.object)
	if err != nil {
		return fmt.Errorf("convert %s %s: %w", w.kind, w.object.GetName(), err)
	}
	delete(fields, "status")
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("convert %s %s: %w", w.kind, w.object.GetName(), err)
	}
	if err := json.Unmarshal(text, w.configuration); err != nil {
		return fmt.Errorf("convert %s %s: %w", w.kind, w.object.GetName(), err)
	}
	return nil
}

// registrationKinds are the kinds of the registration's objects.
func registrationKinds() []string {
	return []string{
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	}
}
