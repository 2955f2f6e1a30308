// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// ErrNotSynced is returned while no list of the leases has been read yet.
var ErrNotSynced = errors.New("the leases have not been listed yet")

// Reasons for replacing the copy; they are also values of a metric's label.
const (
	relistBehind  = "behind"
	relistLagging = "lagging"
	relistSilent  = "silent"
)

// store is the watched copy of the leases. A reflector writes it; everybody else reads. The objects in it are never
// changed.
type store struct {
	clock    clock.PassiveClock
	onBehind func(key types.NamespacedName, cached, read *v1alpha1.FencedLease)
	holders  *Holders
	// items has a lock of its own, so that reads of the content do not wait for mu.
	items cache.Indexer
	// synced is closed after the first list.
	synced chan struct{}

	mu       sync.Mutex
	isSynced bool
	// frozen stores take no more changes, retired ones have been replaced.
	frozen, retired bool
	// resourceVersion is that of the last list, event or bookmark: every change up to it is in items.
	resourceVersion string
	// heard is when the reflector last told something.
	heard time.Time
	// awaited is a resourceVersion that a read showed and that the copy had not reached at awaitedSince.
	awaited      string
	awaitedSince time.Time
	// changed is closed at the next change; nil if nobody waits.
	changed chan struct{}
	// behind is set when a read proved that the store behind the API server went back.
	behind bool
	// reported are the leases that onBehind was called for.
	reported map[types.NamespacedName]bool
}

var (
	_ cache.ReflectorStore         = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

func newStore(c clock.PassiveClock, onBehind func(types.NamespacedName, *v1alpha1.FencedLease, *v1alpha1.FencedLease), holders *Holders) *store {
	return &store{
		clock:    c,
		onBehind: onBehind,
		holders:  holders,
		items:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{guardIndex: guardKeys}),
		synced:   make(chan struct{}),
		heard:    c.Now(),
		reported: map[types.NamespacedName]bool{},
	}
}

// get returns a lease from the copy, which may be of any age.
func (s *store) get(key types.NamespacedName) *v1alpha1.FencedLease {
	// The key function and the indexer in memory do not fail.
	obj, ok, err := s.items.GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	lease, _ := obj.(*v1alpha1.FencedLease)
	return lease
}

// Add is called by the reflector.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update is called by the reflector.
func (s *store) Update(obj any) error {
	lease, ok := obj.(*v1alpha1.FencedLease)
	if !ok {
		return fmt.Errorf("store %T: not a FencedLease", obj)
	}
	lease.ManagedFields = nil
	was := s.get(keyOf(lease))
	err := s.change(lease.ResourceVersion, func() error {
		// An event that shows less than the copy had comes from a store that went back: events are missing in between.
		s.behind = s.behind || (was != nil && wentBack(was, lease))
		s.holders.changed(lease)
		return s.items.Update(lease)
	})
	s.compare(was, lease)
	return err
}

// Delete is called by the reflector.
func (s *store) Delete(obj any) error {
	lease, ok := obj.(*v1alpha1.FencedLease)
	if !ok {
		return fmt.Errorf("store %T: not a FencedLease", obj)
	}
	return s.change(lease.ResourceVersion, func() error {
		s.holders.gone(keyOf(lease))
		return s.items.Delete(lease)
	})
}

// Bookmark is called by the reflector: every change up to resourceVersion has been told.
func (s *store) Bookmark(resourceVersion string) error {
	return s.change(resourceVersion, func() error { return nil })
}

// Resync is called by the reflector and has no meaning here.
func (s *store) Resync() error { return nil }

// Replace is called by the reflector after a list.
func (s *store) Replace(list []any, resourceVersion string) error {
	type pair struct{ was, is *v1alpha1.FencedLease }
	var known []pair
	leases := make([]*v1alpha1.FencedLease, 0, len(list))
	for _, obj := range list {
		lease, ok := obj.(*v1alpha1.FencedLease)
		if !ok {
			return fmt.Errorf("store %T: not a FencedLease", obj)
		}
		lease.ManagedFields = nil
		leases = append(leases, lease)
		if was := s.get(keyOf(lease)); was != nil {
			known = append(known, pair{was, lease})
		}
	}
	err := s.change(resourceVersion, func() error {
		if err := s.items.Replace(list, resourceVersion); err != nil {
			return err
		}
		s.holders.listed(leases)
		if !s.isSynced {
			s.isSynced = true
			close(s.synced)
		}
		return nil
	})
	for _, p := range known {
		s.compare(p.was, p.is)
	}
	return err
}

// change applies a change of the content, then moves the resourceVersion, then tells who waits for it. A frozen store
// drops it.
func (s *store) change(resourceVersion string, apply func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		return nil
	}
	if err := apply(); err != nil {
		return err
	}
	s.resourceVersion = resourceVersion
	s.heard = s.clock.Now()
	if s.awaited != "" && !older(resourceVersion, s.awaited) {
		s.awaited = ""
	}
	s.tell()
	return nil
}

// tell wakes who waits for a change. s.mu is held.
func (s *store) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// reached reports whether the copy holds every change up to resourceVersion, or any list at all if it is empty. If not,
// the channel is closed at the next change.
func (s *store) reached(resourceVersion string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSynced && (resourceVersion == "" || !older(s.resourceVersion, resourceVersion)) {
		return true, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	changed := s.changed
	if s.retired {
		s.tell()
	}
	return false, changed
}

// freeze ends all changes: what the copy holds now it holds for ever.
func (s *store) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

// retire sends those who wait for a change to the store that has replaced this one.
func (s *store) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.tell()
}

// isReady reports whether there has been a list.
func (s *store) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isSynced
}

// compare looks for a proof that the store went back. was comes from this copy, is from a list, an event or a linearizable
// read that began afterwards. Either may be nil.
func (s *store) compare(was, is *v1alpha1.FencedLease) {
	if was == nil || is == nil || !wentBack(was, is) {
		return
	}
	key := keyOf(is)
	s.mu.Lock()
	first := !s.reported[key]
	s.reported[key] = true
	s.mu.Unlock()
	if first && s.onBehind != nil {
		s.onBehind(key, was, is)
	}
}

// observe takes in a lease that a linearizable read has shown, and the copy's lease of the moment before it began. It
// reports whether the copy must be replaced at once.
func (s *store) observe(before, read *v1alpha1.FencedLease) bool {
	back := before != nil && wentBack(before, read)
	s.mu.Lock()
	if back {
		s.behind = true
	} else if s.isSynced && s.awaited == "" && older(s.resourceVersion, read.ResourceVersion) {
		s.awaited, s.awaitedSince = read.ResourceVersion, s.clock.Now()
	}
	s.mu.Unlock()
	if back {
		s.compare(before, read)
	}
	return back
}

// stale returns why the copy must be replaced, or "".
func (s *store) stale(maxLag, maxSilence time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.clock.Now(); {
	case s.behind:
		return relistBehind
	case s.awaited != "" && now.Sub(s.awaitedSince) > maxLag:
		return relistLagging
	case now.Sub(s.heard) > maxSilence:
		return relistSilent
	}
	return ""
}

// older reports whether a is known to be below b. Both belong to one resource; an unreadable one counts as the lowest.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return true
	}
	return c < 0
}

func keyOf(lease *v1alpha1.FencedLease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}
