// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// recorded returns a configuration whose clients record what they write to the lease's status.
func (a *actor) recorded() *rest.Config {
	config := rest.CopyConfig(a.rest)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &leaseRecorder{actor: a, next: next} })
	return config
}

type leaseRecorder struct {
	actor *actor
	next  http.RoundTripper
}

// possessionPatch is what a holder writes, as far as it tells the three writes apart.
type possessionPatch struct {
	Status struct {
		Generation     int64   `json:"generation"`
		Term           string  `json:"term"`
		HolderIdentity *string `json:"holderIdentity"`
		AcquireTime    *string `json:"acquireTime"`
	} `json:"status"`
}

// RoundTrip makes the call.
func (r *leaseRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPatch || !strings.Contains(request.URL.Path, "/fencedleases/") || request.Body == nil {
		return r.next.RoundTrip(request)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_ = request.Body.Close()
	request = request.Clone(request.Context())
	request.Body = io.NopCloser(bytes.NewReader(body))
	var patch possessionPatch
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	op := &history.Op{
		ID: r.actor.nextID(), Lease: r.actor.config.Lease.LeaseRef, Verb: history.Renew,
		Generation: patch.Status.Generation, Term: patch.Status.Term, Invoke: history.Now(),
	}
	switch {
	case patch.Status.AcquireTime != nil:
		op.Verb = history.Acquire
	case patch.Status.HolderIdentity != nil && *patch.Status.HolderIdentity == "":
		op.Verb = history.Release
	}
	// An elector does not wait for one before it sends another.
	op.Client = fmt.Sprintf("%s-%d/lease/%d", r.actor.config.Name, r.actor.config.Number, op.ID)
	r.actor.record(op)
	response, err := r.next.RoundTrip(request)
	var answer []byte
	code := 0
	if err == nil {
		code = response.StatusCode
		answer, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(answer))
	}
	op.Return = history.Now()
	judge(op, code, answer, err)
	if op.Outcome == history.OK {
		op.Seen = seen(op, answer)
	}
	r.actor.record(op)
	if err != nil {
		return nil, err
	}
	return response, nil
}
