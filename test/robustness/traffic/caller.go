// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// callTimeout bounds one call. A paused party keeps calls waiting for as long.
const callTimeout = 8 * time.Second

// fieldManager is that of all writers, so that applies of one term follow those of another without conflicts.
const fieldManager = "robustness"

// httpClient returns a client that opens a connection of its own for each call in flight, so that what happens to one does
// not happen to all.
func httpClient(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// call is one request, and what is to be recorded of it.
type call struct {
	op          *history.Op
	method      string
	path        string
	query       url.Values
	contentType string
	body        any
	// extra is a token that goes with the request.
	extra string
	// lost, if it is not 0, is when the client stops waiting. It learns nothing, also if the answer is there by then.
	lost time.Duration
}

// object is the part of answers that the traffic and the checks need.
type object struct {
	Metadata struct {
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Details *metav1.StatusDetails `json:"details"`
	Items   []object              `json:"items"`
	Kind    string                `json:"kind"`
}

// caller makes the calls of one writer, one after the other, and records them.
type caller struct {
	actor  *actor
	client string
	host   string
	user   string
}

// errDropped stands for an answer that was lost on its way.
var errDropped = errors.New("the answer was lost")

// send makes a call and records it. It returns the answer of one that was applied.
func (c *caller) send(ctx context.Context, client *http.Client, what call) []byte {
	op := what.op
	c.actor.record(op)
	status, answer, err := c.roundTrip(ctx, client, what)
	if op.Dropped && err == nil {
		err = errDropped
	}
	op.Return = history.Now()
	judge(op, status, answer, err)
	if op.Outcome == history.OK {
		op.Seen = seen(op, answer)
	}
	c.actor.record(op)
	if op.Outcome != history.OK {
		return nil
	}
	return answer
}

func (c *caller) roundTrip(ctx context.Context, client *http.Client, what call) (int, []byte, error) {
	timeout := callTimeout
	if what.lost > 0 {
		timeout = what.lost
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var body io.Reader
	if what.body != nil {
		data, err := json.Marshal(what.body)
		if err != nil {
			return 0, nil, fmt.Errorf("encode body: %w", err)
		}
		body = bytes.NewReader(data)
	}
	target := c.host + what.path
	if len(what.query) > 0 {
		target += "?" + what.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, what.method, target, body)
	if err != nil {
		return 0, nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if what.contentType != "" {
		request.Header.Set("Content-Type", what.contentType)
	}
	if what.extra != "" {
		request.Header.Set("Impersonate-User", c.user)
		request.Header.Set("Impersonate-Extra-"+url.PathEscape(v1alpha1.TokenKey(c.actor.config.Lease.Name)), what.extra)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		// The status was sent, but nobody knows what of.
		return 0, nil, err
	}
	return response.StatusCode, answer, nil
}

// judge says what the caller learned.
func judge(op *history.Op, code int, answer []byte, err error) {
	op.Code = code
	var opened *net.OpError
	switch {
	case err != nil && (errors.Is(err, fenced.ErrTermEnded) || errors.As(err, &opened) && opened.Op == "dial"):
		op.Outcome, op.Message = history.NotSent, err.Error()
		return
	case err != nil:
		op.Outcome, op.Message = history.Unknown, err.Error()
		return
	case code < http.StatusBadRequest:
		op.Outcome = history.OK
		return
	}
	status := &metav1.Status{}
	if err := json.Unmarshal(answer, status); err != nil {
		op.Outcome, op.Message = history.Unknown, string(answer)
		return
	}
	op.Message = status.Message
	refusal, refused := fenced.Cause(&apierrors.StatusError{ErrStatus: *status})
	switch {
	case refused:
		op.Outcome, op.Cause = history.Refused, string(refusal.Type)
		if refusal.Record.Operation != "" {
			op.Record = refusal.Record.String()
		}
	case early(status):
		op.Outcome = history.Early
	case code >= http.StatusInternalServerError:
		op.Outcome = history.Unknown
	case code == http.StatusNotFound && op.Verb.Reads():
		op.Outcome = history.OK
	default:
		op.Outcome, op.Cause = history.Failed, string(status.Reason)
	}
}

// early tells whether a write was held up as its term is still to be sealed.
func early(status *metav1.Status) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return string(c.Type) == string(fence.SealPending)
	})
}

// seen returns the objects of an answer.
func seen(op *history.Op, answer []byte) []history.Seen {
	var top object
	if op.Code == http.StatusNotFound || json.Unmarshal(answer, &top) != nil {
		return nil
	}
	one := func(o object) history.Seen {
		revision, err := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			revision = 0 // a delete's answer has none
		}
		return history.Seen{Name: o.Metadata.Name, UID: o.Metadata.UID, Revision: revision}
	}
	switch {
	case op.Verb == history.List || op.Verb == history.DeleteCollection:
		all := make([]history.Seen, 0, len(top.Items))
		for _, item := range top.Items {
			all = append(all, one(item))
		}
		return all
	case top.Details != nil:
		return []history.Seen{{Name: top.Details.Name, UID: string(top.Details.UID)}}
	default:
		return []history.Seen{one(top)}
	}
}

// path returns the path of guarded objects.
func (c *caller) path(parts ...string) string {
	path := "/apis/" + env.GuardedGroup + "/" + env.ReportVersion + "/namespaces/" + c.actor.config.Lease.ObjectNamespace() + "/reports"
	for _, part := range parts {
		path += "/" + part
	}
	return path
}

const (
	jsonType  = "application/json"
	mergeType = string(types.MergePatchType)
	patchType = string(types.JSONPatchType)
	applyType = string(types.ApplyYAMLPatchType)
)
