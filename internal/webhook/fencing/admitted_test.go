// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

func second(l *v1alpha1.FencedLease) { l.Name = "second" }

func TestWritesOfTheHolderAreTold(t *testing.T) {
	t.Parallel()
	both := held()
	both.cached, both.stored = append(both.cached, lease(second)), append(both.stored, lease(second))
	for name, test := range map[string]struct {
		world *world
		ask   ask
		want  []string
	}{
		"a write with the current token":       {held(), ask{operation: "CREATE", new: report(current)}, []string{"reports/report-writer 34"}},
		"not a dry run":                        {held(), ask{operation: "CREATE", new: report(current), dryRun: true}, nil},
		"not a refused write":                  {held(), ask{operation: "CREATE", new: report(stale)}, nil},
		"not a write of somebody else":         {with(onlyWorkers), ask{operation: "CREATE", new: report("")}, nil},
		"not a write that the other one stops": {both, ask{operation: "CREATE", new: report(current)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []string
			h := NewHandler(Options{
				Leases: test.world, Namespaces: test.world, Objects: test.world, Permissions: test.world, Observer: test.world,
				Metrics: NewMetrics(), Clock: clocktesting.NewFakePassiveClock(time.Time{}), System: fence.DefaultSystemWriters(),
				Admitted: func(lease types.NamespacedName, generation int64) {
					told = append(told, fmt.Sprintf("%s %d", lease, generation))
				},
			})
			mux := http.NewServeMux()
			if err := Register(h, mux.Handle); err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathGuarded+"100", bytes.NewReader(test.ask.review(t)))
			request.Header.Set("Content-Type", "application/json")
			mux.ServeHTTP(httptest.NewRecorder(), request)
			if diff := cmp.Diff(test.want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
