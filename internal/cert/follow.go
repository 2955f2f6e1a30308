// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
)

// follower keeps a watch of one Secret open. It is used by one goroutine.
type follower struct {
	secrets corev1client.SecretInterface
	name    string
	clock   clock.PassiveClock
	// pause is the least time between two attempts to open a watch.
	pause time.Duration

	watch    watch.Interface
	openedAt time.Time
}

// open opens the watch if it is not open and the pause is over, and reports whether it did.
func (f *follower) open(ctx context.Context) (opened bool, err error) {
	if f.watch != nil || !f.mayOpen() {
		return false, nil
	}
	f.openedAt = f.clock.Now()
	// The field selector on the name lets a role with resourceNames allow the request.
	f.watch, err = f.secrets.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()})
	if err != nil {
		f.watch = nil
		return false, fmt.Errorf("watch Secret %s: %w", f.name, err)
	}
	return true, nil
}

// mayOpen reports whether the pause is over.
func (f *follower) mayOpen() bool {
	return f.openedAt.IsZero() || f.clock.Since(f.openedAt) >= f.pause
}

// events returns the channel of the open watch, or one on which nothing comes.
func (f *follower) events() <-chan watch.Event {
	if f.watch == nil {
		return nil
	}
	return f.watch.ResultChan()
}

// take judges what came from the channel: the resourceVersion of the Secret that an event is about, or that the watch is
// of no more use.
func (f *follower) take(event watch.Event, open bool) (resourceVersion string, usable bool) {
	if !open || event.Type == watch.Error {
		f.close()
		return "", false
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		f.close()
		return "", false
	}
	return object.GetResourceVersion(), true
}

// close ends the watch.
func (f *follower) close() {
	if f.watch != nil {
		f.watch.Stop()
		f.watch = nil
	}
}
