// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// FilesOptions say where certificates are that somebody else makes, and what they must be for.
type FilesOptions struct {
	// Dir is a folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager. Required.
	Dir string
	// Hosts are what API servers call the webhook by. A certificate must be for all of them. Required.
	Hosts []string
	// InstalledBundles is as in Options. Required.
	InstalledBundles func(ctx context.Context) ([][]byte, error)
	// Clock is the time. Required.
	Clock clock.WithTicker
	// SettleMargin, ClockSkew and CheckInterval are as in Options. The folder is read with each check.
	SettleMargin, ClockSkew, CheckInterval time.Duration
	// Retention is how long a CA that has left ca.crt stays trusted: longer than the folders of all replicas take to follow.
	// 24 h if zero.
	Retention time.Duration
}

func (o FilesOptions) withDefaults() FilesOptions {
	setDefault(&o.SettleMargin, DefaultSettleMargin)
	setDefault(&o.ClockSkew, DefaultClockSkew)
	setDefault(&o.CheckInterval, DefaultCheckInterval)
	setDefault(&o.Retention, 24*time.Hour)
	return o
}

func (o FilesOptions) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Dir": o.Dir == "", "Hosts": len(o.Hosts) == 0, "InstalledBundles": o.InstalledBundles == nil, "Clock": o.Clock == nil,
	} {
		if missing {
			errs = append(errs, errors.New(name+" is required"))
		}
	}
	for name, d := range map[string]time.Duration{
		"SettleMargin": o.SettleMargin, "ClockSkew": o.ClockSkew, "CheckInterval": o.CheckInterval, "Retention": o.Retention,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is negative: %v", name, d))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("check options of certificates from files: %w", errors.Join(errs...))
	}
	return nil
}

// Files serves the certificate of a folder, on every replica, in place of an Authority. It is made so that neither a renewal
// nor a change of the CA fails a call, though folders of different replicas change at different times:
//
// A new certificate of the same CA is served at once. One of another CA is served when all webhook configurations have been seen
// to trust that CA for the settle margin. Until then the certificate before it is served, as long as it lasts. The bundle, which the
// elected replica hands out, has the CAs of its folder at once and keeps those that leave it for the retention, and what the
// configurations trusted when the replica was elected as well.
type Files struct {
	opts    FilesOptions
	metrics *Metrics

	// served is the certificate in use, nil before the first.
	served atomic.Pointer[servingLeaf]
	// problem is what the last check failed with, nil if it did not.
	problem atomic.Pointer[error]

	// mu guards what follows.
	mu sync.Mutex
	// current is the newest content of the folder that can be served, nil before the first.
	current *folder
	// retired are CAs that are trusted for a while still.
	retired []retiredCA
	// waiting is the CA of current while it is not served, and since when the configurations have been seen to trust it.
	waiting *x509.Certificate
	since   time.Time
	// elected says that what the configurations trusted at the election is among the retired.
	elected     bool
	bundle      []byte
	subscribers []chan struct{}
}

var _ prometheus.Collector = (*Files)(nil)

// NewFiles returns Files for the options, or an error that says what is wrong with them.
func NewFiles(opts FilesOptions) (*Files, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Files{opts: opts, metrics: NewMetrics()}, nil
}

// NeedLeaderElection returns false: every replica serves.
func (*Files) NeedLeaderElection() bool { return false }

// GetCertificate returns the serving certificate. It is meant for tls.Config.GetCertificate and never waits.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return certificateOf(f.served.Load())
}

// Ready returns an error while there is no valid certificate to serve. It is a check for readyz.
func (f *Files) Ready() error {
	return readiness(f.served.Load(), f.opts.Clock.Now(), f.problem.Load())
}

// Start follows the folder until ctx ends.
func (f *Files) Start(ctx context.Context) error {
	ticker := f.opts.Clock.NewTicker(f.opts.CheckInterval)
	defer ticker.Stop()
	report := &reporter{message: "Checking the folder of certificates failed"}
	for {
		err := f.check(ctx)
		f.problem.Store(&err)
		report.log(ctx, err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// check reads the folder, and serves what is in it when its time has come.
func (f *Files) check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := readFolder(f.opts, f.opts.Clock.Now())
	if err != nil {
		// It may be about to be replaced. What was there before stays in use.
		err = fmt.Errorf("read %s: %w", f.opts.Dir, err)
	} else {
		f.take(content)
	}
	f.prune()
	f.publish()
	return errors.Join(err, f.serve(ctx))
}

// take makes the content of the folder the current one. CAs that have left it stay trusted for a while.
func (f *Files) take(content *folder) {
	before := f.current
	f.current = content
	if before != nil {
		f.retain(before.authorities)
	}
}

// retain keeps CAs that the folder does not hold trusted. One that is kept already is not kept for longer.
func (f *Files) retain(certs []*x509.Certificate) {
	until := f.opts.Clock.Now().Add(f.opts.Retention)
	for _, cert := range certs {
		known := f.current.holds(cert) || slices.ContainsFunc(f.retired, func(r retiredCA) bool { return r.cert.Equal(cert) })
		if !known && len(f.retired) < maxRetired {
			f.retired = append(f.retired, retiredCA{cert: cert, until: until})
		}
	}
}

// prune drops CAs that need no longer be trusted, or that the folder holds again.
func (f *Files) prune() {
	now := f.opts.Clock.Now()
	f.retired = slices.DeleteFunc(f.retired, func(r retiredCA) bool {
		return !now.Before(r.until) || !now.Before(r.cert.NotAfter) || f.current.holds(r.cert)
	})
}

// publish hands out the bundle on the elected replica, if it is another one than before.
func (f *Files) publish() {
	if !f.elected || f.current == nil {
		return
	}
	var bundle []byte
	for _, cert := range f.current.authorities {
		bundle = append(bundle, encodeCertificate(cert)...)
	}
	for _, r := range f.retired {
		bundle = append(bundle, encodeCertificate(r.cert)...)
	}
	if bytes.Equal(f.bundle, bundle) {
		return
	}
	f.bundle = bundle
	for _, ch := range f.subscribers {
		notify(ch)
	}
}

// serve puts the current certificate into use, unless its CA is new and not trusted for long enough.
func (f *Files) serve(ctx context.Context) error {
	next, leaf := f.current, f.served.Load()
	if next == nil || leaf != nil && bytes.Equal(leaf.tls.Leaf.Raw, next.leaf.tls.Leaf.Raw) {
		return nil
	}
	if leaf == nil || !leaf.signer.Equal(next.leaf.signer) {
		if ready, err := f.mayServe(ctx, next.leaf.signer, leaf); err != nil || !ready {
			return err
		}
	}
	f.served.Store(next.leaf)
	klog.FromContext(ctx).V(1).Info("Serving a new certificate", "ca", next.leaf.signer.Subject.CommonName, "notAfter", next.leaf.tls.Leaf.NotAfter)
	return nil
}

// mayServe reports whether a certificate of the CA can take the place of the one in use, nil if there is none. What the
// configurations trust is read from the API server.
func (f *Files) mayServe(ctx context.Context, signer *x509.Certificate, leaf *servingLeaf) (bool, error) {
	if f.waiting == nil || !f.waiting.Equal(signer) {
		f.waiting, f.since = signer, time.Time{}
	}
	bundles, err := f.opts.InstalledBundles(ctx)
	if err != nil {
		return false, fmt.Errorf("read bundles of webhook configurations: %w", err)
	}
	now := f.opts.Clock.Now()
	if !parseTrust(bundles).covers(signer) {
		f.since = time.Time{}
		return false, fmt.Errorf("wait for the webhook configurations to trust %s, which the elected replica has them do. "+
			"If that one does not use this folder, all replicas must be stopped before", signer.Subject)
	}
	if f.since.IsZero() {
		f.since = now
	}
	good := leaf != nil && leaf.tls.Leaf.NotAfter.Sub(now) > f.opts.ClockSkew
	return !good || now.Sub(f.since) >= f.opts.SettleMargin, nil
}

// Describe sends the descriptors of the metrics.
func (f *Files) Describe(ch chan<- *prometheus.Desc) { f.metrics.Describe(ch) }

// LabelSets returns the values that each label of each metric can have.
func (f *Files) LabelSets() map[string]map[string][]string { return f.metrics.LabelSets() }

// Collect sends the metrics. There is no state of a CA of our own, so its revision is not among them.
func (f *Files) Collect(ch chan<- prometheus.Metric) {
	now := f.opts.Clock.Now()
	if leaf := f.served.Load(); leaf != nil {
		for kind, cert := range map[string]*x509.Certificate{kindCA: leaf.signer, kindLeaf: leaf.tls.Leaf} {
			ch <- prometheus.MustNewConstMetric(f.metrics.expiry, prometheus.GaugeValue, cert.NotAfter.Sub(now).Seconds(), kind)
		}
	}
	f.metrics.Collect(ch)
}

// FileBundles hands out the bundle of Files on the elected replica, in place of a Rotator.
type FileBundles struct{ files *Files }

// NewFileBundles returns the FileBundles of the replica that the Files belong to.
func NewFileBundles(files *Files) *FileBundles { return &FileBundles{files: files} }

// NeedLeaderElection returns true: one replica hands bundles out.
func (*FileBundles) NeedLeaderElection() bool { return true }

// Bundle is as that of a Rotator.
func (b *FileBundles) Bundle() []byte {
	b.files.mu.Lock()
	defer b.files.mu.Unlock()
	return bytes.Clone(b.files.bundle)
}

// Subscribe is as that of a Rotator.
func (b *FileBundles) Subscribe() <-chan struct{} {
	b.files.mu.Lock()
	defer b.files.mu.Unlock()
	ch := make(chan struct{}, 1)
	if b.files.bundle != nil {
		ch <- struct{}{}
	}
	b.files.subscribers = append(b.files.subscribers, ch)
	return ch
}

// Start makes the replica hand out bundles from its election on, with all that the configurations trusted then: other replicas may
// serve what the one before had trusted. It returns when ctx ends.
func (b *FileBundles) Start(ctx context.Context) error {
	ticker := b.files.opts.Clock.NewTicker(b.files.opts.CheckInterval)
	defer ticker.Stop()
	report := &reporter{message: "Reading what the webhook configurations trust failed"}
	for adopted := false; ; {
		if !adopted {
			err := b.files.adopt(ctx)
			report.log(ctx, err)
			adopted = err == nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// adopt keeps what the configurations trust now trusted, and begins to hand out bundles.
func (f *Files) adopt(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return fmt.Errorf("there is no certificate in %s yet", f.opts.Dir)
	}
	bundles, err := f.opts.InstalledBundles(ctx)
	if err != nil {
		return fmt.Errorf("read bundles of webhook configurations: %w", err)
	}
	f.retain(parseTrust(bundles).authorities(f.opts.Clock.Now()))
	f.elected = true
	f.publish()
	return nil
}
