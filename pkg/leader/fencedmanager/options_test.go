// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	lease := func(change func(*Options)) Options {
		o := Options{Namespace: "reports", Name: "report-operator", Identity: "a"}
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		managed manager.Options
		options Options
		want    string
	}{
		"no lease": {
			options: lease(func(o *Options) { o.Name = "" }),
			want:    "make a fenced manager: the FencedLease needs a namespace and a name",
		},
		"another lock": {
			managed: manager.Options{LeaderElectionResourceLockInterface: &resourcelock.Lock{}},
			options: lease(func(*Options) {}),
			want:    "make a fenced manager: LeaderElectionResourceLockInterface is set: the lock is the FencedLease",
		},
		"an unknown carrier": {
			options: lease(func(o *Options) { o.Carrier = "Pigeon" }),
			want:    `make a fenced manager: Carrier "Pigeon" is unknown: use Request or Annotation`,
		},
		"an identity that no lease can show": {
			options: lease(func(o *Options) { o.Identity = strings.Repeat("a", 300) }),
			want:    "make a fenced manager: make a lock on FencedLease reports/report-operator: the identity has 300 characters, at most 253 are allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(&rest.Config{Host: "127.0.0.1:1"}, test.managed, test.options)
			if err == nil {
				t.Fatal("made a manager")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnIdentityOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		o := Options{Namespace: "reports", Name: "report-operator"}
		if err := o.complete(&manager.Options{}); err != nil {
			t.Fatal(err)
		}
		if o.Identity == "" || seen[o.Identity] {
			t.Errorf("identity %q is empty or was given before", o.Identity)
		}
		seen[o.Identity] = true
		if o.Carrier != CarrierRequest {
			t.Errorf("carrier %q is not the default", o.Carrier)
		}
	}
}
