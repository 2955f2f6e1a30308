// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// fileReplica is a replica with a folder, as the kubelet mounts it. Its checks are made by the test.
type fileReplica struct {
	files *Files
	dir   string
}

// fileWorld is what replicas have in common: a clock, and what the configurations trust.
type fileWorld struct {
	clock     *clocktesting.FakeClock
	installed [][]byte
	fails     error
}

func newFileWorld() *fileWorld {
	return &fileWorld{clock: clocktesting.NewFakeClock(begin), installed: [][]byte{nil, nil}}
}

func (w *fileWorld) options(dir string) FilesOptions {
	return FilesOptions{
		Dir: dir, Hosts: []string{host}, Clock: w.clock, SettleMargin: 2 * time.Minute, ClockSkew: time.Minute, Retention: time.Hour,
		InstalledBundles: func(context.Context) ([][]byte, error) { return w.installed, w.fails },
	}
}

func (w *fileWorld) replica(t fatal) *fileReplica {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	files, err := NewFiles(w.options(dir))
	if err != nil {
		t.Fatal(err)
	}
	return &fileReplica{files, dir}
}

// fatal is what *testing.T and *rapid.T have in common here.
type fatal interface {
	Fatal(...any)
	Cleanup(func())
	Context() context.Context
}

// issue makes a leaf of a CA for the names of the test's options.
func (w *fileWorld) issue(t fatal, from *ca) *servingLeaf {
	o := testOptions()
	o.LeafLife = time.Hour
	leaf, err := from.signLeaf(o, w.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// put writes a folder.
func (r *fileReplica) put(t fatal, leaf *servingLeaf, authorities ...*ca) {
	key, err := x509.MarshalPKCS8PrivateKey(leaf.tls.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		fileCert: encodeCertificate(leaf.tls.Leaf), fileKey: pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: key}), fileCA: bundleOf(authorities...),
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serves returns which of the leaves the replica serves, -1 for none.
func (r *fileReplica) serves(leaves ...*servingLeaf) int {
	served, err := r.files.GetCertificate(nil)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(leaves, func(l *servingLeaf) bool { return bytes.Equal(l.tls.Leaf.Raw, served.Leaf.Raw) })
}

// trusting is what trusts the CAs in all configurations.
func trusting(cas ...*ca) [][]byte { return [][]byte{bundleOf(cas...), bundleOf(cas...)} }

func TestAFolderThatCannotBeServedIsRefused(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	own, foreign := mustCA(t, begin), mustCA(t, begin)
	for name, spoil := range map[string]struct {
		do   func(r *fileReplica)
		want string
	}{
		"no key":                 {func(r *fileReplica) { must(0, os.Remove(filepath.Join(r.dir, fileKey))) }, "no such file"},
		"the key of another one": {func(r *fileReplica) { exchange(t, w, r, own, fileKey) }, "private key does not match"},
		"the CA of another one":  {func(r *fileReplica) { r.put(t, w.issue(t, own), foreign) }, "unknown authority"},
		"no CA":                  {func(r *fileReplica) { _ = os.WriteFile(filepath.Join(r.dir, fileCA), nil, 0o600) }, "there is no certificate"},
		"garbage for a CA": {func(r *fileReplica) {
			_ = os.WriteFile(filepath.Join(r.dir, fileCA), []byte("-----BEGIN CERTIFICATE-----\nZ2E=\n-----END CERTIFICATE-----\n"), 0o600)
		}, "parse certificate"},
		"a certificate that has ended": {func(*fileReplica) { w.clock.Step(2 * time.Hour) }, "expired"},
	} {
		r := w.replica(t)
		r.put(t, w.issue(t, own), own)
		spoil.do(r)
		err := r.files.check(t.Context())
		if err == nil || !strings.Contains(err.Error(), spoil.want) {
			t.Errorf("%s: want an error with %q, got %v", name, spoil.want, err)
		}
		if r.files.Ready() == nil {
			t.Errorf("%s: the replica is ready", name)
		}
		w.clock.SetTime(begin)
	}
	other := w.options("x")
	other.Hosts = []string{"other.fencedlease-system.svc"}
	r := w.replica(t)
	r.put(t, w.issue(t, own), own)
	other.Dir = r.dir
	files, err := NewFiles(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.check(t.Context()); err == nil || !strings.Contains(err.Error(), "other.fencedlease-system.svc") {
		t.Errorf("a certificate for another host: got %v", err)
	}
}

// exchange replaces one file by that of another certificate of the CA.
func exchange(t *testing.T, w *fileWorld, r *fileReplica, from *ca, file string) {
	t.Helper()
	other := w.replica(t)
	other.put(t, w.issue(t, from), from)
	data, err := os.ReadFile(filepath.Join(other.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, file), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOptionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*FilesOptions){
		"Dir is required":              func(o *FilesOptions) { o.Dir = "" },
		"Hosts is required":            func(o *FilesOptions) { o.Hosts = nil },
		"InstalledBundles is required": func(o *FilesOptions) { o.InstalledBundles = nil },
		"Clock is required":            func(o *FilesOptions) { o.Clock = nil },
		"Retention is negative":        func(o *FilesOptions) { o.Retention = -1 },
	} {
		o := newFileWorld().options("x")
		spoil(&o)
		if _, err := NewFiles(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
}

func TestARenewedCertificateOfTheSameCAIsServedAtOnce(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	own := mustCA(t, begin)
	r := w.replica(t)
	first, second := w.issue(t, own), w.issue(t, own)
	r.put(t, first, own)
	if err := r.files.check(t.Context()); err != nil || r.serves(first, second) != 0 || r.files.Ready() != nil {
		t.Fatalf("the first certificate is not served: %v", err)
	}
	// The configurations cannot be read: nothing has to be known of them.
	w.fails = errors.New("the API server is gone")
	r.put(t, second, own)
	if err := r.files.check(t.Context()); err != nil || r.serves(first, second) != 1 {
		t.Errorf("the second certificate is not served: %v", err)
	}
	// A folder that is being replaced does not take it away.
	if err := os.Remove(filepath.Join(r.dir, fileCert)); err != nil {
		t.Fatal(err)
	}
	if err := r.files.check(t.Context()); err == nil || r.serves(first, second) != 1 || r.files.Ready() != nil {
		t.Errorf("half a folder: want an error and the certificate before it, got %v", err)
	}
	w.clock.Step(61 * time.Minute)
	if r.files.Ready() == nil {
		t.Error("a replica whose certificate has ended is ready")
	}
}

func TestACertificateOfAnotherCAWaitsUntilItIsTrusted(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	older, newer := mustCA(t, begin), mustCA(t, begin)
	r := w.replica(t)
	first, second := w.issue(t, older), w.issue(t, newer)
	r.put(t, first, older)
	w.installed = trusting(older)
	step := func(name string, pass time.Duration, want int, wantErr bool) {
		t.Helper()
		w.clock.Step(pass)
		if err := r.files.check(t.Context()); (err != nil) != wantErr || r.serves(first, second) != want {
			t.Errorf("%s: want leaf %d, got %d and %v", name, want, r.serves(first, second), err)
		}
	}
	step("at first", 0, 0, false)
	r.put(t, second, newer)
	step("before it is trusted", time.Minute, 0, true)
	w.installed = [][]byte{bundleOf(older, newer), bundleOf(older)}
	step("trusted by one configuration only", time.Minute, 0, true)
	w.installed = trusting(older, newer)
	step("trusted for a moment", time.Second, 0, false)
	w.installed = trusting(older)
	step("no longer trusted", time.Minute, 0, true)
	w.installed = trusting(older, newer)
	step("trusted again", 10*time.Minute, 0, false)
	step("trusted for less than the margin", 119*time.Second, 0, false)
	step("trusted for the margin", time.Second, 1, false)
}

func TestAReplicaWithoutACertificateServesAsSoonAsItIsTrusted(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	own, foreign := mustCA(t, begin), mustCA(t, begin)
	r := w.replica(t)
	leaf := w.issue(t, own)
	r.put(t, leaf, own)
	w.installed = trusting(foreign)
	if err := r.files.check(t.Context()); err == nil || r.serves(leaf) != -1 || !strings.Contains(err.Error(), "all replicas must be stopped") {
		t.Errorf("what nobody trusts is served: %v", err)
	}
	w.installed = trusting(foreign, own)
	if err := r.files.check(t.Context()); err != nil || r.serves(leaf) != 0 {
		t.Errorf("what is trusted is not served: %v", err)
	}
}

func TestTheElectedReplicaHandsOutWhatMustBeTrusted(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	known := map[string]*ca{"first": mustCA(t, begin), "second": mustCA(t, begin), "installed": mustCA(t, begin)}
	r := w.replica(t)
	b := NewFileBundles(r.files)
	told := b.Subscribe()
	w.installed = trusting(known["installed"])
	handsOut := func(name string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(names(known, parseTrust([][]byte{b.Bundle()}).authorities(begin))))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	check := func(pass time.Duration) {
		t.Helper()
		w.clock.Step(pass)
		_ = r.files.check(t.Context())
	}
	if err := r.files.adopt(t.Context()); err == nil {
		t.Error("a replica without a folder hands out bundles")
	}
	r.put(t, w.issue(t, known["first"]), known["first"])
	check(0)
	handsOut("before the election")
	w.fails = errors.New("the API server is gone")
	if err := r.files.adopt(t.Context()); err == nil {
		t.Error("a replica that does not know what is trusted hands out bundles")
	}
	w.fails = nil
	if err := r.files.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	handsOut("at the election", "first", "installed")
	select {
	case <-told:
	default:
		t.Error("nobody is told of the bundle")
	}
	r.put(t, w.issue(t, known["second"]), known["second"])
	check(30 * time.Minute)
	handsOut("after a change of the CA", "first", "installed", "second")
	check(31 * time.Minute)
	handsOut("an hour after the election", "first", "second")
	r.put(t, w.issue(t, known["first"]), known["first"])
	check(time.Minute)
	handsOut("after the way back", "first", "second")
	check(61 * time.Minute)
	handsOut("an hour later", "first")
}

// TestNoScheduleOfFoldersFailsACall moves folders of replicas, elections and the installation of bundles in any order: as long as the
// folders of all replicas follow within the retention, whatever a replica serves is trusted.
func TestNoScheduleOfFoldersFailsACall(t *testing.T) {
	t.Parallel()
	all := make([]*ca, 4)
	leaves := make([]*servingLeaf, len(all))
	for i := range all {
		all[i] = mustCA(t, begin)
		leaves[i] = newFileWorld().issue(t, all[i])
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newFileWorld()
		// The CAs that the issuer has had, the last of which issues now.
		cas := 1
		follow := func(r *fileReplica) { r.put(t, leaves[cas-1], all[cas-1]) }
		replicas := make([]*fileReplica, 3)
		behind := make([]int, len(replicas))
		for i := range replicas {
			replicas[i] = w.replica(t)
			follow(replicas[i])
			_ = replicas[i].files.check(t.Context())
		}
		elected := 0
		install := func() {
			if bundle := (NewFileBundles(replicas[elected].files)).Bundle(); bundle != nil {
				w.installed = [][]byte{bundle, bundle}
			}
		}
		_ = replicas[elected].files.adopt(t.Context())
		install()
		t.Repeat(map[string]func(*rapid.T){
			"the issuer changes its CA": func(*rapid.T) {
				if cas < len(all) && !slices.ContainsFunc(behind, func(n int) bool { return n > 0 }) {
					cas++
					for i := range behind {
						behind[i]++
					}
				}
			},
			"a folder follows": func(t *rapid.T) {
				i := rapid.IntRange(0, len(replicas)-1).Draw(t, "replica")
				follow(replicas[i])
				behind[i] = 0
			},
			"a replica checks": func(t *rapid.T) {
				_ = replicas[rapid.IntRange(0, len(replicas)-1).Draw(t, "replica")].files.check(t.Context())
			},
			"another replica is elected": func(t *rapid.T) {
				elected = rapid.IntRange(0, len(replicas)-1).Draw(t, "replica")
				_ = replicas[elected].files.adopt(t.Context())
			},
			"the bundle is installed": func(*rapid.T) { install() },
			"minutes pass": func(t *rapid.T) {
				w.clock.Step(time.Duration(rapid.IntRange(1, 4).Draw(t, "minutes")) * time.Minute)
				// No folder is behind for longer than the retention.
				for i := range replicas {
					if behind[i] > 0 && w.clock.Now().Sub(begin) > 30*time.Minute {
						follow(replicas[i])
						behind[i] = 0
					}
				}
			},
			"": func(t *rapid.T) {
				pool := poolOf(w.installed[0])
				for i, r := range replicas {
					served, err := r.files.GetCertificate(nil)
					if err != nil {
						t.Fatalf("replica %d serves nothing", i)
					}
					if w.clock.Now().After(served.Leaf.NotAfter) {
						continue
					}
					if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: w.clock.Now(), DNSName: host}); err != nil {
						t.Fatalf("replica %d serves what API servers do not trust: %v", i, err)
					}
				}
			},
		})
	})
}

func TestMetricsOfFilesAreWellFormed(t *testing.T) {
	t.Parallel()
	w := newFileWorld()
	own := mustCA(t, begin)
	r := w.replica(t)
	r.put(t, w.issue(t, own), own)
	if err := r.files.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.files)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	want := `
# HELP fencedlease_certificate_expiry_seconds Time until the CA that signs (kind ca) or the serving certificate of this replica (kind leaf) expires, negative when it has.
# TYPE fencedlease_certificate_expiry_seconds gauge
fencedlease_certificate_expiry_seconds{kind="ca"} 7199.9999995
fencedlease_certificate_expiry_seconds{kind="leaf"} 3599.9999995
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fencedlease_certificate_expiry_seconds"); err != nil {
		t.Error(err)
	}
}
