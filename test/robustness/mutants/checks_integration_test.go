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
	"slices"
	"strconv"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/mutants"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

// check tells what is wrong with the product that runs. An error means that nothing can be said.
type check func(t env.T, b *bench) (wrong []string, err error)

func checks() map[string]check {
	return map[string]check{
		mutants.TableStatus: table(func(c pause.Cell) bool {
			return c.Strategy == pause.LazyWritten && c.Step == pause.InFlight && strings.HasPrefix(c.Verb.Name, "status")
		}),
		mutants.TableCredential: table(func(c pause.Cell) bool {
			return c.Strategy == pause.LazyUnwritten && c.Step == pause.InFlight && c.Carrier == pause.Credential
		}),
		mutants.TableDelete: table(func(c pause.Cell) bool {
			return c.Strategy == pause.LazyUnwritten && c.Step == pause.InFlight && strings.HasPrefix(c.Verb.Name, "delete")
		}),
		mutants.TableSeal: table(func(c pause.Cell) bool {
			return c.Strategy == pause.Sealed && c.Step == pause.BeforeCommit && c.Carrier == pause.Extra &&
				slices.Contains([]string{"merge patch", "status merge patch", "delete"}, c.Verb.Name)
		}),
		mutants.TableLateCreate: table(func(c pause.Cell) bool {
			return c.Strategy == pause.SealedDeleting && c.Step == pause.BeforeCommit && c.Carrier == pause.Extra && c.Verb.Name == "create"
		}),
		mutants.StaleSealedTerm:  staleSealedTerm,
		mutants.LazyAfterSeal:    lazyAfterSeal,
		mutants.OutOfTheSelector: outOfTheSelector,
		mutants.UnfinishedSeal:   unfinishedSeal,
		mutants.EarlyWrite:       earlyWrite,
		mutants.SealBeforeGuards: sealBeforeGuards,
		mutants.StampLookalike:   stampLookalike,
		mutants.TokenBelowMark:   tokenBelowMark,
		mutants.StaleCache:       staleCache,
		mutants.OtherTerm:        otherTerm,
		mutants.Inherited:        inherited,
		mutants.ReleasedLease:    releasedLease,
		mutants.FutureToken:      futureToken,
		mutants.LeaseAnew:        leaseAnew,
		mutants.SystemUser:       systemUser,
		mutants.JoinedRead:       joinedRead,
		mutants.CurrentStatus:    currentStatus,
		mutants.OverrideOfStale:  overrideOfStale,
		mutants.PolicyAlone:      policyAlone,
		mutants.LateRelease:      lateRelease,
		mutants.NotInForce:       notInForce,
		mutants.LastFinalizer:    lastFinalizer,
		mutants.UnreadableLease:  unreadableLease,
		mutants.OlderGuards:      olderGuards,
	}
}

// table runs cells of the table of pauses. All must be of one strategy.
func table(choose func(pause.Cell) bool) check {
	return func(t env.T, b *bench) (wrong []string, err error) {
		t.Helper()
		cells, _ := pause.Split(pause.Table(pause.Strategies(), pause.Carriers()))
		cells = slices.DeleteFunc(cells, func(c pause.Cell) bool { return !choose(c) })
		results, err := b.runner.Run(t, cells[0].Strategy, cells)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if want := r.Cell.Expect(); r.Got != want {
				wrong = append(wrong, fmt.Sprintf("%s: want %+v, got %+v", r.Cell, want, r.Got))
			}
		}
		return wrong, nil
	}
}

// scene is a lease that A holds, and that B has taken over if it was told so.
type scene struct {
	*bench
	*pause.ProductStory
	namespace string
	objects   int
}

func (b *bench) begin(t env.T, mutations ...func(*v1alpha1.FencedLease)) (*scene, error) {
	t.Helper()
	namespace := b.cluster.CreateNamespace(t)
	story, err := b.product.BeginLease(t.Context(), namespace, mutations...)
	if err != nil {
		return nil, err
	}
	return &scene{bench: b, ProductStory: story, namespace: namespace}, nil
}

// create creates an object of A's.
func (s *scene) create(ctx context.Context, mutations ...func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	s.objects++
	o := env.NewReport(s.namespace, "report-"+strconv.Itoa(s.objects), "first")
	o.SetAnnotations(map[string]string{s.Key(): s.Fresh(pause.A, false)})
	for _, mutate := range mutations {
		mutate(o)
	}
	if err := s.admin.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create object: %w", err)
	}
	return o, nil
}

// handedOver is a scene with an object of A's, where B has taken over and not written yet.
func (b *bench) handedOver(t env.T, mutations ...func(*v1alpha1.FencedLease)) (*scene, *unstructured.Unstructured, error) {
	t.Helper()
	s, err := b.begin(t, mutations...)
	if err != nil {
		return nil, nil, err
	}
	o, err := s.create(t.Context())
	if err != nil {
		return nil, nil, err
	}
	return s, o, s.TakeOver(t.Context())
}

// carrying returns a client whose requests carry a text as token.
func (s *scene) carrying(text string) (client.Client, error) {
	config := s.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.Key(): {text}},
	}
	return env.Client(config)
}

// annotated is a patch that sets the token and the value.
func (s *scene) annotated(token string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"value":"second"}}`, s.Key(), token))
}

// bare is an object by its name.
func bare(o *unstructured.Unstructured) *unstructured.Unstructured {
	b := &unstructured.Unstructured{}
	b.SetGroupVersionKind(o.GroupVersionKind())
	b.SetNamespace(o.GetNamespace())
	b.SetName(o.GetName())
	return b
}

// unless says what was answered instead of what must be.
func unless(what string, err error, want pause.Answer) []string {
	if got := pause.AnswerOf(err); got != want {
		return []string{fmt.Sprintf("%s: want %s, got %s", what, want, got)}
	}
	return nil
}

// otherTerm writes under the current generation and another term.
func otherTerm(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%d.zzzzzzzz/1", *s.Lease.Status.Generation)
	return unless("a write of another term", s.admin.Patch(t.Context(), bare(o), s.annotated(text)), "ForkedTerm"), nil
}

// futureToken writes under a generation that nobody has reached.
func futureToken(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%d.zzzzzzzz/1", *s.Lease.Status.Generation+1)
	return unless("a write of the future", s.admin.Patch(t.Context(), bare(o), s.annotated(text), client.DryRunAll), "FutureToken"), nil
}

// inherited sends an object of the current holder back as it was read, with another value.
func inherited(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	ctx := t.Context()
	if err := s.admin.Patch(ctx, bare(o), s.annotated(s.Fresh(pause.B, false))); err != nil {
		return nil, fmt.Errorf("write of the current holder: %w", err)
	}
	read := bare(o)
	if err := s.admin.Get(ctx, client.ObjectKeyFromObject(o), read); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(read.Object, "third", "spec", "value"); err != nil {
		return nil, err
	}
	return unless("a read-modify-write without a token", s.admin.Update(ctx, read), pause.MissingToken), nil
}

// releasedLease writes under the token of a term that its holder has released.
func releasedLease(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	if err := env.Release(t.Context(), s.admin, s.Lease); err != nil {
		return nil, err
	}
	err = s.admin.Patch(t.Context(), bare(o), s.annotated(s.Fresh(pause.B, false)))
	return unless("a write after the release", err, "Released"), nil
}

// leaseAnew deletes a lease and creates one of its name.
func leaseAnew(t env.T, b *bench) ([]string, error) {
	s, err := b.begin(t)
	if err != nil {
		return nil, err
	}
	ctx, before := t.Context(), *s.Lease.Status.Generation
	if err := s.admin.Delete(ctx, s.Lease); err != nil {
		return nil, err
	}
	s.Lease = env.NewLease(s.namespace, s.Lease.Name)
	if err := product.CreateLease(ctx, s.admin, s.Lease); err != nil {
		return nil, err
	}
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	if after := *s.Lease.Status.Generation; after <= before {
		return []string{fmt.Sprintf("generation %d came after %d", after, before)}, nil
	}
	return nil, nil
}

// systemUser lets a controller of the control plane write what it never writes.
func systemUser(t env.T, b *bench) ([]string, error) {
	_, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	config := b.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:masters"},
	}
	c, err := env.Client(config)
	if err != nil {
		return nil, err
	}
	err = c.Patch(t.Context(), bare(o), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"second"}}`)))
	return unless("a spec written by the namespace controller", err, pause.MissingToken), nil
}

// currentStatus writes a status under the current token, which the request carries as annotation.
func currentStatus(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"status":{"phase":"second"}}`, s.Key(), s.Fresh(pause.B, false))
	err = s.admin.Status().Patch(t.Context(), bare(o), client.RawPatch(types.MergePatchType, patch))
	return unless("a status of the current holder", err, pause.Committed), nil
}

// overrideOfStale gives a reason, as somebody who may pass without a token, with a token that is stale.
func overrideOfStale(t env.T, b *bench) ([]string, error) {
	s, o, err := b.handedOver(t)
	if err != nil {
		return nil, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:"because"}},"spec":{"value":"second"}}`,
		s.Key(), s.Fresh(pause.A, false), v1alpha1.OverrideKey(s.Lease.Name))
	err = s.admin.Patch(t.Context(), bare(o), client.RawPatch(types.MergePatchType, patch))
	return unless("an override of a stale token", err, pause.StaleToken), nil
}

// tokenBelowMark writes under the current token to an object that shows a generation above it, as after a restore: the
// object was marked before it was guarded. Only such writes are told that do not lower the mark, which the policy refuses.
func tokenBelowMark(t env.T, b *bench) (wrong []string, err error) {
	ctx := t.Context()
	s, err := b.begin(t, func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil })
	if err != nil {
		return nil, err
	}
	above := fmt.Sprintf("%d.zzzzzzzz", *s.Lease.Status.Generation+1000)
	o, err := s.create(ctx, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{s.Key(): above}) })
	if err != nil {
		return nil, err
	}
	guards, err := json.Marshal(map[string]any{"spec": map[string]any{"guards": env.NewLease("", "").Spec.Guards}})
	if err != nil {
		return nil, err
	}
	if err := s.admin.Patch(ctx, s.Lease, client.RawPatch(types.MergePatchType, guards)); err != nil {
		return nil, err
	}
	if err := product.AwaitCondition(ctx, s.admin, s.Lease, v1alpha1.ConditionReady, metav1.ConditionTrue); err != nil {
		return nil, err
	}
	c, err := s.carrying(s.Token(pause.A))
	if err != nil {
		return nil, err
	}
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"second"}}`))
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
	wrong = append(wrong, unless("a status below the mark", c.Status().Patch(ctx, bare(o), status), pause.StaleToken)...)
	wrong = append(wrong, unless("a scale below the mark", c.SubResource("scale").Patch(ctx, bare(o), scale), pause.StaleToken)...)
	return append(wrong, unless("a delete below the mark", c.Delete(ctx, bare(o)), pause.StaleToken)...), nil
}

// staleCache lets B take over while the manager hears nothing of leases.
func staleCache(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t)
	if err != nil {
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
	return unless("a write after B took over", s.admin.Patch(ctx, bare(o), s.annotated(s.Fresh(pause.A, false))), pause.StaleToken), nil
}

// awaitHeard waits until the manager has heard of the term.
func (s *scene) awaitHeard(ctx context.Context) error {
	generation := strconv.FormatInt(*s.Lease.Status.Generation, 10)
	return until(ctx, func(ctx context.Context) error {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.Lease), s.Lease); err != nil {
			return err
		}
		held := meta.FindStatusCondition(s.Lease.Status.Conditions, v1alpha1.ConditionHeld)
		if held == nil || held.Status != metav1.ConditionTrue || !strings.HasSuffix(held.Message, "generation "+generation) {
			return fmt.Errorf("the manager has not heard of generation %s", generation)
		}
		return nil
	})
}

// joinedRead keeps the answer to a read of the lease, of which the copy has heard nothing new, until B has taken over and
// writes of A have arrived. All of them have to be judged by a later read.
func joinedRead(t env.T, b *bench) (wrong []string, err error) {
	ctx := t.Context()
	s, err := b.begin(t)
	if err != nil {
		return nil, err
	}
	o, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	// The copy would refuse by itself.
	b.proxy.freeze()
	defer b.proxy.thaw()
	reading := newHold()
	defer b.proxy.add(&rule{match: s.readsLease, response: reading})()
	write := func() error {
		return s.admin.Patch(ctx, bare(o), s.annotated(s.Fresh(pause.A, false)), client.DryRunAll)
	}
	var sent sync.WaitGroup
	sent.Go(func() { _ = write() })
	select {
	case <-reading.entered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	const late = 20
	arrived := len(b.gap.Requests())
	errs := make([]error, late)
	for i := range errs {
		sent.Go(func() { errs[i] = write() })
	}
	// The API server calls both webhooks at the same time.
	err = until(ctx, func(context.Context) error {
		if n := len(b.gap.Requests()); n < arrived+late {
			return fmt.Errorf("%d of %d writes have arrived", n-arrived, late)
		}
		return nil
	})
	reading.release()
	sent.Wait()
	if err != nil {
		return nil, err
	}
	for _, err := range errs {
		wrong = append(wrong, unless("a write that arrived after B took over", err, pause.StaleToken)...)
	}
	return wrong, nil
}

// readsLease recognises the manager's reads of the lease for a verdict.
func (s *scene) readsLease(r *http.Request) bool {
	return r.Method == http.MethodGet && isLeases(r) && strings.HasSuffix(r.URL.Path, "/namespaces/"+s.namespace+"/fencedleases/"+s.Lease.Name)
}

// unreadableLease writes while the manager's reads of the lease fail.
func unreadableLease(t env.T, b *bench) ([]string, error) {
	s, err := b.begin(t)
	if err != nil {
		return nil, err
	}
	o, err := s.create(t.Context())
	if err != nil {
		return nil, err
	}
	defer b.proxy.add(&rule{match: s.readsLease, fail: true})()
	err = s.admin.Patch(t.Context(), bare(o), s.annotated(s.Fresh(pause.A, false)))
	if apierrors.IsServiceUnavailable(err) {
		return nil, nil
	}
	return []string{fmt.Sprintf("a write that cannot be judged: %v", err)}, nil
}

// policyAlone takes the webhook away, as somebody can who may change admission configuration, while the manager is down,
// and removes a mark. Another lease of the same name is in Audit, in a namespace of its own.
func policyAlone(t env.T, b *bench) (wrong []string, err error) {
	ctx := t.Context()
	audited := env.NewLease(b.cluster.CreateNamespace(t), "report-writer", func(l *v1alpha1.FencedLease) {
		l.Spec.Enforcement = v1alpha1.EnforcementAudit
	})
	if err := product.CreateLease(ctx, b.admin, audited); err != nil {
		return nil, err
	}
	s, err := b.begin(t)
	if err != nil {
		return nil, err
	}
	o, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.manager.Kill(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.start(ctx)) }()
	// The policy that protects the registration is no part of the question; API servers forget it a moment later.
	protection := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "fencedlease-registration"}}
	if err := b.admin.Delete(ctx, protection); err != nil {
		return nil, err
	}
	name := metav1.ObjectMeta{Name: "fencedlease-guards"}
	for _, configuration := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: name}, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: name},
	} {
		if err := until(ctx, func(ctx context.Context) error { return b.admin.Delete(ctx, configuration) }); err != nil {
			return nil, err
		}
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, s.Key()))
	err = until(ctx, func(ctx context.Context) error {
		err := b.admin.Patch(ctx, bare(o), patch)
		if apierrors.IsInternalError(err) {
			// This API server still calls the webhook, which is down.
			return err
		}
		wrong = unless("the removal of a mark", err, pause.MarkPolicy)
		return nil
	})
	return wrong, err
}

// lateRelease lets A's release arrive when B has taken over.
func lateRelease(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t)
	if err != nil {
		return nil, err
	}
	ended := s.Lease.DeepCopy()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	// It is refused, or changes nothing.
	_ = b.act(ctx, "release", ended.Namespace, ended.Name,
		strconv.FormatInt(*ended.Status.Generation, 10), *ended.Status.Term, *ended.Status.HolderIdentity)
	if err := b.admin.Get(ctx, client.ObjectKeyFromObject(s.Lease), s.Lease); err != nil {
		return nil, err
	}
	if holder := ptr.Deref(s.Lease.Status.HolderIdentity, ""); holder != string(pause.B) {
		return []string{fmt.Sprintf("after A's late release the holder is %q", holder)}, nil
	}
	return nil, nil
}

// notInForce lets the API server take the webhook's registration for granted and not store it.
func notInForce(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	lift := b.proxy.add(storedNot())
	defer lift()
	lease := env.NewLease(b.cluster.CreateNamespace(t), "report-writer")
	if err := b.admin.Create(ctx, lease); err != nil {
		return nil, err
	}
	ready, err := awaitProbed(ctx, b.admin, lease)
	if err != nil {
		return nil, err
	}
	if ready.Status == metav1.ConditionTrue {
		return []string{"Ready is true, and no API server calls the webhook: " + ready.Message}, nil
	}
	lift()
	return nil, product.AwaitCondition(ctx, b.admin, lease, v1alpha1.ConditionReady, metav1.ConditionTrue)
}

// storedNot lets the API server answer as if it had stored the webhook's registration.
func storedNot() *rule {
	return &rule{
		match: func(r *http.Request) bool {
			return r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/validatingwebhookconfigurations/fencedlease-guards")
		},
		dryRun: true,
	}
}

// awaitProbed waits until the manager has said whether the guards of the lease's spec are in force.
func awaitProbed(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease) (ready *metav1.Condition, err error) {
	err = until(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		ready = meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != lease.Generation || strings.Contains(ready.Message, "about to be written") {
			return fmt.Errorf("it is not known whether the guards are in force: %+v", ready)
		}
		return nil
	})
	return ready, err
}

// lastFinalizer lets a writer that need not present a token remove the last finalizer of an object that is being deleted.
func lastFinalizer(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, err := b.begin(t, func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "somebody"}}
	})
	if err != nil {
		return nil, err
	}
	o, err := s.create(ctx, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/last"}) })
	if err != nil {
		return nil, err
	}
	if err := s.admin.Delete(ctx, bare(o)); err != nil {
		return nil, err
	}
	err = s.admin.Patch(ctx, bare(o), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	return unless("the removal of the last finalizer", err, "FinalDelete"), nil
}
