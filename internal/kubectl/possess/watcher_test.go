// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possess

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/internal/possession"
)

func TestALeaseIsFree(t *testing.T) {
	renewed := func(l *v1alpha1.FencedLease) { l.Status.RenewTime = ptr.To(metav1.NewMicroTime(clitest.Now)) }
	condition := func(l *v1alpha1.FencedLease) { l.Status.Conditions, l.ResourceVersion = nil, "48301" }
	// Each step is the lease as it is read, after some time. All but the last are not free.
	type step struct {
		after time.Duration
		lease *v1alpha1.FencedLease
	}
	for name, c := range map[string]struct {
		options AcquireOptions
		steps   []step
		free    bool
		says    string
		code    int
	}{
		"nobody holds it":        {AcquireOptions{}, []step{{0, clitest.Lease(clitest.Released)}}, true, "", 0},
		"nobody has held it yet": {AcquireOptions{}, []step{{0, clitest.Lease(clitest.NeverHeld)}}, true, "", 0},
		"another holds it":       {AcquireOptions{Identity: "me"}, []step{{0, clitest.Lease()}}, false, "add --wait to wait until it is free", 2},
		"one's own other term":   {AcquireOptions{Identity: "worker-a"}, []step{{0, clitest.Lease()}}, false, "add --yes to end that term", 2},
		"one's own, and yes":     {AcquireOptions{Identity: "worker-a", Yes: true}, []step{{0, clitest.Lease()}}, true, "", 0},
		"yes is for one's own":   {AcquireOptions{Identity: "me", Yes: true}, []step{{0, clitest.Lease()}}, false, "add --wait", 2},
		"it has no floor yet":    {AcquireOptions{}, []step{{0, clitest.Lease(clitest.WithoutStatus)}}, false, "see that the FencedLease manager runs", 1},
		"the wait for the floor": {AcquireOptions{Wait: true}, []step{{0, clitest.Lease(clitest.WithoutStatus)}, {time.Hour, clitest.Lease(clitest.NeverHeld)}}, true, "", 0},
		"an old renewal proves nothing": {
			// The holder's clock may be behind: its renewal looks old and is not.
			AcquireOptions{Wait: true}, []step{{0, clitest.Lease(func(l *v1alpha1.FencedLease) { l.Status.RenewTime.Time = clitest.Now.Add(-time.Hour) })}}, false, "", 0,
		},
		"silent for less than the duration": {AcquireOptions{Wait: true}, []step{{0, clitest.Lease()}, {14 * time.Second, clitest.Lease()}}, false, "", 0},
		"silent for the duration":           {AcquireOptions{Wait: true}, []step{{0, clitest.Lease()}, {15 * time.Second, clitest.Lease()}}, true, "", 0},
		"renewed in between":                {AcquireOptions{Wait: true}, []step{{0, clitest.Lease()}, {14 * time.Second, clitest.Lease(renewed)}, {14 * time.Second, clitest.Lease(renewed)}}, false, "", 0},
		"conditions are no sign of life":    {AcquireOptions{Wait: true}, []step{{0, clitest.Lease()}, {14 * time.Second, clitest.Lease(condition)}, {time.Second, clitest.Lease(condition)}}, true, "", 0},
		"waited for too long":               {AcquireOptions{Wait: true, Timeout: time.Second}, []step{{0, clitest.Lease()}, {time.Second, clitest.Lease()}}, false, "it did not become free within 1s", 2},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			clk := clocktesting.NewFakeClock(clitest.Now)
			o := c.options
			o.Factory = &cli.Factory{IOStreams: streams, Clock: clk}
			o.leases = possession.Client{Namespace: "reports", Name: "report-writer"}
			w := watcher{options: &o, began: clk.Now()}
			for i, s := range c.steps {
				clk.Step(s.after)
				free, err := w.free(s.lease)
				last := i == len(c.steps)-1
				switch {
				case !last && (free || err != nil):
					t.Fatalf("step %d: want to wait, got free %t, error %v", i, free, err)
				case !last:
				case free != c.free || (err == nil) != (c.says == ""):
					t.Errorf("want free %t and an error with %q, got %t and %v", c.free, c.says, free, err)
				case err != nil && (!strings.Contains(err.Error(), c.says) || cli.ExitCode(err) != c.code):
					t.Errorf("want %q and exit code %d, got %q and %d", c.says, c.code, err, cli.ExitCode(err))
				}
			}
		})
	}
}
