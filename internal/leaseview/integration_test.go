//go:build integration && linux

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/leaseview"
	"github.com/fencedlease/fencedlease/test/env"
)

// timeout bounds every wait. It is far above what any of them needs.
const timeout = 60 * time.Second

var reports = schema.GroupResource{Group: "example.com", Resource: "reports"}

// cluster is an API server with its etcd, both of which the test can stop, continue and start anew.
type cluster struct {
	client client.Client
	env    *envtest.Environment
	// started are the processes that the test has started in the place of envtest's.
	started []*exec.Cmd
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: set it to the folder that hack/controlplane/build.sh prints")
	}
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{env: &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}}
	config, err := c.env.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		for _, cmd := range c.started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if err := c.env.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return c
}

// process is a running child of the test.
type process struct {
	pid  int
	args []string
}

// child finds the running child of this test with a name.
func child(t *testing.T, name string) process {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state parent ...
		_, rest, ok := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		if filepath.Base(args[0]) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		return process{pid, args}
	}
	t.Fatalf("no child %s is running", name)
	return process{}
}

func (p process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.pid, s); err != nil {
		t.Fatalf("signal %s: %v", p.args[0], err)
	}
	if s == syscall.SIGSTOP {
		if err := env.AwaitStopped(p.pid); err != nil {
			t.Fatal(err)
		}
	}
}

// kill ends a child and waits until it has gone.
func (c *cluster) kill(t *testing.T, name string) process {
	t.Helper()
	p := child(t, name)
	p.signal(t, syscall.SIGKILL)
	for i, cmd := range c.started {
		if cmd.Process.Pid == p.pid {
			_ = cmd.Wait()
			c.started = append(c.started[:i:i], c.started[i+1:]...)
		}
	}
	NewWithT(t).Eventually(func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, timeout).Should(BeTrue(), "%s ends", name)
	return p
}

// start runs a killed process again, with the arguments it had.
func (c *cluster) start(t *testing.T, p process) {
	t.Helper()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.args[0], err)
	}
	c.started = append(c.started, cmd)
}

func (p process) flag(t *testing.T, name string) string {
	t.Helper()
	for _, a := range p.args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	t.Fatalf("%s has no --%s: %q", p.args[0], name, p.args)
	return ""
}

// create makes a lease with a guard of the reports in its namespace.
func (c *cluster) create(t *testing.T, name string, change ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	t.Helper()
	lease := &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.FencedLeaseSpec{Guards: []v1alpha1.Guard{{
			APIGroups: []string{reports.Group}, Resources: []string{"reports", "reports/status"},
		}}},
	}
	for _, f := range change {
		f(lease)
	}
	if err := c.client.Create(t.Context(), lease); err != nil {
		t.Fatalf("create FencedLease: %v", err)
	}
	lease.Status = v1alpha1.FencedLeaseStatus{
		Generation: ptr.To[int64](0), Term: ptr.To(""), Token: ptr.To(""), HolderIdentity: ptr.To(""),
		GenerationFloor: ptr.To[int64](1), SealedGeneration: ptr.To[int64](0),
		Handover: v1alpha1.HandoverLazy, Seal: v1alpha1.SealNotRequired,
	}
	if err := c.client.Status().Update(t.Context(), lease); err != nil {
		t.Fatalf("write the first status: %v", err)
	}
	return lease
}

// acquire begins a new term of a lease.
func (c *cluster) acquire(t *testing.T, lease *v1alpha1.FencedLease, term string) {
	t.Helper()
	s := &lease.Status
	s.Generation = ptr.To(max(ptr.Deref(s.Generation, 0), ptr.Deref(s.GenerationFloor, 0)) + 1)
	s.Term, s.HolderIdentity = ptr.To(term), ptr.To("holder of "+term)
	s.Token = ptr.To(fmt.Sprintf("%d.%s", *s.Generation, term))
	s.AcquireTime, s.RenewTime = ptr.To(metav1.NowMicro()), ptr.To(metav1.NowMicro())
	if err := c.client.Status().Update(t.Context(), lease); err != nil {
		t.Fatalf("acquire: %v", err)
	}
}

// heldSource passes watch events on unless the test holds its lock.
type heldSource struct {
	cache.ListerWatcherWithContext
	sync.RWMutex
}

func (h *heldSource) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := h.ListerWatcherWithContext.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case e, ok := <-from.ResultChan():
				if !ok {
					return
				}
				h.RLock()
				h.RUnlock()
				select {
				case events <- e:
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	}()
	return to, nil
}

func (h *heldSource) List(options metav1.ListOptions) (runtime.Object, error) {
	return h.ListWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

func (h *heldSource) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return h.WatchWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

// startView runs a view over the cluster and waits until it is ready.
func startView(t *testing.T, c *cluster, change ...func(*leaseview.Options)) *leaseview.View {
	t.Helper()
	reader, err := leaseview.NewReader(c.env.Config)
	if err != nil {
		t.Fatal(err)
	}
	source, err := leaseview.NewSource(c.env.Config)
	if err != nil {
		t.Fatal(err)
	}
	opts := leaseview.Options{Reader: reader, Source: source}
	for _, f := range change {
		f(&opts)
	}
	v, err := leaseview.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Start: %v", err)
		}
	})
	NewWithT(t).Eventually(v.Ready, timeout).Should(Succeed())
	return v
}

func names(leases []*v1alpha1.FencedLease) []string {
	out := []string{}
	for _, l := range leases {
		out = append(out, l.Name)
	}
	return out
}

func TestViewOnRealServer(t *testing.T) {
	c := startCluster(t)

	t.Run("a fresh read sees a write at once while the copy is held back", func(t *testing.T) {
		g := NewWithT(t)
		source, err := leaseview.NewSource(c.env.Config)
		g.Expect(err).NotTo(HaveOccurred())
		held := &heldSource{ListerWatcherWithContext: cache.ToListerWatcherWithContext(source)}
		lease := c.create(t, "held")
		key := client.ObjectKeyFromObject(lease)
		v := startView(t, c, func(o *leaseview.Options) { o.Source = held })
		before := lease.ResourceVersion

		held.Lock()
		for i := range 20 {
			c.acquire(t, lease, fmt.Sprintf("held%04d", i))
			fresh, err := v.Fresh(t.Context(), key)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fresh.ResourceVersion).To(Equal(lease.ResourceVersion))
			g.Expect(fresh.Status.Token).To(Equal(lease.Status.Token))
		}
		cached, ok := v.Cached(key)
		g.Expect(ok).To(BeTrue())
		g.Expect(cached.ResourceVersion).To(Equal(before), "the copy is held back")
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		g.Expect(v.WaitFor(short, lease.ResourceVersion)).To(MatchError(context.DeadlineExceeded))

		held.Unlock()
		long, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		g.Expect(v.WaitFor(long, lease.ResourceVersion)).To(Succeed())
		cached, _ = v.Cached(key)
		g.Expect(cached.ResourceVersion).To(Equal(lease.ResourceVersion))
		g.Expect(cached.ManagedFields).To(BeEmpty())
	})

	t.Run("guards follow their leases", func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		v := startView(t, c)
		guarding := func(lease *v1alpha1.FencedLease, gr schema.GroupResource, namespace string) []string {
			g.Expect(v.WaitFor(ctx, lease.ResourceVersion)).To(Succeed())
			leases, err := v.Guarding(gr, namespace)
			g.Expect(err).NotTo(HaveOccurred())
			return names(leases)
		}
		widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
		lease := c.create(t, "follow", func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"widgets/*"} })
		g.Expect(guarding(lease, widgets, "default")).To(Equal([]string{"follow"}))
		g.Expect(guarding(lease, widgets, "other")).To(BeEmpty())

		lease.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{}
		g.Expect(c.client.Update(ctx, lease)).To(Succeed())
		g.Expect(guarding(lease, widgets, "other")).To(Equal([]string{"follow"}))
		g.Expect(guarding(lease, widgets, "")).To(Equal([]string{"follow"}))

		gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
		lease.Spec.Guards[0].Resources = []string{"gadgets"}
		g.Expect(c.client.Update(ctx, lease)).To(Succeed())
		g.Expect(guarding(lease, widgets, "default")).To(BeEmpty())
		g.Expect(guarding(lease, gadgets, "default")).To(Equal([]string{"follow"}))

		g.Expect(c.client.Delete(ctx, lease)).To(Succeed())
		// A write after the deletion: the copy that has reached it knows of the deletion.
		other := c.create(t, "follow-other")
		g.Expect(guarding(other, gadgets, "default")).To(BeEmpty())
	})

	t.Run("no such lease", func(t *testing.T) {
		g := NewWithT(t)
		v := startView(t, c)
		_, err := v.Fresh(t.Context(), types.NamespacedName{Namespace: "default", Name: "nobody"})
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		g.Expect(err).To(HaveOccurred())
	})

	t.Run("concurrent reviews share reads and none is answered by a lease older than its arrival", func(t *testing.T) {
		g := NewWithT(t)
		reader, err := leaseview.NewReader(c.env.Config)
		g.Expect(err).NotTo(HaveOccurred())
		var reads atomic.Int64
		v := startView(t, c, func(o *leaseview.Options) {
			o.Reader = leaseview.ReaderFunc(func(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
				reads.Add(1)
				return reader.Get(ctx, key)
			})
		})
		lease := c.create(t, "shared")
		key := client.ObjectKeyFromObject(lease)
		// committed is the generation of the last acquisition that the server has confirmed.
		var committed atomic.Int64
		stop := make(chan struct{})
		var reviews atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					reviews.Add(1)
					floor := committed.Load()
					fresh, err := v.Fresh(t.Context(), key)
					if err != nil {
						t.Errorf("Fresh: %v", err)
						return
					}
					if got := ptr.Deref(fresh.Status.Generation, 0); got < floor {
						t.Errorf("a review that arrived after generation %d was committed saw %d", floor, got)
					}
				}
			})
		}
		for i := range 100 {
			c.acquire(t, lease, fmt.Sprintf("shar%04d", i))
			committed.Store(*lease.Status.Generation)
		}
		close(stop)
		wg.Wait()
		g.Expect(reads.Load()).To(BeNumerically("<", reviews.Load()/4))
		t.Logf("%d reviews on %d reads", reviews.Load(), reads.Load())
	})

	t.Run("without a quorum there is an error within the deadline and no older result", func(t *testing.T) {
		g := NewWithT(t)
		lease := c.create(t, "quorum")
		key := client.ObjectKeyFromObject(lease)
		v := startView(t, c)
		_, err := v.Fresh(t.Context(), key)
		g.Expect(err).NotTo(HaveOccurred())

		etcd := child(t, "etcd")
		etcd.signal(t, syscall.SIGSTOP)
		func() {
			defer etcd.signal(t, syscall.SIGCONT)
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*100*time.Millisecond)
					defer cancel()
					if lease, err := v.Fresh(ctx, key); err == nil || lease != nil {
						t.Errorf("Fresh without a quorum: %v, %v", lease, err)
					}
				})
			}
			wg.Wait()
			// The bound of the read itself, for a caller that has more time.
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := v.Fresh(ctx, key)
			g.Expect(err).To(MatchError(leaseview.ErrReadTimeout))
			_, ok := v.Cached(key)
			g.Expect(ok).To(BeTrue(), "the copy still serves denials")
		}()
		g.Eventually(func() error { _, err := v.Fresh(t.Context(), key); return err }, timeout).Should(Succeed())
	})
}

func TestRestoredStoreIsNoticed(t *testing.T) {
	g := NewWithT(t)
	c := startCluster(t)
	lease := c.create(t, "restored")
	key := client.ObjectKeyFromObject(lease)
	c.acquire(t, lease, "aaaaaaaa")
	restored := lease.DeepCopy()

	var behind sync.Map
	v := startView(t, c, func(o *leaseview.Options) {
		o.RelistInterval = 100 * time.Millisecond
		o.OnBehind = func(key types.NamespacedName, cached, read *v1alpha1.FencedLease) {
			behind.Store(key, [2]string{ptr.Deref(cached.Status.Token, ""), ptr.Deref(read.Status.Token, "")})
		}
	})
	works := func() error { _, err := v.Fresh(t.Context(), key); return err }

	// A copy of etcd's data, taken while it is down, stands for the backup.
	etcd := c.kill(t, "etcd")
	data := etcd.flag(t, "data-dir")
	backup := filepath.Join(t.TempDir(), "backup")
	g.Expect(os.CopyFS(backup, os.DirFS(data))).To(Succeed())
	c.start(t, etcd)
	g.Eventually(works, timeout).Should(Succeed())

	// Two more terms, which the backup does not know.
	g.Eventually(func() error {
		s := lease.DeepCopy()
		s.Status.RenewTime = ptr.To(metav1.NowMicro())
		err := c.client.Status().Update(t.Context(), s)
		if err == nil {
			lease = s
		}
		return err
	}, timeout).Should(Succeed())
	c.acquire(t, lease, "bbbbbbbb")
	c.acquire(t, lease, "cccccccc")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	g.Expect(v.WaitFor(ctx, lease.ResourceVersion)).To(Succeed())
	g.Expect(v.Ready()).To(Succeed())

	server := c.kill(t, "kube-apiserver")
	etcd = c.kill(t, "etcd")
	_, err := v.Fresh(ctx, key)
	g.Expect(err).To(HaveOccurred())
	g.Expect(os.RemoveAll(data)).To(Succeed())
	g.Expect(os.CopyFS(data, os.DirFS(backup))).To(Succeed())
	c.start(t, etcd)
	c.start(t, server)

	g.Eventually(works, timeout).Should(Succeed())
	fresh, err := v.Fresh(ctx, key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fresh.Status.Token).To(Equal(restored.Status.Token))
	g.Eventually(func() any { seen, _ := behind.Load(key); return seen }, timeout).
		Should(Equal([2]string{*lease.Status.Token, *restored.Status.Token}))
	g.Eventually(func() string {
		cached, _ := v.Cached(key)
		return ptr.Deref(cached.Status.Token, "")
	}, timeout).Should(Equal(*restored.Status.Token), "the copy follows the store back")
	g.Eventually(v.Ready, timeout).Should(Succeed())
}
