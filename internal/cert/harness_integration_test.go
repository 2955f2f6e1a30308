// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	secretName = "webhook-ca"
	// managerUser is whom the replicas act as, with the rights that the package comment names and no others.
	managerUser = "cert-manager-under-test"
	// lag is how late an API server notices a changed webhook configuration. Below the settle margin of testOptions.
	lag = time.Minute
	// patience bounds every wait of these tests on real time. No test passes by it.
	patience = 30 * time.Second
)

// server is the API server that all tests share; each has a namespace of its own.
var server struct {
	admin   kubernetes.Interface
	manager *rest.Config
}

func TestMain(m *testing.M) {
	os.Exit(runWithServer(m))
}

func runWithServer(m *testing.M) int {
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		//nolint:forbidigo // There is no test yet whose context could be passed on.
		build := exec.CommandContext(context.Background(), "../../hack/controlplane/build.sh")
		build.Stderr = os.Stderr
		dir, err := build.Output()
		if err != nil {
			return fail("build the control plane", err)
		}
		if err := os.Setenv("KUBEBUILDER_ASSETS", strings.TrimSpace(string(dir))); err != nil {
			return fail("set KUBEBUILDER_ASSETS", err)
		}
	}
	format.MaxLength = 2000
	env := &envtest.Environment{ControlPlaneStopTimeout: time.Minute}
	config, err := env.Start()
	if err != nil {
		return fail("start the control plane", errors.Join(err, env.Stop()))
	}
	config.QPS = -1
	if server.admin, err = kubernetes.NewForConfig(config); err != nil {
		return fail("create client", errors.Join(err, env.Stop()))
	}
	user, err := env.AddUser(envtest.User{Name: managerUser}, &rest.Config{QPS: -1})
	if err != nil {
		return fail("add user", errors.Join(err, env.Stop()))
	}
	server.manager = user.Config()

	code := m.Run()
	if err := env.Stop(); err != nil {
		code = fail("stop the control plane", err)
	}
	// Connections of the clients end with the server.
	if err := goleak.Find(); err != nil {
		code = fail("goroutines are left", err)
	}
	return code
}

// cluster is what the replicas of one test share.
type cluster struct {
	*WithT
	clock     *clocktesting.FakeClock
	namespace string
	// secrets are those of the namespace, with all rights.
	secrets corev1client.SecretInterface
	config  *registration
	events  *events
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	g := NewWithT(t)
	namespace, err := server.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cert-"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: namespace.Name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secretName}, Verbs: []string{"get", "watch", "update"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		},
	}
	_, err = server.admin.RbacV1().Roles(namespace.Name).Create(t.Context(), role, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = server.admin.RbacV1().RoleBindings(namespace.Name).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: namespace.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	c := &cluster{
		WithT:     g,
		clock:     clocktesting.NewFakeClock(begin),
		namespace: namespace.Name,
		secrets:   server.admin.CoreV1().Secrets(namespace.Name),
		events:    &events{},
	}
	c.config = &registration{clock: c.clock}
	// The authorizer of the API server reads roles from informers, so a new one is in force a moment later.
	manager := kubernetes.NewForConfigOrDie(server.manager).CoreV1().Secrets(namespace.Name)
	g.Eventually(func() bool {
		_, err := manager.Get(t.Context(), secretName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(patience).Should(BeTrue())
	return c
}

// replica is one replica of the manager.
type replica struct {
	*Authority
	rotator *Rotator
	faults  *faults
}

func (c *cluster) newReplica(t *testing.T) *replica {
	t.Helper()
	f := &faults{}
	config := rest.CopyConfig(server.manager)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.next = next
		return f
	})
	client, err := kubernetes.NewForConfig(config)
	c.Expect(err).NotTo(HaveOccurred())
	o := testOptions()
	o.Secrets = client.CoreV1().Secrets(c.namespace)
	o.Clock, o.Recorder, o.InstalledBundles, o.Name = c.clock, c.events, c.config.installed, secretName
	a, err := NewAuthority(o)
	c.Expect(err).NotTo(HaveOccurred())
	return &replica{Authority: a, rotator: NewRotator(a), faults: f}
}

// start runs the Authority of the replica, and with elect its Rotator and what applies the bundle, until the test ends.
func (c *cluster) start(t *testing.T, r *replica, elect bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := func(start func(context.Context) error) {
		running.Go(func() {
			if err := start(ctx); err != nil {
				t.Errorf("a runnable ended: %v", err)
			}
		})
	}
	run(r.Start)
	if elect {
		run(r.rotator.Start)
		changes := r.rotator.Subscribe()
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changes:
					c.config.apply(r.rotator.Bundle())
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// waitReady waits until the replicas serve.
func (c *cluster) waitReady(replicas ...*replica) {
	for _, r := range replicas {
		c.Eventually(r.Ready).WithTimeout(patience).Should(Succeed())
	}
}

// read returns the state that the Secret holds, nil if it holds none.
func (c *cluster) read(ctx context.Context) *state {
	secret, err := c.secrets.Get(ctx, secretName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	s, err := decodeState(secret.Data)
	if err != nil {
		return nil
	}
	return s
}

// registration stands for the webhook configurations, and for an API server that notices their changes late.
type registration struct {
	clock *clocktesting.FakeClock
	mu    sync.Mutex
	past  []appliedBundle
	err   error
}

type appliedBundle struct {
	at     time.Time
	bundle []byte
	pool   *x509.CertPool
}

func (r *registration) apply(bundle []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.past); n > 0 && bytes.Equal(r.past[n-1].bundle, bundle) {
		return
	}
	r.past = append(r.past, appliedBundle{r.clock.Now(), bundle, poolOf(bundle)})
}

// installed is Options.InstalledBundles.
func (r *registration) installed(context.Context) ([][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	if len(r.past) == 0 {
		return [][]byte{nil, nil}, nil
	}
	now := r.past[len(r.past)-1].bundle
	return [][]byte{now, now}, nil
}

// fail makes installed fail, until it is called with nil.
func (r *registration) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// inForce returns the bundles that API servers may go by now: every one that was applied within the lag, and the one
// before. An API server that notices at once has the last, the slowest one the first.
func (r *registration) inForce() []appliedBundle {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.clock.Now().Add(-lag)
	var out []appliedBundle
	for i := len(r.past) - 1; i >= 0; i-- {
		out = append(out, r.past[i])
		if !r.past[i].at.After(oldest) {
			break
		}
	}
	return out
}

// trustedBy checks a leaf as API servers with slow and fast clocks would, under every bundle that one may go by.
func (c *cluster) trustedBy(leaf *x509.Certificate) error {
	skew := testOptions().ClockSkew
	for _, applied := range c.config.inForce() {
		for _, off := range []time.Duration{-skew, skew} {
			_, err := leaf.Verify(x509.VerifyOptions{
				DNSName: host, Roots: applied.pool, CurrentTime: c.clock.Now().Add(off), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			if err != nil {
				return fmt.Errorf("clock off by %v, %d CA(s) in the bundle: %w", off, bytes.Count(applied.bundle, []byte("BEGIN")), err)
			}
		}
	}
	return nil
}

// caller opens TLS connections to a replica, one after the other, and counts those that an API server would not make.
type caller struct {
	cluster *cluster
	address string
	mu      sync.Mutex
	calls   int
	failed  []string
}

// call serves the replica by TLS and calls it until the test ends.
func (c *cluster) call(t *testing.T, r *replica) *caller {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: r.GetCertificate})
	c.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	out := &caller{cluster: c, address: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() { serve(ctx, listener) })
	running.Go(func() {
		for ctx.Err() == nil {
			err := out.connect(ctx)
			if ctx.Err() != nil {
				return
			}
			out.mu.Lock()
			out.calls++
			if err != nil {
				out.failed = append(out.failed, fmt.Sprintf("%v: %v", c.clock.Now().Sub(begin), err))
			}
			out.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	return out
}

// serve completes the handshake of each connection and closes it.
func serve(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if conn, ok := conn.(*tls.Conn); ok {
			_ = conn.SetDeadline(time.Now().Add(patience))
			_ = conn.HandshakeContext(ctx)
		}
		_ = conn.Close()
	}
}

func (c *caller) connect(ctx context.Context) error {
	dialer := &tls.Dialer{Config: &tls.Config{
		ServerName: host,
		// The check is made by VerifyConnection, for several clocks and bundles at once.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return c.cluster.trustedBy(s.PeerCertificates[0])
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// count returns the number of calls so far.
func (c *caller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// failures returns what failed so far.
func (c *caller) failures() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// events keeps the reasons of what was recorded.
type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Event(eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, eventType+" "+reason)
	if message == "" {
		e.reasons = append(e.reasons, "an event without a message")
	}
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.reasons...)
}

// count returns how often the reason was recorded.
func (e *events) count(reason string) int {
	n := 0
	for _, r := range e.all() {
		if strings.HasSuffix(r, " "+reason) {
			n++
		}
	}
	return n
}

// errCrashed is what a client gets from its transport when the replica is made to crash.
var errCrashed = errors.New("crashed")

// faults is a transport that lets a replica crash at its next write, before or after the API server has it, and from then
// on lets nothing through.
type faults struct {
	next http.RoundTripper

	mu      sync.Mutex
	crash   crash
	crashed bool
}

// crash is where a replica crashes.
type crash string

const (
	nowhere     crash = ""
	beforeWrite crash = "before the write"
	afterWrite  crash = "after the write, without an answer"
)

// arm makes the replica crash at its next write.
func (f *faults) arm(at crash) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crash = at
}

// down reports whether the replica has crashed.
func (f *faults) down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

func (f *faults) RoundTrip(request *http.Request) (*http.Response, error) {
	f.mu.Lock()
	at, crashed := f.crash, f.crashed
	write := request.Method != http.MethodGet
	if write && at != nowhere {
		f.crashed = true
	}
	f.mu.Unlock()
	if crashed || write && at == beforeWrite {
		return nil, errCrashed
	}
	response, err := f.next.RoundTrip(request)
	if write && at == afterWrite {
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errCrashed
	}
	return response, err
}
