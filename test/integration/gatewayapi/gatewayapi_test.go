// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package gatewayapi_test shows that public definitions are guarded as they are: those of Gateway API, from its module,
// with nothing changed in them.
package gatewayapi_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	module   = "sigs.k8s.io/gateway-api"
	patience = 90 * time.Second
)

// definitions returns the files of the standard channel's definitions, in the module that go.mod names.
func definitions(t *testing.T, root string, resources ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find module %s: %v: %s", module, err, stderr.String())
	}
	var files []string
	for _, resource := range resources {
		files = append(files, filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard", gatewayv1.GroupName+"_"+resource+".yaml"))
	}
	return files
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// story is a lease over HTTPRoutes that A held before B does.
type story struct {
	cluster *env.Environment
	admin   client.Client
	lease   *v1alpha1.FencedLease
	a, b    string
	count   int
}

// fresh gives a token an operation that no write has used.
func (s *story) fresh(token string) string {
	s.count++
	return token + "/" + strconv.Itoa(s.count)
}

// carrying returns the client of a worker whose requests carry a token.
func (s *story) carrying(t *testing.T, token string) client.Client {
	t.Helper()
	config := s.cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{v1alpha1.TokenKey(s.lease.Name): {token}},
	}
	return newClient(t, config)
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := env.NewScheme()
	must(t, err)
	must(t, gatewayv1.Install(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

// route returns an HTTPRoute for a path. Its token is left out if empty.
func (s *story) route(name, token, path string) *gatewayv1.HTTPRoute {
	route := &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.lease.Namespace, Name: name},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway"}}},
			Rules: []gatewayv1.HTTPRouteRule{{
				Matches: []gatewayv1.HTTPRouteMatch{{
					Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: &path},
				}},
			}},
		},
	}
	if token != "" {
		route.Annotations = map[string]string{v1alpha1.TokenKey(s.lease.Name): token}
	}
	return route
}

// patch changes a part of a route, or of its status, in a request that carries the token as a changed annotation.
func (s *story) patch(ctx context.Context, status bool, name, token, part string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},%s}`, v1alpha1.TokenKey(s.lease.Name), token, part)
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: s.lease.Namespace, Name: name}}
	if status {
		return s.admin.Status().Patch(ctx, route, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	return s.admin.Patch(ctx, route, client.RawPatch(types.MergePatchType, []byte(patch)))
}

const (
	hostnames = `"spec":{"hostnames":["example.com"]}`
	accepted  = `"status":{"parents":[{"parentRef":{"name":"gateway"},"controllerName":"example.com/gateway","conditions":[` +
		`{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}]}`
)

// fenced tells whether the webhook, or the policy that protects marks, has refused a stale write.
func fenced(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "must not fall or vanish") ||
		string(apierrors.ReasonForError(err)) == v1alpha1.StatusReasonFenced
}

func begin(t *testing.T) *story {
	t.Helper()
	quiet := funcr.New(func(string, string) {}, funcr.Options{})
	ctrl.SetLogger(quiet)
	s := &story{cluster: env.StartT(t, env.Options{})}
	must(t, s.cluster.InstallCRDFiles(t.Context(), definitions(t, s.cluster.ModuleRoot(), "httproutes", "gateways")...))
	must(t, product.Install(t.Context(), s.cluster, gatewayv1.GroupName))
	manager, err := product.StartManager(t.Context(), s.cluster, quiet)
	must(t, err)
	t.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	s.admin = newClient(t, s.cluster.Config())
	s.lease = env.NewLease(s.cluster.CreateNamespace(t), "routes", func(l *v1alpha1.FencedLease) {
		l.Spec.Guards = []v1alpha1.Guard{{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"httproutes/*"}}}
	})
	must(t, product.CreateLease(t.Context(), s.admin, s.lease))
	s.acquire(t, "a")
	s.a = env.Token(s.lease, "")
	return s
}

func (s *story) acquire(t *testing.T, holder string) {
	t.Helper()
	var last error
	// The controller may write conditions in between.
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = env.Acquire(ctx, s.admin, s.lease, holder)
		return last == nil, nil
	}); err != nil {
		t.Fatalf("acquire: %v: %v", err, last)
	}
}

func TestHTTPRoutes(t *testing.T) {
	s := begin(t)
	must(t, s.admin.Create(t.Context(), s.route("main", s.fresh(s.a), "/a")))
	s.acquire(t, "b")
	s.b = env.Token(s.lease, "")

	// The first current write of each kind comes after the stale one, which must leave no trace.
	for _, c := range []struct {
		name  string
		write func(ctx context.Context, token string) error
	}{
		{"create", func(ctx context.Context, token string) error {
			return s.admin.Create(ctx, s.route("new", s.fresh(token), "/new"))
		}},
		{"update", func(ctx context.Context, token string) error {
			route := &gatewayv1.HTTPRoute{}
			if err := s.admin.Get(ctx, client.ObjectKey{Namespace: s.lease.Namespace, Name: "main"}, route); err != nil {
				return err
			}
			route.Annotations[v1alpha1.TokenKey(s.lease.Name)] = s.fresh(token)
			route.Spec.Hostnames = []gatewayv1.Hostname{"updated.example.com"}
			return s.admin.Update(ctx, route)
		}},
		{"patch", func(ctx context.Context, token string) error {
			return s.patch(ctx, false, "main", s.fresh(token), hostnames)
		}},
		{"status by annotation", func(ctx context.Context, token string) error {
			return s.patch(ctx, true, "main", s.fresh(token), accepted)
		}},
		{"status by request", func(ctx context.Context, token string) error {
			return s.carrying(t, token).Status().Patch(ctx, s.route("main", "", ""), client.RawPatch(types.MergePatchType, []byte("{"+strings.Replace(accepted, "True", "False", 1)+"}")))
		}},
		{"delete", func(ctx context.Context, token string) error {
			return s.carrying(t, token).Delete(ctx, s.route("new", "", ""))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.versions(t)
			if err := c.write(t.Context(), s.a); !fenced(err) {
				t.Errorf("stale: want a refusal, got %v", err)
			}
			if after := s.versions(t); before != after {
				t.Errorf("stale: routes changed from %s to %s", before, after)
			}
			if err := c.write(t.Context(), s.b); err != nil {
				t.Errorf("current: %v", err)
			}
			if after := s.versions(t); before == after {
				t.Errorf("current: no route has changed: %s", after)
			}
		})
	}

	t.Run("a write without a token", func(t *testing.T) {
		if err := s.admin.Delete(t.Context(), s.route("main", "", "")); string(apierrors.ReasonForError(err)) != v1alpha1.StatusReasonFenced {
			t.Errorf("want a refusal, got %v", err)
		}
	})
	t.Run("rules of the definition", func(t *testing.T) {
		const rule = "value must be an absolute path and start with '/'"
		err := s.admin.Create(t.Context(), s.route("bad", s.fresh(s.b), "relative"))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule) {
			t.Errorf("want %q, got %v", rule, err)
		}
	})
	t.Run("kinds of the group that no guard names", func(t *testing.T) {
		gateway := &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.lease.Namespace, Name: "gateway"},
			Spec: gatewayv1.GatewaySpec{
				GatewayClassName: "any", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
			},
		}
		must(t, s.admin.Create(t.Context(), gateway))
		must(t, s.admin.Delete(t.Context(), gateway))
	})
}

// versions returns the resourceVersions of all routes.
func (s *story) versions(t *testing.T) string {
	t.Helper()
	routes := &gatewayv1.HTTPRouteList{}
	must(t, s.admin.List(t.Context(), routes, client.InNamespace(s.lease.Namespace)))
	var versions []string
	for i := range routes.Items {
		versions = append(versions, routes.Items[i].Name+" "+routes.Items[i].ResourceVersion)
	}
	return strings.Join(versions, ", ")
}
