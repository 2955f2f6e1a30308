// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	// patience bounds every wait, far above what any needs.
	patience = 90 * time.Second
	poll     = 50 * time.Millisecond

	servingName = "fencedlease-webhook-service.fencedlease-system.svc"
)

// TestManager runs its parts one after the other on one control plane with the product installed; each starts the managers
// that it needs and ends them.
func TestManager(t *testing.T) {
	ctrl.SetLogger(quiet())
	w := &world{cluster: env.StartT(t, env.Options{})}
	must(t, w.cluster.InstallGuardedCRD(t.Context()))
	must(t, product.Install(t.Context(), w.cluster))
	var err error
	w.admin, err = env.Client(w.cluster.Config())
	must(t, err)

	t.Run("readiness means that a correct verdict is possible", w.testReadiness)
	t.Run("metrics are for those who may read them", w.testMetricsEndpoint)
	t.Run("metrics are a contract", w.testMetricsContract)
	t.Run("every replica answers, one controls, and the next takes over", w.testReplicas)
	t.Run("replicas are replaced without a failed write", w.testReplacement)
	t.Run("a replica that lost the election leaves without a failed write", w.testLostElection)
	t.Run("the installation is applied again without a failed write", w.testReapply)
	t.Run("certificates of a folder are renewed, and their CA changes, without a failed write", w.testCertificatesOfAFolder)
}

// world is the control plane.
type world struct {
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
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// quiet returns a log that goes nowhere; one without a sink stands for the default.
func quiet() logr.Logger { return funcr.New(func(string, string) {}, funcr.Options{}) }

// logOf returns a log that is shown if the test fails.
func logOf(t *testing.T) logr.Logger {
	t.Helper()
	var mu sync.Mutex
	var lines strings.Builder
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			t.Logf("log of the manager:\n%s", lines.String())
		}
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{LogTimestamp: true})
}

// start runs a manager until the end of the test, if it is not stopped before.
func (w *world) start(t *testing.T, mutations ...func(*manager.Options)) *product.Manager {
	t.Helper()
	m, err := product.StartManager(t.Context(), w.cluster, logOf(t), mutations...)
	must(t, err)
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	return m
}

// guard is a held lease in a namespace of its own, with one report. Its guards are gone with the test.
type guard struct {
	admin client.Client
	lease *v1alpha1.FencedLease
	token string
}

func (w *world) guard(t *testing.T) *guard {
	t.Helper()
	g := &guard{admin: w.admin, lease: env.NewLease(w.cluster.CreateNamespace(t), "report-writer")}
	must(t, product.CreateLease(t.Context(), w.admin, g.lease))
	// The controller may write conditions in between.
	eventually(t, "acquire", func() error { return env.Acquire(t.Context(), w.admin, g.lease, "a") })
	g.token = *g.lease.Status.Token
	must(t, w.admin.Create(t.Context(), g.report("0")))
	return g
}

func (g *guard) report(operation string) *unstructured.Unstructured {
	report := env.NewReport(g.lease.Namespace, "daily", "first")
	report.SetAnnotations(map[string]string{v1alpha1.TokenKey(g.lease.Name): g.token + "/" + operation})
	return report
}

func (g *guard) write(ctx context.Context, operation string) error {
	return g.writeTo(ctx, "daily", operation)
}

func (g *guard) writeTo(ctx context.Context, name, operation string) error {
	return g.admin.Patch(ctx, env.NewReport(g.lease.Namespace, name, ""), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.TokenKey(g.lease.Name)+`":"`+g.token+"/"+operation+`"}},"spec":{"value":"`+operation+`"}}`)))
}

// writer writes to guarded objects without a pause.
type writer struct {
	written  atomic.Int64
	mu       sync.Mutex
	failures []error
	stop     func()
}

// keepWriting writes to several objects at the same time, so that API servers have several connections to the replicas.
func (g *guard) keepWriting(t *testing.T, objects int) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{}
	var running sync.WaitGroup
	for i := range objects {
		report := g.report("0")
		report.SetName("written-" + strconv.Itoa(i))
		must(t, g.admin.Create(t.Context(), report))
		running.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				if err := g.writeTo(ctx, report.GetName(), strconv.Itoa(n)); err != nil && ctx.Err() == nil {
					w.mu.Lock()
					w.failures = append(w.failures, err)
					w.mu.Unlock()
				}
				w.written.Add(1)
			}
		})
	}
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	return w
}

// more returns when so many more writes were made.
func (w *writer) more(t *testing.T, n int64) {
	t.Helper()
	until := w.written.Load() + n
	eventually(t, "writes", func() error {
		if done := w.written.Load(); done < until {
			return errors.New(strconv.FormatInt(until-done, 10) + " writes to go")
		}
		return nil
	})
}

// mustNotHaveFailed ends the writer and reports its failed writes.
func (w *writer) mustNotHaveFailed(t *testing.T) {
	t.Helper()
	w.stop()
	for _, err := range w.failures {
		t.Errorf("a guarded write failed: %v", err)
	}
	t.Logf("%d writes", w.written.Load())
}

// client returns a client that trusts the manager's own authority, as in the Secret, and no other.
func (w *world) httpClient(t *testing.T) *http.Client {
	t.Helper()
	secret := &corev1.Secret{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: product.Namespace, Name: "fencedlease-webhook-cert"}, secret))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the Secret holds no ca.crt")
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: servingName, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	return &http.Client{Transport: transport, Timeout: patience}
}

// get returns the answer to a request, with a bearer token unless it is empty.
func get(t *testing.T, c *http.Client, url, token string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(data)
}

// question is a review of an update of the report that presents a token.
func (g *guard) question(t *testing.T, token string) []byte {
	t.Helper()
	stored := g.report("0")
	must(t, g.admin.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
	changed := stored.DeepCopy()
	changed.SetAnnotations(map[string]string{v1alpha1.TokenKey(g.lease.Name): token})
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind(env.ReportKind(env.ReportVersion)),
			Resource:  metav1.GroupVersionResource(env.ReportResource(env.ReportVersion)),
			Namespace: stored.GetNamespace(), Name: stored.GetName(), Operation: admissionv1.Update,
			UserInfo:  authenticationv1.UserInfo{Username: "worker"},
			OldObject: runtime.RawExtension{Object: stored}, Object: runtime.RawExtension{Object: changed},
		},
	})
	must(t, err)
	return body
}

// ask puts a question to one replica, as API servers do.
func ask(ctx context.Context, c *http.Client, port int, question []byte) (verdict *admissionv1.AdmissionResponse, closes bool, err error) {
	url := "https://" + env.Local(port) + "/fence/1?timeout=5s"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(question))
	if err != nil {
		return nil, false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.Do(request)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = response.Body.Close() }()
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(response.Body).Decode(review); err != nil {
		return nil, false, err
	}
	if review.Response == nil {
		return nil, false, fmt.Errorf("%s answers %s and no verdict", url, response.Status)
	}
	return review.Response, response.Close, nil
}

// review asks one replica for its verdict on a token.
func (g *guard) review(t *testing.T, c *http.Client, port int, token string) (verdict *admissionv1.AdmissionResponse, closes bool) {
	t.Helper()
	verdict, closes, err := ask(t.Context(), c, port, g.question(t, token))
	must(t, err)
	return verdict, closes
}

// mustJudge tells whether a replica gives correct verdicts: a token of the current term passes, an older one does not.
func (g *guard) mustJudge(t *testing.T, c *http.Client, port int) {
	t.Helper()
	if current, _ := g.review(t, c, port, g.token+"/now"); !current.Allowed {
		t.Errorf("port %d refuses a current write: %+v", port, current.Result)
	}
	stale, _ := g.review(t, c, port, "1.aaaaaaaa/late")
	if stale.Allowed || string(stale.Result.Reason) != v1alpha1.StatusReasonFenced {
		t.Errorf("port %d does not refuse a stale write: %+v", port, stale.Result)
	}
}

// identities returns uid and resourceVersion of objects, by kind and name.
func (w *world) identities(t *testing.T, args ...string) map[string]string {
	t.Helper()
	out, err := w.cluster.Kubectl(t.Context(), append([]string{
		"get", "--ignore-not-found",
		"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}`,
	}, args...)...)
	must(t, err)
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, identity, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = identity
	}
	if len(found) == 0 {
		t.Fatalf("kubectl get %s shows nothing", strings.Join(args, " "))
	}
	return found
}

// registration returns uid and resourceVersion of the six objects of the registration.
func (w *world) registration(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, identity := range w.identities(t, "validatingwebhookconfigurations,mutatingwebhookconfigurations,"+
		"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings") {
		if _, own, _ := strings.Cut(name, "//"); own == "fencedlease-guards" || own == "fencedlease-marks" || own == "fencedlease-stamps" {
			found[name] = identity
		}
	}
	if len(found) != 6 {
		t.Fatalf("want the six objects of the registration, got %v", found)
	}
	return found
}
