// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	rl "k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/fencedlease/fencedlease/hack/demo/protocol"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

// term is what a worker leads under.
type term struct {
	generation int64
	// key and token are what its writes carry; empty on a Lease, which has nothing of the kind.
	key, token string
}

type election struct {
	elector *leaderelection.LeaderElector
	leading chan term     // gets the term when it begins
	stopped chan struct{} // closed when the elector has ended, after its release
}

// startElection runs client-go's elector, which is the same for both kinds of lock, until ctx ends or the lead is lost.
func startElection(ctx context.Context, config *rest.Config, o options) (*election, error) {
	renewDeadline := o.leaseDuration * 3 / 4
	lock, current, err := newLock(ctx, config, o, renewDeadline)
	if err != nil {
		return nil, err
	}
	e := &election{leading: make(chan term, 1), stopped: make(chan struct{})}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            o.name,
		LeaseDuration:   o.leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     o.leaseDuration / 10,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if t, ok := current(ctx); ok {
					e.leading <- t
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make elector: %w", err)
	}
	go func() {
		defer close(e.stopped)
		e.elector.Run(ctx)
	}()
	return e, nil
}

// newLock returns the lock, and a function that tells the term right after the acquisition.
func newLock(ctx context.Context, config *rest.Config, o options, renewDeadline time.Duration) (rl.Interface, func(context.Context) (term, bool), error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(o.namespace)})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: o.identity})

	if o.election == protocol.ElectionFenced {
		lock, err := resourcelock.New(config, o.namespace, o.name, o.identity, resourcelock.Options{
			EventRecorder: events, RenewDeadline: renewDeadline,
		})
		return lock, func(context.Context) (term, bool) {
			t, ok := lock.Term()
			return term{generation: t.Generation, key: t.TokenKey(), token: t.Token().String()}, ok
		}, err
	}
	lock := &rl.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.name},
		Client:     clients.CoordinationV1(),
		LockConfig: rl.ResourceLockConfig{Identity: o.identity, EventRecorder: events},
	}
	return lock, func(ctx context.Context) (term, bool) {
		lease, err := clients.CoordinationV1().Leases(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
		if err != nil || lease.Spec.LeaseTransitions == nil {
			return term{}, false
		}
		return term{generation: int64(*lease.Spec.LeaseTransitions)}, true
	}, nil
}
