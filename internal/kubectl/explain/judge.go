// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// explain answers for one object.
func (o *Options) explain(ctx context.Context, t target.Target) (*explanation, error) {
	e := &explanation{target: t, verb: o.Verb, carrier: send.Carrier(o.Carrier), now: o.Clock.Now()}
	var err error
	if e.user, err = cli.WhoAmI(ctx, o.client); err != nil {
		return nil, err
	}
	if e.stored, err = o.read(ctx, t); err != nil {
		return nil, err
	}
	if e.tokens, err = send.TokensFor(ctx, o.client, o.tokens, t, subresourceOf(o.Verb)); err != nil {
		return nil, err
	}
	if err := o.findLeases(ctx, e); err != nil {
		return nil, err
	}
	if o.Verb == verbNone {
		return e, o.judgeOffline(ctx, e)
	}
	return e, o.judgeByDryRun(ctx, e)
}

// read reads the object from the API server; nil if there is none.
func (o *Options) read(ctx context.Context, t target.Target) (*unstructured.Unstructured, error) {
	if t.Object.GetName() == "" {
		return nil, nil //nolint:nilnil // an object that is to be named by the API server is not there
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(t.Object.GroupVersionKind())
	err := o.reader.Get(ctx, client.ObjectKeyFromObject(t.Object), stored)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // not there is an answer
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", t, err)
	}
	return stored, nil
}

func subresourceOf(verb string) string {
	switch verb {
	case verbStatus, verbScale:
		return verb
	default:
		return ""
	}
}

// subresources are those that guards know, the main resource first.
var subresources = []string{"", send.SubresourceStatus, send.SubresourceScale}

// findLeases reads the leases and notes those that guard the object, in any of its subresources. Those who may not list
// leases still get the API server's answer to a dry run.
func (o *Options) findLeases(ctx context.Context, e *explanation) error {
	object := guarded.Object{
		Resource: e.target.Mapping.Resource.GroupResource(), Namespace: e.target.Object.GetNamespace(),
		Labels:          []labels.Set{e.target.Object.GetLabels()},
		NamespaceLabels: guarded.NamespaceLabels(o.client, e.target.Object.GetNamespace()),
	}
	if e.stored != nil {
		object.Labels = append(object.Labels, e.stored.GetLabels())
	}
	byLease := map[types.NamespacedName]*leaseView{}
	for _, subresource := range subresources {
		object.Subresource = subresource
		guarding, err := guarded.Leases(ctx, o.client, object)
		if apierrors.IsForbidden(err) {
			e.leasesProblem = "you may not list FencedLeases"
			return nil
		}
		if err != nil {
			return err
		}
		e.incomplete = guarding.Incomplete
		for _, found := range guarding.Found {
			view := byLease[cli.Key(found.Lease)]
			if view == nil {
				view = &leaseView{lease: found.Lease, guards: map[string][]int{}}
				byLease[cli.Key(found.Lease)] = view
				e.leases = append(e.leases, view)
			}
			view.guards[subresource] = found.Guards
		}
	}
	return nil
}

// judgeByDryRun lets the API server try the write.
func (o *Options) judgeByDryRun(ctx context.Context, e *explanation) error {
	w, err := o.writeOf(e.target, e.stored)
	if err != nil {
		return err
	}
	c, err := send.NewClient(o.config, o.mapper, e.target.Mapping.Resource.GroupResource(), e.carrier, e.tokens)
	if err != nil {
		return err
	}
	answer, err := w.Send(ctx, c)
	if err != nil {
		e.verdict, err = verdictOfAnswer(err)
		if err != nil {
			return err
		}
		return nil
	}
	e.verdict = verdict{}
	for _, view := range e.leases {
		if view.guards[w.Subresource] == nil {
			continue
		}
		judged := write{operation: operationOf(w, e.stored), subresource: w.Subresource, old: e.stored}
		if w.Verb != send.Delete {
			judged.next = answer
		}
		if w.Subresource != "" {
			judged.next = e.stored // the answer to a status shows the stored annotations, that to a scale none
		}
		v, err := o.decide(ctx, e, view, judged)
		if err != nil {
			return err
		}
		view.verdict = &v
	}
	return nil
}

func operationOf(w send.Write, stored *unstructured.Unstructured) fence.Operation {
	switch {
	case w.Verb == send.Delete:
		return fence.Delete
	case w.Verb == send.Create || w.Verb == send.Apply && stored == nil:
		return fence.Create
	default:
		return fence.Update
	}
}

// judgeOffline judges what a person can do to the object by the object and the leases as they were read.
func (o *Options) judgeOffline(ctx context.Context, e *explanation) error {
	if e.leasesProblem != "" {
		return fmt.Errorf("judge without a write: %s: ask for get and list on fencedleases, or add --verb to let the API server judge a write", e.leasesProblem)
	}
	for _, view := range e.leases {
		for _, w := range possibleWrites(e, view) {
			v, err := o.decide(ctx, e, view, w)
			if err != nil {
				return err
			}
			view.rows = append(view.rows, row{write: w, verdict: v})
			if view.verdict == nil {
				view.verdict = &v
			}
		}
		if view.verdict != nil && !view.verdict.Admits() && !e.verdict.refused {
			e.verdict = verdict{
				refused: true, by: "the fence of FencedLease " + view.verdict.Lease.String(),
				reason: string(view.verdict.Reason), message: view.verdict.Message, fenced: true,
			}
		}
	}
	return nil
}

// possibleWrites are a change of each guarded part of the object, and its deletion.
func possibleWrites(e *explanation, view *leaseView) []write {
	var writes []write
	main := view.guards[""] != nil
	if e.stored == nil {
		if main {
			writes = append(writes, write{operation: fence.Create, next: e.target.Object})
		}
		return writes
	}
	for _, subresource := range subresources {
		if view.guards[subresource] != nil {
			writes = append(writes, write{operation: fence.Update, subresource: subresource, old: e.stored, next: e.stored})
		}
	}
	if main {
		writes = append(writes, write{operation: fence.Delete, old: e.stored})
	}
	return writes
}

// write is what package fence is asked about.
type write struct {
	operation   fence.Operation
	subresource string
	old, next   *unstructured.Unstructured
}

// decide asks package fence, with the lease as read from the API server after the command began.
func (o *Options) decide(ctx context.Context, e *explanation, view *leaseView, w write) (fence.Verdict, error) {
	writer := writerOf(e.user)
	key := v1alpha1.TokenKey(view.lease.Name)
	presented, has := e.tokens[tokenOf(e.tokens, view.lease)]
	judged := fence.Write{
		Operation: w.operation, Subresource: w.subresource, Old: objectOf(w.old), New: objectOf(w.next),
		Writer: writer, Change: fence.ChangeOther, System: fence.DefaultSystemWriters(),
	}
	if has && (e.carrier == send.CarrierRequest || w.operation == fence.Delete) {
		// A delete by annotation is preceded by a write that states the intent; it is judged as if it carried the token.
		writer.Extra[key] = []string{presented.String()}
	}
	if has && judged.New != nil && w.subresource != send.SubresourceScale {
		text := presented.String()
		if e.carrier == send.CarrierAnnotation && presented.Operation == "" {
			// Another value than the stored one, as every write has it. It names nothing that the object may record.
			text += "/" + token.NoncePrefix + "explain"
		}
		if e.carrier == send.CarrierAnnotation || w.subresource == "" {
			judged.New.Annotations[key] = text // by the writer, or by the policy that stamps
		}
	}
	lease := fence.LeaseOf(view.lease)
	if stamp, needed := fence.StampFor(judged, lease); needed {
		judged.New.Annotations[key] = stamp.String() // by the webhook that stamps for a term credential
	}
	if reason := fence.OverrideReason(judged, view.lease.Name); reason != "" {
		permitted, err := o.mayBypass(ctx, view.lease)
		if err != nil {
			return fence.Verdict{}, err
		}
		judged.Override = fence.Override{Reason: reason, Permitted: permitted}
	}
	var guards []v1alpha1.Guard
	for _, i := range view.guards[w.subresource] {
		guards = append(guards, view.lease.Spec.Guards[i])
	}
	return fence.Decide(judged, fence.View{
		Lease: lease, Origin: fence.Linearizable, MustPresent: fence.MustPresent(guards, view.lease.Namespace, writer),
	}), nil
}

// tokenOf returns under which key the token of a lease was given: by its own namespace, or by that of the object.
func tokenOf(tokens map[types.NamespacedName]token.Token, lease *v1alpha1.FencedLease) types.NamespacedName {
	for key := range tokens {
		if key.Name == lease.Name {
			return key
		}
	}
	return cli.Key(lease)
}

func writerOf(user authenticationv1.UserInfo) fence.Writer {
	w := fence.Writer{Username: user.Username, Groups: user.Groups, Extra: map[string][]string{}}
	for key, values := range user.Extra {
		w.Extra[key] = values
	}
	return w
}

func objectOf(u *unstructured.Unstructured) *fence.Object {
	if u == nil {
		return nil
	}
	annotations := maps.Clone(u.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &fence.Object{Annotations: annotations, Terminating: u.GetDeletionTimestamp() != nil, Finalizers: len(u.GetFinalizers())}
}

// mayBypass asks the API server whether the user may pass the fence of a lease without a token.
func (o *Options) mayBypass(ctx context.Context, lease *v1alpha1.FencedLease) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: v1alpha1.VerbBypass, Group: v1alpha1.GroupName, Resource: v1alpha1.Resource.Resource,
			Namespace: lease.Namespace, Name: lease.Name,
		},
	}}
	if err := o.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether you may bypass FencedLease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return review.Status.Allowed, nil
}
