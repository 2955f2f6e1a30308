// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// drainForever is a delay by which drainClock knows the timer of the drain.
const drainForever = 1234567 * time.Second

// drainClock is the real time, but for the drain, which is over when the test says so.
type drainClock struct {
	clock.RealClock
	over chan time.Time
}

func (c drainClock) NewTimer(d time.Duration) clock.Timer {
	if d == drainForever {
		return heldTimer{c.over}
	}
	return c.RealClock.NewTimer(d)
}

type heldTimer struct{ c chan time.Time }

func (t heldTimer) C() <-chan time.Time    { return t.c }
func (heldTimer) Stop() bool               { return true }
func (heldTimer) Reset(time.Duration) bool { return true }

// testReadiness first gives the manager no rights: it can make no certificate and has no leases, so it must say that it is
// not ready, but is alive. Then it gets them, judges, and drains.
func (w *world) testReadiness(t *testing.T) {
	config, err := w.cluster.AddUser("late")
	must(t, err)
	options := manager.NewOptions()
	options.Namespace, options.DrainDelay = product.Namespace, drainForever
	options.WebhookHost = "127.0.0.1"
	options.WebhookPort, err = w.cluster.Port()
	must(t, err)
	options.WebhookURL = "https://" + env.Local(options.WebhookPort)
	probes, err := w.cluster.Port()
	must(t, err)
	options.ProbeAddr = env.Local(probes)
	held := drainClock{over: make(chan time.Time)}
	registry := prometheus.NewRegistry()

	log := logOf(t)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, options, manager.Dependencies{Config: config, Registry: registry, Clock: held, Log: log})
	}()
	stopped := false
	defer func() {
		end()
		if !stopped {
			close(held.over)
			<-ended
		}
	}()

	health := func(path string) (int, string) {
		return get(t, http.DefaultClient, "http://"+options.ProbeAddr+path, "")
	}
	// await waits for the state of each check.
	await := func(code int, want map[string]bool) {
		t.Helper()
		eventually(t, "readiness", func() error {
			got, body := health("/readyz?verbose")
			checks := checksOf(body)
			if diff := cmp.Diff(want, checks); got != code || diff != "" {
				return fmt.Errorf("want %d, got %d; checks (-want +got):\n%s", code, got, diff)
			}
			return nil
		})
	}

	await(http.StatusInternalServerError, map[string]bool{"certificate": false, "leases": false, "webhook": false, "ending": true})
	if code, body := health("/healthz"); code != http.StatusOK {
		t.Errorf("want a manager without rights to be alive, got %d %s", code, body)
	}

	must(t, w.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "late"}},
	}))
	green := map[string]bool{"certificate": true, "leases": true, "webhook": true, "ending": true}
	await(http.StatusOK, green)
	g := w.guardEventually(t)
	c := w.httpClient(t)
	g.mustJudge(t, c, options.WebhookPort)
	if _, closes := g.review(t, &http.Client{Transport: keepAlive(c)}, options.WebhookPort, g.token+"/open"); closes {
		t.Error("a replica that is not ending asks for its connections to be closed")
	}

	end()
	draining := maps.Clone(green)
	draining["ending"] = false
	await(http.StatusInternalServerError, draining)
	g.mustJudge(t, c, options.WebhookPort)
	if _, closes := g.review(t, &http.Client{Transport: keepAlive(c)}, options.WebhookPort, g.token+"/close"); !closes {
		t.Error("a replica that is ending does not ask for its connections to be closed")
	}
	select {
	case err := <-ended:
		stopped = true
		t.Fatalf("the manager ended before its drain was over: %v", err)
	default:
	}
	// Whoever still asks gets a correct verdict or no answer at all, up to the last one.
	question := g.question(t, g.token+"/last")
	var asking sync.WaitGroup
	var answers atomic.Int64
	for range 4 {
		asking.Go(func() {
			for {
				verdict, _, err := ask(t.Context(), c, options.WebhookPort, question)
				if err != nil {
					return
				}
				if answers.Add(1); !verdict.Allowed {
					t.Errorf("while the servers stop: %+v", verdict.Result)
				}
			}
		})
	}
	eventually(t, "answers", func() error {
		if n := answers.Load(); n < 20 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	close(held.over)
	stopped = true
	if err := <-ended; err != nil {
		t.Errorf("run manager: %v", err)
	}
	asking.Wait()
}

// keepAlive returns the transport with connections that stay open.
func keepAlive(c *http.Client) *http.Transport {
	transport, ok := c.Transport.(*http.Transport)
	if !ok {
		return nil
	}
	transport = transport.Clone()
	transport.DisableKeepAlives = false
	return transport
}

// guardEventually is guard where API servers may not call the manager yet.
func (w *world) guardEventually(t *testing.T) *guard {
	t.Helper()
	eventually(t, "validation of FencedLeases", func() error {
		return w.admin.Create(t.Context(), env.NewLease(metav1.NamespaceDefault, "first"), client.DryRunAll)
	})
	return w.guard(t)
}

// checksOf reads the verbose answer of /readyz.
func checksOf(body string) map[string]bool {
	checks := map[string]bool{}
	for line := range strings.Lines(body) {
		for prefix, green := range map[string]bool{"[+]": true, "[-]": false} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				name, _, _ := strings.Cut(rest, " ")
				checks[name] = green
			}
		}
	}
	return checks
}
