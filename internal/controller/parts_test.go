// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/probe"
	"github.com/fencedlease/fencedlease/pkg/token"
)

func TestAnswersToProbesAreJudged(t *testing.T) {
	const hash, other = "0123456789abcdef", "fedcba9876543210"
	refused := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	for name, test := range map[string]struct {
		kind probe.Kind
		err  error
		want ProbeOutcome
	}{
		"admitted":                     {probe.Guards, nil, ProbeNotYet},
		"refused with the hash":        {probe.Guards, refused(http.StatusForbidden, `admission webhook "x" denied the request: `+probe.Refusal(hash)), ProbeInForce},
		"refused with another hash":    {probe.Guards, refused(http.StatusForbidden, probe.Refusal(other)), ProbeFailed},
		"refused by RBAC":              {probe.Guards, refused(http.StatusForbidden, "cannot create resource"), ProbeFailed},
		"the webhook cannot be called": {probe.Guards, refused(http.StatusInternalServerError, "failed calling webhook"), ProbeFailed},
		"another code with the hash":   {probe.Guards, refused(http.StatusInternalServerError, probe.Refusal(hash)), ProbeFailed},
		"no answer":                    {probe.Guards, errors.New("connection refused"), ProbeUnreachable},
		"no answer in time":            {probe.Guards, fmt.Errorf("post: %w", context.DeadlineExceeded), ProbeUnreachable},
		"by the mark policy alone":     {probe.Policies, refused(http.StatusForbidden, probe.Refusal(hash)), ProbeNotYet},
		"by both policies":             {probe.Policies, refused(http.StatusForbidden, probe.Refusal(hash)+"; "+probe.Stamped(hash)), ProbeInForce},
		"stamped by an older one":      {probe.Policies, refused(http.StatusForbidden, probe.Refusal(hash)+"; "+probe.Stamped(other)), ProbeNotYet},
	} {
		if got, message := judgeProbe(test.kind, hash, test.err); got != test.want {
			t.Errorf("%s: %s (%s), want %s", name, got, message, test.want)
		}
	}
}

func TestEachServerIsAddressedByItself(t *testing.T) {
	in := &rest.Config{Host: "https://10.0.0.1:6443"}
	named := &rest.Config{Host: "https://api.example.com", TLSClientConfig: rest.TLSClientConfig{ServerName: "api.example.com"}}
	insecure := &rest.Config{Host: "10.0.0.1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	for name, test := range map[string]struct {
		config             *rest.Config
		address            string
		wantHost, wantName string
	}{
		"the configured address":       {in, "", "https://10.0.0.1:6443", ""},
		"the configured server":        {in, "10.0.0.1:6443", "https://10.0.0.1:6443", ""},
		"another server":               {in, "10.0.0.2:6443", "https://10.0.0.2:6443", apiServerName},
		"with a configured name":       {named, "10.0.0.2:6443", "https://10.0.0.2:6443", "api.example.com"},
		"without verification":         {insecure, "10.0.0.2:443", "https://10.0.0.2:443", ""},
		"the default port is the same": {insecure, "10.0.0.1:443", "10.0.0.1", ""},
		"IPv6":                         {in, "[::1]:6443", "https://[::1]:6443", apiServerName},
	} {
		got := directConfig(test.config, test.address)
		if diff := cmp.Diff([]string{test.wantHost, test.wantName}, []string{got.Host, got.ServerName}); diff != "" {
			t.Errorf("%s: host and name (-want +got):\n%s", name, diff)
		}
	}
}

func TestReportsKeepTheHighest(t *testing.T) {
	r := NewReports()
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	for _, o := range []Observed{
		{key, 7, EvidenceRequest, ""},
		{key, 9, EvidenceStore, ""},
		{key, 8, EvidenceMark, "reports x"},
		{key, token.MaxPlausibleGeneration + 1, EvidenceRequest, "reports refused"},
		{key, token.MaxPlausibleGeneration + 2, EvidenceMark, "reports forged"},
	} {
		r.Report(o)
	}
	want := sighting{generation: 9, evidence: EvidenceStore, implausible: "reports forged"}
	if got := r.of(key); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.Report(Observed{key, 10, EvidenceMark, ""})
	r.done(key, want)
	if got := r.of(key); got.generation != 10 {
		t.Errorf("what came in between is lost: %+v", got)
	}
	r.done(key, r.of(key))
	if got := r.of(key); got != (sighting{}) {
		t.Errorf("got %+v after it was acted on", got)
	}
}

func TestReportsNeverBlock(t *testing.T) {
	r := NewReports()
	for i := range 3 * maxReports {
		r.Report(Observed{types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(i % (2 * maxReports))}, int64(i + 1), EvidenceMark, ""})
	}
	if n := len(r.pending); n != maxReports {
		t.Errorf("%d leases wait, want at most %d", n, maxReports)
	}
}

func TestFirstFloor(t *testing.T) {
	for name, test := range map[string]struct {
		version    string
		remembered []int64
		want       int64
	}{
		"the resourceVersion":    {"4711", nil, 4711},
		"a higher mark":          {"4711", []int64{5000, 0}, 5000},
		"what a replica reports": {"4711", []int64{0, 6000}, 6000},
		"never above the schema": {"9999999999999999", nil, token.MaxPlausibleGeneration},
	} {
		got, err := firstFloor(&v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: test.version}}, test.remembered...)
		if err != nil || got != test.want {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, test.want)
		}
	}
	if _, err := firstFloor(&v1alpha1.FencedLease{}); err == nil {
		t.Error("a lease that was not read has a floor")
	}
}

// conditionCounts returns the numbers of leases by condition and status.
func conditionCounts(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "fencedlease_lease_conditions" {
			for _, metric := range f.GetMetric() {
				counts[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	return counts
}

func TestMetricsFollowTheirConventions(t *testing.T) {
	m := NewMetrics()
	l := held(101, "me")
	m.observed(&l)
	l.Status.Generation = ptr.To[int64](102)
	m.observed(&l)
	m.observed(&l)
	other := held(0, "")
	other.Name = "other"
	m.observed(&other)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if got := testutil.ToFloat64(m.handovers); got != 1 {
		t.Errorf("%v handovers, want 1", got)
	}
	silent := held(103, "me")
	silent.Name = "silent"
	silent.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}, {Type: v1alpha1.ConditionHeld, Status: metav1.ConditionTrue},
	}
	m.observed(&silent)
	for name, want := range map[string]float64{"Ready false": 1, "Ready true": 0, "Held true": 1, "Sealed false": 0} {
		if got := conditionCounts(t, registry)[name]; got != want {
			t.Errorf("leases with %s: want %v, got %v", name, want, got)
		}
	}
	m.gone(types.NamespacedName{Namespace: silent.Namespace, Name: silent.Name})
	if got := conditionCounts(t, registry)["Ready false"]; got != 0 {
		t.Errorf("leases that are gone keep conditions: got %v", got)
	}
	count := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]float64{}
		for _, f := range families {
			if f.GetName() == "fencedlease_leases" {
				for _, metric := range f.GetMetric() {
					counts[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
		return counts
	}
	if diff := cmp.Diff(map[string]float64{stateHeld: 1, stateReleased: 0, stateNeverHeld: 1}, count()); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
	m.gone(types.NamespacedName{Namespace: l.Namespace, Name: l.Name})
	if diff := cmp.Diff(map[string]float64{stateHeld: 0, stateReleased: 0, stateNeverHeld: 1}, count()); diff != "" {
		t.Errorf("leases after one is gone (-want +got):\n%s", diff)
	}
}
