//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
)

// awaitMark waits until an object has a mark.
func (s *suite) awaitMark(o client.Object, lease, want string) {
	s.Helper()
	s.eventually("mark of "+o.GetName(), func() error {
		s.refresh(o)
		if got := o.GetAnnotations()[v1alpha1.TokenKey(lease)]; got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

func (s *suite) checkMark(o client.Object, lease, want string) {
	s.Helper()
	s.refresh(o)
	if got := o.GetAnnotations()[v1alpha1.TokenKey(lease)]; got != want {
		s.Errorf("mark of %s is %q, want %q", o.GetName(), got, want)
	}
}

func (s *suite) patch(o client.Object, patch string) {
	s.Helper()
	s.must(s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// uninstall deletes a definition, once it is known that it is guarded no more.
func (s *suite) uninstall(definition string) {
	s.Helper()
	s.eventually("delete definition", func() error {
		return s.client.Delete(s.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}})
	})
}

func sealsWhatIsSelected(s *suite, _ *seal.Metrics) {
	home := s.env.CreateNamespace(s)
	blue, red := s.env.CreateNamespace(s, map[string]string{"team": "blue"}), s.env.CreateNamespace(s, map[string]string{"team": "red"})
	labelled := func(namespace, name, label string) *unstructured.Unstructured {
		o := env.NewReport(namespace, name, "v")
		o.SetLabels(map[string]string{"kept": label})
		s.must(s.client.Create(s.Context(), o))
		return o
	}
	inBlue, unselected, inRed := labelled(blue, "in", "yes"), labelled(blue, "unselected", "no"), labelled(red, "in", "yes")
	protected := labelled(managerNamespace, "in", "yes")
	lease := s.createLease(env.NewLease(home, "selective", bySeal(func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].NamespaceSelector = matching("team", "blue")
		l.Spec.Guards[0].ObjectSelector = matching("kept", "yes")
	})))
	s.awaitReady(lease)
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	token := *lease.Status.Token
	s.checkMark(inBlue, "selective", token)
	for _, o := range []client.Object{unselected, inRed, protected} {
		s.checkMark(o, "selective", "")
	}
	// An object comes to be selected by its own label, and one by that of its namespace.
	s.patch(unselected, `{"metadata":{"labels":{"kept":"yes"}}}`)
	s.awaitMark(unselected, "selective", token)
	s.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: red}}, `{"metadata":{"labels":{"team":"blue"}}}`)
	s.awaitMark(inRed, "selective", token)
	// A namespace that is created in the middle of the term.
	later := s.env.CreateNamespace(s, map[string]string{"team": "blue"})
	s.awaitMark(labelled(later, "in", "yes"), "selective", token)
	s.checkMark(protected, "selective", "")
	s.awaitCondition(lease, v1alpha1.ConditionLateCreate, metav1.ConditionFalse, v1alpha1.ReasonNoLateCreate)
	s.deleteLeases(home)
	s.must(s.client.Delete(s.Context(), protected))
}

func sealsClusterScoped(s *suite, _ *seal.Metrics) {
	one, two := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.ClusterScoped, "moons")))
	moon := &unstructured.Unstructured{}
	moon.SetGroupVersionKind(env.ReportKind(env.ReportVersion).GroupVersion().WithKind("Moon"))
	moon.SetName("titan")
	s.eventually("create a cluster-scoped object", func() error { return s.client.Create(s.Context(), moon) })
	guard := bySeal(func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Resources = []string{"moons"}
		l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{}
	})
	first, second := s.createLease(env.NewLease(one, "first", guard)), s.createLease(env.NewLease(two, "second", guard))
	s.awaitReady(first)
	s.awaitReady(second)
	s.acquire(first, "a")
	s.acquire(second, "a")
	s.awaitSealed(first)
	s.awaitSealed(second)
	s.checkMark(moon, "first", *first.Status.Token)
	s.checkMark(moon, "second", *second.Status.Token)
	s.deleteLeases(one, two)
	s.uninstall("moons.example.com")
}

func sealsWhatIsGuardedLater(s *suite, _ *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "notes")))
	note := &unstructured.Unstructured{}
	note.SetGroupVersionKind(env.ReportKind(env.ReportVersion).GroupVersion().WithKind("Note"))
	note.SetNamespace(namespace)
	note.SetName("a")
	note.SetAnnotations(map[string]string{v1alpha1.TokenKey("growing"): "3.aaaaaaaa"})
	s.eventually("create a note", func() error { return s.client.Create(s.Context(), note) })
	lease := s.createLease(env.NewLease(namespace, "growing", bySeal()))
	s.awaitReady(lease)
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	s.checkMark(note, "growing", "3.aaaaaaaa")
	s.patch(lease, `{"spec":{"guards":[{"apiGroups":["example.com"],"resources":["reports/*","notes"]}]}}`)
	s.awaitMark(note, "growing", *lease.Status.Token)
	s.awaitReady(lease)
	s.awaitCondition(lease, v1alpha1.ConditionLateCreate, metav1.ConditionFalse, v1alpha1.ReasonNoLateCreate)
	if err := s.hasEvent(lease, EventOlderMarks, ""); err == nil {
		s.Errorf("what is guarded later was taken for something unusual")
	}
	s.deleteLeases(namespace)
	s.uninstall("notes.example.com")
}

func sealsWithoutKind(s *suite, _ *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "early", bySeal(func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Resources = []string{"reports/*", "books/*"}
	})))
	s.awaitCondition(lease, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindMissing)
	report := s.report(namespace, "a", nil)
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	s.checkMark(report, "early", *lease.Status.Token)
	// Once it is there, its objects are stamped as well.
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "books")))
	book := &unstructured.Unstructured{}
	book.SetGroupVersionKind(env.ReportKind(env.ReportVersion).GroupVersion().WithKind("Book"))
	book.SetNamespace(namespace)
	book.SetName("a")
	s.eventually("create a book", func() error { return s.client.Create(s.Context(), book) })
	s.awaitMark(book, "early", *lease.Status.Token)
	s.deleteLeases(namespace)
	s.uninstall("books.example.com")
}

func sealsNothing(s *suite, _ *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "bare", bySeal(func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil })))
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	s.deleteLeases(namespace)
}

func sealsBelowHigherMarks(s *suite, _ *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	key := v1alpha1.TokenKey("behind")
	lease := s.createLease(env.NewLease(namespace, "behind", bySeal()))
	s.awaitReady(lease)
	const higher, implausible = "5000000000.aaaaaaaa", "5000000000000000.aaaaaaaa"
	low := s.report(namespace, "low", map[string]string{key: "3.aaaaaaaa"})
	high := s.report(namespace, "high", map[string]string{key: higher})
	forged := s.report(namespace, "forged", map[string]string{key: implausible})
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	s.checkMark(low, "behind", *lease.Status.Token)
	s.checkMark(high, "behind", higher)
	s.checkMark(forged, "behind", implausible)
	s.awaitCondition(lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionTrue, v1alpha1.ReasonHigherGenerationSeen)
	s.awaitCondition(lease, v1alpha1.ConditionImplausibleMark, metav1.ConditionTrue, v1alpha1.ReasonImplausibleMarkSeen)
	s.acquire(lease, "b")
	s.awaitSealed(lease)
	if got := *lease.Status.Generation; got != 5000000001 {
		s.Errorf("generation is %d, want one above what was seen", got)
	}
	s.checkMark(high, "behind", *lease.Status.Token)
	s.deleteLeases(namespace)
}

func sealOfDeletedLease(s *suite, metrics *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	s.fill(namespace, "many-", 300, nil)
	lease := s.createLease(env.NewLease(namespace, "going", bySeal()))
	s.awaitReady(lease)
	before := value(s, metrics, "fencedlease_seal_stamps_total", "Written")
	s.acquire(lease, "a")
	s.eventually("the first stamps", func() error {
		if value(s, metrics, "fencedlease_seal_stamps_total", "Written") == before {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	s.deleteLeases(namespace)
	s.eventually("the end of the seal", func() error {
		if n := value(s, metrics, "fencedlease_seal_pending_objects"); n != 0 {
			return fmt.Errorf("%v objects are pending", n)
		}
		return nil
	})
}

func tellsLateCreates(s *suite, metrics *seal.Metrics) {
	namespace := s.env.CreateNamespace(s)
	key := v1alpha1.TokenKey("late")
	lease := s.createLease(env.NewLease(namespace, "late", bySeal(func(l *v1alpha1.FencedLease) { l.Spec.LateCreates = v1alpha1.LateCreatesDelete })))
	s.awaitReady(lease)
	old := s.report(namespace, "old", map[string]string{key: "3.aaaaaaaa"})
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	token := *lease.Status.Token
	deleted := value(s, metrics, "fencedlease_late_creates_total", "Deleted")
	// Nothing of this is late: a create under the term, one that presents nothing, and one that was there.
	own := s.report(namespace, "own", map[string]string{key: token + "/1"})
	bare := s.report(namespace, "bare", nil)
	s.awaitMark(bare, "late", token)
	s.checkMark(own, "late", token+"/1")
	s.checkMark(old, "late", token)
	late := s.report(namespace, "late", map[string]string{key: "3.aaaaaaaa/9"})
	s.eventually("deletion of the late create", func() error {
		switch err := s.client.Get(s.Context(), client.ObjectKeyFromObject(late), late); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("it is still there")
		}
	})
	c := s.awaitCondition(lease, v1alpha1.ConditionLateCreate, metav1.ConditionTrue, v1alpha1.ReasonLateCreateDeleted)
	if !strings.Contains(c.Message, namespace+"/late with the mark 3.aaaaaaaa/9") {
		s.Errorf("message is %q", c.Message)
	}
	s.eventually("event", func() error { return s.hasEvent(lease, v1alpha1.ConditionLateCreate, "it was deleted") })
	if n := value(s, metrics, "fencedlease_late_creates_total", "Deleted"); n != deleted+1 {
		s.Errorf("%v late creates were deleted, want 1", n-deleted)
	}
	for _, o := range []client.Object{old, own, bare} {
		s.refresh(o)
	}
	s.deleteLeases(namespace)
}

// sealIsResumed lets a replica stamp a part of the objects only: every further stamp waits until it is gone.
func (s *suite) sealIsResumed(r *running) {
	r.stop()
	namespace := s.env.CreateNamespace(s)
	const objects, stampedFirst = 400, 150
	s.fill(namespace, "many-", objects, nil)
	var stamps, answers atomic.Int64
	enough := make(chan struct{})
	config := s.env.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPatch || !strings.Contains(request.URL.Path, "/reports/") {
				return next.RoundTrip(request)
			}
			if stamps.Add(1) > stampedFirst {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			response, err := next.RoundTrip(request)
			if answers.Add(1) == stampedFirst {
				close(enough) // none is under way that the end of the replica could cut off
			}
			return response, err
		})
	})
	metrics := seal.NewMetrics()
	first := s.runAs(config, func(o *Options) { o.SealMetrics = metrics })
	lease := s.createLease(env.NewLease(namespace, "resumed", bySeal()))
	s.awaitReady(lease)
	s.acquire(lease, "a")
	select {
	case <-enough:
	case <-s.Context().Done():
		s.Fatal("the seal has not begun")
	}
	c := s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionFalse, v1alpha1.ReasonSealPending)
	if !strings.Contains(c.Message, fmt.Sprintf("with generation %d", *lease.Status.Generation)) {
		s.Errorf("message is %q", c.Message)
	}
	if n := value(s, metrics, "fencedlease_seal_pending_objects"); n <= 0 {
		s.Errorf("%v objects are pending", n)
	}
	first.stop()
	s.refresh(lease)
	if ptr.Deref(lease.Status.SealedGeneration, 0) == *lease.Status.Generation {
		s.Fatal("the term is sealed though objects are not stamped")
	}
	if got := s.marksIn(namespace, "resumed")[*lease.Status.Token]; got != stampedFirst {
		s.Errorf("%d objects are stamped, want %d", got, stampedFirst)
	}
	metrics = seal.NewMetrics()
	*r = *s.run(func(o *Options) { o.SealMetrics = metrics })
	s.awaitSealed(lease)
	if got := s.marksIn(namespace, "resumed"); got[*lease.Status.Token] != objects || len(got) != 1 {
		s.Errorf("marks are %v", got)
	}
	if n := value(s, metrics, "fencedlease_seal_stamps_total", "Written"); n != objects-stampedFirst {
		s.Errorf("the second replica made %v stamps, want %d: what is stamped is not stamped again", n, objects-stampedFirst)
	}
	s.deleteLeases(namespace)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *suite) sealLacksRights(r *running) {
	r.stop()
	user, err := s.env.AddUser("sealer")
	s.must(err)
	role := s.shippedRole("sealer")
	shipped := role.DeepCopy()
	s.must(s.client.Create(s.Context(), role))
	s.must(s.client.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sealer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sealer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "sealer"}},
	}))
	grant := func(verbs ...string) {
		s.eventually("grant rights", func() error {
			s.refresh(role)
			role.Rules = slices.Concat(shipped.Rules, []rbacv1.PolicyRule{{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports"}, Verbs: verbs}})
			return s.client.Update(s.Context(), role)
		})
	}
	// Another user is the manager from now on.
	s.must(s.client.Delete(s.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: RegistrationName}}))
	s.runAs(user)
	namespace, trial := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	report := s.report(namespace, "a", nil)
	lease := s.createLease(env.NewLease(namespace, "poor", bySeal()))
	audited := s.createLease(env.NewLease(trial, "poor", bySeal(func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit })))
	s.awaitReady(lease)
	s.awaitReady(audited)
	s.acquire(lease, "a")
	s.acquire(audited, "a")
	forbidden := func(verb string) {
		s.Helper()
		s.eventually("condition Sealed for "+verb, func() error {
			c := s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionFalse, v1alpha1.ReasonSealForbidden)
			for _, part := range []string{
				"may not " + verb + " reports.example.com", GuardedKindsLabel, "{apiGroups: [example.com], resources: [reports], verbs: [get, list, watch, patch]}",
			} {
				if !strings.Contains(c.Message, part) {
					return fmt.Errorf("message %q does not say %q", c.Message, part)
				}
			}
			return nil
		})
	}
	forbidden("list")
	s.eventually("event of the missing right", func() error { return s.hasEvent(lease, "SealForbidden", "may not list") })
	// In Audit the term is sealed as far as that can be, and the message says so.
	s.awaitSealed(audited)
	s.eventually("message of a lease in Audit", func() error {
		if c := s.awaitCondition(audited, v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealed); !strings.Contains(c.Message, "may not list") {
			return fmt.Errorf("it is %q", c.Message)
		}
		return nil
	})
	grant("get", "list", "watch")
	forbidden("patch")
	s.checkMark(report, "poor", "")
	grant("get", "list", "watch", "patch")
	s.awaitSealed(lease)
	s.checkMark(report, "poor", *lease.Status.Token)
	s.eventually("a message without trouble", func() error {
		if c := s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealed); strings.Contains(c.Message, "but:") {
			return fmt.Errorf("it is %q", c.Message)
		}
		return nil
	})
	s.deleteLeases(namespace, trial)
}
