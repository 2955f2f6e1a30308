// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package outage_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/truth"
)

const (
	// sealedObjects is how many objects a seal stamps, killAfter how many it has stamped when the manager is killed.
	sealedObjects, killAfter = 400, 40
	// stampDelay keeps the managers' requests and their answers waiting, so that no machine seals faster than can be watched.
	stampDelay = 20 * time.Millisecond
)

// TestManagerIsKilledInASeal kills the elected manager by SIGKILL while it stamps, and judges by the store's own history what
// was committed. A writes all the time: where its guard has a selector it is refused from B's acquisition on, and else from
// the moment on that an object is stamped, as a replica may admit by its copy of A's sealed term until then.
func TestManagerIsKilledInASeal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		selector map[string]string
		tell     func(*sealKill)
	}{
		"the other replica finishes the seal": {tell: func(s *sealKill) {
			s.kill(0, killAfter)
			s.refusedByReplica()
		}},
		"both are killed, and one that is started again finishes the seal": {selector: map[string]string{"guarded": "yes"}, tell: func(s *sealKill) {
			stamped := s.kill(0, killAfter)
			s.refusedByReplica()
			s.kill(1, stamped+killAfter)
			s.refusedByNobody()
			s.run(0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSealKill(t, c.selector)
			dir := t.TempDir()
			recorder, err := truth.Start(t.Context(), dir, []string{s.cluster.EtcdMemberURL(0)})
			must(t, err)
			s.slow.Set(env.ProxyDelay, stampDelay)
			s.hold("b")
			old, current, stop := &answers{}, &answers{}, make(chan struct{})
			var writers sync.WaitGroup
			writers.Go(func() { s.write(s.old, "old", old, stop) })
			writers.Go(func() { s.write(s.lease.DeepCopy(), "new", current, stop) })
			c.tell(s)
			s.awaitSealed()
			s.slow.Set(env.ProxyPass, 0)
			s.eventually("a write of B after the seal", func() error { return s.present(s.lease, 0, "new-admitted") })
			s.eventually("a refusal of A after the seal", func() error {
				if err := s.present(s.old, 0, "old-late"); !refused(err) {
					return errors.Join(errors.New("want a refusal"), err)
				}
				return nil
			})
			close(stop)
			writers.Wait()
			must(t, errors.Join(recorder.Sync(t.Context()), recorder.Close(), history.WriteMeta(dir, history.Meta{})))
			run, err := history.Load(dir)
			must(t, err)
			s.judge(run.Truth)
			t.Logf("A was told %+v, B %+v", *old, *current)
			if old.refused == 0 || old.admitted > 0 && c.selector != nil {
				t.Errorf("A was told %+v, want refusals", *old)
			}
			if current.pending == 0 || current.refused > 0 {
				t.Errorf("B was told %+v, want to be held up and not to be refused", *current)
			}
		})
	}
}

// sealKill is a world with two managers that are processes, and with the objects of A's term.
type sealKill struct {
	*world
	slow     *env.Proxy
	shared   *env.Balancer
	managers []*product.Process
	// old is the lease in A's term.
	old *v1alpha1.FencedLease
	// labels, if there are any, are those of the objects: the guard has an objectSelector then.
	labels map[string]string
}

// newSealKill lets A hold the lease and create the objects. The first manager is the elected one.
func newSealKill(t *testing.T, labels map[string]string) *sealKill {
	t.Helper()
	s := &sealKill{world: newWorld(t, env.Options{}), labels: labels}
	s.shared = s.cluster.StartBalancer(t)
	var err error
	s.slow, err = s.cluster.StartProxy(t.Context(), s.cluster.APIServerPort(0))
	must(t, err)
	binary, err := product.Build(t.Context(), s.cluster)
	must(t, err)
	for i := range 2 {
		m, err := product.NewProcess(t.Context(), s.cluster, "manager-"+strconv.Itoa(i), binary, s.slow.URL(), s.shared.URL)
		must(t, err)
		s.managers = append(s.managers, m)
	}
	s.run(0)
	must(t, product.AwaitValidation(t.Context(), s.cluster))
	// Who is held up is to be told so, and not to wait and try again.
	impatient := s.cluster.Config()
	impatient.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				response.Header.Del("Retry-After")
			}
			return response, err
		})
	})
	s.admin, err = env.Client(impatient)
	must(t, err)
	s.lease = env.NewLease(s.cluster.CreateNamespace(t), "report-writer", func(l *v1alpha1.FencedLease) {
		l.Spec.Handover = v1alpha1.HandoverSeal
		if len(labels) > 0 {
			l.Spec.Guards[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: labels}
		}
	})
	must(t, product.CreateLease(t.Context(), s.admin, s.lease))
	s.hold("a")
	s.awaitSealed()
	s.old = s.lease.DeepCopy()
	s.fill()
	s.run(1)
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *sealKill) run(i int) {
	s.t.Helper()
	must(s.t, s.managers[i].Run(s.t.Context()))
	s.shared.Add(s.managers[i].Port)
}

func object(i int) string { return "report-" + strconv.Itoa(i) }

// fill creates the objects under A's term.
func (s *sealKill) fill() {
	s.t.Helper()
	const parallel = 8
	errs := make([]error, parallel)
	var group sync.WaitGroup
	for worker := range parallel {
		group.Go(func() {
			for i := worker; i < sealedObjects && errs[worker] == nil; i += parallel {
				o := s.report(object(i), env.Token(s.old, "create-"+strconv.Itoa(i)))
				o.SetLabels(s.labels)
				errs[worker] = s.admin.Create(s.t.Context(), o)
			}
		})
	}
	group.Wait()
	must(s.t, errors.Join(errs...))
}

// present writes an object under the token of a term, with an operation of its own.
func (s *sealKill) present(lease *v1alpha1.FencedLease, i int, operation string) error {
	return s.patch(object(i), mark(env.Token(lease, operation)), operation)
}

// answers counts what a writer was told.
type answers struct{ admitted, refused, pending, unavailable int }

// write writes one object after the other under the token of a term.
func (s *sealKill) write(lease *v1alpha1.FencedLease, who string, told *answers, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		switch err := s.present(lease, n*7%sealedObjects, who+"-"+strconv.Itoa(n)); {
		case err == nil:
			told.admitted++
		case pending(err):
			told.pending++
		case refused(err):
			told.refused++
		case unavailable(err):
			told.unavailable++
		default:
			s.t.Errorf("%s was answered %v", who, err)
			return
		}
	}
}

// refused tells whether a write is refused as stale, by the webhook or by the policy that runs before it.
func refused(err error) bool { return fenced(err) || refusedByPolicy(err) }

// pending tells whether a write was held up as its term is still to be sealed.
func pending(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return string(c.Type) == string(fence.SealPending) })
}

// stamped returns the numbers of objects that carry B's mark, and of one that does and one that does not. It reads from the
// API server.
func (s *sealKill) stamped() (count, with, without int) {
	s.t.Helper()
	reports := &metav1.PartialObjectMetadataList{}
	reports.SetGroupVersionKind(env.ReportKind(env.ReportVersion).GroupVersion().WithKind("ReportList"))
	must(s.t, s.admin.List(s.t.Context(), reports, client.InNamespace(s.lease.Namespace)))
	for i := range reports.Items {
		n, err := strconv.Atoi(strings.TrimPrefix(reports.Items[i].Name, "report-"))
		must(s.t, err)
		if reports.Items[i].Annotations[v1alpha1.TokenKey(s.lease.Name)] == *s.lease.Status.Token {
			count++
			with = n
		} else {
			without = n
		}
	}
	return count, with, without
}

func (s *sealKill) sealed() bool {
	s.t.Helper()
	stored := &v1alpha1.FencedLease{}
	must(s.t, s.admin.Get(s.t.Context(), client.ObjectKeyFromObject(s.lease), stored))
	return ptr.Deref(stored.Status.SealedGeneration, 0) == *s.lease.Status.Generation
}

func (s *sealKill) awaitSealed() {
	s.t.Helper()
	s.eventually("seal", func() error {
		if !s.sealed() {
			return errors.New("the term is not sealed")
		}
		return nil
	})
}

// kill kills a manager once some objects are stamped, and returns how many are.
func (s *sealKill) kill(i, after int) int {
	s.t.Helper()
	s.eventually("stamps", func() error {
		if count, _, _ := s.stamped(); count < after {
			return fmt.Errorf("%d objects are stamped", count)
		}
		return nil
	})
	must(s.t, s.managers[i].Kill())
	s.shared.Remove(s.managers[i].Port)
	count, _, _ := s.stamped()
	s.t.Logf("killed when %d of %d objects were stamped", count, sealedObjects)
	if count == sealedObjects || s.sealed() {
		s.t.Fatal("the manager was killed too late")
	}
	return count
}

// refusedByReplica shows what the webhook of the replica that is left says before it is elected.
func (s *sealKill) refusedByReplica() {
	s.t.Helper()
	_, with, without := s.stamped()
	for _, i := range []int{with, without} {
		s.eventually("B is held up", func() error {
			if err := s.present(s.lease, i, "new-early-"+strconv.Itoa(i)); !pending(err) {
				return errors.Join(errors.New("want to be held up"), err)
			}
			return nil
		})
		s.eventually("A is refused", func() error {
			if err := s.present(s.old, i, "old-killed-"+strconv.Itoa(i)); !refused(err) {
				return errors.Join(errors.New("want a refusal"), err)
			}
			return nil
		})
	}
	if s.sealed() {
		s.t.Error("the term is sealed though objects are not stamped")
	}
}

// refusedByNobody shows what is answered while no manager runs.
func (s *sealKill) refusedByNobody() {
	s.t.Helper()
	_, with, without := s.stamped()
	for _, i := range []int{with, without} {
		if err := s.present(s.lease, i, "new-down-"+strconv.Itoa(i)); !unavailable(err) {
			s.t.Errorf("B wrote %s: want a 500-class answer, got %v", object(i), err)
		}
	}
	if err := s.present(s.old, with, "old-down-0"); !refusedByPolicy(err) {
		s.t.Errorf("A wrote an object that is stamped: want a refusal by policy, got %v", err)
	}
	if err := s.present(s.old, without, "old-down-1"); !unavailable(err) {
		s.t.Errorf("A wrote an object that is not stamped: want a 500-class answer, got %v", err)
	}
	if s.sealed() {
		s.t.Error("the term is sealed though objects are not stamped")
	}
}

// judge checks what was committed from B's acquisition on, in the order of the store's revisions.
func (s *sealKill) judge(events []*history.Event) {
	s.t.Helper()
	generation, sealed := *s.lease.Status.Generation, false
	marks := map[string]token.Token{}
	older, stamps, written := 0, 0, 0
	for _, e := range events {
		switch {
		case e.Namespace != s.lease.Namespace:
		case e.Lease != nil && !sealed && e.Lease.SealedGeneration == generation:
			sealed = true
			missed := 0
			for _, m := range marks {
				if m.Generation != generation || m.Term != *s.lease.Status.Term {
					missed++
				}
			}
			if missed > 0 || len(marks) != sealedObjects {
				s.t.Errorf("sealed at revision %d: of %d objects, %d do not carry the mark", e.Revision, len(marks), missed)
			}
		case e.Lease != nil:
		case e.Deleted:
			s.t.Errorf("%s was deleted at revision %d", e.Name, e.Revision)
		default:
			before := marks[e.Name]
			now, err := token.Parse(e.Object.Marks[s.lease.Name])
			if err != nil || now.Generation < before.Generation {
				s.t.Errorf("mark of %s at revision %d: %q after %s", e.Name, e.Revision, e.Object.Marks[s.lease.Name], before)
			}
			marks[e.Name] = now
			switch {
			case e.Initial:
			case now.Generation < generation:
				older++
				if sealed || len(s.labels) > 0 {
					s.t.Errorf("A has written %s at revision %d, after B had acquired: %s", e.Name, e.Revision, e.Object.Value)
				}
			case before.Generation < generation:
				stamps++
				if strings.HasPrefix(e.Object.Value, "new-") {
					s.t.Errorf("B has written %s at revision %d, before it was stamped: %s", e.Name, e.Revision, e.Object.Value)
				}
			default:
				written++
				if !sealed || !strings.HasPrefix(e.Object.Value, "new-") {
					s.t.Errorf("%s was written at revision %d, sealed %t: %s", e.Name, e.Revision, sealed, e.Object.Value)
				}
			}
		}
	}
	s.t.Logf("%d writes of A, %d stamps, then %d writes of B", older, stamps, written)
	if !sealed || stamps != sealedObjects || written == 0 {
		s.t.Errorf("sealed %t, %d stamps and %d writes of B, want the seal, %d stamps and some writes", sealed, stamps, written, sealedObjects)
	}
}
