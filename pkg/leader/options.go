// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

const (
	// defaultReleaseTimeout leaves ten of the thirty seconds that a pod has to end.
	defaultReleaseTimeout = 20 * time.Second

	// minDuration is the shortest RenewDeadline and RetryPeriod. No API server answers much faster.
	minDuration = 10 * time.Millisecond
)

// Options are the choices of an Elector. Config, Namespace and Name are required.
type Options struct {
	// Config reaches the API server. The elector makes clients of its own from it, with connections of their own and
	// without client-side rate limits, so that a renewal never waits behind other requests.
	Config *rest.Config

	// Namespace and Name are those of the FencedLease.
	Namespace, Name string

	// Identity is the holder that the lease shows. It must differ for each process and have at most 253 characters.
	// Empty means the host's name and a random suffix.
	Identity string

	// RenewDeadline is how long a term is valid from the sending of its last confirmed renewal on. It must be shorter than
	// the lease's spec.leaseDurationSeconds: the elector does not acquire a lease that is too short for it, and says so by
	// a Warning event and OnWaiting. If the lease is made too short while it is held, the default is used instead. Zero
	// means two thirds of the lease's duration.
	RenewDeadline time.Duration

	// RetryPeriod is how long a holder waits between two renewals. It must be at most half of the renew deadline. A
	// request may take half of what is left of the renew deadline after it, so that one lost answer does not cost the
	// lead. Zero means a fifth of the renew deadline.
	RetryPeriod time.Duration

	// ReleaseTimeout is how long Run waits for the work to return after its own context has ended, before it releases the
	// lease all the same. Zero means 20 seconds, less than zero means no limit.
	ReleaseTimeout time.Duration

	// ExitOnLoss makes Run return a *LostError when a term is lost, as soon as the work has returned or ReleaseTimeout is
	// over. Otherwise Run campaigns again once the work has returned, however long that takes.
	ExitOnLoss bool

	// CreateWith is the spec with which the elector creates a missing FencedLease. Nil means that it creates none and waits
	// for the operator to do it.
	CreateWith *v1alpha1.FencedLeaseSpec

	// OnWaiting is told why the elector does not lead, each time that the reason changes: a *HeldError while another
	// holder renews, or an error that is ErrMissing, ErrNotReady, ErrForbidden, ErrLeaseTooShort, ErrSealPending or
	// ErrUnavailable. It is called from Run, one call at a time, and must return quickly. Nil tells nobody.
	OnWaiting func(reason error)

	// EventRecorder records on the FencedLease what concerns its operator. Nil records nothing. For a recorder of the
	// events.k8s.io API see EventsRecorder of pkg/resourcelock.
	EventRecorder EventRecorder

	// Metrics is told what happens, for signals. Nil tells nobody. Package leadermetrics has one for Prometheus.
	Metrics Metrics

	// Clock is the clock. Nil means the real one.
	Clock clock.Clock
}

// EventRecorder is the part of client-go's record.EventRecorder that an elector uses.
type EventRecorder interface {
	Eventf(regarding runtime.Object, eventType, reason, message string, args ...any)
}

// complete checks the options and fills in the defaults that do not depend on the lease.
func (o *Options) complete() error {
	switch {
	case o.Config == nil:
		return errors.New("make an elector: Options.Config is missing")
	case o.Namespace == "" || o.Name == "":
		return fmt.Errorf("make an elector: the FencedLease %q/%q needs a namespace and a name", o.Namespace, o.Name)
	case len(o.Name) > v1alpha1.MaxNameLength:
		return fmt.Errorf("make an elector: the name of FencedLease %s/%s has %d characters, at most %d are allowed", o.Namespace, o.Name, len(o.Name), v1alpha1.MaxNameLength)
	case len(o.Identity) > possession.MaxIdentityLength:
		return fmt.Errorf("make an elector on FencedLease %s/%s: the identity has %d characters, at most %d are allowed", o.Namespace, o.Name, len(o.Identity), possession.MaxIdentityLength)
	case o.RenewDeadline != 0 && o.RenewDeadline < minDuration || o.RetryPeriod != 0 && o.RetryPeriod < minDuration:
		return fmt.Errorf("make an elector on FencedLease %s/%s: RenewDeadline %s and RetryPeriod %s must each be zero or at least %s", o.Namespace, o.Name, o.RenewDeadline, o.RetryPeriod, minDuration)
	case o.RenewDeadline > 0 && o.RetryPeriod > o.RenewDeadline/2:
		return fmt.Errorf("make an elector on FencedLease %s/%s: RetryPeriod %s must be at most half of RenewDeadline %s", o.Namespace, o.Name, o.RetryPeriod, o.RenewDeadline)
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("make an identity: %w", err)
		}
		const random = 1 + 16
		host = host[:min(len(host), possession.MaxIdentityLength-random)]
		o.Identity = host + "_" + rand.Text()[:random-1]
	}
	if o.ReleaseTimeout == 0 {
		o.ReleaseTimeout = defaultReleaseTimeout
	}
	if o.CreateWith != nil {
		o.CreateWith = o.CreateWith.DeepCopy()
		if seconds := o.CreateWith.LeaseDurationSeconds; seconds > 0 {
			if _, err := o.timing(seconds); err != nil {
				return fmt.Errorf("make an elector on FencedLease %s/%s: Options.CreateWith: %w", o.Namespace, o.Name, err)
			}
		}
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// timing is how long things take under one duration of the lease.
type timing struct {
	// lease is how long followers wait for a sign of life.
	lease time.Duration
	// deadline is how long a term is valid from the sending of its last confirmed renewal on.
	deadline time.Duration
	// retry is the pause between renewals.
	retry time.Duration
	// request bounds one request. Two of them fit between the first renewal and the deadline.
	request time.Duration
}

// timing returns what the options mean for a lease's duration, or ErrLeaseTooShort.
func (o *Options) timing(leaseDurationSeconds int32) (timing, error) {
	t := timing{lease: time.Duration(leaseDurationSeconds) * time.Second, deadline: o.RenewDeadline, retry: o.RetryPeriod}
	if t.deadline == 0 {
		t.deadline = t.lease * 2 / 3
	}
	if t.retry == 0 {
		t.retry = t.deadline / 5
	}
	t.request = (t.deadline - t.retry) / 2
	switch {
	case t.deadline >= t.lease:
		return timing{}, fmt.Errorf("%w: spec.leaseDurationSeconds is %d and the elector's renew deadline %s: raise the first or lower Options.RenewDeadline",
			ErrLeaseTooShort, leaseDurationSeconds, t.deadline)
	case t.retry > t.deadline/2:
		return timing{}, fmt.Errorf("%w: spec.leaseDurationSeconds is %d, which leaves a renew deadline of %s, and the elector's retry period is %s: raise the first or lower Options.RetryPeriod",
			ErrLeaseTooShort, leaseDurationSeconds, t.deadline, t.retry)
	}
	return t, nil
}

// heldTiming is timing for a lease that is held already: what does not fit its duration is replaced by the defaults.
func (o *Options) heldTiming(leaseDurationSeconds int32) (timing, error) {
	t, err := o.timing(leaseDurationSeconds)
	if err != nil {
		t, _ = (&Options{}).timing(leaseDurationSeconds) // the defaults fit every duration
	}
	return t, err
}
