// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package get

import (
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
)

func leases() []v1alpha1.FencedLease {
	return []v1alpha1.FencedLease{
		*clitest.Lease(),
		*clitest.Lease(clitest.Named("released"), clitest.Released),
		*clitest.Lease(clitest.Named("never-held"), clitest.NeverHeld, clitest.Guarded()),
		*clitest.Lease(clitest.Named("new"), clitest.WithoutStatus),
		*clitest.Lease(clitest.Named("wide"), clitest.Guarded(v1alpha1.Guard{
			APIGroups: []string{"example.com", "example.org"}, Resources: []string{"reports", "reports/status", "invoices/*"},
		}), func(l *v1alpha1.FencedLease) {
			l.Status.RenewTime.Time = clitest.Now.Add(time.Hour) // by a holder whose clock is ahead
			l.Spec.Enforcement = v1alpha1.EnforcementAudit
		}),
	}
}

func TestLeasesArePrinted(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		leases  []v1alpha1.FencedLease
		single  bool
	}{
		"table":                     {Options{}, leases(), false},
		"table without headers":     {Options{NoHeaders: true}, leases(), false},
		"table of all namespaces":   {Options{AllNamespaces: true}, leases(), false},
		"wide":                      {Options{Output: "wide"}, leases(), false},
		"name":                      {Options{Output: "name"}, leases(), false},
		"one as json":               {Options{Output: "json"}, leases()[:1], true},
		"one as yaml":               {Options{Output: "yaml"}, leases()[:1], true},
		"several as yaml":           {Options{Output: "yaml"}, leases()[:2], false},
		"none as yaml":              {Options{Output: "yaml"}, nil, false},
		"nothing for people at all": {Options{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			o := c.options
			o.Factory = &cli.Factory{IOStreams: streams, Clock: clocktesting.NewFakeClock(clitest.Now)}
			list := &v1alpha1.FencedLeaseList{Items: c.leases}
			list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("FencedLeaseList"))
			p := newPrinter(&o)
			if err := p.print(list, c.single); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name, out.String())
		})
	}
}

func TestAWatchPrintsHeadersOnce(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	p := newPrinter(&Options{Factory: &cli.Factory{IOStreams: streams, Clock: clocktesting.NewFakeClock(clitest.Now)}})
	for _, generation := range []int64{48215, 48216} {
		lease := clitest.Lease(func(l *v1alpha1.FencedLease) { l.Status.Generation = ptr.To(generation) })
		if err := p.print(&v1alpha1.FencedLeaseList{Items: []v1alpha1.FencedLease{*lease}}, true); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Golden(t, "watch", out.String())
}
