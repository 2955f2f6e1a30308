// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

// TestOnAPIServer tests what acts on, or asks, a real API server.
func TestOnAPIServer(t *testing.T) {
	s := &apiServer{cluster: env.StartT(t, env.Options{WithoutEndpoints: true})}
	must(t, s.cluster.InstallCRDs(t.Context()))
	must(t, s.cluster.InstallGuardedCRD(t.Context()))
	var err error
	s.admin, err = env.Client(s.cluster.Config())
	must(t, err)
	t.Run("evidence", s.testEvidence)
	t.Run("evidence is acted on again after a failure", s.testEvidenceRetries)
	t.Run("permissions", s.testPermissions)
	t.Run("namespaces", s.testNamespaces)
	t.Run("objects", s.testObjects)
}

type apiServer struct {
	cluster *env.Environment
	admin   client.Client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// heldLease creates a lease and takes it.
func (s *apiServer) heldLease(t *testing.T) *v1alpha1.FencedLease {
	t.Helper()
	l := env.NewLease(s.cluster.CreateNamespace(t), "report-writer")
	must(t, env.CreateLease(t.Context(), s.admin, l))
	must(t, env.Acquire(t.Context(), s.admin, l, "a"))
	return l
}

func (s *apiServer) reload(t *testing.T, l *v1alpha1.FencedLease) *v1alpha1.FencedLease {
	t.Helper()
	live := &v1alpha1.FencedLease{}
	must(t, s.admin.Get(t.Context(), client.ObjectKeyFromObject(l), live))
	return live
}

// run starts an Evidence, and ends it with the test.
func run(t *testing.T, c client.Client) (*Evidence, *events.FakeRecorder, *clocktesting.FakeClock) {
	t.Helper()
	recorder := events.NewFakeRecorder(100)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e := NewEvidence(c, recorder, clock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run evidence: %v", err)
		}
	})
	return e, recorder, clock
}

// mustHear returns the next event.
func mustHear(t *testing.T, recorder *events.FakeRecorder) string {
	t.Helper()
	select {
	case text := <-recorder.Events:
		return text
	case <-t.Context().Done():
		t.Fatal("no event came")
		return ""
	}
}

func (s *apiServer) testEvidence(t *testing.T) {
	e, recorder, _ := run(t, s.admin)
	seen := func(l *v1alpha1.FencedLease, generation int64, mark bool) {
		e.GenerationAhead(Sighting{Lease: client.ObjectKeyFromObject(l), Generation: generation, Mark: mark, Object: "reports.example.com x/daily"})
	}
	l := s.heldLease(t)
	untouched, absent := s.heldLease(t), env.NewLease("none", "none")
	fresh := env.NewLease(s.cluster.CreateNamespace(t), "report-writer")
	must(t, s.admin.Create(t.Context(), fresh))
	generation := *l.Status.Generation

	// None of these has an effect. They are acted on before what comes after them, or together with it.
	seen(absent, 5, true)
	seen(fresh, 5, true)
	seen(untouched, *untouched.Status.Generation, true)
	seen(untouched, token.MaxPlausibleGeneration+1, false)

	seen(l, generation+100, false)
	text := mustHear(t, recorder)
	if want := fmt.Sprintf("Warning GenerationAhead reports.example.com x/daily shows generation %d, the lease has %d:", generation+100, generation); !strings.HasPrefix(text, want) {
		t.Errorf("want %q, got %q", want, text)
	}
	raised := s.reload(t, l)
	if got := ptr.Deref(raised.Status.GenerationFloor, 0); got != generation+100 {
		t.Fatalf("want a floor of %d, got %d", generation+100, got)
	}
	// Nothing of the possession has changed, and the floor outlives what others write.
	raised.Status.GenerationFloor = l.Status.GenerationFloor
	if diff := cmp.Diff(l.Status, raised.Status); diff != "" {
		t.Errorf("more than the floor has changed (-want +got):\n%s", diff)
	}
	must(t, env.Renew(t.Context(), s.admin, l))
	must(t, env.Acquire(t.Context(), s.admin, l, "b"))
	if got := *l.Status.Generation; got != generation+101 {
		t.Errorf("want the next acquisition at %d, got %d", generation+101, got)
	}

	// An implausible mark is told, and raises nothing.
	before := s.reload(t, l)
	seen(l, token.MaxPlausibleGeneration+1, true)
	if text, want := mustHear(t, recorder), fmt.Sprintf("Warning ImplausibleMark reports.example.com x/daily shows generation %d,", token.MaxPlausibleGeneration+1); !strings.HasPrefix(text, want) {
		t.Errorf("want %q, got %q", want, text)
	}
	if diff := cmp.Diff(before, s.reload(t, l)); diff != "" {
		t.Errorf("an implausible mark changed the lease (-want +got):\n%s", diff)
	}

	// By now all of the above have been acted on.
	if diff := cmp.Diff(untouched.ResourceVersion, s.reload(t, untouched).ResourceVersion); diff != "" {
		t.Errorf("the lease whose generation was known was written (-want +got):\n%s", diff)
	}
	if got := s.reload(t, fresh).Status.GenerationFloor; got != nil {
		t.Errorf("want the first floor to be left to the controller, got %d", *got)
	}
	e.Overridden(l, "alice", "reports.example.com x/daily", "because")
	if text, want := mustHear(t, recorder), "Warning WriteOverridden alice wrote reports.example.com x/daily without a token: because"; text != want {
		t.Errorf("want %q, got %q", want, text)
	}
}

// failing is a client whose reads or status writes fail as often as it is told.
type failing struct {
	client.Client
	reads, writes atomic.Int64
	failed        chan struct{}
}

var errDown = errors.New("the API server is down")

func (f *failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if f.reads.Add(-1) >= 0 {
		f.failed <- struct{}{}
		return errDown
	}
	return f.Client.Get(ctx, key, o, opts...)
}

func (f *failing) Status() client.SubResourceWriter { return failingStatus{f.Client.Status(), f} }

type failingStatus struct {
	client.SubResourceWriter
	f *failing
}

func (s failingStatus) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if s.f.writes.Add(-1) >= 0 {
		s.f.failed <- struct{}{}
		return errDown
	}
	return s.SubResourceWriter.Apply(ctx, o, opts...)
}

func (s *apiServer) testEvidenceRetries(t *testing.T) {
	for name, set := range map[string]func(f *failing){
		"of the read":  func(f *failing) { f.reads.Store(2) },
		"of the write": func(f *failing) { f.writes.Store(2) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{Client: s.admin, failed: make(chan struct{})}
			set(f)
			l := s.heldLease(t)
			e, recorder, clock := run(t, f)
			// The retries come with a ticker, which the loop makes when it starts.
			eventually(t, "start", func() error {
				if !clock.HasWaiters() {
					return errors.New("no ticker yet")
				}
				return nil
			})
			want := *l.Status.Generation + 7
			e.GenerationAhead(Sighting{Lease: client.ObjectKeyFromObject(l), Generation: want, Object: "x"})
			<-f.failed
			for _, last := range []bool{false, true} {
				// Too early: nobody asks again before the pause is over.
				clock.Step(evidenceRetry / 2)
				select {
				case <-f.failed:
					t.Error("it was tried again at once")
				default:
				}
				clock.Step(evidenceRetry / 2)
				if !last {
					<-f.failed
				}
			}
			mustHear(t, recorder)
			if got := ptr.Deref(s.reload(t, l).Status.GenerationFloor, 0); got != want {
				t.Errorf("want a floor of %d, got %d", want, got)
			}
		})
	}
}

func (s *apiServer) testPermissions(t *testing.T) {
	clientset, err := kubernetes.NewForConfig(s.cluster.Config())
	must(t, err)
	permissions := NewPermissions(clientset.AuthorizationV1().SubjectAccessReviews())
	namespace := s.cluster.CreateNamespace(t)
	must(t, s.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bypass"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"bypass"}, ResourceNames: []string{"report-writer"},
		}},
	}))
	must(t, s.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bypass"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "bypass"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}, {APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "operators"},
		},
	}))
	key := types.NamespacedName{Namespace: namespace, Name: "report-writer"}
	eventually(t, "the binding", func() error {
		if may, err := permissions.MayBypass(t.Context(), authenticationv1.UserInfo{Username: "alice"}, key); err != nil || !may {
			return fmt.Errorf("%t, %w", may, err)
		}
		return nil
	})
	for name, c := range map[string]struct {
		user authenticationv1.UserInfo
		key  types.NamespacedName
		want bool
	}{
		"a member of a group": {authenticationv1.UserInfo{Username: "bob", Groups: []string{"operators"}}, key, true},
		"an administrator":    {authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}, key, true},
		"somebody with an extra": {
			authenticationv1.UserInfo{Username: "alice", UID: "1", Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}}}, key, true,
		},
		"somebody else":        {authenticationv1.UserInfo{Username: "bob", Groups: []string{"system:authenticated"}}, key, false},
		"for another lease":    {authenticationv1.UserInfo{Username: "alice"}, types.NamespacedName{Namespace: namespace, Name: "other"}, false},
		"in another namespace": {authenticationv1.UserInfo{Username: "alice"}, types.NamespacedName{Namespace: "default", Name: "report-writer"}, false},
	} {
		if may, err := permissions.MayBypass(t.Context(), c.user, c.key); err != nil || may != c.want {
			t.Errorf("%s: want %t, got %t, %v", name, c.want, may, err)
		}
	}

	t.Run("cannot be asked", func(t *testing.T) {
		stranger, err := s.cluster.AddUser("stranger")
		must(t, err)
		clientset, err := kubernetes.NewForConfig(stranger)
		must(t, err)
		may, err := NewPermissions(clientset.AuthorizationV1().SubjectAccessReviews()).MayBypass(t.Context(), authenticationv1.UserInfo{Username: "alice"}, key)
		if may || !apierrors.IsForbidden(err) {
			t.Errorf("want an error, got %t, %v", may, err)
		}
	})
}

func (s *apiServer) testNamespaces(t *testing.T) {
	name := s.cluster.CreateNamespace(t, map[string]string{"team": "a"})
	want := labels.Set{"team": "a", corev1.LabelMetadataName: name}
	cached, err := cache.New(s.cluster.Config(), cache.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cached.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	namespaces := NewNamespaces(cached, s.admin)
	eventually(t, "the copy", func() error {
		if set, known := namespaces.Cached(t.Context(), name); !known || !labels.Equals(want, set) {
			return fmt.Errorf("got %v, %t", set, known)
		}
		return nil
	})
	live, err := namespaces.Live(t.Context(), name)
	must(t, err)
	if diff := cmp.Diff(want, live); diff != "" {
		t.Errorf("live labels (-want +got):\n%s", diff)
	}
	if set, known := namespaces.Cached(t.Context(), "none"); known {
		t.Errorf("want nothing of a namespace that there is not, got %v", set)
	}
	if _, err := namespaces.Live(t.Context(), "none"); !apierrors.IsNotFound(err) {
		t.Errorf("want not found, got %v", err)
	}

	// Right after a change the live labels show it, whatever the copy shows.
	for i := range 20 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(t, s.admin.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"`+strconv.Itoa(i)+`"}}}`))))
		if live, err := namespaces.Live(t.Context(), name); err != nil || live["team"] != strconv.Itoa(i) {
			t.Fatalf("change %d: live labels are %v, %v", i, live, err)
		}
	}
}

func (s *apiServer) testObjects(t *testing.T) {
	c, err := metadata.NewForConfig(rest.CopyConfig(s.cluster.Config()))
	must(t, err)
	objects := NewObjects(c)
	report := env.NewReport(s.cluster.CreateNamespace(t), "daily", "x")
	report.SetAnnotations(map[string]string{key: current})
	must(t, s.admin.Create(t.Context(), report))
	for _, version := range []string{env.ReportVersion, env.ReportOldVersion} {
		got, err := objects.Get(t.Context(), env.ReportResource(version), report.GetNamespace(), report.GetName())
		must(t, err)
		if got.ResourceVersion != report.GetResourceVersion() || got.Annotations[key] != current || got.UID != report.GetUID() {
			t.Errorf("%s: got %+v", version, got.ObjectMeta)
		}
	}
	if _, err := objects.Get(t.Context(), env.ReportResource(env.ReportVersion), report.GetNamespace(), "none"); !apierrors.IsNotFound(err) {
		t.Errorf("want not found, got %v", err)
	}
}
