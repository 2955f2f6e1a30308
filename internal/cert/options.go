// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	DefaultCALife         = 365 * 24 * time.Hour
	DefaultLeafLife       = 24 * time.Hour
	DefaultRenewFraction  = 2.0 / 3
	DefaultSettleMargin   = 5 * time.Minute
	DefaultClockSkew      = 5 * time.Minute
	DefaultCheckInterval  = 5 * time.Second
	DefaultRereadInterval = time.Minute
)

// Recorder takes the events of this package. Event types are those of the core API, reasons are the constants of this
// package. It is called with locks held and must return soon.
type Recorder interface {
	Event(eventType, reason, message string)
}

// Options say what certificates are for and how long things last. All replicas must have the same options; while a changed
// manager is rolled out, the longer times of the two are what counts.
type Options struct {
	// Secrets reaches the manager's own namespace. Required.
	Secrets corev1client.SecretInterface
	// Name is the name of the Secret. Required.
	Name string
	// Labels are set on the Secret when it is created.
	Labels map[string]string

	// DNSNames and IPs are what API servers call the webhook by: <service>.<namespace>.svc, or the host of a URL. At least
	// one is required.
	DNSNames []string
	IPs      []net.IP

	// InstalledBundles returns the caBundle of every webhook in every webhook configuration of this product that exists,
	// nil for one that has none. It must ask the API server, not a cache: the answer decides whether a CA may sign. All
	// replicas call it: when they start, when the CA that signs changes, and when the Secret was damaged; the elected one
	// also with each check of a rotation. Required.
	InstalledBundles func(ctx context.Context) ([][]byte, error)

	// Clock is the time. Required.
	Clock clock.WithTicker
	// Recorder takes events, if set.
	Recorder Recorder

	// CALife and LeafLife are how long a CA and a serving certificate are valid. The first is DefaultCALife if zero, the
	// second DefaultLeafLife.
	CALife, LeafLife time.Duration
	// CARenewFraction and LeafRenewFraction are the parts of their lives after which a CA is rotated and a leaf renewed.
	// DefaultRenewFraction if zero.
	CARenewFraction, LeafRenewFraction float64
	// SettleMargin is how long the webhook configurations must have carried a new CA before it signs. It must be longer
	// than any API server takes to notice a changed configuration. DefaultSettleMargin if zero.
	SettleMargin time.Duration
	// ClockSkew is how far the clocks of API servers and replicas may be apart. Certificates are valid from that long
	// before they are made, and are renewed while they are valid for longer than that. DefaultClockSkew if zero.
	ClockSkew time.Duration
	// CheckInterval is how often what is due is looked at, and the least time between two attempts of a replica to mend
	// the Secret. A change of the Secret is noticed at once by a watch. DefaultCheckInterval if zero.
	CheckInterval time.Duration
	// RereadInterval is how often the Secret is read though the watch shows no change. DefaultRereadInterval if zero.
	RereadInterval time.Duration
}

// MaxReadAge is the age of the last successful read of the Secret from which on a replica signs no leaf.
func (o Options) MaxReadAge() time.Duration { return 5 * o.RereadInterval }

// retention is how long a CA that no longer signs stays trusted.
func (o Options) retention() time.Duration { return o.LeafLife + o.MaxReadAge() + o.ClockSkew }

// restoreTime is how long a replica that remembers nothing leaves a damaged Secret to those that do.
func (o Options) restoreTime() time.Duration { return 2 * o.CheckInterval }

func (o Options) withDefaults() Options {
	setDefault(&o.CALife, DefaultCALife)
	setDefault(&o.LeafLife, DefaultLeafLife)
	setDefault(&o.CARenewFraction, DefaultRenewFraction)
	setDefault(&o.LeafRenewFraction, DefaultRenewFraction)
	setDefault(&o.SettleMargin, DefaultSettleMargin)
	setDefault(&o.ClockSkew, DefaultClockSkew)
	setDefault(&o.CheckInterval, DefaultCheckInterval)
	setDefault(&o.RereadInterval, DefaultRereadInterval)
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	return o
}

func setDefault[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

func (o Options) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Secrets == nil, "Secrets is required")
	refuse(o.Name == "", "Name is required")
	refuse(o.InstalledBundles == nil, "InstalledBundles is required")
	refuse(o.Clock == nil, "Clock is required")
	refuse(len(o.DNSNames)+len(o.IPs) == 0, "one of DNSNames and IPs is required")
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"CALife", o.CALife},
		{"LeafLife", o.LeafLife},
		{"SettleMargin", o.SettleMargin},
		{"ClockSkew", o.ClockSkew},
		{"CheckInterval", o.CheckInterval},
		{"RereadInterval", o.RereadInterval},
	} {
		refuse(d.value < 0, "%s is negative: %v", d.name, d.value)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"CARenewFraction", o.CARenewFraction},
		{"LeafRenewFraction", o.LeafRenewFraction},
	} {
		refuse(f.value <= 0 || f.value >= 1, "%s is not between 0 and 1: %v", f.name, f.value)
	}
	refuse(o.RereadInterval < o.CheckInterval, "RereadInterval %v is below CheckInterval %v", o.RereadInterval, o.CheckInterval)
	leafRest := remainder(o.LeafLife, o.LeafRenewFraction)
	refuse(leafRest <= o.ClockSkew+o.SettleMargin,
		"a leaf is renewed %v before its end, which must be more than ClockSkew and SettleMargin %v: raise LeafLife",
		leafRest, o.ClockSkew+o.SettleMargin)
	caRest := remainder(o.CALife, o.CARenewFraction)
	refuse(caRest <= o.LeafLife+o.SettleMargin,
		"a CA is rotated %v before its end, which must be more than LeafLife and SettleMargin %v: raise CALife",
		caRest, o.LeafLife+o.SettleMargin)
	if len(errs) > 0 {
		return fmt.Errorf("check options of serving certificates: %w", errors.Join(errs...))
	}
	return nil
}

// remainder is the part of a life that is left when the fraction of it is over.
func remainder(life time.Duration, fraction float64) time.Duration {
	return time.Duration(float64(life) * (1 - fraction))
}

type noRecorder struct{}

func (noRecorder) Event(string, string, string) {}
