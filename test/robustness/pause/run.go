// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

const (
	// atOnce bounds what is prepared at the same time.
	atOnce = 16
	// longestHold is how long a gap may hold a write; see env.AdmissionGap.
	longestHold = 24 * time.Second
)

// Runner runs tables in a cluster.
type Runner struct {
	Cluster *env.Environment
	System  System
	Gap     *env.AdmissionGap

	scheme *runtime.Scheme
	mapper meta.RESTMapper
	admin  client.Client
}

// NewRunner returns a runner. The gap must hold all Reports with their subresources.
func NewRunner(cluster *env.Environment, system System, gap *env.AdmissionGap) (*Runner, error) {
	r := &Runner{Cluster: cluster, System: system, Gap: gap}
	var err error
	if r.admin, err = env.Client(cluster.Config()); err != nil {
		return nil, err
	}
	r.scheme, r.mapper = r.admin.Scheme(), r.admin.RESTMapper()
	return r, nil
}

// Result is what a cell came to.
type Result struct {
	Cell Cell
	Got  End
	// Err is the answer in its own words.
	Err error
}

// Run runs the cells of one strategy at the same time. An error means that nothing can be said.
func (r *Runner) Run(t env.T, strategy Strategy, cells []Cell) ([]Result, error) {
	t.Helper()
	ctx, namespace := t.Context(), r.Cluster.CreateNamespace(t)
	story, err := r.System.Begin(ctx, namespace, strategy)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer story.Close()
	runs := make([]*run, len(cells))
	for i, c := range cells {
		runs[i] = &run{
			runner: r, story: story, cell: c, object: env.BareReport(namespace, fmt.Sprintf("report-%d", i)),
			wire: newWire(c.Step), answered: make(chan struct{}),
		}
	}
	// Whatever happens, every write goes on in the end.
	defer func() {
		for _, one := range runs {
			one.letGo()
		}
	}()
	if err := inParallel(runs, func(one *run) error { return one.pause(ctx) }); err != nil {
		return nil, fmt.Errorf("pause: %w", err)
	}
	if err := story.TakeOver(ctx); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	switch strategy {
	case LazyWritten, LazyStatus:
		err = r.succeed(ctx, story, runs)
	case Sealed, SealedDeleting:
		err = story.Seal(ctx)
	case LazyUnwritten:
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strategy, err)
	}
	for _, one := range runs {
		one.letGo()
	}
	results := make([]Result, len(runs))
	for i, one := range runs {
		if results[i], err = one.end(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", one.cell, err)
		}
	}
	return results, nil
}

// succeed lets B write every object, or its status.
func (r *Runner) succeed(ctx context.Context, story Story, runs []*run) error {
	config, err := story.Config(B, Annotation)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: r.scheme, Mapper: r.mapper})
	if err != nil {
		return err
	}
	return inParallel(runs, func(one *run) error {
		o := env.BareReport(one.object.GetNamespace(), one.object.GetName())
		mark := story.Fresh(B, false)
		if one.cell.Strategy == LazyStatus {
			err := c.Status().Patch(ctx, o, (&writer{key: story.Key(), annotation: mark}).patchOf("status", "phase", ofB))
			return client.IgnoreNotFound(err)
		}
		err := c.Patch(ctx, o, (&writer{key: story.Key(), annotation: mark}).patchOf("spec", "value", ofB))
		if !apierrors.IsNotFound(err) {
			return err
		}
		annotate(o, story.Key(), mark)
		o.Object["spec"] = map[string]any{"value": ofB}
		return c.Create(ctx, o)
	})
}

// run is one cell at work.
type run struct {
	runner *Runner
	story  Story
	cell   Cell
	object *unstructured.Unstructured

	wire *wire
	hold *env.Hold
	// held and released are when the gap stopped the write and let it go.
	held, released time.Time
	http           interface{ CloseIdleConnections() }
	answered       chan struct{}
	err            error
}

// pause makes the cell's write, and returns when it has stopped at its step.
func (r *run) pause(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.cell, err)
	}
	if err := r.stop(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.cell, err)
	}
	return nil
}

// begin creates the object, and sends A's write.
func (r *run) begin(ctx context.Context) error {
	if !r.cell.Verb.creates() {
		o := env.NewReport(r.object.GetNamespace(), r.object.GetName(), first)
		o.SetLabels(map[string]string{nameLabel: o.GetName()})
		annotate(o, r.story.Key(), r.story.Fresh(A, r.cell.Verb.removes() && r.cell.Carrier == Annotation))
		if err := r.runner.admin.Create(ctx, o); err != nil {
			return fmt.Errorf("create object: %w", err)
		}
	}
	config, err := r.story.Config(A, r.cell.Carrier)
	if err != nil {
		return err
	}
	c, err := r.client(r.wire.config(config))
	if err != nil {
		return err
	}
	w := &writer{client: c, object: r.object, key: r.story.Key()}
	if r.cell.Carrier == Annotation {
		w.annotation = r.story.Fresh(A, false)
	}
	// The connection stands before the pause.
	if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(r.object), w.target())); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	send, err := r.cell.Verb.prepare(ctx, w)
	if err != nil {
		return fmt.Errorf("prepare write: %w", err)
	}
	if r.cell.Step == BeforeCommit {
		r.hold = r.runner.Gap.Hold(r.isMine)
	}
	before := r.story.Admissions(r.object.GetName())
	go func() {
		defer close(r.answered)
		r.err = send(ctx)
	}()
	if r.cell.Step != BeforeCommit {
		return nil
	}
	select {
	case <-r.hold.Entered():
		r.held = time.Now()
	case <-r.answered:
		return fmt.Errorf("the write did not come to the gap: %w", r.err)
	case <-ctx.Done():
		return ctx.Err()
	}
	// API servers call all webhooks at the same time: the fence's may not have answered yet.
	return untilDone(ctx, func(context.Context) error {
		if now := r.story.Admissions(r.object.GetName()); now >= 0 && now <= before {
			return errors.New("the write was not admitted")
		}
		return nil
	})
}

// stop returns when the write has stopped at its step, if this is not the gap.
func (r *run) stop(ctx context.Context) error {
	switch r.cell.Step {
	case BeforeSending, InFlight:
		select {
		case <-r.wire.entered:
		case <-r.answered:
			return fmt.Errorf("the write did not pause: %w", r.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	case BeforeAnswer:
		want := State{}
		return untilDone(ctx, func(ctx context.Context) error {
			want = r.cell.firstStored()
			stored, err := r.stored(ctx)
			if err == nil && stored != want {
				err = fmt.Errorf("the write is not committed: %+v", stored)
			}
			return err
		})
	case After:
		select {
		case <-r.answered:
			if r.err != nil {
				return fmt.Errorf("the write was refused while A led: %w", r.err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	case BeforeCommit:
	}
	return nil
}

// firstStored returns what is stored when A's write is committed and B has done nothing.
func (c Cell) firstStored() State {
	c.Strategy, c.Step = LazyUnwritten, After
	return c.stored(true)
}

func (r *run) letGo() {
	if r.released.IsZero() {
		r.released = time.Now()
	}
	if r.hold != nil {
		r.hold.Release()
	}
	r.wire.letGo()
}

// end waits for the answer and looks at what is stored.
func (r *run) end(ctx context.Context) (Result, error) {
	select {
	case <-r.answered:
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	r.http.CloseIdleConnections()
	if !r.held.IsZero() && r.released.Sub(r.held) > longestHold {
		return Result{}, errors.New("the machine is too slow: the gap has let the write go before B took over")
	}
	result := Result{Cell: r.cell, Err: r.err, Got: End{Answer: AnswerOf(r.err)}}
	want := r.cell.Expect().Stored
	look := func(ctx context.Context) error {
		var err error
		if result.Got.Stored, err = r.stored(ctx); err == nil && result.Got.Stored != want {
			err = errOtherContent
		}
		return err
	}
	if r.cell.Why() == LateCreate {
		// It is found a moment later. What is there in the end is looked at below.
		patient, cancel := context.WithTimeout(ctx, lateCreatePatience)
		defer cancel()
		_ = untilDone(patient, look)
	}
	if err := look(ctx); err != nil && !errors.Is(err, errOtherContent) {
		return Result{}, err
	}
	return result, nil
}

const lateCreatePatience = 10 * time.Second

var errOtherContent = errors.New("something else is stored")

// stored reads the object.
func (r *run) stored(ctx context.Context) (State, error) {
	o := env.BareReport(r.object.GetNamespace(), r.object.GetName())
	if err := r.runner.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		if apierrors.IsNotFound(err) {
			return State{Gone: true}, nil
		}
		return State{}, fmt.Errorf("get object: %w", err)
	}
	s := State{Deleting: o.GetDeletionTimestamp() != nil}
	s.Value, _, _ = unstructured.NestedString(o.Object, "spec", "value")
	s.Phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
	s.Replicas, _, _ = unstructured.NestedInt64(o.Object, "spec", "replicas")
	if mark, marked := o.GetAnnotations()[r.story.Key()]; marked {
		s.Mark = r.story.OwnerOf(mark)
	}
	return s, nil
}

// client returns a client with connections of its own.
func (r *run) client(config *rest.Config) (client.Client, error) {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	r.http = h
	return client.New(config, client.Options{HTTPClient: h, Scheme: r.runner.scheme, Mapper: r.runner.mapper})
}

// isMine recognises the cell's write in a review.
func (r *run) isMine(request *admissionv1.AdmissionRequest) bool {
	if request.Namespace != r.object.GetNamespace() {
		return false
	}
	if request.Name != "" {
		return request.Name == r.object.GetName()
	}
	// A deletecollection names the object only by what it deletes.
	o := metav1.PartialObjectMetadata{}
	return json.Unmarshal(request.OldObject.Raw, &o) == nil && o.Name == r.object.GetName()
}

// patchOf is a merge patch of one field.
func (w *writer) patchOf(section, field, value string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},%q:{%q:%q}}`,
		w.key, w.annotation, section, field, value))
}

// inParallel does something for all, a few at the same time, and returns all errors.
func inParallel[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, one := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(one)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
