// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// API servers keep custom resources as JSON under /registry/<group>/<plural>/<namespace>/<name>.
const (
	objectPrefix = "/registry/" + env.GuardedGroup + "/reports/"
	leasePrefix  = "/registry/coordination.fencedlease.io/fencedleases/"
)

// parsed tells whether a key is recorded.
func parsed(key []byte) bool {
	return strings.HasPrefix(string(key), objectPrefix) || strings.HasPrefix(string(key), leasePrefix)
}

// parse returns the event of a stored value, or nil if it is not recorded.
func parse(kv keyValue, created bool) (*history.Event, error) {
	if !parsed(kv.Key) {
		return nil, nil //nolint:nilnil // most keys are of no interest
	}
	if strings.HasPrefix(string(kv.Key), leasePrefix) {
		return parseLease(kv, created)
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Value    string `json:"value"`
			Replicas int64  `json:"replicas"`
		} `json:"spec"`
		Status struct {
			Result string `json:"result"`
		} `json:"status"`
	}
	if err := json.Unmarshal(kv.Value, &object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	state := &history.ObjectState{
		Value: object.Spec.Value, Replicas: object.Spec.Replicas, Result: object.Status.Result,
		Generation: object.Metadata.Generation, Marks: map[string]string{}, Operations: map[string]string{},
	}
	for key, value := range object.Metadata.Annotations {
		if lease, ok := v1alpha1.LeaseOfTokenKey(key); ok {
			state.Marks[lease] = value
		}
		if lease, ok := strings.CutPrefix(key, v1alpha1.OperationsPrefix); ok {
			state.Operations[lease] = value
		}
	}
	for _, entry := range object.Metadata.ManagedFields {
		state.Managers = append(state.Managers, entry.Manager)
	}
	return &history.Event{
		Created: created, Namespace: object.Metadata.Namespace, Name: object.Metadata.Name, UID: string(object.Metadata.UID), Object: state,
	}, nil
}

func parseLease(kv keyValue, created bool) (*history.Event, error) {
	var lease v1alpha1.FencedLease
	if err := json.Unmarshal(kv.Value, &lease); err != nil {
		return nil, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	status := lease.Status
	state := &history.LeaseState{
		Generation: ptr.Deref(status.Generation, 0), Floor: ptr.Deref(status.GenerationFloor, 0), Term: ptr.Deref(status.Term, ""),
		Holder: ptr.Deref(status.HolderIdentity, ""), Handover: string(status.Handover), Seal: string(status.Seal),
		SealedGeneration: ptr.Deref(status.SealedGeneration, 0), Conditions: map[string]string{},
	}
	for _, condition := range status.Conditions {
		if condition.Status != metav1.ConditionTrue {
			continue
		}
		state.Conditions[condition.Type] = condition.Reason + ": " + condition.Message
		if condition.Type == v1alpha1.ConditionReady && condition.ObservedGeneration == lease.Generation {
			state.Ready = true
		}
	}
	return &history.Event{Created: created, Namespace: lease.Namespace, Name: lease.Name, UID: string(lease.UID), Lease: state}, nil
}
