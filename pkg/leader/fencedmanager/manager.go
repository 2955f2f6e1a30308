// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

// Manager is a manager of controller-runtime whose writes are fenced.
type Manager struct {
	manager.Manager

	possession *possession
}

// New returns a manager that elects its leader on a FencedLease and writes under its terms. It takes the options of
// controller-runtime's manager.New. Leader election is on, whatever they say; what they say of another lock
// (LeaderElectionID, LeaderElectionNamespace, LeaderElectionResourceLock) is not used. Set LeaseDuration to the lease's
// spec.leaseDurationSeconds, if that is not 15 s: the fence holds with any, but a leader that believes longer in its lease
// than its followers wait is overthrown while it works, and an event on the lease says so.
func New(config *rest.Config, managed manager.Options, options Options) (*Manager, error) {
	mgr, err := newManager(config, managed, options)
	if err != nil {
		return nil, fmt.Errorf("make a fenced manager: %w", err)
	}
	return mgr, nil
}

func newManager(config *rest.Config, managed manager.Options, options Options) (*Manager, error) {
	if err := options.complete(&managed); err != nil {
		return nil, err
	}
	recorder := &lateRecorder{}
	lockConfig := config
	if managed.LeaderElectionConfig != nil {
		lockConfig = managed.LeaderElectionConfig
	}
	lock, err := resourcelock.New(lockConfig, options.Namespace, options.Name, options.Identity, resourcelock.Options{
		EventRecorder: recorder, RenewDeadline: ptr.Deref(managed.RenewDeadline, 0), CreateWith: options.CreateWith,
	})
	if err != nil {
		return nil, err
	}
	p := &possession{lock: lock}
	managed.LeaderElection, managed.LeaderElectionResourceLockInterface = true, lock
	if !options.WithoutBarrier {
		useBarrier(&managed, p)
	}
	managed.NewClient = fencedClient(managed.NewClient, p, options)

	mgr, err := manager.New(config, managed)
	if err != nil {
		return nil, err
	}
	recorder.use(resourcelock.EventsRecorder(mgr.GetEventRecorder("fencedlease-holder")))
	return &Manager{Manager: mgr, possession: p}, nil
}

// fencedClient returns a constructor of clients that present the token of the possession, and answer replays of operations
// with success. The object of a replay is read from the API server, not from the cache, which may not have it yet.
func fencedClient(build client.NewClientFunc, p *possession, options Options) client.NewClientFunc {
	if build == nil {
		build = client.New
	}
	return func(config *rest.Config, clientOptions client.Options) (client.Client, error) {
		reader, err := client.New(config, client.Options{HTTPClient: clientOptions.HTTPClient, Scheme: clientOptions.Scheme, Mapper: clientOptions.Mapper})
		if err != nil {
			return nil, fmt.Errorf("make a reader of the API server: %w", err)
		}
		if options.Carrier == CarrierAnnotation {
			c, err := build(config, clientOptions)
			if err != nil {
				return nil, err
			}
			return fenced.Client(c, p, fenced.ReadingBy(reader)), nil
		}
		wrapped := fenced.Wrap(config, p, options.Carry...)
		// The client that comes with the options was made from the configuration as it was.
		httpClient, err := rest.HTTPClientFor(wrapped)
		if err != nil {
			return nil, fmt.Errorf("make an HTTP client that carries tokens: %w", err)
		}
		clientOptions.HTTPClient = httpClient
		c, err := build(wrapped, clientOptions)
		if err != nil {
			return nil, err
		}
		return fenced.Replaying(c, p, fenced.ReadingBy(reader)), nil
	}
}

// lateRecorder records events once there is a recorder to do it.
type lateRecorder struct {
	recorder atomic.Pointer[recorder]
}

type recorder = interface {
	Eventf(obj runtime.Object, eventType, reason, message string, args ...any)
}

func (l *lateRecorder) use(r recorder) { l.recorder.Store(&r) }

// Eventf records an event. The election, which records them, begins after the manager was made.
func (l *lateRecorder) Eventf(obj runtime.Object, eventType, reason, message string, args ...any) {
	if r := l.recorder.Load(); r != nil {
		(*r).Eventf(obj, eventType, reason, message, args...)
	}
}
