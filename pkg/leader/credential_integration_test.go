//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
)

const serviceAccount = "credential-worker"

// newAccount creates the service account of a test.
func newAccount(t *testing.T, cluster *env.Environment) types.NamespacedName {
	t.Helper()
	if _, err := cluster.ServiceAccount(t.Context(), namespace, serviceAccount); err != nil {
		t.Fatal(err)
	}
	return types.NamespacedName{Namespace: namespace, Name: serviceAccount}
}

// holding is a candidate that leads.
func holding(t *testing.T, o *operator) *leader.Term {
	t.Helper()
	return o.candidate("worker-a").leads()
}

func credentialOf(t *testing.T, term *leader.Term, changes ...func(*leader.CredentialOptions)) *leader.Credential {
	t.Helper()
	options := leader.CredentialOptions{Config: server.Config(), ServiceAccount: newAccount(t, server)}
	for _, change := range changes {
		change(&options)
	}
	c, err := term.Credential(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the credential: %v", err)
		}
	})
	return c
}

// whoami returns how the API server sees requests of a configuration.
func whoami(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func bearing(token string) *rest.Config {
	config := rest.AnonymousClientConfig(server.Config())
	config.BearerToken = token
	return config
}

func TestACredentialIsRecordedForItsTerm(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	earlier := o.Take("somebody")
	o.MustPatchLease(`{"status":{"credentials":[{"id":"JTI=earlier","term":"`+*earlier.Status.Term+`"}]}}`, "status")
	o.MustPatchLease(`{"status":{"holderIdentity":""}}`, "status")
	term := holding(t, o)
	path := filepath.Join(t.TempDir(), "token")
	c := credentialOf(t, term, func(o *leader.CredentialOptions) { o.TokenFile = path })

	want := []v1alpha1.Credential{{ID: "JTI=earlier", Term: *earlier.Status.Term}, {ID: c.ID(), Term: term.Info().ID}}
	if diff := cmp.Diff(want, o.Lease().Status.Credentials); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != c.Token() {
		t.Errorf("token file %q, %v; token %q", got, err, c.Token())
	}
	for name, config := range map[string]*rest.Config{"Config": c.Config(server.Config()), "the token file": {
		Host: server.Config().Host, TLSClientConfig: rest.TLSClientConfig{CAData: server.Config().CAData}, BearerTokenFile: path,
	}} {
		user := whoami(t, config)
		if user.Username != "system:serviceaccount:"+namespace+":"+serviceAccount {
			t.Errorf("%s: user %q", name, user.Username)
		}
		if diff := cmp.Diff(authenticationv1.ExtraValue{c.ID()}, user.Extra[v1alpha1.CredentialKey]); diff != "" {
			t.Errorf("%s: credential (-want +got):\n%s", name, diff)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the token file is still there: %v", err)
	}
}

func TestACredentialIsBoundToThePod(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	account := newAccount(t, server)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "worker-"},
		Spec:       corev1.PodSpec{ServiceAccountName: account.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := o.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	c := credentialOf(t, holding(t, o), func(o *leader.CredentialOptions) { o.PodName, o.PodUID = pod.Name, pod.UID })
	extra := whoami(t, bearing(c.Token())).Extra
	if diff := cmp.Diff(authenticationv1.ExtraValue{string(pod.UID)}, extra["authentication.kubernetes.io/pod-uid"]); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

// Each refresh comes in the first half of the token's life, and is recorded before it is used.
func TestACredentialIsRefreshedBeforeItExpires(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	clock := clocktesting.NewFakeClock(time.Now())
	path := filepath.Join(t.TempDir(), "token")
	c := credentialOf(t, term, func(o *leader.CredentialOptions) {
		o.Clock, o.TokenFile, o.Lifetime = clock, path, 20*time.Minute
	})
	ids := []string{c.ID()}
	for i := range 12 {
		eventually(t, "the refresh is timed", clock.HasWaiters)
		clock.Step(9 * time.Minute)
		if c.ID() != ids[len(ids)-1] || !clock.HasWaiters() {
			t.Fatalf("refresh %d came early", i)
		}
		clock.Step(time.Minute + time.Second)
		eventually(t, "there is a new token", func() bool { return c.ID() != ids[len(ids)-1] })
		ids = append(ids, c.ID())
		if got, err := os.ReadFile(path); err != nil || string(got) != c.Token() {
			t.Fatalf("refresh %d: token file %q, %v", i, got, err)
		}
		if got := whoami(t, c.Config(server.Config())).Extra[v1alpha1.CredentialKey]; len(got) != 1 || got[0] != c.ID() {
			t.Fatalf("refresh %d: requests are made with %v, want %s", i, got, c.ID())
		}
		listed := o.Lease().Status.Credentials
		for _, entry := range listed {
			if entry.Term != term.Info().ID || !slices.Contains(ids, entry.ID) {
				t.Fatalf("refresh %d: entry %+v", i, entry)
			}
		}
		// The present one, the one before, and the one that has just expired.
		for _, id := range ids[max(0, len(ids)-3):] {
			if !slices.ContainsFunc(listed, func(c v1alpha1.Credential) bool { return c.ID == id }) {
				t.Fatalf("refresh %d: %s is not listed any more", i, id)
			}
		}
		if len(listed) > 3 {
			t.Fatalf("refresh %d: %d entries take the room of ended terms", i, len(listed))
		}
	}
}

func TestACredentialEndsWithItsTerm(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	clock := clocktesting.NewFakeClock(time.Now())
	path := filepath.Join(t.TempDir(), "token")
	c := credentialOf(t, term, func(o *leader.CredentialOptions) { o.Clock, o.TokenFile = clock, path })
	write, err := kubernetes.NewForConfig(c.Config(server.Config()))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refresh is timed", clock.HasWaiters)
	o.Take("somebody")
	lost := ended(t, term)
	eventually(t, "refreshing has ended", func() bool { return !clock.HasWaiters() })
	before := o.Lease().Status.Credentials
	clock.Step(24 * time.Hour)
	if diff := cmp.Diff(before, o.Lease().Status.Credentials); diff != "" {
		t.Errorf("credentials after the term (-want +got):\n%s", diff)
	}

	// Reads go on, writes do not leave.
	_, err = write.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	if !errors.Is(err, fenced.ErrTermEnded) || !leader.IsFenced(err) {
		t.Errorf("a write after the end: %v", err)
	}
	if _, err = write.CoreV1().ConfigMaps(namespace).Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsForbidden(err) || leader.IsFenced(err) {
		t.Errorf("a read after the end: %v", err)
	}

	// The term is over, also for those who ask late.
	_, err = term.Credential(t.Context(), leader.CredentialOptions{Config: server.Config(), ServiceAccount: newAccount(t, server)})
	if got := lostTerm(t, err); !errors.As(lost, new(*leader.LostError)) || got.Generation <= got.Term.Generation {
		t.Errorf("lost by %v, and told so late by %v", lost, got)
	}

	// The file of the next term stays.
	if err := os.WriteFile(path, []byte("of the next term"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "of the next term" {
		t.Errorf("token file %q, %v", got, err)
	}
}

// Another write between the read and the patch, such as a renewal or another credential, costs a repetition and loses nothing.
func TestCredentialsOfSeveralProgramsDoNotLoseEachOther(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	made := make(chan *leader.Credential, 4)
	stop := make(chan struct{})
	defer close(stop)
	var i atomic.Int64
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = o.WriteCondition(int(i.Add(1)))
			}
		}
	}()
	for range cap(made) {
		go func() {
			c, err := term.Credential(t.Context(), leader.CredentialOptions{
				Config: server.Config(), ServiceAccount: types.NamespacedName{Namespace: namespace, Name: serviceAccount},
			})
			if err != nil {
				t.Errorf("make a credential: %v", err)
			}
			made <- c
		}()
	}
	newAccount(t, server)
	want := map[string]bool{}
	for range cap(made) {
		if c := <-made; c != nil {
			want[c.ID()] = true
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	got := map[string]bool{}
	for _, entry := range o.Lease().Status.Credentials {
		got[entry.ID] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
}

func TestACredentialThatCannotBeMade(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	account := newAccount(t, server)
	stranger, err := server.AddUser("credential-stranger")
	if err != nil {
		t.Fatal(err)
	}
	requester, err := server.AddUser("credential-requester")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "credential-requester"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account.Name}, Verbs: []string{"create"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, ResourceNames: []string{o.name}, Verbs: []string{"get"}},
		},
	}
	if err := o.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := o.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "credential-requester"}},
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options leader.CredentialOptions
		want    string
	}{
		"no configuration":             {leader.CredentialOptions{ServiceAccount: account}, "Config is missing"},
		"no service account":           {leader.CredentialOptions{Config: server.Config()}, "names no service account"},
		"a pod without a uid":          {leader.CredentialOptions{Config: server.Config(), ServiceAccount: account, PodName: "x"}, "go together"},
		"too short a life":             {leader.CredentialOptions{Config: server.Config(), ServiceAccount: account, Lifetime: time.Minute}, "at least 10m0s"},
		"a service account that isn't": {leader.CredentialOptions{Config: server.Config(), ServiceAccount: types.NamespacedName{Name: "none"}}, `"none" not found`},
		"no right to request tokens":   {leader.CredentialOptions{Config: stranger, ServiceAccount: account}, `cannot create resource "serviceaccounts/token"`},
		"no right to record them":      {leader.CredentialOptions{Config: requester, ServiceAccount: account}, `cannot patch resource "fencedleases/status"`},
		"a pod that is not there":      {leader.CredentialOptions{Config: server.Config(), ServiceAccount: account, PodName: "none", PodUID: "u"}, `"none" not found`},
		"a folder that is not there": {
			leader.CredentialOptions{Config: server.Config(), ServiceAccount: account, TokenFile: filepath.Join(t.TempDir(), "none", "token")}, "no such file",
		},
	} {
		var got error
		// Roles take a moment to be in force.
		eventually(t, name, func() bool {
			_, got = term.Credential(t.Context(), c.options)
			return got != nil && (strings.Contains(got.Error(), c.want) || name != "no right to record them")
		})
		if !strings.Contains(got.Error(), c.want) || !strings.Contains(got.Error(), "FencedLease "+namespace+"/"+o.name) {
			t.Errorf("%s: want %q, got %v", name, c.want, got)
		}
	}
	if got := o.Lease().Status.Credentials; len(got) != 0 {
		t.Errorf("credentials that nobody has were recorded: %+v", got)
	}
}

// failing answers a number of requests for tokens with 503, or not at all.
type failing struct {
	next  http.RoundTripper
	count atomic.Int64
	left  atomic.Int64
}

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/token") && f.left.Add(-1) >= 0 {
		if f.count.Add(1)%2 == 0 {
			return nil, errors.New("connection lost")
		}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	return f.next.RoundTrip(req)
}

func TestACredentialOutlastsAnOutage(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	f := &failing{}
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.next = next
		return f
	})
	clock := clocktesting.NewFakeClock(time.Now())
	f.left.Store(3)
	made := make(chan *leader.Credential, 1)
	go func() {
		c, err := term.Credential(t.Context(), leader.CredentialOptions{Config: config, ServiceAccount: newAccount(t, server), Clock: clock})
		if err != nil {
			t.Errorf("make a credential: %v", err)
		}
		made <- c
	}()
	for f.count.Load() < 3 {
		eventually(t, "it pauses", clock.HasWaiters)
		clock.Step(time.Minute)
	}
	var c *leader.Credential
	eventually(t, "the credential is made", func() bool {
		if clock.HasWaiters() {
			clock.Step(time.Second)
		}
		select {
		case c = <-made:
			return true
		default:
			return false
		}
	})
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = c.Close() })

	first := c.ID()
	f.left.Store(5)
	eventually(t, "it is refreshed after an outage", func() bool {
		if clock.HasWaiters() {
			clock.Step(time.Minute)
		}
		return c.ID() != first
	})
	if f.left.Load() > 0 {
		t.Error("it did not fail")
	}
}

func TestACredentialIsGivenUpWithItsContext(t *testing.T) {
	noLeaks(t, sharedConnections())
	o := newLease(t)
	term := holding(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	clock := clocktesting.NewFakeClock(time.Now())
	c, err := term.Credential(ctx, leader.CredentialOptions{Config: server.Config(), ServiceAccount: newAccount(t, server), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refresh is timed", clock.HasWaiters)
	cancel()
	eventually(t, "refreshing has ended", func() bool { return !clock.HasWaiters() })
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	// The next one takes nothing from the first.
	if second := credentialOf(t, term); second.ID() == c.ID() {
		t.Error("the same token twice")
	}
}
