// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
)

func TestAnswersSayWhatToDo(t *testing.T) {
	resource := v1alpha1.Resource.GroupResource()
	unknown := apierrors.NewNotFound(resource, "a")
	unknown.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "404 page not found"}}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"an unknown lease": {
			apierrors.NewNotFound(resource, "a"),
			`fencedleases.coordination.fencedlease.io "a" not found: see which there are with: kubectl fencedlease get -n reports`,
		},
		"no FencedLeases at all": {
			unknown,
			`fencedleases.coordination.fencedlease.io "a" not found: FencedLease is not installed on this cluster: install it with kubectl apply --server-side -f install.yaml, or choose another cluster with --context`,
		},
		"no permission": {
			apierrors.NewForbidden(resource, "a", errors.New("no")),
			"fencedleases.coordination.fencedlease.io \"a\" is forbidden: no: ask for a role on fencedleases; `kubectl fencedlease rbac` prints the one that a worker needs",
		},
		"no login": {apierrors.NewUnauthorized("Unauthorized"), "Unauthorized: log in again, or choose another user with --user or --context"},
		"anything": {errors.New("connection refused"), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			got := cli.NextStep(c.err, "reports")
			if diff := cmp.Diff(c.want, got.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if !errors.Is(got, c.err) {
				t.Errorf("the message does not wrap the answer")
			}
		})
	}
}

func TestStateIsTold(t *testing.T) {
	for want, lease := range map[string]*v1alpha1.FencedLease{
		`"worker-a" holds generation 48215, token 48215.k3v9x2ab, renewed 3s ago (lease duration 15s)`: clitest.Lease(),
		"generation 48215 was released and nobody holds the lease":                                     clitest.Lease(clitest.Released),
		"nobody has held the lease yet":                                                                clitest.Lease(clitest.NeverHeld),
		"the controller has not set status.generationFloor yet, so nobody can acquire the lease":       clitest.Lease(clitest.WithoutStatus),
	} {
		if diff := cmp.Diff(want, cli.State(lease, clitest.Now)); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	}
}

func TestAgesAreNeverNegative(t *testing.T) {
	if got := cli.Age(clitest.Now, ptr.To(metav1.NewMicroTime(clitest.Now.Add(time.Hour)))); got != "0s" {
		t.Errorf("age of a time to come: want 0s, got %s", got)
	}
}
