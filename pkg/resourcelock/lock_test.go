// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

func TestRawRecordChangesWithARenewalOnly(t *testing.T) {
	for name, c := range map[string]struct {
		lease *v1alpha1.FencedLease
		want  bool
	}{
		"a renewal counts": {env.HeldLease(func(l *v1alpha1.FencedLease) {
			l.Status.RenewTime = ptr.To(metav1.NewMicroTime(env.Noon.Add(time.Microsecond)))
		}), true},
		"a new term counts":                 {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Term = ptr.To("bbbbbbbb") }), true},
		"a new generation counts":           {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Generation = ptr.To[int64](102) }), true},
		"a release counts":                  {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.HolderIdentity = ptr.To("") }), true},
		"another duration counts":           {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 16 }), true},
		"another lease counts":              {env.HeldLease(func(l *v1alpha1.FencedLease) { l.UID = "u2" }), true},
		"a resourceVersion does not count":  {env.HeldLease(func(l *v1alpha1.FencedLease) { l.ResourceVersion = "501" }), false},
		"an annotation does not count":      {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Annotations = map[string]string{"a": "b"} }), false},
		"a condition does not count":        {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }), false},
		"a raised floor does not count":     {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.GenerationFloor = ptr.To[int64](200) }), false},
		"a seal does not count":             {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.SealedGeneration = ptr.To[int64](101) }), false},
		"a credential does not count":       {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Credentials = []v1alpha1.Credential{{ID: "JTI=1"}} }), false},
		"a change of guards does not count": {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Spec.Guards = []v1alpha1.Guard{{}} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, before, err := recordOf(env.HeldLease())
			if err != nil {
				t.Fatal(err)
			}
			_, after, err := recordOf(c.lease)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(before) != string(after)); diff != "" {
				t.Errorf("change of the raw record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordShowsTheGenerationAsTransitions(t *testing.T) {
	for name, c := range map[string]struct {
		generation int64
		want       int
	}{
		"a generation that fits is shown":             {48215, 48215},
		"the largest int32 is shown":                  {math.MaxInt32, math.MaxInt32},
		"a larger generation is shown as the largest": {math.MaxInt32 + 1, math.MaxInt32},
		"the largest generation does not wrap around": {token.MaxGeneration, math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			record, _, err := recordOf(env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Generation = &c.generation }))
			if err != nil {
				t.Fatal(err)
			}
			want := &resourcelock.LeaderElectionRecord{
				HolderIdentity: "worker-a", LeaseDurationSeconds: 15, LeaderTransitions: c.want,
				AcquireTime: metav1.NewTime(env.Noon.Time), RenewTime: metav1.NewTime(env.Noon.Time),
			}
			if diff := cmp.Diff(want, record); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, name, identity string
		want                      string
	}{
		"no namespace":                 {"", "l", "me", `make a lock: the FencedLease ""/"l" needs a namespace and a name`},
		"no name":                      {"ns", "", "me", `make a lock: the FencedLease "ns"/"" needs a namespace and a name`},
		"no identity":                  {"ns", "l", "", "make a lock on FencedLease ns/l: the identity is empty"},
		"an identity that is too long": {"ns", "l", strings.Repeat("x", 254), "make a lock on FencedLease ns/l: the identity has 254 characters, at most 253 are allowed"},
		"a name that is too long": {"ns", strings.Repeat("l", 64), "me",
			"make a lock: the name of FencedLease ns/" + strings.Repeat("l", 64) + " has 64 characters, at most 63 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&rest.Config{Host: "localhost"}, c.namespace, c.name, c.identity, Options{})
			if err == nil {
				t.Fatal("New accepted it")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := NewForClient(nil, "ns", "l", "me", Options{}); err == nil {
		t.Error("NewForClient accepted a missing client")
	}
}

func TestNewLimitsTheTimeOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, want time.Duration
	}{
		"half of the deadline":         {20 * time.Second, 10 * time.Second},
		"half of the default deadline": {0, 5 * time.Second},
		"at least a second":            {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{Host: "localhost", Timeout: time.Hour}
			lock, err := New(config, "ns", "l", "me", Options{RenewDeadline: c.deadline})
			if err != nil {
				t.Fatal(err)
			}
			client, ok := lock.leases.REST.(*rest.RESTClient)
			if !ok {
				t.Fatalf("client is a %T", lock.leases.REST)
			}
			if diff := cmp.Diff(c.want, client.Client.Timeout); diff != "" {
				t.Errorf("timeout (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(time.Hour, config.Timeout); diff != "" {
				t.Errorf("timeout of the caller's config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventsRecorderKeepsTheMessage(t *testing.T) {
	var got []string
	recorder := EventsRecorder(newEventf(func(_, related runtime.Object, eventtype, reason, action, note string, args ...any) {
		if related != nil {
			t.Errorf("related object: want none, got %v", related)
		}
		got = append(got, eventtype, reason, action, note)
		for _, a := range args {
			got = append(got, a.(string))
		}
	}))
	lock, err := New(&rest.Config{Host: "localhost"}, "reports", "report-writer", "worker-a", Options{EventRecorder: recorder})
	if err != nil {
		t.Fatal(err)
	}
	lock.RecordEvent("became leader") // before any read: the lease is not known yet
	if diff := cmp.Diff([]string{"Normal", "LeaderElection", "Elect", "%s", "worker-a became leader"}, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

type newEventf func(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)

func (f newEventf) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	f(regarding, related, eventtype, reason, action, note, args...)
}

// The modules that a user of this package builds. A new line in testdata is a decision to make users build that module.
func TestUsersBuildTheseModulesOnly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	got = slices.Compact(got)
	golden, err := os.ReadFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(string(golden)), got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if slices.Contains(got, "sigs.k8s.io/controller-runtime") {
		t.Error("the package imports controller-runtime")
	}
}
