// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/hack/demo/protocol"
	"github.com/fencedlease/fencedlease/pkg/token"
)

const writeTimeout = 15 * time.Second

// reports writes results.
type reports struct {
	client dynamic.ResourceInterface
	writes int
}

func newReports(config *rest.Config, namespace string) (*reports, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}
	return &reports{client: client.Resource(resource).Namespace(namespace)}, nil
}

// write sends the result in one patch, with the token of the term that it was computed under, if there is one.
func (r *reports) write(ctx context.Context, report, value string, t term) protocol.Event {
	failed := func(err error) protocol.Event {
		return protocol.Event{Name: protocol.Failed, Report: report, Message: err.Error()}
	}
	patch := map[string]any{"spec": map[string]any{"value": value}}
	if t.token != "" {
		presented, err := token.Parse(t.token)
		if err != nil {
			return failed(err)
		}
		r.writes++ // an operation of its own makes each write present the token anew
		if presented, err = presented.WithOperation(strconv.Itoa(r.writes)); err != nil {
			return failed(err)
		}
		patch["metadata"] = map[string]any{"annotations": map[string]any{t.key: presented.String()}}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = r.client.Patch(ctx, report, types.MergePatchType, body, metav1.PatchOptions{})
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return protocol.Event{Name: protocol.Accepted, Report: report}
	case errors.As(err, &answer):
		status := answer.Status()
		return protocol.Event{
			Name: protocol.Refused, Report: report, Code: status.Code, Reason: string(status.Reason), Message: status.Message,
		}
	default:
		return failed(err)
	}
}
