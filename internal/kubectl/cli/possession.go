// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// Possession returns the client that acquires and releases a lease.
func (f *Factory) Possession(namespace, name string) (possession.Client, error) {
	config, err := f.Config()
	if err != nil {
		return possession.Client{}, err
	}
	rest, err := possession.NewClient(config)
	if err != nil {
		return possession.Client{}, err
	}
	return possession.Client{REST: rest, Namespace: namespace, Name: name}, nil
}

// PatchStatus sends a patch of a holder, or lets the API server check it only, and returns the lease as it is after it.
func PatchStatus(ctx context.Context, c possession.Client, patch possession.Patch, dryRun DryRun) (*v1alpha1.FencedLease, error) {
	if dryRun != DryRunServer {
		return c.PatchStatus(ctx, patch)
	}
	body, err := patch.Encode()
	if err != nil {
		return nil, err
	}
	lease := &v1alpha1.FencedLease{}
	err = c.REST.Patch(types.MergePatchType).Namespace(c.Namespace).Resource(v1alpha1.Resource.Resource).Name(c.Name).
		SubResource("status").Param("fieldManager", possession.FieldManager).Param("dryRun", metav1.DryRunAll).
		Body(body).Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// component is who records events.
const component = "kubectl-fencedlease"

// RecordEvent records, on a lease, what a person did to it. Who may release a lease need not have the right to record
// events, so that a failure is said and changes nothing.
func (f *Factory) RecordEvent(ctx context.Context, lease *v1alpha1.FencedLease, reason, format string, args ...any) {
	if err := f.recordEvent(ctx, lease, reason, fmt.Sprintf(format, args...)); err != nil {
		f.Say("Warning: this was done, but no event about it could be recorded: %v", err)
	}
}

func (f *Factory) recordEvent(ctx context.Context, lease *v1alpha1.FencedLease, reason, message string) error {
	c, err := f.Client()
	if err != nil {
		return err
	}
	now := metav1.NewTime(f.Clock.Now())
	return c.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, GenerateName: lease.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind,
			Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: component},
	})
}

// Me names the user in an event, as far as the API server says who it is.
func (f *Factory) Me(ctx context.Context) string {
	c, err := f.Client()
	if err != nil {
		return "somebody"
	}
	user, err := WhoAmI(ctx, c)
	if err != nil {
		return "somebody"
	}
	return user.Username
}
