// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Core plays stories against the pure decision. Around it is a small model of the API server: what a write does to an
// object, that its commit is conditioned on the state that was judged, and that the mark moves with it.
type Core struct {
	leases  map[string]*v1alpha1.FencedLease
	objects map[string]*stored
	// revision counts commits, as etcd does.
	revision int64
}

var _ Backend = &Core{}

// NewCore returns an empty one.
func NewCore() *Core {
	return &Core{leases: map[string]*v1alpha1.FencedLease{}, objects: map[string]*stored{}}
}

// stored is an object at one revision. It is replaced as a whole.
type stored struct {
	Object
	revision   int64
	finalizers int
}

func (o *stored) clone() *stored {
	c := *o
	c.Marks = maps.Clone(o.Marks)
	return &c
}

// SetLease implements Backend.
func (c *Core) SetLease(_ context.Context, l Lease) error {
	lease := c.leases[l.Name]
	if lease == nil {
		c.revision++
		lease = &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: "core"}}
		floor := c.revision
		for _, o := range c.objects {
			if mark, err := token.Parse(o.Marks[l.Name]); err == nil {
				floor = max(floor, mark.Generation)
			}
		}
		lease.Status = v1alpha1.FencedLeaseStatus{GenerationFloor: &floor, Seal: v1alpha1.SealNotRequired, Handover: v1alpha1.HandoverLazy}
		c.leases[l.Name] = lease
	}
	lease.Spec.Handover, lease.Spec.Enforcement, lease.Spec.LateCreates = l.Handover, l.Enforcement, l.LateCreates
	return nil
}

// DeleteLease implements Backend.
func (c *Core) DeleteLease(_ context.Context, name string) error {
	if c.leases[name] == nil {
		return fmt.Errorf("there is no lease %s", name)
	}
	delete(c.leases, name)
	return nil
}

// Acquire implements Backend.
func (c *Core) Acquire(_ context.Context, name, holder string) (token.Token, error) {
	lease := c.leases[name]
	if lease == nil {
		return token.Token{}, fmt.Errorf("there is no lease %s", name)
	}
	c.revision++
	patch, t, err := possession.Acquisition(lease, holder, fmt.Sprintf("term%04d", c.revision), time.Time{})
	if err != nil {
		return token.Token{}, err
	}
	status := &lease.Status
	status.Generation, status.Term, status.HolderIdentity = &patch.Status.Generation, &patch.Status.Term, &patch.Status.HolderIdentity
	status.Token, status.Handover, status.Seal = patch.Status.Token, *patch.Status.Handover, *patch.Status.Seal
	if t.Seal == v1alpha1.SealRequired {
		for object := range c.objects {
			c.stamp(lease, object)
		}
		status.SealedGeneration = status.Generation
	}
	return token.Parse(*status.Token)
}

// stamp moves the mark of an object to the lease's term, if it is not there.
func (c *Core) stamp(lease *v1alpha1.FencedLease, name string) {
	mark, _ := token.Parse(c.objects[name].Marks[lease.Name])
	if now, _ := token.Parse(*lease.Status.Token); mark.Possession() != now && mark.Generation <= now.Generation {
		next := c.objects[name].clone()
		next.Marks[lease.Name] = now.String()
		c.store(name, next)
	}
}

// store commits an object.
func (c *Core) store(name string, o *stored) {
	c.revision++
	o.revision = c.revision
	c.objects[name] = o
}

// Release implements Backend. The rules of the FencedLease refuse what names another term than the present one.
func (c *Core) Release(_ context.Context, name, _ string, t token.Token) (Outcome, error) {
	lease := c.leases[name]
	if lease == nil {
		return Missing, nil
	}
	if ptr.Deref(lease.Status.Generation, 0) != t.Generation || ptr.Deref(lease.Status.Term, "") != t.Term {
		return refused("the term has ended"), nil
	}
	lease.Status.HolderIdentity = ptr.To("")
	return OK, nil
}

// Get implements Backend.
func (c *Core) Get(_ context.Context, name string) (*Object, error) {
	if o := c.objects[name]; o != nil {
		return &o.Object, nil
	}
	return nil, nil //nolint:nilnil // there is none
}

// Settle implements Backend.
func (c *Core) Settle(_ context.Context, name string) error {
	for _, lease := range c.leases {
		o := c.objects[name]
		if o == nil || lease.Status.Seal != v1alpha1.SealRequired {
			continue
		}
		mark, err := token.Parse(o.Marks[lease.Name])
		late := err == nil && mark.Generation < *lease.Status.Generation
		c.stamp(lease, name)
		if late && lease.Spec.LateCreates == v1alpha1.LateCreatesDelete {
			delete(c.objects, name)
		}
	}
	return nil
}

// Do implements Backend.
func (c *Core) Do(ctx context.Context, w Write) (Outcome, error) {
	p := &pendingCore{core: c, write: w}
	if w.Verb == Replace {
		p.read = c.objects[w.Object]
	}
	return p.Finish(ctx)
}

// Begin implements Backend.
func (c *Core) Begin(_ context.Context, w Write) (Pending, error) {
	p := &pendingCore{core: c, write: w}
	if w.Verb == Replace {
		p.read = c.objects[w.Object]
	}
	outcome, next := p.judge()
	if outcome != OK {
		return nil, fmt.Errorf("the write does not come to its commit: %s", outcome)
	}
	p.judged, p.admitted, p.next = true, c.objects[w.Object], next
	return p, nil
}

// pendingCore is a write under way.
type pendingCore struct {
	core  *Core
	write Write
	// read is what a Replace sends back.
	read *stored
	// judged says that the write was admitted, for the state admitted, to become next.
	judged         bool
	admitted, next *stored
}

// Finish implements Pending. As the API server does, it commits if the state is the one that was judged, and judges anew
// otherwise.
func (p *pendingCore) Finish(context.Context) (Outcome, error) {
	name := p.write.Object
	if !p.judged || p.core.objects[name] != p.admitted {
		outcome, next := p.judge()
		if outcome != OK {
			return outcome, nil
		}
		p.next = next
	}
	if p.next == nil {
		delete(p.core.objects, name)
		return OK, nil
	}
	p.core.store(name, p.next)
	return OK, nil
}

var errUnknownVerb = errors.New("the core does not know the verb")

// judge judges the write for the present state, and returns the state that it leads to: nil if the object goes.
func (p *pendingCore) judge() (Outcome, *stored) {
	w, before := p.write, p.core.objects[p.write.Object]
	switch {
	case w.Verb == Create && before != nil:
		return Exists, nil
	case w.Verb != Create && before == nil:
		return Missing, nil
	case w.Verb == Replace && p.read != before:
		// A whole object names the version that it was read at.
		return Conflict, nil
	}
	next, shown := p.applied(before)
	for _, name := range slices.Sorted(maps.Keys(p.core.leases)) {
		if outcome := p.judgeBy(p.core.leases[name], before, shown); outcome != OK {
			return outcome, nil
		}
	}
	return OK, next
}

// applied returns the state that the write leads to, and the one that the decision is shown: for a write of a subresource
// they differ, as no annotation is stored with it.
func (p *pendingCore) applied(before *stored) (next, shown *stored) {
	w := p.write
	next = &stored{Object: Object{Value: w.Value, Replicas: 1, Marks: map[string]string{}}}
	if before != nil {
		next = before.clone()
	}
	switch w.Verb {
	case Create:
		if w.Finalizer {
			next.finalizers = 1
		}
	case Update, Replace:
		next.Value = w.Value
	case Status:
		next.Phase = w.Value
	case Scale:
		next.Replicas, _ = strconv.ParseInt(w.Value, 10, 64)
	case Finalize:
		next.finalizers = 0
	case Strip:
		delete(next.Marks, w.Lease)
	case Intend:
	case Delete:
		next.Terminating = true
		if before.finalizers == 0 {
			return nil, nil
		}
		return next, nil
	default:
		panic(errUnknownVerb)
	}
	shown = next.clone()
	// The annotation is sent, or the policy of stamps sets it from the request; neither comes to a scale.
	if w.Verb != Scale && (w.By == ByAnnotation || w.Verb != Status) {
		maps.Copy(shown.Marks, w.Tokens)
	}
	if w.Verb != Status && w.Verb != Scale {
		next.Marks = maps.Clone(shown.Marks)
	}
	if next.Terminating && next.finalizers == 0 {
		// The API server deletes the object after this update.
		return nil, shown
	}
	return next, shown
}

// judgeBy asks the decision, with a lease that was just read.
func (p *pendingCore) judgeBy(lease *v1alpha1.FencedLease, before, shown *stored) Outcome {
	w := fence.Write{Operation: fence.Update, Old: seen(before), New: seen(shown), System: fence.DefaultSystemWriters()}
	w.Writer = fence.Writer{Username: "someone", Extra: map[string][]string{}}
	switch p.write.Verb {
	case Create:
		w.Operation = fence.Create
	case Delete:
		w.Operation = fence.Delete
		w.New = nil
	case Status:
		w.Subresource = fence.SubresourceStatus
	case Scale:
		w.Subresource = fence.SubresourceScale
	case Update, Replace, Strip, Intend, Finalize:
	}
	if p.write.By == ByRequest {
		for name, text := range p.write.Tokens {
			w.Writer.Extra[v1alpha1.TokenKey(name)] = []string{text}
		}
	}
	if p.write.Reason != "" {
		w.Override = fence.Override{Reason: p.write.Reason, Permitted: true}
	}
	verdict := fence.Decide(w, fence.View{Lease: fence.LeaseOf(lease), Origin: fence.Linearizable, MustPresent: true})
	if !verdict.Admits() {
		return refused(string(verdict.Reason))
	}
	return OK
}

// seen is what the decision is shown of a state.
func seen(o *stored) *fence.Object {
	if o == nil {
		return nil
	}
	annotations := map[string]string{}
	for lease, mark := range o.Marks {
		annotations[v1alpha1.TokenKey(lease)] = mark
	}
	return &fence.Object{Annotations: annotations, Terminating: o.Terminating, Finalizers: o.finalizers}
}
