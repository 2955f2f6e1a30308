// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

// earlyWrite keeps the stamp of a seal on its way, and lets B write a status meanwhile without waiting for the seal. Clients
// repeat a write that is held up, so what counts is that it has not been committed after a while, and for which reason.
func earlyWrite(t env.T, b *bench) ([]string, error) {
	ctx := t.Context()
	s, o, err := b.beginSealing(t)
	if err != nil {
		return nil, err
	}
	stamping := newHold()
	lift := b.proxy.add(&rule{
		match: func(r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/namespaces/"+s.namespace+"/reports/")
		},
		request: stamping,
	})
	defer lift()
	if err := s.TakeOver(ctx); err != nil {
		return nil, err
	}
	select {
	case <-stamping.entered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	short, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	if err := s.writeStatus(short, pause.B, o, "early"); err == nil {
		return []string{"a status is committed under a term that is still to be sealed"}, nil
	}
	if verdicts := s.judged.LastVerdicts(s.namespace, o.GetName()); !strings.HasSuffix(verdicts, "="+string(fence.SealPending)) {
		return nil, fmt.Errorf("the write was not held up for the seal: %q", verdicts)
	}
	lift()
	return nil, s.Seal(ctx)
}
