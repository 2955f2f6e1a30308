// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

const (
	leaders   = 4
	writePace = 20 * time.Millisecond
	stalePace = 50 * time.Millisecond
)

// load is a valid leader that writes without end, each write once, and an ex-leader whose token only the lease tells from a
// current one: the object that it writes carries its own mark still.
type load struct {
	begin time.Time
	stop  func()

	mu              sync.Mutex
	written         int
	failures        []failure
	longest         time.Duration
	refused, undone int
	admitted        []string
}

type failure struct {
	at  time.Duration
	err error
}

// startLoad lets A lead and lose the lead to B, whose writes then are counted. Half of B's writers carry their token in an
// annotation, the others with the request.
func startLoad(ctx context.Context, g *guarded) *load {
	GinkgoHelper()
	a := g.acquire(ctx, "a")
	mustCreateIn(ctx, a, "untouched")
	b := g.acquire(ctx, "b")
	asWorker := account(ctx, "reports", "report-worker")
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	l := &load{begin: time.Now()}
	l.stop = func() { cancel(); running.Wait() }
	DeferCleanup(l.stop)
	for i := range leaders {
		report := "written-" + strconv.Itoa(i)
		mustCreateIn(ctx, b, report)
		send := write
		if i%2 == 1 {
			send = writeBare
		}
		c := newWriter(asWorker, b, i%2 == 1)
		// An API server takes up to five seconds to know a new kind well enough for its mutating policies.
		Eventually(ctx, func() error { return send(ctx, c, b, report, unique()) }).Should(Succeed())
		running.Go(func() {
			last := time.Now()
			for pace(ctx, writePace) {
				begin := time.Now()
				l.leaderWrote(ctx, begin, &last, send(ctx, c, b, report, unique()))
			}
		})
	}
	stale := newWriter(asWorker, a, false)
	running.Go(func() {
		for n := 1; pace(ctx, stalePace); n++ {
			l.exLeaderWrote(ctx, write(ctx, stale, a, "untouched", "late-"+strconv.Itoa(n)))
		}
	})
	return l
}

// unique returns an operation that no write has presented before.
func unique() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

// mustCreateIn creates a report or takes the one that is there.
func mustCreateIn(ctx context.Context, term *v1alpha1.FencedLease, report string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		err := create(ctx, admin, term, report)
		if apierrors.IsAlreadyExists(err) {
			err = write(ctx, admin, term, report, unique())
		}
		return err
	}).Should(Succeed())
}

// newWriter returns a client with connections of its own.
func newWriter(config *rest.Config, term *v1alpha1.FencedLease, withRequest bool) client.Client {
	GinkgoHelper()
	config = rest.CopyConfig(config)
	// A dialer of its own is not shared with others.
	config.Dial = dial
	if withRequest {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:reports:report-worker", Extra: map[string][]string{v1alpha1.TokenKey(term.Name): {env.Token(term, "")}},
		}
	}
	c, err := env.Client(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// writeBare writes a report once, by a client whose requests carry the token.
func writeBare(ctx context.Context, c client.Client, term *v1alpha1.FencedLease, report, value string) error {
	patch := fmt.Appendf(nil, `{"spec":{"value":%q}}`, value)
	return c.Patch(ctx, env.NewReport(term.Namespace, report, ""), client.RawPatch(types.MergePatchType, patch))
}

func (l *load) leaderWrote(ctx context.Context, begin time.Time, last *time.Time, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures = append(l.failures, failure{begin.Sub(l.begin), err})
		return
	}
	l.written++
	l.longest = max(l.longest, time.Since(*last))
	*last = time.Now()
}

func (l *load) exLeaderWrote(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.admitted = append(l.admitted, time.Since(l.begin).String())
	case isFenced(err, "StaleToken"):
		l.refused++
	default:
		l.undone++
	}
}

// more returns when so many more writes of the leader, and some of the ex-leader, have been answered.
func (l *load) more(ctx context.Context, n int) {
	GinkgoHelper()
	count := func() (written, refused int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.written, l.refused
	}
	written, refused := count()
	Eventually(ctx, func() error {
		if w, r := count(); w < written+n || r < refused+5 {
			return fmt.Errorf("%d writes and %d refusals", w-written, r-refused)
		}
		return nil
	}).Should(Succeed())
}

// failed returns how many writes of the leader have failed so far.
func (l *load) failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.failures)
}

// end stops writing, reports the figures, and fails if an ex-leader's write was admitted.
func (l *load) end(what string) []failure {
	GinkgoHelper()
	l.stop()
	span := ""
	if n := len(l.failures); n > 0 {
		span = fmt.Sprintf(" within %.1f s (%s)", spanOf(l.failures).Seconds(), kinds(l.failures))
	}
	figure("%s: %d writes of the leader, %d failed%s; longest time without a write %.2f s; stale writes: %d admitted, %d refused, %d without a decision",
		what, l.written, len(l.failures), span, l.longest.Seconds(), len(l.admitted), l.refused, l.undone)
	Expect(l.admitted).To(BeEmpty(), "stale writes were admitted")
	Expect(l.refused).NotTo(BeZero())
	return l.failures
}

// spanOf is the time between the beginnings of the first and the last failed write.
func spanOf(failures []failure) time.Duration {
	if len(failures) == 0 {
		return 0
	}
	byTime := func(a, b failure) int { return cmp.Compare(a.at, b.at) }
	return slices.MaxFunc(failures, byTime).at - slices.MinFunc(failures, byTime).at
}

// kinds counts failures by what they have in common.
func kinds(failures []failure) string {
	counts := map[string]int{}
	for _, f := range failures {
		text := f.err.Error()
		for _, known := range []string{"clusterrole.rbac.authorization.k8s.io", "the read of the lease took too long", "connection refused", "context deadline exceeded", "EOF", "connection reset by peer", "no endpoints available", "failed calling webhook", "timeout", "not yet"} {
			if strings.Contains(text, known) {
				text = known
				break
			}
		}
		text = text[:min(len(text), 100)]
		var status apierrors.APIStatus
		if errors.As(f.err, &status) {
			text = strconv.Itoa(int(status.Status().Code)) + " " + text
		}
		counts[text]++
	}
	var all []string
	for text, n := range counts {
		all = append(all, fmt.Sprintf("%d x %s", n, text))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// pace waits until the next write is due, and tells whether there is one.
func pace(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
