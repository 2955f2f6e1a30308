// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// server is a source that the test feeds by hand. It lists what it has and sends what it is told to send.
type server struct {
	mu              sync.Mutex
	leases          []*v1alpha1.FencedLease
	resourceVersion int
	lists           []string
	// holdLists makes lists wait until it is closed.
	holdLists chan struct{}
	watches   []*watch.RaceFreeFakeWatcher
}

var (
	_ cache.ListerWatcher            = (*server)(nil)
	_ cache.ListerWatcherWithContext = (*server)(nil)
)

func newServer(leases ...*v1alpha1.FencedLease) *server {
	return &server{leases: leases, resourceVersion: 1}
}

// set replaces what lists show.
func (s *server) set(resourceVersion int, leases ...*v1alpha1.FencedLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resourceVersion, s.leases = resourceVersion, leases
}

// hold makes lists wait until the returned function is called.
func (s *server) hold() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	s.holdLists = ch
	return func() { close(ch) }
}

// send sends an event on the latest watch.
func (s *server) send(kind watch.EventType, lease *v1alpha1.FencedLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[len(s.watches)-1].Action(kind, lease.DeepCopy())
}

// end ends the latest watch, as an API server does that is restarted.
func (s *server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[len(s.watches)-1].Stop()
}

// bookmark sends a bookmark on the latest watch.
func (s *server) bookmark(resourceVersion int) {
	s.send(watch.Bookmark, &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(resourceVersion)}})
}

func (s *server) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	hold := s.holdLists
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, options.ResourceVersion)
	list := &v1alpha1.FencedLeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.resourceVersion)}}
	for _, l := range s.leases {
		list.Items = append(list.Items, *l.DeepCopy())
	}
	return list, nil
}

func (s *server) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

func (s *server) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

func (s *server) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

// IsWatchListSemanticsUnSupported makes reflectors list and then watch.
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }
