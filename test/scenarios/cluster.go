// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	patience     = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Cluster plays one story in a namespace of a cluster where the product runs.
type Cluster struct {
	cluster   *env.Environment
	namespace string
	admin     client.Client
	gap       *env.AdmissionGap
	// admitted counts what the webhook has let pass of an object's writes.
	admitted func(namespace, name string) int
}

var _ Backend = &Cluster{}

// NewCluster returns a backend for one story. The gap must hold Reports with their subresources, and admitted say how many
// writes to an object the webhook has let pass: API servers call both at the same time.
func NewCluster(cluster *env.Environment, namespace string, gap *env.AdmissionGap, admitted func(namespace, name string) int) (*Cluster, error) {
	admin, err := env.Client(cluster.Config())
	if err != nil {
		return nil, err
	}
	return &Cluster{cluster: cluster, namespace: namespace, admin: admin, gap: gap, admitted: admitted}, nil
}

// SetLease implements Backend.
func (c *Cluster) SetLease(ctx context.Context, l Lease) error {
	edit := func(lease *v1alpha1.FencedLease) {
		lease.Spec.Handover, lease.Spec.Enforcement, lease.Spec.LateCreates = l.Handover, l.Enforcement, l.LateCreates
	}
	lease := env.NewLease(c.namespace, l.Name, edit)
	err := product.CreateLease(ctx, c.admin, lease)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	err = until(ctx, func(ctx context.Context) error {
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		edit(lease)
		return c.admin.Update(ctx, lease)
	})
	if err != nil {
		return fmt.Errorf("update FencedLease: %w", err)
	}
	return product.AwaitCondition(ctx, c.admin, lease, v1alpha1.ConditionReady, "True")
}

// DeleteLease implements Backend.
func (c *Cluster) DeleteLease(ctx context.Context, name string) error {
	return c.admin.Delete(ctx, env.NewLease(c.namespace, name))
}

// Acquire implements Backend.
func (c *Cluster) Acquire(ctx context.Context, name, holder string) (token.Token, error) {
	lease := env.NewLease(c.namespace, name)
	err := until(ctx, func(ctx context.Context) error {
		// The controller may write the status in between.
		return env.Acquire(ctx, c.admin, lease, holder)
	})
	if err != nil {
		return token.Token{}, err
	}
	err = until(ctx, func(ctx context.Context) error {
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		if s := lease.Status; s.Seal == v1alpha1.SealRequired && ptr.Deref(s.SealedGeneration, 0) != *s.Generation {
			return fmt.Errorf("FencedLease %s is not sealed: %+v", name, s.Conditions)
		}
		return nil
	})
	if err != nil {
		return token.Token{}, err
	}
	return token.Parse(*lease.Status.Token)
}

// Release implements Backend.
func (c *Cluster) Release(ctx context.Context, name, holder string, t token.Token) (Outcome, error) {
	lease := env.NewLease(c.namespace, name)
	lease.Status.Generation, lease.Status.Term, lease.Status.HolderIdentity = &t.Generation, &t.Term, &holder
	err := env.Release(ctx, c.admin, lease)
	if apierrors.IsInvalid(err) {
		return refused("the term has ended"), nil
	}
	return outcomeOf(err)
}

// Get implements Backend.
func (c *Cluster) Get(ctx context.Context, name string) (*Object, error) {
	o := c.bare(name)
	// From the API server, linearizable.
	if err := c.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("get object: %w", err)
	}
	is := &Object{Terminating: o.GetDeletionTimestamp() != nil, Marks: map[string]string{}}
	is.Value, _, _ = unstructured.NestedString(o.Object, "spec", "value")
	is.Phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
	is.Replicas, _, _ = unstructured.NestedInt64(o.Object, "spec", "replicas")
	for key, value := range o.GetAnnotations() {
		if lease, is_ := strings.CutPrefix(key, v1alpha1.TokenPrefix); is_ {
			is.Marks[lease] = value
		}
	}
	return is, nil
}

// Settle implements Backend.
func (c *Cluster) Settle(ctx context.Context, name string) error {
	leases := &v1alpha1.FencedLeaseList{}
	if err := c.admin.List(ctx, leases, client.InNamespace(c.namespace)); err != nil {
		return fmt.Errorf("list FencedLeases: %w", err)
	}
	return until(ctx, func(ctx context.Context) error {
		o, err := c.Get(ctx, name)
		if err != nil || o == nil {
			return err
		}
		for i := range leases.Items {
			lease := &leases.Items[i]
			mark, err := token.Parse(o.Marks[lease.Name])
			if err != nil || mark.Generation < ptr.Deref(lease.Status.Generation, 0) || lease.Spec.LateCreates == v1alpha1.LateCreatesDelete {
				return fmt.Errorf("%s is still there with the mark %s", name, o.Marks[lease.Name])
			}
		}
		return nil
	})
}

// Do implements Backend.
func (c *Cluster) Do(ctx context.Context, w Write) (Outcome, error) {
	send, err := c.prepare(ctx, w)
	if err != nil {
		return "", err
	}
	return outcomeOf(send(ctx))
}

// Begin implements Backend.
func (c *Cluster) Begin(ctx context.Context, w Write) (Pending, error) {
	send, err := c.prepare(ctx, w)
	if err != nil {
		return nil, err
	}
	p := &pendingRequest{answered: make(chan struct{})}
	before := c.admitted(c.namespace, w.Object)
	p.hold = c.gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Namespace == c.namespace && r.Name == w.Object })
	go func() {
		defer close(p.answered)
		p.err = send(ctx)
	}()
	select {
	case <-p.hold.Entered():
	case <-p.answered:
		p.hold.Release()
		return nil, fmt.Errorf("the write does not come to its commit: %w", p.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = until(ctx, func(context.Context) error {
		if c.admitted(c.namespace, w.Object) == before {
			return errors.New("the webhook has not admitted the write")
		}
		return nil
	})
	return p, err
}

type pendingRequest struct {
	hold     *env.Hold
	answered chan struct{}
	err      error
}

// Finish implements Pending.
func (p *pendingRequest) Finish(ctx context.Context) (Outcome, error) {
	p.hold.Release()
	select {
	case <-p.answered:
		return outcomeOf(p.err)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// outcomeOf tells an answer. An error that says nothing about the write is returned.
func outcomeOf(err error) (Outcome, error) {
	refusal, fencedOff := fenced.Cause(err)
	switch {
	case err == nil:
		return OK, nil
	case fencedOff:
		return refused(string(refusal.Type)), nil
	case apierrors.IsConflict(err):
		return Conflict, nil
	case apierrors.IsAlreadyExists(err):
		return Exists, nil
	case apierrors.IsNotFound(err):
		return Missing, nil
	default:
		return "", err
	}
}

// prepare returns what sends a write. What the write is based on is read now.
func (c *Cluster) prepare(ctx context.Context, w Write) (send func(context.Context) error, err error) {
	as, err := c.client(w)
	if err != nil {
		return nil, err
	}
	o := c.bare(w.Object)
	switch w.Verb {
	case Create:
		o = env.NewReport(c.namespace, w.Object, w.Value)
		o.SetAnnotations(annotationsOf(w))
		if w.Finalizer {
			o.SetFinalizers([]string{"example.com/kept"})
		}
		return func(ctx context.Context) error { return as.Create(ctx, o) }, nil
	case Replace:
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return nil, fmt.Errorf("get what is to be replaced: %w", err)
		}
		annotations := o.GetAnnotations()
		for key, value := range annotationsOf(w) {
			annotations[key] = value
		}
		o.SetAnnotations(annotations)
		if err := unstructured.SetNestedField(o.Object, w.Value, "spec", "value"); err != nil {
			return nil, fmt.Errorf("set what is to be replaced: %w", err)
		}
		return func(ctx context.Context) error { return as.Update(ctx, o) }, nil
	case Delete:
		return func(ctx context.Context) error { return as.Delete(ctx, o) }, nil
	case Scale:
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":`+w.Value+`}}`))
		return func(ctx context.Context) error { return as.SubResource("scale").Patch(ctx, o, patch) }, nil
	case Update, Status, Strip, Intend, Finalize:
		patch, err := patchOf(w)
		if err != nil {
			return nil, err
		}
		if w.Verb == Status {
			return func(ctx context.Context) error { return as.Status().Patch(ctx, o, patch) }, nil
		}
		return func(ctx context.Context) error { return as.Patch(ctx, o, patch) }, nil
	default:
		return nil, fmt.Errorf("%w %s", errUnknownVerb, w.Verb)
	}
}

// annotationsOf are the annotations that a write sends itself.
func annotationsOf(w Write) map[string]string {
	annotations := map[string]string{}
	if w.By == ByAnnotation {
		for lease, text := range w.Tokens {
			annotations[v1alpha1.TokenKey(lease)] = text
		}
	}
	if w.Reason != "" {
		annotations[v1alpha1.OverrideKey(w.Lease)] = w.Reason
	}
	return annotations
}

// patchOf returns the merge patch of a write.
func patchOf(w Write) (client.Patch, error) {
	annotations := map[string]any{}
	for key, value := range annotationsOf(w) {
		annotations[key] = value
	}
	metadata := map[string]any{"annotations": annotations}
	content := map[string]any{"metadata": metadata}
	switch w.Verb {
	case Update:
		content["spec"] = map[string]any{"value": w.Value}
	case Status:
		content["status"] = map[string]any{"phase": w.Value}
	case Strip:
		annotations[v1alpha1.TokenKey(w.Lease)] = nil
	case Finalize:
		metadata["finalizers"] = nil
	case Create, Replace, Intend, Scale, Delete:
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return client.RawPatch(types.MergePatchType, body), nil
}

// client returns a client whose requests carry what a write presents by its request. All are a cluster administrator's,
// who may do everything: the fence must hold all the same.
func (c *Cluster) client(w Write) (client.Client, error) {
	extra := map[string][]string{}
	if w.By == ByRequest {
		for lease, text := range w.Tokens {
			extra[v1alpha1.TokenKey(lease)] = []string{text}
		}
	}
	if w.Reason != "" && w.Verb == Delete {
		extra[v1alpha1.OverrideKey(w.Lease)] = []string{w.Reason}
	}
	if len(extra) == 0 {
		return c.admin, nil
	}
	config := c.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "someone", Groups: []string{"system:masters"}, Extra: extra}
	return client.New(config, client.Options{Scheme: c.admin.Scheme(), Mapper: c.admin.RESTMapper()})
}

func (c *Cluster) bare(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	o.SetNamespace(c.namespace)
	o.SetName(name)
	return o
}

// until repeats an action until it succeeds.
func until(ctx context.Context, action func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		last = action(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
