// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fenced_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// The service account of this test has what ServiceAccountRules says, and nothing more.
func TestWrapFencesEveryVerbOfEveryClient(t *testing.T) {
	s := begin(t)
	worker := s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name))
	a := s.take(t, "a")
	verbs := func(p fenced.Possession) []verb {
		config := fenced.Wrap(worker, p)
		return slices.Concat(runtimeVerbs(newClient(t, config)), dynamicVerbs(t, config), restVerbs(t, config))
	}
	byA := verbs(a)
	names := make([]string, len(byA))
	for i, v := range byA {
		names[i] = newName()
		if !v.creates {
			names[i] = s.create(t, a, named)
		}
	}
	b := s.take(t, "b")
	byB := verbs(b)
	for i := range byA {
		t.Run(byA[i].name, func(t *testing.T) {
			s.wantFenced(t, byA[i].do(t.Context(), s, names[i]), fenced.StaleToken)
			if err := byB[i].do(t.Context(), s, names[i]); err != nil {
				t.Fatalf("with the current token: %v", err)
			}
			s.written(t, byB[i], names[i], b.token.String())
			name := newName()
			if !byA[i].creates {
				// Here the policy of marks may refuse first.
				name = s.create(t, b, named)
			}
			s.wantFenced(t, byA[i].do(t.Context(), s, name), fenced.StaleToken)
			if !byA[i].creates && s.gone(t, name) {
				t.Error("the refused write has deleted the object")
			}
		})
	}
}

func TestWrapImpersonatesWhoeverTheCallerIs(t *testing.T) {
	s := begin(t)
	p := s.take(t, "a")
	whoami := func(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
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
	carried := map[string]authenticationv1.ExtraValue{s.key(): {p.token.String()}}

	t.Run("a service account", func(t *testing.T) {
		config := s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name))
		before, got := whoami(t, config), whoami(t, fenced.Wrap(config, p))
		want := authenticationv1.UserInfo{Username: before.Username, Groups: before.Groups, Extra: carried}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	t.Run("a user with groups", func(t *testing.T) {
		config, err := cluster.AddUser("alice", "writers", "readers")
		if err != nil {
			t.Fatal(err)
		}
		before := whoami(t, config)
		grant(t, s.namespace, "alice", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"},
			fenced.UserRules("alice", before.Groups, s.lease.Name))
		c := newClient(t, fenced.Wrap(config, p))
		eventually(t, "see the role", func(ctx context.Context) error {
			return c.Create(ctx, &authenticationv1.SelfSubjectReview{})
		})
		got := whoami(t, fenced.Wrap(config, p))
		want := authenticationv1.UserInfo{Username: "alice", Groups: before.Groups, Extra: carried}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	t.Run("a configuration that impersonates", func(t *testing.T) {
		config := cluster.Config()
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "bob", UID: "7", Groups: []string{"writers"}, Extra: map[string][]string{"example.com/scopes": {"x", "y"}},
		}
		want := whoami(t, config)
		want.Extra[s.key()] = carried[s.key()]
		if diff := cmp.Diff(want, whoami(t, fenced.Wrap(config, p))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestWrapExplainsAMissingRight(t *testing.T) {
	s := begin(t)
	p := s.take(t, "a")
	all := fenced.ServiceAccountRules("worker", s.lease.Name)
	for name, test := range map[string]struct {
		rules    fenced.Rules
		resource string
	}{
		"to impersonate itself": {fenced.Rules{ClusterRole: all.ClusterRole}, "serviceaccounts"},
		"to add the token":      {fenced.Rules{Role: all.Role}, "userextras/token.fencedlease.io/report-writer"},
		"to do either":          {fenced.Rules{}, "serviceaccounts"},
		"to add the token of this lease": {
			fenced.Rules{Role: all.Role, ClusterRole: fenced.ServiceAccountRules("worker", "other").ClusterRole},
			"userextras/token.fencedlease.io/report-writer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			worker := s.worker(t, test.rules)
			protobuf := rest.CopyConfig(worker)
			protobuf.ContentType = runtime.ContentTypeProtobuf
			protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf
			for _, o := range []struct {
				config *rest.Config
				object client.Object
			}{
				{worker, s.typed(newName())},
				// Answers of built-in kinds may be in another format.
				{protobuf, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: newName()}}},
			} {
				err := newClient(t, fenced.Wrap(o.config, p)).Create(t.Context(), o.object)
				var missing *fenced.ImpersonationError
				if !errors.As(err, &missing) {
					t.Fatalf("error is %v", err)
				}
				rules := slices.Concat(missing.Missing.Role, missing.Missing.ClusterRole)
				if missing.Lease.Name != s.lease.Name || len(rules) != 1 || !slices.Equal(rules[0].Resources, []string{test.resource}) ||
					(missing.Namespace == s.namespace) != (test.resource == "serviceaccounts") {
					t.Errorf("the error is %+v", missing)
				}
				if fenced.IsFenced(err) || !apierrors.IsForbidden(err) {
					t.Errorf("fenced %v, forbidden %v", fenced.IsFenced(err), apierrors.IsForbidden(err))
				}
				for _, want := range []string{test.resource, `verbs: ["impersonate"]`, "kubectl fencedlease rbac", missing.User} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in: %v", want, err)
					}
				}
			}
		})
	}
}

func TestWrapExplainsAMissingRightOfAUser(t *testing.T) {
	s := begin(t)
	p := s.take(t, "a")
	for name, test := range map[string]struct {
		// rules are the indices of those that the user has.
		rules []int
		// other says that the user impersonates another one.
		other bool
		want  []string
	}{
		"with none of them":     {want: []string{"users", "groups", "userextras/token.fencedlease.io/report-writer"}},
		"without its groups":    {rules: []int{0, 2}, want: []string{"groups"}},
		"without the token":     {rules: []int{0, 1}, want: []string{"userextras/token.fencedlease.io/report-writer"}},
		"to impersonate others": {rules: []int{0, 1}, other: true, want: []string{"userextras/token.fencedlease.io/report-writer"}},
	} {
		t.Run(name, func(t *testing.T) {
			caller := newName()
			config, err := cluster.AddUser(caller, "writers")
			if err != nil {
				t.Fatal(err)
			}
			user := caller
			if test.other {
				user = newName()
				config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"writers"}}
			}
			rules := fenced.Rules{}
			for _, i := range test.rules {
				rules.ClusterRole = append(rules.ClusterRole, fenced.UserRules(user, []string{"writers"}, s.lease.Name).ClusterRole[i])
			}
			grant(t, s.namespace, caller, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: caller}, rules)
			err = newClient(t, fenced.Wrap(config, p)).Create(t.Context(), s.typed(newName()))
			var missing *fenced.ImpersonationError
			if !errors.As(err, &missing) || missing.User != caller || fenced.IsFenced(err) || !apierrors.IsForbidden(err) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), `resources: ["`+want+`"]`) {
					t.Errorf("%s is not in: %v", want, err)
				}
			}
		})
	}
}

func TestOtherRefusalsAreNoneOfTheFence(t *testing.T) {
	s := begin(t)
	p := s.take(t, "a")
	name := s.create(t, p)
	worker := s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name))
	c := newClient(t, fenced.Wrap(worker, p))

	forbidden := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: newName()}})
	if !apierrors.IsForbidden(forbidden) || fenced.IsFenced(forbidden) {
		t.Errorf("a missing right: %v", forbidden)
	}
	old := s.typed(name)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), old.DeepCopyObject().(client.Object)); err != nil {
		t.Fatal(err)
	}
	old.Spec.Value = "late"
	if err := c.Update(t.Context(), old); !apierrors.IsConflict(err) || fenced.IsFenced(err) {
		t.Errorf("a conflict: %v", err)
	}
}

func TestWrapTellsTheCauses(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	worker := s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name))
	write := func(t *testing.T, text string, name string) error {
		t.Helper()
		p := newTerm(t, s.lease.Name, text)
		p.lease = a.lease
		return c(t, worker, p).Patch(t.Context(), s.object(name), client.Merge)
	}
	name := s.create(t, a)
	fork := a.token
	fork.Term = "zzzzzzzz"
	s.wantFenced(t, write(t, fork.String(), name), fenced.ForkedTerm)

	err := newClient(t, worker).Patch(t.Context(), s.object(name), client.Merge)
	s.wantFenced(t, err, fenced.MissingToken)

	read := s.get(t, name)
	read.SetAnnotations(nil)
	s.wantFenced(t, admin.Update(t.Context(), read), fenced.MarkTampered)
	read = s.get(t, name)
	read.SetAnnotations(map[string]string{s.key(): "latest"})
	s.wantFenced(t, admin.Update(t.Context(), read), fenced.MalformedToken)

	two := cluster.Config()
	two.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {a.token.String(), a.token.String()}},
	}
	s.wantFenced(t, newClient(t, two).Patch(t.Context(), s.object(name), client.Merge), fenced.MalformedToken)
}

func c(t *testing.T, config *rest.Config, p fenced.Possession) client.Client {
	t.Helper()
	return newClient(t, fenced.Wrap(config, p))
}

func TestWrapSendsNothingToTheServerAfterTheEnd(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	var writes atomic.Int64
	config := fenced.Wrap(counting(s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name)), &writes), a)
	verbs := slices.Concat(runtimeVerbs(newClient(t, config)), dynamicVerbs(t, config), restVerbs(t, config))
	name := s.create(t, a, named)
	// A first write, so that nothing is left to ask for.
	if err := runtimeVerbs(newClient(t, config))[0].do(t.Context(), s, newName()); err != nil {
		t.Fatal(err)
	}
	a.end()
	// The same process leads again, which opens nothing for the term that has ended.
	s.take(t, "a")
	before := writes.Load()
	for _, v := range verbs {
		err := v.do(t.Context(), s, name)
		if !errors.Is(err, fenced.ErrTermEnded) {
			t.Errorf("%s: %v", v.name, err)
		}
		s.wantFenced(t, err, fenced.TermEnded)
	}
	if sent := writes.Load() - before; sent != 0 {
		t.Errorf("%d writes have left", sent)
	}
}

// A write that has left before the term ended arrives after the next one has begun.
func TestAWriteOnItsWayIsRefusedByTheServer(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	name := s.create(t, a)
	left, arrive := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPatch && held.CompareAndSwap(false, true) {
				close(left)
				<-arrive
			}
			return next.RoundTrip(req)
		})
	})
	writer := newClient(t, fenced.Wrap(config, a))
	answer := make(chan error, 1)
	go func() {
		answer <- writer.Patch(t.Context(), s.typed(name), client.RawPatch("application/merge-patch+json", mergeValue))
	}()
	<-left
	a.end()
	s.take(t, "b")
	close(arrive)
	s.wantFenced(t, <-answer, fenced.StaleToken)
}

func TestTwoLeasesAreCarriedTogether(t *testing.T) {
	s := begin(t)
	other := &story{namespace: s.namespace, lease: newLease(t, s.namespace, "other")}
	one, two := s.take(t, "a"), other.take(t, "x")
	worker := s.worker(t, fenced.ServiceAccountRules("worker", s.lease.Name, other.lease.Name))
	for how, clients := range map[string]struct{ both, single client.Client }{
		"by request": {
			both: newClient(t, fenced.Wrap(fenced.Wrap(worker, one), two)), single: newClient(t, fenced.Wrap(worker, one)),
		},
		"by annotation": {
			both: fenced.Client(fenced.Client(newClient(t, worker), one), two), single: fenced.Client(newClient(t, worker), one),
		},
	} {
		t.Run(how, func(t *testing.T) {
			both := clients.both
			o := s.typed(newName())
			if err := both.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if !isOf(o.Annotations[s.key()], one.token.String()) || !isOf(o.Annotations[other.key()], two.token.String()) {
				t.Errorf("annotations are %v", o.Annotations)
			}
			other.wantFenced(t, clients.single.Update(t.Context(), o.DeepCopyObject().(client.Object)), fenced.MissingToken)
			for range 2 {
				if err := both.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
					t.Errorf("delete: %v", err)
				}
			}
			if !s.gone(t, o.Name) {
				t.Error("the object is still there")
			}
		})
	}
}
