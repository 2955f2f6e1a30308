//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

func TestAReleasedLeaseIsTakenByAFollowerThatSentNothingButItsWatch(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	floor := ptr.Deref(o.Lease().Status.GenerationFloor, 0)
	a := o.candidate("worker-a")
	first := a.leads()
	equal(t, "generation of a lease that was never held", floor+1, first.Info().Generation)
	equal(t, "possession", possessionOf(first), o.Possession())
	equal(t, "guards", o.Lease().Spec.Guards, first.Guards())
	a.event(corev1.EventTypeNormal + " LeaderElection worker-a became leader")

	b := o.candidate("worker-b")
	b.waitsForHolder("worker-a")
	before := a.metrics.renewals()
	eventually(t, "the holder has renewed for longer than the lease", func() bool { return a.metrics.renewals() > before+8 })
	equal(t, "requests of the idle follower", 1, b.wire.all())
	equal(t, "watches of the idle follower", 1, b.wire.requests("WATCH"))
	equal(t, "reads of the holder", 0, a.wire.requests(http.MethodGet))

	errDone := errors.New("work is done")
	a.finish <- errDone
	if err := a.returns(); !errors.Is(err, errDone) {
		t.Errorf("Run: want %v, got %v", errDone, err)
	}
	second := b.leads()
	equal(t, "generation of the next term", first.Info().Generation+1, second.Info().Generation)
	if err := first.Err(); !errors.Is(err, leader.ErrReleased) {
		t.Errorf("error of the first term: want %v, got %v", leader.ErrReleased, err)
	}
	if err := first.Ready(t.Context()); !errors.Is(err, leader.ErrReleased) {
		t.Errorf("readiness of the first term: want %v, got %v", leader.ErrReleased, err)
	}
	equal(t, "writes of the follower", 1, b.wire.requests(http.MethodPatch))
	a.event(corev1.EventTypeNormal + " LeaderElection worker-a stopped leading")
	equal(t, "losses", 0, len(a.metrics.lost()))
	equal(t, "whether A leads", false, a.metrics.leads())
	equal(t, "whether B leads", true, b.metrics.leads())
	b.cancel()
	if err := b.returns(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run that was cancelled: want the work's %v, got %v", context.Canceled, err)
	}
	equal(t, "possession at the end", released(possessionOf(second)), o.Possession())
}

func TestConditionsOfTheControllerNeitherRenewNorHinder(t *testing.T) {
	o := newLease(t)
	dead := o.Take("dead") // it never renews
	b := o.candidate("worker-b")
	b.waitsForHolder("dead")
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := o.WriteCondition(i); err != nil {
				stopped <- err
				return
			}
		}
	}()
	term := b.leads()
	close(stop)
	if err := <-stopped; err != nil {
		t.Errorf("write conditions: %v", err)
	}
	equal(t, "generation", ptr.Deref(dead.Status.Generation, 0)+1, term.Info().Generation)
	t.Logf("acquired with %d writes and %d reads", b.wire.requests(http.MethodPatch), b.wire.requests(http.MethodGet))
}

func TestAWatchThatIsLateMakesNoLiveHolderLookExpired(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	b := o.candidate("worker-b")
	b.waitsForHolder("worker-a")
	speak := b.wire.silence()
	eventually(t, "the follower has tried to take the lease twice", func() bool { return b.wire.requests(http.MethodPatch) >= 2 })
	if err := first.Err(); err != nil {
		t.Fatalf("the holder lost its term: %v", err)
	}
	equal(t, "possession", possessionOf(first), o.Possession())
	speak()

	// With the watch restored it follows again, and a release reaches it.
	a.finish <- nil
	second := b.leads()
	equal(t, "generation of the next term", first.Info().Generation+1, second.Info().Generation)
	equal(t, "losses of A", 0, len(a.metrics.lost()))
}

func TestAWatchThatIsCutIsMadeAgain(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	a.leads()
	b := o.candidate("worker-b")
	b.waitsForHolder("worker-a")
	for range 3 {
		eventually(t, "the holder's watch is cut", a.wire.cutWatch)
		eventually(t, "the follower's watch is cut", b.wire.cutWatch)
	}
	a.finish <- nil
	b.leads()
	equal(t, "losses of A", 0, len(a.metrics.lost()))
	equal(t, "lists of B", 0, b.wire.requests(http.MethodGet))
}

// F-04 (kubernetes/kubernetes#112023, kubernetes/client-go#1289): a release that was computed from an old observation hit
// the record of another holder.
func TestALateReleaseLeavesTheSuccessorAlone(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	a.wire.set(func(r *http.Request) bool {
		if !patches(r) {
			return false
		}
		body, err := r.GetBody()
		if err != nil {
			t.Error(err)
			return false
		}
		defer func() { _ = body.Close() }()
		text := new(strings.Builder)
		if _, err := copyAll(text, body); err != nil {
			t.Error(err)
		}
		return strings.Contains(text.String(), `"holderIdentity":""`)
	}, nil)
	a.finish <- nil
	<-a.wire.held
	if err := first.Err(); !errors.Is(err, leader.ErrReleased) {
		t.Errorf("a term whose release is under way: want %v, got %v", leader.ErrReleased, err)
	}
	o.Take("worker-b")
	want := o.Lease()
	a.wire.set(nil, nil)
	close(a.wire.release)
	if err := a.returns(); err != nil {
		t.Errorf("Run: want the work's nil, got %v", err)
	}
	equal(t, "lease after the late release", want, o.Lease())
}

func TestATakenLeaseEndsTheTermAndTheSameProcessLeadsAgain(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	taken := o.Take("worker-b")
	lost := lostTerm(t, ended(t, first))
	equal(t, "holder in the error", "worker-b", lost.HolderIdentity)
	equal(t, "generation in the error", ptr.Deref(taken.Status.Generation, 0), lost.Generation)
	if !apierrors.IsConflict(lost) {
		t.Errorf("the loss is no conflict: %v", lost)
	}
	a.event(corev1.EventTypeWarning + " LeadershipLost term " + first.Token().String())
	second := a.leads() // worker-b never renews
	equal(t, "generation of the second term", lost.Generation+1, second.Info().Generation)
	if err := first.Err(); !errors.Is(err, error(lost)) {
		t.Errorf("error of the first term after the second began: want %v, got %v", lost, err)
	}
	equal(t, "losses", []leader.LossReason{leader.LossTaken}, a.metrics.lost())
}

func TestAHolderThatIsEmptiedBySomebodyElseLeadsAgainAtOnce(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	o.MustPatchLease(`{"status":{"generation":`+int64String(first.Info().Generation)+`,"term":"`+first.Info().ID+`","holderIdentity":""}}`, "status")
	lost := lostTerm(t, ended(t, first))
	equal(t, "holder in the error", "", lost.HolderIdentity)
	second := a.leads()
	equal(t, "generation of the second term", first.Info().Generation+1, second.Info().Generation)
	equal(t, "losses", []leader.LossReason{leader.LossReleased}, a.metrics.lost())
}

func TestExitOnLossReturnsTheLoss(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	a := o.candidate("worker-a", func(options *leader.Options) { options.ExitOnLoss = true })
	first := a.leads()
	o.Take("worker-b")
	lost := lostTerm(t, a.returns())
	equal(t, "term of the loss", first.Info(), lost.Term)
	if errors.Is(lost, leader.ErrWorkRunning) {
		t.Error("the work had returned")
	}
}

func TestALeaseThatIsDeletedEndsTheTerm(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	if err := o.Delete(t.Context(), o.Lease()); err != nil {
		t.Fatal(err)
	}
	lost := lostTerm(t, ended(t, first))
	equal(t, "Deleted", true, lost.Deleted)
	if guards := first.Guards(); guards != nil {
		t.Errorf("guards of a lease that is gone: %v", guards)
	}
	a.event(corev1.EventTypeWarning + " LeaseDeleted term " + first.Token().String())
	if err := a.waitsFor(leader.ErrMissing); !strings.Contains(err.Error(), "kubectl apply") {
		t.Errorf("the reason does not say what to do: %v", err)
	}
	a.event(corev1.EventTypeWarning + " LeaseMissing worker-a waits")
	o.create()
	_ = a.waitsFor(leader.ErrNotReady)
	a.event(corev1.EventTypeWarning + " LeaseNotReady worker-a waits")
	o.SetFloor()
	second := a.leads()
	if second.Info().Generation <= first.Info().Generation || second.Info().UID == first.Info().UID {
		t.Errorf("second term %+v does not follow the first one %+v", second.Info(), first.Info())
	}
	equal(t, "losses", []leader.LossReason{leader.LossDeleted}, a.metrics.lost())
}

func TestALeaseThatIsDeletedAndCreatedAnewEndsTheTerm(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	speak := a.wire.silence() // so that a renewal finds out, and not the watch
	if err := o.Delete(t.Context(), o.Lease()); err != nil {
		t.Fatal(err)
	}
	o.create()
	o.SetFloor()
	lost := lostTerm(t, ended(t, first))
	equal(t, "Deleted", true, lost.Deleted)
	speak()
	second := a.leads()
	if second.Info().Generation <= first.Info().Generation {
		t.Errorf("generation %d of the new lease is not above %d", second.Info().Generation, first.Info().Generation)
	}
}

func TestAMissingLeaseIsCreatedOnRequest(t *testing.T) {
	o := newOperator(t)
	spec := &v1alpha1.FencedLeaseSpec{LeaseDurationSeconds: leaseSeconds}
	create := func(options *leader.Options) { options.CreateWith = spec }
	a, b := o.candidate("worker-a", create), o.candidate("worker-b", create)
	_ = a.waitsFor(leader.ErrNotReady)
	_ = b.waitsFor(leader.ErrNotReady)
	equal(t, "duration of the created lease", int32(leaseSeconds), o.Lease().Spec.LeaseDurationSeconds)
	o.SetFloor()
	select {
	case <-a.started:
	case <-b.started:
	case <-time.After(timeout):
		t.Fatal("timed out waiting for one of two to lead")
	}
}

func TestACandidateWithoutPermissionSaysSoAndNeedsThreeVerbsOnly(t *testing.T) {
	o := newLease(t)
	user := "candidate-of-" + o.name
	config, err := server.AddUser(user)
	if err != nil {
		t.Fatal(err)
	}
	a := o.candidate("worker-a", func(options *leader.Options) { options.Config = config })
	if err := a.waitsFor(leader.ErrForbidden); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fencedleases/status") {
		t.Errorf("want an answer that is Forbidden and names the verbs, got %v", err)
	}
	a.event(corev1.EventTypeWarning + " NoPermission worker-a waits")
	grant := func(part string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name + part}, Rules: rules}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name + part},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: o.name + part},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := errors.Join(o.Create(t.Context(), role), o.Create(t.Context(), binding)); err != nil {
			t.Fatal(err)
		}
	}
	grant("-read", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, ResourceNames: []string{o.name}, Verbs: []string{"get", "watch"},
	})
	eventually(t, "an acquisition is refused", func() bool { return a.wire.requests(http.MethodPatch) > 0 })
	grant("-write", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases/status"}, ResourceNames: []string{o.name}, Verbs: []string{"patch"},
	})
	term := a.leads()
	a.cancel()
	_ = a.returns()
	equal(t, "possession after the release", released(possessionOf(term)), o.Possession())
}

func TestALeaseThatIsTooShortIsNotAcquired(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a", func(options *leader.Options) {
		options.RenewDeadline, options.RetryPeriod = leaseSeconds*time.Second, time.Second
	})
	err := a.waitsFor(leader.ErrLeaseTooShort)
	if !strings.Contains(err.Error(), "spec.leaseDurationSeconds is 4") || !strings.Contains(err.Error(), "4s") {
		t.Errorf("the reason does not name both durations: %v", err)
	}
	a.event(corev1.EventTypeWarning + " LeaseDurationTooShort worker-a waits")
	equal(t, "writes", 0, a.wire.requests(http.MethodPatch))
	o.MustPatchLease(`{"spec":{"leaseDurationSeconds":15}}`)
	term := a.leads()

	// Too short again while it is held: the term is kept by the default deadline.
	o.MustPatchLease(`{"spec":{"leaseDurationSeconds":4}}`)
	a.event(corev1.EventTypeWarning + " LeaseDurationTooShort worker-a holds the lease and uses the default renew deadline")
	before := a.metrics.renewals()
	eventually(t, "the holder renews", func() bool { return a.metrics.renewals() > before+4 })
	if err := term.Err(); err != nil {
		t.Errorf("the term has ended: %v", err)
	}
}

func TestATermThatNeedsASealBeginsWhenItIsSealed(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal })
	a := o.candidate("worker-a")
	_ = a.waitsFor(leader.ErrSealPending)
	equal(t, "holder while the seal is pending", "worker-a", o.Possession().Identity)
	eventually(t, "the elector has renewed three times", func() bool { return a.metrics.renewals() >= 3 })
	select {
	case <-a.started:
		t.Fatal("the work began before the seal")
	default:
	}
	equal(t, "whether it leads", false, a.metrics.leads())
	pending := o.Possession()
	o.MustPatchLease(`{"status":{"sealedGeneration":`+int64String(pending.Generation)+`}}`, "status")
	term := a.leads()
	equal(t, "possession", pending, possessionOf(term))
	if err := term.Ready(t.Context()); err != nil {
		t.Errorf("readiness of a term whose work has begun: %v", err)
	}
}

func TestATermThatIsCancelledBeforeItsSealIsReleased(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal })
	noLeaks(t)
	a := o.candidate("worker-a")
	_ = a.waitsFor(leader.ErrSealPending)
	pending := o.Possession()
	a.cancel()
	if err := a.returns(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: want %v, got %v", context.Canceled, err)
	}
	equal(t, "possession", released(pending), o.Possession())
	equal(t, "works that began", 0, len(a.started))
}

// F-06 (kubernetes/kubernetes#139504 and others): the lease was given up before the work had ended.
func TestTheLeaseIsRenewedWhileWorkDrainsAndReleasedAfterIt(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	a := o.newCandidate("worker-a", func(options *leader.Options) { options.ReleaseTimeout = timeout })
	a.ignoring.Store(true)
	a.run()
	term := a.leads()
	a.cancel()
	before := a.metrics.renewals()
	eventually(t, "the holder has renewed for longer than the lease", func() bool { return a.metrics.renewals() > before+8 })
	equal(t, "possession while the work drains", possessionOf(term), o.Possession())
	if err := term.Err(); err != nil {
		t.Errorf("a term whose work drains may write, but: %v", err)
	}
	errDrained := errors.New("drained")
	a.finish <- errDrained
	if err := a.returns(); !errors.Is(err, errDrained) {
		t.Errorf("Run: want %v, got %v", errDrained, err)
	}
	equal(t, "possession after the work", released(possessionOf(term)), o.Possession())
	equal(t, "losses", 0, len(a.metrics.lost()))
}

// F-06, the other half: work that never returns.
func TestWorkThatDoesNotReturnLosesItsTermAtTheBound(t *testing.T) {
	o := newLease(t)
	a := o.newCandidate("worker-a", func(options *leader.Options) { options.ReleaseTimeout = time.Second })
	a.ignoring.Store(true)
	a.run()
	term := a.leads()
	a.cancel()
	if err := a.returns(); !errors.Is(err, leader.ErrWorkRunning) {
		t.Errorf("Run: want %v, got %v", leader.ErrWorkRunning, err)
	}
	if err := term.Err(); !errors.Is(err, leader.ErrReleased) {
		t.Errorf("error of the term: want %v, got %v", leader.ErrReleased, err)
	}
	equal(t, "possession", released(possessionOf(term)), o.Possession())
	a.run()
	if err := a.returns(); !errors.Is(err, leader.ErrWorkRunning) {
		t.Errorf("Run while the work of the last one runs: want %v, got %v", leader.ErrWorkRunning, err)
	}
	a.finish <- nil
	a.ignoring.Store(false)
	eventually(t, "Run may begin again", func() bool {
		a.run()
		select {
		case <-a.started:
			return true
		case <-a.done:
			return false
		}
	})
}

func TestAPanicOfWorkReleasesTheLeaseAndIsNotSwallowed(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	elector, err := leader.New(leader.Options{Config: server.Config(), Namespace: namespace, Name: o.name, Identity: "worker-a"})
	if err != nil {
		t.Fatal(err)
	}
	errBug := errors.New("bug")
	recovered := func() (value any) {
		defer func() { value = recover() }()
		err := elector.Run(t.Context(), func(context.Context, *leader.Term) error { panic(errBug) })
		t.Errorf("Run returned %v", err)
		return nil
	}()
	bug, ok := recovered.(*leader.PanicError)
	if !ok || !errors.Is(bug, errBug) || !strings.Contains(bug.Error(), "TestAPanicOfWork") {
		t.Errorf("panic of Run: want that of the work with its stack, got %v", recovered)
	}
	equal(t, "holder after the panic", "", o.Possession().Identity)
	if err := elector.Run(t.Context(), func(context.Context, *leader.Term) error { return nil }); err != nil {
		t.Errorf("Run after a panic: %v", err)
	}
}

func TestLostAnswersEndNoTermAndHideNone(t *testing.T) {
	o := newLease(t)
	a := o.newCandidate("worker-a")
	a.wire.set(nil, patches)
	a.run()
	eventually(t, "the lease is held", func() bool { return o.Possession().Identity == "worker-a" })
	acquired := o.Possession()
	a.wire.set(nil, nil)
	term := a.leads()
	equal(t, "possession that was adopted", acquired, possessionOf(term))

	a.wire.set(nil, patches)
	before := a.wire.requests(http.MethodPatch)
	eventually(t, "two renewals had no answer", func() bool { return a.wire.requests(http.MethodPatch) >= before+2 })
	a.wire.set(nil, nil)
	renewed := a.metrics.renewals()
	eventually(t, "a renewal has an answer", func() bool { return a.metrics.renewals() > renewed })
	if err := term.Err(); err != nil {
		t.Errorf("lost answers ended the term: %v", err)
	}

	a.wire.set(nil, patches)
	a.finish <- nil
	eventually(t, "the lease is released", func() bool { return o.Possession().Identity == "" })
	a.wire.set(nil, nil)
	if err := a.returns(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestADeadConnectionCostsNoTerm(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 9 })
	a := o.candidate("worker-a")
	term := a.leads()
	a.wire.freeze()
	before := a.metrics.renewals()
	eventually(t, "the holder renews on another connection", func() bool { return a.metrics.renewals() > before+1 })
	if err := term.Err(); err != nil {
		t.Errorf("the dead connection ended the term: %v", err)
	}
}

func TestACampaignThatIsCancelledLeavesNoTermBehind(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	a := o.newCandidate("worker-a")
	a.wire.set(nil, patches)
	a.run()
	eventually(t, "the lease is held, and the elector does not know", func() bool { return o.Possession().Identity == "worker-a" })
	a.cancel()
	a.wire.set(nil, nil)
	if err := a.returns(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: want %v, got %v", context.Canceled, err)
	}
	equal(t, "holder", "", o.Possession().Identity)
}

// F-29 (hashicorp/consul#4439): an interrupt did nothing until the lock was acquired.
func TestAFollowerThatIsCancelledEndsAtOnce(t *testing.T) {
	o := newLease(t)
	noLeaks(t)
	o.Take("worker-b")
	a := o.candidate("worker-a")
	a.waitsForHolder("worker-b")
	before := o.Lease()
	a.cancel()
	if err := a.returns(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: want %v, got %v", context.Canceled, err)
	}
	equal(t, "lease", before, o.Lease())
	equal(t, "writes", 0, a.wire.requests(http.MethodPatch))
}

func TestASecondProcessOfTheSameIdentityWaitsAndTakesNothingOver(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker")
	first := a.leads()
	b := o.candidate("worker")
	b.waitsForHolder("worker")
	before := a.metrics.renewals()
	eventually(t, "the holder renews", func() bool { return a.metrics.renewals() > before+3 })
	equal(t, "requests of the second process", 1, b.wire.all())
	a.finish <- nil
	second := b.leads()
	equal(t, "generation of the second process", first.Info().Generation+1, second.Info().Generation)
}

// An API server that does not stream lists is an API server whose clients list first. That takes the verb list.
func TestAnElectorListsWhereListsAreNotStreamed(t *testing.T) {
	o := newLease(t)
	var refused int
	a := o.newCandidate("worker-a", func(options *leader.Options) {
		options.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Query().Get("sendInitialEvents") == "" {
					return next.RoundTrip(r)
				}
				refused++
				query := r.URL.Query()
				query.Set("resourceVersionMatch", "nonsense") // which is invalid, as the option is without the feature
				r = r.Clone(r.Context())
				r.URL.RawQuery = query.Encode()
				return next.RoundTrip(r)
			})
		})
	})
	a.run()
	a.leads()
	if refused == 0 || a.wire.requests(http.MethodGet) != 1 {
		t.Errorf("want a refused stream and one list, got %d and %d", refused, a.wire.requests(http.MethodGet))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
