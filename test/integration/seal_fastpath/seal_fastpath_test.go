// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package seal_fastpath_test shows, on a real API server and a replica whose copy of the leases is held back, that writes
// under a sealed term are judged without a read, and that this lets no write of an older generation land after the seal.
//
// Only the manager is not there: the test registers the webhook and the policies as its controller does, and stamps as its
// controller does.
package seal_fastpath_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
)

var reports = schema.GroupResource{Group: env.GuardedGroup, Resource: "reports"}

// patience bounds every wait. It is far above what any of them needs.
const patience = 90 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// suite is an API server, a replica of the webhook, and the registration that connects them.
type suite struct {
	cluster *env.Environment
	admin   client.Client
	// sealer is the manager's user.
	sealer  client.Client
	replica *replica
	gap     *env.AdmissionGap
	prober  controller.Prober
	objects atomic.Int64
}

const sealer = "manager"

func TestSealedTermsOnAPIServer(t *testing.T) {
	s := &suite{cluster: env.StartT(t, env.Options{})}
	must(t, s.cluster.InstallCRDs(t.Context()))
	must(t, s.cluster.InstallGuardedCRD(t.Context()))
	var err error
	s.admin, err = env.Client(s.cluster.Config())
	must(t, err)
	config, err := s.cluster.AddUser(sealer, "system:masters")
	must(t, err)
	s.sealer, err = env.Client(config)
	must(t, err)
	s.prober = controller.NewProber(s.cluster.Config(), metav1.NamespaceDefault, controller.EndpointsOf(s.admin), 5*time.Second)
	s.replica = startReplica(t, s.cluster)
	s.gap, err = s.cluster.StartReportGap(t.Context(), "reports", "reports/status")
	must(t, err)
	t.Cleanup(func() { must(t, s.gap.Close(context.WithoutCancel(t.Context()))) })

	t.Run("reads nothing on the path of a sealed term", s.readsNothing)
	t.Run("a replica that is behind admits until the seal and not after it", s.behindUntilSealed)
	t.Run("a write that pauses between check and commit is refused when the seal has come in between", s.pausesOverTheSeal)
	t.Run("a mark cannot be lowered to where a replica that is behind would take it", s.marksDoNotFall)
	t.Run("guards that were changed in between", s.guardsChanged)
	t.Run("a late create is the stated exception", s.lateCreate)
	t.Run("reads for what a seal does not cover", s.readsForTheRest)
}

// register writes the registration of all leases, as the controller does, and returns when it is in force.
func (s *suite) register(t *testing.T) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, s.admin.Get(t.Context(), client.ObjectKey{Name: controller.CRDName}, crd))
	leases := &v1alpha1.FencedLeaseList{}
	must(t, s.admin.List(t.Context(), leases))
	registration, err := controller.Build(controller.Input{
		Leases: leases.Items, CRDUID: crd.UID, Namespace: metav1.NamespaceDefault, Sealer: sealer,
		Kinds:    map[schema.GroupResource]guardkind.Kind{reports: {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped, Kind: "Report"}},
		Endpoint: controller.Endpoint{URL: s.replica.url}, Bundle: s.replica.ca, MinVersion: leases.ResourceVersion,
	})
	must(t, err)
	for _, object := range []client.Object{
		registration.Marks, registration.MarksBinding, registration.Stamps, registration.StampsBinding, registration.Status, registration.Guards,
	} {
		present, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T is no object", object)
		}
		switch err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(object), present); {
		case apierrors.IsNotFound(err):
			must(t, s.admin.Create(t.Context(), object))
		default:
			must(t, err)
			object.SetResourceVersion(present.GetResourceVersion())
			must(t, s.admin.Update(t.Context(), object))
		}
	}
	eventually(t, "the registration", func() error {
		report, err := s.prober.Probe(t.Context(), registration.Hash)
		for _, result := range report.Results {
			if result.Outcome != controller.ProbeInForce {
				return fmt.Errorf("%s: %s", result.Outcome, result.Message)
			}
		}
		return err
	})
}

// story is a lease under which A leads, in a sealed term that the replica knows of.
type story struct {
	*suite
	lease *v1alpha1.FencedLease
	a, b  string
}

func (s *suite) begin(t *testing.T, mutations ...func(*v1alpha1.FencedLease)) *story {
	t.Helper()
	bySeal := func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal }
	lease := env.NewLease(s.cluster.CreateNamespace(t), "report-writer", append([]func(*v1alpha1.FencedLease){bySeal}, mutations...)...)
	must(t, env.CreateLease(t.Context(), s.admin, lease))
	s.register(t)
	must(t, env.Acquire(t.Context(), s.admin, lease, "a"))
	st := &story{suite: s, lease: lease, a: *lease.Status.Token}
	st.sealed(t)
	eventually(t, "the replica", s.replica.sees(lease, func(l *v1alpha1.FencedLease) bool {
		return ptr.Deref(l.Status.SealedGeneration, 0) == *lease.Status.Generation
	}))
	return st
}

// holdBack keeps the replica at what it knows until the test ends.
func (s *story) holdBack(t *testing.T) {
	t.Helper()
	s.replica.valve.hold()
	t.Cleanup(s.replica.valve.release)
}

func (s *story) takeOver(t *testing.T) {
	t.Helper()
	must(t, env.Acquire(t.Context(), s.admin, s.lease, "b"))
	if s.lease.Status.Seal != v1alpha1.SealRequired {
		t.Fatalf("the term after a sealed one needs no seal: %+v", s.lease.Status)
	}
	s.b = *s.lease.Status.Token
}

// seal stamps objects as the controller does, and records it.
func (s *story) seal(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		o := s.get(t, name)
		patch := `{"metadata":{"resourceVersion":"` + o.GetResourceVersion() + `"}}`
		must(t, s.sealer.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)),
			client.FieldOwner(seal.FieldManager(s.lease.Name, *s.lease.Status.Token))))
		if got := o.GetAnnotations()[s.key()]; got != *s.lease.Status.Token {
			t.Fatalf("the stamp left the mark %q", got)
		}
	}
	s.sealed(t)
}

func (s *story) sealed(t *testing.T) {
	t.Helper()
	patch := `{"status":{"sealedGeneration":` + strconv.FormatInt(*s.lease.Status.Generation, 10) + `}}`
	must(t, s.admin.Status().Patch(t.Context(), s.lease, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (s *story) key() string { return v1alpha1.TokenKey(s.lease.Name) }

// fresh gives a token an operation of its own.
func (s *story) fresh(token string) string {
	return token + "/" + strconv.FormatInt(s.objects.Add(1), 10)
}

func (s *story) get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := s.empty(name)
	must(t, s.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

func (s *story) empty(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	o.SetNamespace(s.lease.Namespace)
	o.SetName(name)
	return o
}

func (s *story) create(t *testing.T, token string, labels map[string]string) string {
	t.Helper()
	name := "report-" + strconv.FormatInt(s.objects.Add(1), 10)
	must(t, s.tryCreate(t.Context(), name, token, labels))
	return name
}

func (s *story) tryCreate(ctx context.Context, name, token string, labels map[string]string) error {
	o := env.NewReport(s.lease.Namespace, name, "first")
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{s.key(): s.fresh(token)})
	return s.admin.Create(ctx, o)
}

// way is one way to write an object under a token.
type way struct {
	name  string
	write func(ctx context.Context, s *story, name, token string) error
}

var ways = []way{
	{"update by annotation", func(ctx context.Context, s *story, name, token string) error {
		return s.admin.Patch(ctx, s.empty(name), s.patch(`"spec":{"value":"`+token+`"}`, s.fresh(token)))
	}},
	{"update by request", func(ctx context.Context, s *story, name, token string) error {
		return s.carrying(token).Patch(ctx, s.empty(name), s.patch(`"spec":{"value":"`+token+`"}`, ""))
	}},
	{"status by annotation", func(ctx context.Context, s *story, name, token string) error {
		return s.admin.Status().Patch(ctx, s.empty(name), s.patch(`"status":{"phase":"`+s.fresh(token)+`"}`, s.fresh(token)))
	}},
	{"status by request", func(ctx context.Context, s *story, name, token string) error {
		return s.carrying(token).Status().Patch(ctx, s.empty(name), s.patch(`"status":{"phase":"`+s.fresh(token)+`"}`, ""))
	}},
	{"apply by annotation", func(ctx context.Context, s *story, name, token string) error {
		o := s.empty(name)
		o.SetAnnotations(map[string]string{s.key(): s.fresh(token)})
		o.Object["spec"] = map[string]any{"value": token}
		return s.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("worker"), client.ForceOwnership)
	}},
}

func (s *story) patch(fields, token string) client.Patch {
	annotations := ""
	if token != "" {
		annotations = `"metadata":{"annotations":{"` + s.key() + `":"` + token + `"}},`
	}
	return client.RawPatch(types.MergePatchType, []byte("{"+annotations+fields+"}"))
}

// carrying returns the client of a user whose requests carry a token.
func (s *story) carrying(token string) client.Client {
	config := s.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {token}},
	}
	c, err := env.Client(config)
	if err != nil {
		panic(err)
	}
	return c
}

func mustBe(t *testing.T, want string, err error) {
	t.Helper()
	refusal, fencedOff := fenced.Cause(err)
	if !fencedOff || string(refusal.Type) != want {
		t.Errorf("want a refusal as %s, got %v", want, err)
	}
}

func (s *suite) readsNothing(t *testing.T) {
	st := s.begin(t)
	name := st.create(t, st.a, nil)
	reads, unread := s.replica.reads(t), s.replica.unread(t)
	const rounds = 5
	for range rounds {
		for _, w := range ways {
			if err := w.write(t.Context(), st, name, st.a); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
	}
	if got := s.replica.reads(t) - reads; got != 0 {
		t.Errorf("%d reads of the lease", got)
	}
	if got := s.replica.unread(t) - unread; got < rounds*len(ways) {
		t.Errorf("want at least %d admissions without a read, got %d", rounds*len(ways), got)
	}

	// A create reads, and so does the end of an object.
	reads = s.replica.reads(t)
	doomed := st.create(t, st.a, nil)
	must(t, st.carrying(st.a).Delete(t.Context(), st.empty(doomed)))
	if got := s.replica.reads(t) - reads; got < 2 {
		t.Errorf("want a read for the create and one for the delete, got %d", got)
	}
}

func (s *suite) behindUntilSealed(t *testing.T) {
	st := s.begin(t)
	names := make([]string, len(ways))
	for i := range names {
		names[i] = st.create(t, st.a, nil)
	}
	st.holdBack(t)
	st.takeOver(t)

	// The seal has not come yet, so that B is not ready: what the replica does not know is admitted.
	reads := s.replica.reads(t)
	for i, w := range ways {
		if err := w.write(t.Context(), st, names[i], st.a); err != nil {
			t.Fatalf("%s before the seal: %v", w.name, err)
		}
	}
	if got := s.replica.reads(t) - reads; got != 0 {
		t.Errorf("%d reads before the seal", got)
	}

	// One object after the other: where the seal has been, A is refused; where not, it is not yet.
	st.seal(t, names[:1]...)
	mustBe(t, "StaleToken", ways[0].write(t.Context(), st, names[0], st.a))
	must(t, ways[0].write(t.Context(), st, names[1], st.a))
	st.seal(t, names[1:]...)

	reads = s.replica.reads(t)
	for i, w := range ways {
		before := st.get(t, names[i])
		mustBe(t, "StaleToken", w.write(t.Context(), st, names[i], st.a))
		if after := st.get(t, names[i]); after.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s: the object has changed", w.name)
		}
	}
	if got := s.replica.reads(t) - reads; got != 0 {
		t.Errorf("%d reads for refusals that the marks prove", got)
	}
	// B is ready. The replica reads for it, as long as it is behind.
	for i, w := range ways {
		if err := w.write(t.Context(), st, names[i], st.b); err != nil {
			t.Errorf("%s by B: %v", w.name, err)
		}
	}
	// What has no mark to be judged by is read for.
	mustBe(t, "StaleToken", st.tryCreate(t.Context(), "by-a", st.a, nil))
	mustBe(t, "StaleToken", st.carrying(st.a).Delete(t.Context(), st.empty(names[0])))
}

// pausesOverTheSeal lets a write of A be admitted by the replica that is behind, and holds it back until B has sealed: the
// commit meets a conflict, and the write is judged again.
func (s *suite) pausesOverTheSeal(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			st := s.begin(t)
			name := st.create(t, st.a, nil)
			st.holdBack(t)
			st.takeOver(t)
			before := s.replica.unread(t)
			hold := s.gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == name })
			defer hold.Release()
			answer := make(chan error, 1)
			go func() { answer <- w.write(context.WithoutCancel(t.Context()), st, name, st.a) }()
			select {
			case <-hold.Entered():
			case err := <-answer:
				t.Fatalf("the write did not reach the gap: %v", err)
			}
			eventually(t, "the admission", func() error {
				if s.replica.unread(t) == before {
					return fmt.Errorf("not admitted yet")
				}
				return nil
			})
			st.seal(t, name)
			hold.Release()
			mustBe(t, "StaleToken", <-answer)
			if got := st.get(t, name).GetAnnotations()[st.key()]; got != st.b {
				t.Errorf("want the mark %s, got %s", st.b, got)
			}
		})
	}
}

func (s *suite) marksDoNotFall(t *testing.T) {
	st := s.begin(t)
	name := st.create(t, st.a, nil)
	st.holdBack(t)
	st.takeOver(t)
	st.seal(t, name)
	for what, annotations := range map[string]string{
		"lowered": `"` + st.fresh(st.a) + `"`, "removed": "null", "made garbage": `"leader"`, "emptied": `""`,
	} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+st.key()+`":`+annotations+`}}}`))
		if err := s.admin.Patch(t.Context(), st.empty(name), patch); !apierrors.IsForbidden(err) {
			t.Errorf("the mark is %s: %v", what, err)
		}
		// The other way to lose it: all annotations replaced, by the version that was read.
		o := st.get(t, name)
		o.SetAnnotations(nil)
		if err := s.admin.Update(t.Context(), o); !apierrors.IsForbidden(err) {
			t.Errorf("the annotations are gone: %v", err)
		}
	}
	mustBe(t, "StaleToken", ways[0].write(t.Context(), st, name, st.a))
}

// guardsChanged leaves an object out of B's seal, as no guard names it then, and guards it again. API servers call by the
// version of the guards, so that the replica must have seen B's term before it judges by them.
func (s *suite) guardsChanged(t *testing.T) {
	st := s.begin(t)
	name := st.create(t, st.a, nil)
	guards := st.lease.Spec.Guards
	setGuards := func(guards []v1alpha1.Guard) {
		eventually(t, "change of guards", func() error {
			if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(st.lease), st.lease); err != nil {
				return err
			}
			st.lease.Spec.Guards = guards
			return s.admin.Update(t.Context(), st.lease)
		})
		s.register(t)
	}
	st.holdBack(t)
	setGuards(nil)
	st.takeOver(t)
	st.seal(t) // nothing is guarded
	setGuards(guards)

	err := ways[0].write(t.Context(), st, name, st.a)
	if _, refused := fenced.Cause(err); refused || !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "wait until this replica has seen the guards") {
		t.Errorf("want no answer until the replica has caught up, got %v", err)
	}
	if got := st.get(t, name).GetAnnotations()[st.key()]; !strings.HasPrefix(got, st.a) {
		t.Fatalf("the object was sealed after all: %s", got)
	}
	s.replica.valve.release()
	mustBe(t, "StaleToken", ways[0].write(t.Context(), st, name, st.a))
	s.replica.valve.hold() // released at the end
}

func (s *suite) lateCreate(t *testing.T) {
	st := s.begin(t)
	name := "late-" + strconv.FormatInt(s.objects.Add(1), 10)
	hold := s.gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == name })
	defer hold.Release()
	answer := make(chan error, 1)
	go func() { answer <- st.tryCreate(context.WithoutCancel(t.Context()), name, st.a, nil) }()
	<-hold.Entered()
	st.holdBack(t)
	st.takeOver(t)
	st.seal(t)
	hold.Release()
	must(t, <-answer)
	// The exception: until it is stamped, a replica that is behind lets A write what A has created late.
	must(t, ways[0].write(t.Context(), st, name, st.a))
	st.seal(t, name)
	for _, w := range ways {
		mustBe(t, "StaleToken", w.write(t.Context(), st, name, st.a))
	}
}

func (s *suite) readsForTheRest(t *testing.T) {
	app := map[string]string{"app": "reports"}
	for name, change := range map[string]func(*v1alpha1.FencedLease){
		"a guard with an objectSelector": func(l *v1alpha1.FencedLease) {
			l.Spec.Guards[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: app}
		},
		"a guard of several namespaces": func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{} },
		"a lazy term":                   func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverLazy },
	} {
		t.Run(name, func(t *testing.T) {
			st := s.begin(t, change)
			// A guard of all namespaces would guard the objects of the other stories.
			t.Cleanup(func() {
				must(t, s.admin.Delete(context.WithoutCancel(t.Context()), st.lease))
			})
			object := st.create(t, st.a, app)
			reads, unread := s.replica.reads(t), s.replica.unread(t)
			for _, w := range ways {
				if err := w.write(t.Context(), st, object, st.a); err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
			}
			if got := s.replica.reads(t) - reads; got < len(ways) {
				t.Errorf("want a read for each of %d writes, got %d", len(ways), got)
			}
			if got := s.replica.unread(t) - unread; got != 0 {
				t.Errorf("%d writes were admitted without a read", got)
			}
			st.holdBack(t)
			must(t, env.Acquire(t.Context(), s.admin, st.lease, "b"))
			for _, w := range ways {
				mustBe(t, "StaleToken", w.write(t.Context(), st, object, st.a))
			}
		})
	}
}
