// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

const host = "webhook.fencedlease-system.svc"

// begin is when the tests begin, on their own clock.
var begin = time.Date(2026, time.November, 1, 12, 0, 0, 500, time.UTC)

// noSecrets stands where no test calls it.
type noSecrets struct{ corev1client.SecretInterface }

// testOptions have the proportions of real ones, with lives of hours.
func testOptions() Options {
	return Options{
		Secrets:          noSecrets{},
		Name:             "webhook-ca",
		DNSNames:         []string{host},
		IPs:              []net.IP{net.IPv4(10, 0, 0, 7)},
		InstalledBundles: func(context.Context) ([][]byte, error) { return nil, nil },
		Clock:            clocktesting.NewFakeClock(begin),
		CALife:           2 * time.Hour,
		LeafLife:         30 * time.Minute,
		SettleMargin:     2 * time.Minute,
		CheckInterval:    5 * time.Second,
	}.withDefaults()
}

func mustCA(t interface{ Fatal(...any) }, now time.Time) *ca {
	o := testOptions()
	c, err := newCA(now, o.CALife, o.ClockSkew)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func certs(cas ...*ca) []*x509.Certificate {
	var out []*x509.Certificate
	for _, c := range cas {
		out = append(out, c.cert)
	}
	return out
}

func bundleOf(cas ...*ca) []byte {
	var out []byte
	for _, c := range cas {
		out = append(out, encodeCertificate(c.cert)...)
	}
	return out
}

func poolOf(bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool
}

// names lists certificates by the names that the test gives to their CAs.
func names(known map[string]*ca, certs []*x509.Certificate) []string {
	out := []string{}
	for _, cert := range certs {
		name := "?"
		for n, c := range known {
			if c.cert.Equal(cert) {
				name = n
			}
		}
		out = append(out, name)
	}
	return out
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults work":                        {func(o *Options) { *o = defaultsOnly(*o) }, ""},
		"the test's own work":                      {func(*Options) {}, ""},
		"no client":                                {func(o *Options) { o.Secrets = nil }, "Secrets is required"},
		"no name":                                  {func(o *Options) { o.Name = "" }, "Name is required"},
		"no way to see what is installed":          {func(o *Options) { o.InstalledBundles = nil }, "InstalledBundles is required"},
		"no clock":                                 {func(o *Options) { o.Clock = nil }, "Clock is required"},
		"nothing to be called by":                  {func(o *Options) { o.DNSNames, o.IPs = nil, nil }, "one of DNSNames and IPs is required"},
		"an address alone is enough":               {func(o *Options) { o.DNSNames = nil }, ""},
		"a negative margin":                        {func(o *Options) { o.SettleMargin = -time.Second }, "SettleMargin is negative"},
		"a fraction of one":                        {func(o *Options) { o.CARenewFraction = 1 }, "CARenewFraction is not between 0 and 1"},
		"a negative fraction":                      {func(o *Options) { o.LeafRenewFraction = -0.5 }, "LeafRenewFraction is not between 0 and 1"},
		"rereads more often than checks":           {func(o *Options) { o.RereadInterval = time.Second }, "RereadInterval 1s is below CheckInterval 5s"},
		"a leaf that a fast clock sees expire":     {func(o *Options) { o.LeafLife = 20 * time.Minute }, "must be more than ClockSkew and SettleMargin 7m0s: raise LeafLife"},
		"a CA that ends before its rotation does":  {func(o *Options) { o.CALife = 96 * time.Minute }, "must be more than LeafLife and SettleMargin 32m0s: raise CALife"},
		"lives of seconds, for tests on real time": {func(o *Options) { *o = seconds(*o) }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			test.change(&o)
			_, err := NewAuthority(o)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

func defaultsOnly(o Options) Options {
	return Options{Secrets: o.Secrets, Name: o.Name, DNSNames: o.DNSNames, InstalledBundles: o.InstalledBundles, Clock: o.Clock}
}

func seconds(o Options) Options {
	o = defaultsOnly(o)
	o.CALife, o.LeafLife, o.SettleMargin = time.Minute, 10*time.Second, 2*time.Second
	o.ClockSkew, o.CheckInterval, o.RereadInterval = time.Second, 100*time.Millisecond, time.Second
	return o
}

func TestALeafIsTrustedByClocksThatAreOff(t *testing.T) {
	o := testOptions()
	c := mustCA(t, begin)
	leaf, err := c.signLeaf(o, begin)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(name string, at time.Time) error {
		_, err := leaf.tls.Leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: poolOf(bundleOf(c)), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		return err
	}
	if want := begin.Add(20 * time.Minute); leaf.renewAt.Sub(want).Abs() > time.Second {
		t.Errorf("renewal: want about %v, got %v", want, leaf.renewAt)
	}
	for name, at := range map[string]time.Time{
		"slow clock, just signed":    begin.Add(-o.ClockSkew),
		"right clock":                begin,
		"fast clock, before renewal": leaf.renewAt.Add(o.ClockSkew),
	} {
		for _, dns := range []string{host, "10.0.0.7"} {
			if err := verify(dns, at); err != nil {
				t.Errorf("%s, as %s: %v", name, dns, err)
			}
		}
	}
	if err := verify("other.fencedlease-system.svc", begin); err == nil {
		t.Error("want another name to be refused")
	}
	if err := verify(host, begin.Add(o.LeafLife+time.Second)); err == nil {
		t.Error("want an expired leaf to be refused")
	}
	late, err := c.signLeaf(o, c.cert.NotAfter.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if !late.tls.Leaf.NotAfter.Equal(c.cert.NotAfter) {
		t.Errorf("a leaf outlives its CA: CA until %v, leaf until %v", c.cert.NotAfter, late.tls.Leaf.NotAfter)
	}
}

func TestStateIsStoredAndReadBack(t *testing.T) {
	a, b, c := mustCA(t, begin), mustCA(t, begin.Add(time.Second)), mustCA(t, begin.Add(-time.Second))
	tests := map[string]*state{
		"a first CA":                {revision: 1, signing: a},
		"a rotation under way":      {revision: 7, signing: a, next: b},
		"a rotation near its end":   {revision: 8, signing: b, retired: []retiredCA{{c.cert, wholeSeconds(begin)}}},
		"everything at once":        {revision: maxRevision, signing: a, next: b, retired: []retiredCA{{c.cert, wholeSeconds(begin.Add(time.Hour))}}},
		"a time with a part second": (&state{revision: 1, signing: a}).retain(certs(c), begin.Add(time.Millisecond)),
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := want.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeState(data)
			if err != nil {
				t.Fatal(err)
			}
			if !want.equal(got) {
				t.Error("what is read differs from what was stored")
			}
			if diff := cmp.Diff(string(want.bundle()), string(got.bundle())); diff != "" {
				t.Errorf("bundle (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDamagedDataIsRefused(t *testing.T) {
	a, b := mustCA(t, begin), mustCA(t, begin)
	sound := &state{revision: 3, signing: a, next: b, retired: []retiredCA{{mustCA(t, begin).cert, wholeSeconds(begin)}}}
	leaf, err := a.signLeaf(testOptions(), begin)
	if err != nil {
		t.Fatal(err)
	}
	leafPEM := encodeCertificate(leaf.tls.Leaf)
	leafKey, err := x509.MarshalPKCS8PrivateKey(leaf.tls.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"nothing at all":              {func(d map[string][]byte) { clear(d) }, "revision is not a whole number"},
		"no revision":                 {func(d map[string][]byte) { delete(d, keyRevision) }, "revision is not a whole number"},
		"revision zero":               {func(d map[string][]byte) { d[keyRevision] = []byte("0") }, "revision is not a whole number"},
		"a revision that cannot grow": {func(d map[string][]byte) { d[keyRevision] = []byte("1000000000000001") }, "revision is not a whole number"},
		"no CA":                       {func(d map[string][]byte) { delete(d, keyCert) }, "ca.crt and ca.key: parse certificate"},
		"no key":                      {func(d map[string][]byte) { delete(d, keyKey) }, "ca.crt and ca.key: parse key"},
		"garbage for a certificate":   {func(d map[string][]byte) { d[keyCert] = []byte("garbage") }, "parse certificate: no PEM block"},
		"garbage in a PEM block": {func(d map[string][]byte) {
			d[keyCert] = []byte("-----BEGIN CERTIFICATE-----\nZ2E=\n-----END CERTIFICATE-----\n")
		}, "parse certificate: x509"},
		"a key of another CA": {func(d map[string][]byte) { d[keyKey] = d[keyNextKey] }, "the key does not belong to the certificate"},
		"a certificate that cannot sign": {func(d map[string][]byte) {
			d[keyCert], d[keyKey] = leafPEM, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: leafKey})
		}, "not that of a CA"},
		"half of a next CA":         {func(d map[string][]byte) { delete(d, keyNextKey) }, "next-ca.crt and next-ca.key: parse key"},
		"garbage for retired CAs":   {func(d map[string][]byte) { d[keyRetired] = []byte("{") }, "retired.json: parse list"},
		"a retired CA that is none": {func(d map[string][]byte) { d[keyRetired] = []byte(`[{"certificate":"x"}]`) }, "retired.json: parse certificate"},
		"too many retired CAs":      {func(d map[string][]byte) { d[keyRetired] = []byte("[" + strings.Repeat("{},", maxRetired) + "{}]") }, "9 entries, at most 8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := sound.encode()
			if err != nil {
				t.Fatal(err)
			}
			data = maps.Clone(data)
			test.change(data)
			_, err = decodeState(data)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

func TestEachStepComesInItsTimeAndOrder(t *testing.T) {
	o := testOptions()
	n, next, old := mustCA(t, begin), mustCA(t, begin.Add(80*time.Minute)), mustCA(t, begin.Add(-80*time.Minute))
	known := map[string]*ca{"n": n, "n+1": next, "n-1": old}
	retired := func(c *ca, until time.Time) []retiredCA { return []retiredCA{{c.cert, wholeSeconds(until)}} }
	steady := &state{revision: 5, signing: n}
	rotating := &state{revision: 6, signing: n, next: next}
	end := n.cert.NotAfter
	tests := map[string]struct {
		from    *state
		at      time.Time
		settled bool
		reason  string
		signing string
		trusted []string
	}{
		"young CA: nothing":                  {steady, begin.Add(79 * time.Minute), true, "", "n", []string{"n"}},
		"two thirds of its life: a next CA":  {steady, begin.Add(80 * time.Minute), false, ReasonCARotationStarted, "n", []string{"n", "?"}},
		"CA ended while nobody ran":          {steady, end.Add(time.Hour), false, ReasonCARotationStarted, "n", []string{"n", "?"}},
		"bundle not settled: nothing":        {rotating, begin.Add(90 * time.Minute), false, "", "n", []string{"n", "n+1"}},
		"bundle settled: switch":             {rotating, begin.Add(90 * time.Minute), true, ReasonCASwitched, "n+1", []string{"n", "n+1"}},
		"never settled, a second before end": {rotating, end.Add(-time.Second), false, "", "n", []string{"n", "n+1"}},
		"never settled, CA ended: switch":    {rotating, end, false, ReasonCASwitched, "n+1", []string{"n", "n+1"}},
		"leaves of n may be valid: nothing": {&state{revision: 7, signing: next, retired: retired(n, begin.Add(100*time.Minute))},
			begin.Add(100*time.Minute - time.Second), false, "", "n+1", []string{"n", "n+1"}},
		"no leaf of n is left: dropped": {&state{revision: 7, signing: next, retired: retired(n, begin.Add(100*time.Minute))},
			wholeSeconds(begin.Add(100 * time.Minute)), false, ReasonCADropped, "n+1", []string{"n+1"}},
		"a retired CA that has ended is dropped": {&state{revision: 7, signing: n, retired: retired(old, begin.Add(100*time.Hour))},
			old.cert.NotAfter, false, ReasonCADropped, "n", []string{"n"}},
		"drop before switch": {&state{revision: 7, signing: n, next: next, retired: retired(old, begin)},
			begin.Add(90 * time.Minute), true, ReasonCADropped, "n", []string{"n", "n+1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.from.bundle()
			got, e, err := o.advance(test.from, test.at, test.settled)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.reason, e.reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{test.signing}, names(known, certs(got.signing))); diff != "" {
				t.Errorf("signs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.trusted, names(known, got.trusted())); diff != "" {
				t.Errorf("trusted (-want +got):\n%s", diff)
			}
			wantRevision := test.from.revision
			if test.reason != "" {
				wantRevision++
			}
			if got.revision != wantRevision {
				t.Errorf("revision: want %d, got %d", wantRevision, got.revision)
			}
			if !bytes.Equal(before, test.from.bundle()) {
				t.Error("the state that the step began with has changed")
			}
			if test.reason == ReasonCASwitched {
				if !bytes.Equal(before, got.bundle()) {
					t.Error("the bundle changed with the one who signs")
				}
				if want := test.at.Add(o.retention()); got.retired[0].until.Before(want) {
					t.Errorf("retained until: want %v or later, got %v", want, got.retired[0].until)
				}
			}
		})
	}
}

func TestWhatTheSecretHoldsIsComparedWithMemory(t *testing.T) {
	a, b, c := mustCA(t, begin), mustCA(t, begin), mustCA(t, begin)
	until := wholeSeconds(begin)
	known := &state{revision: 5, signing: b, retired: []retiredCA{{a.cert, until}}}
	tests := map[string]struct {
		known, found *state
		want         finding
	}{
		"neither":                             {nil, nil, foundNothing},
		"nothing remembered":                  {nil, known, foundNewer},
		"Secret gone":                         {known, nil, foundLost},
		"the same":                            {known, &state{revision: 5, signing: b, retired: []retiredCA{{a.cert, until}}}, foundSame},
		"next step":                           {known, &state{revision: 6, signing: b}, foundNewer},
		"two steps on":                        {known, &state{revision: 7, signing: b, next: c}, foundNewer},
		"old copy":                            {known, &state{revision: 4, signing: a, next: b}, foundContested},
		"old copy of long ago":                {known, &state{revision: 1, signing: a}, foundContested},
		"same revision, another key":          {known, &state{revision: 5, signing: a, retired: []retiredCA{{b.cert, until}}}, foundContested},
		"same revision, another time":         {known, &state{revision: 5, signing: b, retired: []retiredCA{{a.cert, until.Add(1)}}}, foundContested},
		"foreign CA with a higher revision":   {known, &state{revision: 50, signing: c}, foundContested},
		"foreign CA with a lower revision":    {known, &state{revision: 1, signing: c}, foundContested},
		"same revision, a next CA is missing": {&state{revision: 5, signing: a, next: b}, &state{revision: 5, signing: a}, foundContested},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := compare(test.known, test.found); got != test.want {
				t.Errorf("want %d, got %d", test.want, got)
			}
		})
	}
}

func TestRestoringKeepsWhatIsInForce(t *testing.T) {
	o := testOptions()
	a, b, c, ended := mustCA(t, begin), mustCA(t, begin.Add(1*time.Minute)), mustCA(t, begin.Add(2*time.Minute)), mustCA(t, begin.Add(-3*time.Hour))
	known := map[string]*ca{"a": a, "b": b, "c": c}
	memory := &state{revision: 5, signing: b, retired: []retiredCA{{a.cert, wholeSeconds(begin.Add(time.Second))}}}
	tests := map[string]struct {
		found     *state
		installed [][]byte
		revision  int64
		trusted   []string
	}{
		"damaged":                           {nil, [][]byte{bundleOf(a, b)}, 6, []string{"a", "b"}},
		"replaced by an old copy":           {&state{revision: 3, signing: a}, [][]byte{bundleOf(a, b)}, 6, []string{"a", "b"}},
		"replaced by a foreign state":       {&state{revision: 40, signing: c}, [][]byte{bundleOf(a, b)}, 41, []string{"a", "b"}},
		"foreign CA is in force already":    {&state{revision: 40, signing: c}, [][]byte{bundleOf(a, b), bundleOf(b, c)}, 41, []string{"a", "b", "c"}},
		"nothing installed":                 {&state{revision: 3, signing: a}, nil, 6, []string{"a", "b"}},
		"a CA that has ended is not needed": {nil, [][]byte{bundleOf(b, ended)}, 6, []string{"a", "b"}},
		"a revision that cannot grow":       {&state{revision: maxRevision, signing: c}, [][]byte{bundleOf(b)}, 6, []string{"a", "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := o.restored(memory, test.found, parseTrust(test.installed), begin)
			if got.revision != test.revision {
				t.Errorf("revision: want %d, got %d", test.revision, got.revision)
			}
			if !got.signing.equal(b) {
				t.Error("another CA signs")
			}
			if diff := cmp.Diff(test.trusted, names(known, got.trusted())); diff != "" {
				t.Errorf("trusted (-want +got):\n%s", diff)
			}
			if compare(memory, got) != foundNewer {
				t.Error("a replica with the same memory does not follow")
			}
			if _, err := decodeState(must(got.encode())); err != nil {
				t.Errorf("cannot be stored: %v", err)
			}
		})
	}
}

func must[T any](v T, _ error) T { return v }

func TestRetainingIsBounded(t *testing.T) {
	s := &state{revision: 1, signing: mustCA(t, begin)}
	var last *ca
	for i := range maxRetired + 3 {
		last = mustCA(t, begin)
		s = s.retain(certs(last), begin.Add(time.Duration(i)*time.Minute))
	}
	if len(s.retired) != maxRetired || !s.trusts(last.cert) {
		t.Errorf("want the %d that are needed longest, got %d, the last among them: %t", maxRetired, len(s.retired), s.trusts(last.cert))
	}
	if again := s.retain(certs(s.signing, last), begin); !again.equal(s) {
		t.Error("retaining what is trusted for longer changes the state")
	}
}

func TestWhatIsInstalledDecides(t *testing.T) {
	a, b := mustCA(t, begin), mustCA(t, begin)
	garbage := []byte("-----BEGIN CERTIFICATE-----\nZ2E=\n-----END CERTIFICATE-----\n")
	tests := map[string]struct {
		installed       [][]byte
		covers, carries bool
	}{
		"nothing installed":         {nil, true, true},
		"both":                      {[][]byte{bundleOf(a, b)}, true, true},
		"the other only":            {[][]byte{bundleOf(b)}, false, false},
		"one of two":                {[][]byte{bundleOf(a, b), bundleOf(b)}, false, false},
		"an empty bundle":           {[][]byte{nil}, true, false},
		"an empty one beside":       {[][]byte{bundleOf(a), {}}, true, false},
		"garbage trusts nobody":     {[][]byte{[]byte("garbage")}, false, false},
		"garbage beside is no harm": {[][]byte{append(garbage, bundleOf(a)...)}, true, true},
		"other blocks are no harm":  {[][]byte{append([]byte("-----BEGIN X-----\nZ2E=\n-----END X-----\n"), bundleOf(a)...)}, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			installed := parseTrust(test.installed)
			if got := installed.covers(a.cert); got != test.covers {
				t.Errorf("covers: want %t, got %t", test.covers, got)
			}
			if got := installed.carries(certs(a)); got != test.carries {
				t.Errorf("carries: want %t, got %t", test.carries, got)
			}
		})
	}
}

// TestNoSchedulePutsALeafOutOfForce lets replicas and an API server fall behind at random, within what the package allows
// for, over several rotations. Each leaf that is served and valid must be signed by a CA that the API server trusts.
func TestNoSchedulePutsALeafOutOfForce(t *testing.T) {
	o := testOptions()
	type seen struct {
		state *state
		at    time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		now := begin
		stored := &state{revision: 1, signing: mustCA(t, begin)}
		installed := stored       // what the webhook configurations carry
		view := seen{stored, now} // what an API server has noticed of that
		changedAt := now          // when installed last changed
		var confirmed time.Time   // as in Rotator
		replicas := [2]seen{{stored, now}, {stored, now}}
		var leaves [2]*servingLeaf
		switches := 0
		for range rapid.IntRange(150, 400).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute, 4 * time.Minute}).Draw(t, "time"))
			// An API server notices a change before the settle margin is over.
			if rapid.Bool().Draw(t, "notice") || now.Sub(changedAt) >= o.SettleMargin {
				view = seen{installed, now}
			}
			switch rapid.SampledFrom([]string{"rotate", "apply", "elect", "read 0", "read 1", "rotate"}).Draw(t, "who") {
			case "rotate":
				settled := false
				if stored.next != nil && slices.EqualFunc(installed.trusted(), stored.trusted(), (*x509.Certificate).Equal) {
					if confirmed.IsZero() {
						confirmed = now
					}
					settled = now.Sub(confirmed) >= o.SettleMargin
				} else {
					confirmed = time.Time{}
				}
				next, e, err := o.advance(stored, now, settled)
				if err != nil {
					t.Fatal(err)
				}
				// A CA that ends without a rotation is beyond what replicas can mend.
				if e.reason == ReasonCASwitched && !settled {
					t.Skip("nobody rotated for the rest of a life")
				}
				if e.reason == ReasonCASwitched {
					switches++
				}
				stored = next
			case "apply":
				if installed != stored {
					installed, changedAt = stored, now
				}
			case "elect":
				confirmed = time.Time{}
			case "read 0":
				replicas[0] = seen{stored, now}
			case "read 1":
				replicas[1] = seen{stored, now}
			}
			for i, r := range replicas {
				leaf := leaves[i]
				fresh := now.Sub(r.at) <= o.MaxReadAge() && !r.state.signing.expired(now)
				if fresh && (leaf == nil || !leaf.signer.Equal(r.state.signing.cert) || !now.Before(leaf.renewAt)) {
					// The API server may not have noticed what was applied when the replica was cold, so it only counts
					// that installed bundles cover the CA.
					if !installed.trusts(r.state.signing.cert) {
						continue
					}
					signed, err := r.state.signing.signLeaf(o, now)
					if err != nil {
						t.Fatal(err)
					}
					leaves[i] = signed
				}
				leaf = leaves[i]
				if leaf != nil && now.Before(leaf.tls.Leaf.NotAfter) && !view.state.trusts(leaf.signer) {
					t.Fatalf("after %d switches replica %d serves a leaf that the API server does not trust", switches, i)
				}
			}
		}
	})
}

func TestMetricsAreWellFormed(t *testing.T) {
	o := testOptions()
	a, err := NewAuthority(o)
	if err != nil {
		t.Fatal(err)
	}
	const restores = `
# HELP fencedlease_certificate_restores_total Times that this replica wrote the Secret with the CA state anew from memory, by cause: it was deleted, damaged, or replaced by an older or foreign state.
# TYPE fencedlease_certificate_restores_total counter
fencedlease_certificate_restores_total{cause="damaged"} 0
fencedlease_certificate_restores_total{cause="deleted"} 0
fencedlease_certificate_restores_total{cause="replaced"} 0
`
	if err := testutil.CollectAndCompare(a, strings.NewReader(restores)); err != nil {
		t.Errorf("before the first CA: %v", err)
	}
	if err := a.Ready(); err == nil || err.Error() != "there is no serving certificate yet" {
		t.Errorf("readiness before the first CA: got %v", err)
	}
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("a certificate is served before the first CA")
	}

	clock := o.Clock.(*clocktesting.FakeClock)
	clock.SetTime(begin.Truncate(time.Second))
	c := mustCA(t, clock.Now())
	a.known.Store(&state{revision: 3, signing: c})
	leaf, err := c.signLeaf(o, clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.served.Store(leaf)
	clock.Step(10 * time.Minute)
	if err := testutil.CollectAndCompare(a, strings.NewReader(restores+`
# HELP fencedlease_certificate_expiry_seconds Time until the CA that signs (kind ca) or the serving certificate of this replica (kind leaf) expires, negative when it has.
# TYPE fencedlease_certificate_expiry_seconds gauge
fencedlease_certificate_expiry_seconds{kind="ca"} 6600
fencedlease_certificate_expiry_seconds{kind="leaf"} 1200
# HELP fencedlease_certificate_state_revision Revision of the newest CA state that this replica knows. Replicas that have different ones are about to follow a step of a rotation.
# TYPE fencedlease_certificate_state_revision gauge
fencedlease_certificate_state_revision 3
`)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err := a.Ready(); err != nil {
		t.Errorf("want ready, got %v", err)
	}
	clock.Step(20 * time.Minute)
	if err := a.Ready(); err == nil || err.Error() != "the serving certificate has expired" {
		t.Errorf("readiness with an expired certificate: got %v", err)
	}
}

func FuzzDecodeState(f *testing.F) {
	sound := &state{revision: 3, signing: mustCA(f, begin), next: mustCA(f, begin), retired: []retiredCA{{mustCA(f, begin).cert, wholeSeconds(begin)}}}
	data := must(sound.encode())
	f.Add(data[keyRevision], data[keyCert], data[keyKey], data[keyNextCert], data[keyNextKey], data[keyRetired])
	f.Add([]byte("1"), data[keyCert], data[keyKey], []byte{}, []byte{}, []byte("[]"))
	f.Fuzz(func(t *testing.T, revision, caCert, caKey, nextCert, nextKey, retired []byte) {
		s, err := decodeState(map[string][]byte{
			keyRevision: revision, keyCert: caCert, keyKey: caKey, keyNextCert: nextCert, keyNextKey: nextKey, keyRetired: retired,
		})
		if err != nil {
			return
		}
		stored, err := s.encode()
		if err != nil {
			t.Fatalf("what was read cannot be stored: %v", err)
		}
		again, err := decodeState(stored)
		if err != nil {
			t.Fatalf("what was stored cannot be read: %v", err)
		}
		if !s.equal(again) {
			t.Fatal("what is read differs from what was stored")
		}
	})
}

func FuzzParseTrust(f *testing.F) {
	c := mustCA(f, begin)
	f.Add(bundleOf(c))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nZ2E=\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, bundle []byte) {
		installed := parseTrust([][]byte{bundle})
		if installed.carries(certs(c)) && !installed.covers(c.cert) {
			t.Fatal("a bundle carries a CA that it does not cover")
		}
		if installed.covers(c.cert) && len(bundle) > 0 && !bytes.Contains(bytes.ReplaceAll(bundle, []byte("\r"), nil), []byte("BEGIN CERTIFICATE")) {
			t.Fatal("a bundle without certificates covers a CA")
		}
	})
}

func TestAKeyOfAnotherKindIsRefused(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := mustCA(t, begin)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseCA(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: c.keyDER})); err == nil {
		t.Error("a certificate with the key of another CA was taken")
	}
}

// TestTheLastLeafOfACutOffReplicaEndsBeforeItsCAIsDropped is the worst case: a replica reads the state an instant before
// the switch, never again, and signs as late as it may.
func TestTheLastLeafOfACutOffReplicaEndsBeforeItsCAIsDropped(t *testing.T) {
	o := testOptions()
	clock := o.Clock.(*clocktesting.FakeClock)
	a, err := NewAuthority(o)
	if err != nil {
		t.Fatal(err)
	}
	n, next := mustCA(t, begin), mustCA(t, begin)
	before := &state{revision: 2, signing: n, next: next}
	a.known.Store(before)
	a.readAt = begin
	switched, _, err := o.advance(before, begin, true)
	if err != nil {
		t.Fatal(err)
	}

	clock.Step(o.MaxReadAge())
	if err := a.renew(t.Context()); err != nil {
		t.Fatalf("the replica may sign still: %v", err)
	}
	last := a.served.Load()
	if end := last.tls.Leaf.NotAfter.Add(o.ClockSkew).Add(-time.Second); switched.retired[0].until.Before(end) {
		t.Errorf("n is trusted until %v, a leaf of it is valid for a slow clock until %v", switched.retired[0].until, end)
	}

	clock.SetTime(last.renewAt)
	if err := a.renew(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be read for 5m0s") {
		t.Errorf("want the replica to sign no more, got %v", err)
	}
	if a.served.Load() != last {
		t.Error("the replica has signed again")
	}
}
