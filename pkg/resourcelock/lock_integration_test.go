//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

func TestElectorAcquiresAndRenewsWhileOthersWriteConditions(t *testing.T) {
	o := newLease(t)
	floor := ptr.Deref(o.Lease().Status.GenerationFloor, 0)
	w := newWire()
	a := o.elect(o.lock("worker-a", w.wrap), true)
	term := a.leads()
	equal(t, "generation", floor+1, term.Generation)
	equal(t, "possession", possessionOf(term), o.Possession())
	acquired := o.Lease().Status.AcquireTime

	w.set(nil, nil)
	for i := range 20 {
		o.MustPatchLease(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R%d","message":"","lastTransitionTime":"2026-11-01T12:00:00Z"}]}}`, i), "status")
		renewed := o.Lease().Status.RenewTime
		eventually(t, "the holder renews", func() bool { return !o.Lease().Status.RenewTime.Equal(renewed) })
	}
	// The conditions moved the resourceVersion each time, and no renewal had to read because of it.
	equal(t, "reads of the renewing elector", 0, w.requests(http.MethodGet))
	equal(t, "possession after renewals", possessionOf(term), o.Possession())
	equal(t, "acquireTime after renewals", acquired, o.Lease().Status.AcquireTime)
	equal(t, "conditions after renewals", "R19", o.Lease().Status.Conditions[0].Reason)
}

// F-05 (kubernetes/kubernetes#91966): a released record was refused by validation, so release never worked.
func TestReleaseOnCancelIsAcceptedAndTheNextTermIsTheNextGeneration(t *testing.T) {
	o := newLease(t)
	a := o.elect(o.lock("worker-a", nil), true)
	first := a.leads()
	a.cancel()
	a.ends()
	want := possessionOf(first)
	want.Identity = ""
	equal(t, "possession after the release", want, o.Possession())

	second := o.elect(o.lock("worker-b", nil), true).leads()
	equal(t, "generation of the next term", first.Generation+1, second.Generation)
	if first.ID == second.ID {
		t.Errorf("the next term has the id %s of the last one", first.ID)
	}
}

// F-09 (operator-framework/operator-sdk#6915): what a process may do after it lost the lead was not defined.
func TestAProcessThatLostTheLeadStopsAndMayLeadAgainUnderANewTerm(t *testing.T) {
	o := newLease(t)
	lockA := o.lock("worker-a", nil)
	a := o.elect(lockA, true)
	first := a.leads()

	// B takes the lease and gives it back at once: client-go's elector alone would go on under the new term.
	b := o.lock("worker-b", nil)
	between := mustAcquire(t, b)
	if err := b.Update(t.Context(), recordFor("")); err != nil {
		t.Fatalf("release of B: %v", err)
	}
	a.ends()
	want := possessionOf(between)
	want.Identity = ""
	equal(t, "possession after A stopped", want, o.Possession())

	second := o.elect(lockA, true).leads()
	equal(t, "generation of the second possession", between.Generation+1, second.Generation)
	equal(t, "token that the first possession keeps", mustToken(t, fmt.Sprintf("%d.%s", first.Generation, first.ID)), first.Token())
}

func TestAProcessThatStoppedWithoutReleaseLeadsAgainUnderANewTerm(t *testing.T) {
	o := newLease(t)
	lock := o.lock("worker-a", nil)
	a := o.elect(lock, false)
	first := a.leads()
	a.cancel()
	a.ends()
	second := o.elect(lock, false).leads()
	equal(t, "generation of the second possession", first.Generation+1, second.Generation)
}

func TestASecondProcessOfTheSameIdentityGetsANewTermAndTheFirstStops(t *testing.T) {
	o := newLease(t)
	a := o.elect(o.lock("worker", nil), true)
	first := a.leads()
	second := o.elect(o.lock("worker", nil), true).leads()
	equal(t, "generation of the second process", first.Generation+1, second.Generation)
	a.ends() // and its release on the way out must not end the successor's term
	equal(t, "possession", possessionOf(second), o.Possession())
}

// F-04 (kubernetes/kubernetes#112023, kubernetes/client-go#1289): a release that was computed from an old observation hit
// the record of another holder.
func TestALateReleaseLeavesTheSuccessorAlone(t *testing.T) {
	o := newLease(t)
	w := newWire()
	lockA := o.lock("worker-a", w.wrap)
	termA := mustAcquire(t, lockA)
	old := o.Lease()

	w.set(patches, nil)
	released := make(chan error, 1)
	go func() { released <- lockA.Update(t.Context(), recordFor("")) }()
	<-w.held
	if _, ok := lockA.Term(); ok {
		t.Error("the lock shows a term whose release is under way")
	}
	termB := mustAcquire(t, o.lock("worker-b", nil))
	want := o.raw()
	w.set(nil, nil)
	close(w.release)
	err := <-released

	var lost *resourcelock.LostError
	if !errors.As(err, &lost) || !apierrors.IsConflict(err) {
		t.Fatalf("late release: want a conflict that is a LostError, got %v", err)
	}
	equal(t, "holder in the error", "worker-b", lost.HolderIdentity)
	equal(t, "generation in the error", termB.Generation, lost.Generation)
	if !strings.Contains(err.Error(), `"worker-b" holds the lease under generation`) {
		t.Errorf("the error does not say who holds the lease: %v", err)
	}
	equal(t, "lease after the late release", want, o.raw())

	// The elector repeats a release that met a conflict; the second answer must end that.
	if err := lockA.Update(t.Context(), recordFor("")); !errors.Is(err, resourcelock.ErrNotHeld) || apierrors.IsConflict(err) {
		t.Errorf("second release: want %v, got %v", resourcelock.ErrNotHeld, err)
	}

	// The same by hand, in each form that a client can send.
	late := old.DeepCopy()
	late.Status.HolderIdentity = ptr.To("")
	body := func(resourceVersion string) string {
		return fmt.Sprintf(`{%s"status":{"generation":%d,"term":%q,"holderIdentity":""}}`, resourceVersion, termA.Generation, termA.ID)
	}
	for name, send := range map[string]func() error{
		"PUT with the old resourceVersion": func() error { return o.Status().Update(t.Context(), late.DeepCopy()) },
		"PUT with the present resourceVersion": func() error {
			l := late.DeepCopy()
			l.ResourceVersion = o.Lease().ResourceVersion
			return o.Status().Update(t.Context(), l)
		},
		"merge patch with the old resourceVersion": func() error {
			return o.PatchLease(body(fmt.Sprintf(`"metadata":{"resourceVersion":%q},`, old.ResourceVersion)), "status")
		},
		"merge patch without a resourceVersion": func() error { return o.PatchLease(body(""), "status") },
	} {
		t.Run(name, func(t *testing.T) {
			if err := send(); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
				t.Errorf("want a refusal, got %v", err)
			}
			equal(t, "lease", want, o.raw())
		})
	}
}

func TestTheElectorsLateReleaseDoesNotLoop(t *testing.T) {
	o := newLease(t)
	w := newWire()
	a := o.elect(o.lock("worker-a", w.wrap), true)
	a.leads()
	w.set(patches, nil) // the next write waits: a renewal, or the release
	<-w.held
	a.cancel()
	termB := mustAcquire(t, o.lock("worker-b", nil))
	w.set(nil, nil)
	close(w.release)
	a.ends()
	equal(t, "possession", possessionOf(termB), o.Possession())
	if got := w.requests(http.MethodPatch); got > 2 {
		t.Errorf("the elector sent %d writes after it had lost, at most 2 expected", got)
	}
}

func TestGenerationsGrowOverTwoHundredHandovers(t *testing.T) {
	o := newLease(t)
	locks := []*resourcelock.Lock{o.lock("worker-a", nil), o.lock("worker-b", nil), o.lock("worker-c", nil)}
	last := ptr.Deref(o.Lease().Status.GenerationFloor, 0)
	seen := map[string]bool{}
	for i := range 200 {
		lock := locks[i%len(locks)]
		lock.RecordEvent("stopped leading") // what its elector did after its last loss
		term := mustAcquire(t, lock)        // F-03: what the API holds is known here at once
		equal(t, "possession", possessionOf(term), o.Possession())
		equal(t, "generation", last+1, term.Generation)
		if seen[term.ID] {
			t.Fatalf("term id %s came twice", term.ID)
		}
		seen[term.ID], last = true, term.Generation
		if i%2 == 0 { // each second one is taken over without a release
			continue
		}
		if err := lock.Update(t.Context(), recordFor("")); err != nil {
			t.Fatalf("release: %v", err)
		}
		if _, ok := lock.Term(); ok {
			t.Fatal("the lock shows a term that it released")
		}
	}
}

func TestALeaseThatIsDeletedAndCreatedAnewEndsTheTerm(t *testing.T) {
	for name, again := range map[string]bool{"deleted": false, "created-anew": true} {
		t.Run(name, func(t *testing.T) {
			o := newLease(t)
			lock := o.lock("worker-a", nil)
			first := mustAcquire(t, lock)
			if err := o.Delete(t.Context(), o.Lease()); err != nil {
				t.Fatal(err)
			}
			if again {
				o.create()
				o.SetFloor()
			}
			err := lock.Update(t.Context(), recordFor("worker-a"))
			var lost *resourcelock.LostError
			if !errors.As(err, &lost) {
				t.Fatalf("renewal: want a LostError, got %v", err)
			}
			equal(t, "Deleted", true, lost.Deleted)
			if _, ok := lock.Term(); ok {
				t.Error("the lock still shows the term")
			}
			if !again {
				o.create()
				o.SetFloor()
			}
			equal(t, "holder of the new lease", "", o.Possession().Identity)
			// The elector has not stopped leading yet.
			if err := acquire(t.Context(), lock); !errors.As(err, &lost) {
				t.Errorf("acquisition before the elector stopped: want a LostError, got %v", err)
			}
			lock.RecordEvent("stopped leading")
			second := mustAcquire(t, lock)
			if second.Generation <= first.Generation || second.UID == first.UID {
				t.Errorf("second term %+v does not follow the first one %+v", second, first)
			}
		})
	}
}

func TestTheElectorStopsWhenItsLeaseIsDeletedAndCreatedAnew(t *testing.T) {
	o := newLease(t)
	a := o.elect(o.lock("worker-a", nil), true)
	first := a.leads()
	if err := o.Delete(t.Context(), o.Lease()); err != nil {
		t.Fatal(err)
	}
	o.create()
	o.SetFloor()
	a.ends()
	equal(t, "holder of the new lease", "", o.Possession().Identity)
	second := o.elect(o.lock("worker-a", nil), true).leads()
	if second.Generation <= first.Generation {
		t.Errorf("generation %d of the new lease is not above %d", second.Generation, first.Generation)
	}
}

func TestACandidateWithoutPermissionWaitsAndNeedsTwoVerbsOnly(t *testing.T) {
	o := newLease(t)
	user := "candidate-of-" + o.name
	config, err := server.AddUser(user)
	if err != nil {
		t.Fatal(err)
	}
	lock := o.lockOf(config, "worker-a", nil)
	if _, _, err := lock.Get(t.Context()); !apierrors.IsForbidden(err) {
		t.Fatalf("read without permission: want Forbidden, got %v", err)
	}
	a := o.elect(lock, true)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"get"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases/status"}, Verbs: []string{"patch"}},
		},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: o.name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if err := o.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := o.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	term := a.leads()
	a.cancel()
	a.ends()
	equal(t, "holder after the release", "", o.Possession().Identity)
	equal(t, "generation after the release", term.Generation, o.Possession().Generation)
}

func TestAMissingLeaseIsLeftToItsOperator(t *testing.T) {
	o := newOperator(t)
	lock := o.lock("worker-a", nil)
	if _, _, err := lock.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("read of a missing lease: want NotFound, got %v", err)
	}
	err := lock.Create(t.Context(), recordFor("worker-a"))
	if !errors.Is(err, resourcelock.ErrMissing) || !strings.Contains(err.Error(), "kubectl apply") {
		t.Fatalf("create: want %v and the next step, got %v", resourcelock.ErrMissing, err)
	}
	a := o.elect(lock, true)
	o.create()
	if _, _, err := o.lock("worker-b", nil).Get(t.Context()); !errors.Is(err, resourcelock.ErrNotReady) || apierrors.IsNotFound(err) {
		t.Fatalf("read of a lease without a floor: want %v, got %v", resourcelock.ErrNotReady, err)
	}
	o.SetFloor()
	a.leads()
}

func TestAMissingLeaseIsCreatedOnRequest(t *testing.T) {
	o := newOperator(t)
	spec := &v1alpha1.FencedLeaseSpec{LeaseDurationSeconds: leaseSeconds, Handover: v1alpha1.HandoverLazy}
	lock := o.lock("worker-a", nil, resourcelock.Options{RenewDeadline: timeout, CreateWith: spec})
	if err := lock.Create(t.Context(), recordFor("worker-a")); !errors.Is(err, resourcelock.ErrNotReady) {
		t.Fatalf("create: want %v, as nil would mean that the elector leads, got %v", resourcelock.ErrNotReady, err)
	}
	equal(t, "duration of the created lease", int32(leaseSeconds), o.Lease().Spec.LeaseDurationSeconds)
	if err := lock.Create(t.Context(), recordFor("worker-a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: want AlreadyExists, got %v", err)
	}
	a := o.elect(lock, true)
	o.SetFloor()
	a.leads()
}

func TestATermThatNeedsASealBeginsWhenItIsSealed(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal })
	w := newWire()
	lock := o.lock("worker-a", w.wrap)
	a := o.elect(lock, true)
	eventually(t, "the lease is held", func() bool { return o.Possession().Identity == "worker-a" })
	w.set(nil, nil)
	eventually(t, "the elector has renewed three times", func() bool { return w.requests(http.MethodPatch) >= 3 })
	select {
	case <-a.started:
		t.Fatal("the elector leads before the seal")
	default:
	}
	if _, ok := lock.Term(); ok {
		t.Error("the lock shows a term before the seal")
	}
	pending := o.Possession()
	o.MustPatchLease(fmt.Sprintf(`{"status":{"sealedGeneration":%d}}`, pending.Generation), "status")
	term := a.leads()
	equal(t, "possession", pending, possessionOf(term))
	equal(t, "Seal", v1alpha1.SealRequired, term.Seal)
}

func TestAnAcquisitionNeedsAFreshDecision(t *testing.T) {
	o := newLease(t)
	a, b := o.lock("worker-a", nil), o.lock("worker-b", nil)
	if err := a.Update(t.Context(), recordFor("worker-a")); !apierrors.IsConflict(err) {
		t.Errorf("acquisition without a read: want a conflict, got %v", err)
	}
	if _, _, err := a.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	termB := mustAcquire(t, b)
	err := a.Update(t.Context(), recordFor("worker-a"))
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"worker-b" holds the lease`) {
		t.Errorf("acquisition after B: want a conflict that names worker-b, got %v", err)
	}
	// The failed write has refreshed what the lock knows, but the elector has not judged that B's lease is over.
	if err := a.Update(t.Context(), recordFor("worker-a")); !apierrors.IsConflict(err) {
		t.Errorf("second acquisition without a read: want a conflict, got %v", err)
	}
	equal(t, "possession", possessionOf(termB), o.Possession())
	if err := a.Update(t.Context(), recordFor("worker-c")); err == nil {
		t.Error("the lock of worker-a made worker-c the holder")
	}
}

func TestLostAnswersEndNoTermAndHideNone(t *testing.T) {
	o := newLease(t)
	w := newWire()
	lock := o.lock("worker-a", w.wrap)

	w.set(nil, patches)
	if err := acquire(t.Context(), lock); !errors.Is(err, errCut) {
		t.Fatalf("acquisition whose answer is lost: want %v, got %v", errCut, err)
	}
	if _, ok := lock.Term(); ok {
		t.Error("the lock shows a term that it does not know to have")
	}
	w.set(nil, nil)
	term := mustAcquire(t, lock) // under a term that the process knows from its beginning
	equal(t, "possession", possessionOf(term), o.Possession())

	w.set(nil, patches)
	if err := lock.Update(t.Context(), recordFor("worker-a")); !errors.Is(err, errCut) || apierrors.IsConflict(err) {
		t.Fatalf("renewal whose answer is lost: want %v, got %v", errCut, err)
	}
	if _, ok := lock.Term(); !ok {
		t.Error("a lost answer ended the term")
	}
	w.set(nil, nil)
	if err := lock.Update(t.Context(), recordFor("worker-a")); err != nil {
		t.Errorf("renewal after it: %v", err)
	}

	w.set(nil, patches)
	if err := lock.Update(t.Context(), recordFor("")); !errors.Is(err, errCut) {
		t.Fatalf("release whose answer is lost: want %v, got %v", errCut, err)
	}
	if _, ok := lock.Term(); ok {
		t.Error("the lock shows a term that may have been released")
	}
	w.set(nil, nil)
	if err := lock.Update(t.Context(), recordFor("")); err != nil {
		t.Errorf("release again: %v", err)
	}
	equal(t, "holder", "", o.Possession().Identity)
}

func TestEventsAreRecordedOnTheLease(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = leaseSeconds - 1 })
	recorder := record.NewFakeRecorder(16)
	recorder.IncludeObject = true
	lock := o.lock("worker-a", nil, resourcelock.Options{RenewDeadline: timeout, EventRecorder: recorder})
	mustAcquire(t, lock)
	lock.RecordEvent("became leader")
	lock.RecordEvent("stopped leading")
	for _, want := range []string{
		corev1.EventTypeWarning + " LeaseDurationMismatch worker-a uses a lease duration of 4 seconds and followers wait 3",
		corev1.EventTypeNormal + " LeaderElection worker-a became leader",
		corev1.EventTypeNormal + " LeaderElection worker-a stopped leading",
	} {
		got := <-recorder.Events
		if !strings.HasPrefix(got, want) || !strings.Contains(got, "kind=FencedLease") {
			t.Errorf("event: want %q on the FencedLease, got %q", want, got)
		}
	}
	if _, ok := lock.Term(); ok {
		t.Error("the elector has stopped and the lock shows a term")
	}
}
