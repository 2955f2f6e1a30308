// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// The third carrier: nothing in the client changes but its token file.
func TestHowACredentialPresentsAToken(t *testing.T) {
	t.Parallel()
	const markA, markB, nowA, nowB, byCredential = "33.aaaaaaaa/1", "34.bbbbbbbb/1", "33.aaaaaaaa/2", "34.bbbbbbbb/2", "34.bbbbbbbb"
	lease := listing(held())
	// A is not the holder yet and B has no credential yet.
	before := leaseOfA()
	before.Credentials = []v1alpha1.Credential{{ID: credentialOfA, Term: termA}}
	checkRows(t, map[string]row{
		"create, stamped": {
			create(marked(byCredential), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"create that was not stamped would store no mark": {
			create(marked(""), using(credentialOfB)), fresh(lease), unavailable(fence.NotStamped)},
		"update, stamped": {
			update(marked(markA), marked(byCredential), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"update that was not stamped would not move the mark": {
			update(marked(markA), marked(markA), using(credentialOfB)), fresh(lease), unavailable(fence.NotStamped)},
		"update of an object whose mark has the operation of an earlier write must be stamped all the same": {
			update(marked(markB), marked(markB), using(credentialOfB)), fresh(lease), unavailable(fence.NotStamped)},
		"update of an object that a credential of this term has written before needs no stamp": {
			update(marked(byCredential), marked(byCredential), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"status": {
			status(marked(markA), marked(markA), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"status whose request shows no annotations": {
			status(marked(markA), marked(""), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"scale": {
			scale(marked(markA), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"delete": {
			remove(marked(markA), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"the last finalizer": {
			update(terminating(markA, 1), terminating(byCredential, 0), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"a writer that need not present is judged all the same": {
			remove(marked(markA), using(credentialOfB)), freshForOthers(lease), allow(fence.CurrentToken)},
		"a current credential needs a read": {
			remove(marked(markA), using(credentialOfB)), cached(lease), needsRead},
		"a credential that the cached lease does not list needs a read": {
			remove(marked(markA), using(credentialOfB)), cached(before), needsRead},
		"a credential of an ended term is stale": {
			update(marked(markA), marked(markA), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a credential of an ended term creates nothing": {
			create(marked(""), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a credential of an ended term deletes nothing": {
			remove(marked(""), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a credential of an ended term is stale as the cached lease shows already": {
			remove(marked(markA), using(credentialOfA)), cached(lease), deny(fence.StaleToken)},
		"a credential of the term that the cached lease takes for the current one needs a read": {
			remove(marked(markA), using(credentialOfA)), cached(before), needsRead},
		"a credential whose term a mark shows to have ended is stale, whatever the cached lease says": {
			remove(marked(markB), using(credentialOfA)), cached(before), deny(fence.StaleToken)},
		"a credential of an ended term is stale also for a writer that need not present": {
			remove(marked(markA), using(credentialOfA)), freshForOthers(lease), deny(fence.StaleToken)},
		"no override helps a credential of an ended term": {
			remove(marked(markA), using(credentialOfA), overriding(true)), fresh(lease), deny(fence.StaleToken)},
		"no delete intent helps a credential of an ended term": {
			remove(marked("34.bbbbbbbb/delete"), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a credential of an ended term is stale after the release": {
			remove(marked(markA), using(credentialOfA)), fresh(listing(released())), deny(fence.StaleToken)},
		"a credential of an ended term is noted in Audit": {
			remove(marked(markA), using(credentialOfA)), fresh(listing(inAudit())), audit(fence.StaleToken)},
		"a credential of an ended term needs a read in Audit": {
			remove(marked(markA), using(credentialOfA)), cached(listing(inAudit())), needsRead},
		"a current credential that was not stamped passes in Audit": {
			update(marked(markA), marked(markA), using(credentialOfB)), fresh(listing(inAudit())), allow(fence.CurrentToken)},
		"a credential of a released term": {
			remove(marked(markA), using(credentialOfB)), fresh(listing(released())), deny(fence.Released)},
		"a credential below the mark": {
			remove(marked("35.cccccccc/1"), using(credentialOfB)), fresh(lease), deny(fence.StaleToken)},
		"a current credential deletes an object whose mark no history can have produced": {
			remove(marked("2000000000000000/1"), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"a credential that fell out presents nothing": {
			remove(marked(markA), using(unlisted)), fresh(lease), deny(fence.MissingToken)},
		"an ordinary token of the same service account presents nothing": {
			update(marked(markB), marked(markB), using(unlisted)), fresh(lease), deny(fence.MissingToken)},
		"an ordinary token of a writer that need not present": {
			update(marked(markB), marked(markB), using(unlisted)), freshForOthers(lease), allow(fence.NotSubject)},
		"an ordinary token with a delete intent": {
			remove(marked("34.bbbbbbbb/delete"), using(unlisted)), fresh(lease), allow(fence.DeleteIntent)},
		"an ordinary token with an override": {
			remove(marked(markB), using(unlisted), overriding(true)), fresh(lease), allow(fence.Overridden)},
		"two ids are nobody's": {
			remove(marked(markA), using(credentialOfB, credentialOfA)), fresh(lease), deny(fence.MissingToken)},
		"the same id twice is nobody's": {
			remove(marked(markA), using(credentialOfB, credentialOfB)), fresh(lease), deny(fence.MissingToken)},
		"no id is nobody's": {
			remove(marked(markA), using()), fresh(lease), deny(fence.MissingToken)},
		"an id in another case is another id": {
			remove(marked(markA), using("jti=0b7e3e4a-6a3d-4a53-8f3c-0000000000bb")), fresh(lease), deny(fence.MissingToken)},
		"a certificate's id presents nothing": {
			remove(marked(markA), using("X509SHA256=0b7e3e4a")), fresh(lease), deny(fence.MissingToken)},
		"an id without its kind is another id": {
			remove(marked(markA), using(credentialOfB[len("JTI="):])), fresh(lease), deny(fence.MissingToken)},
		"a current credential does not cover the removal of the mark": {
			update(marked(markB), marked(""), using(credentialOfB)), fresh(lease), deny(fence.MarkTampered)},
		"a lease that is gone asks nobody": {
			remove(marked(markA), using(credentialOfA)), fresh(listing(gone())), allow(fence.NotGuarded)},
		"a text of the same term wins, as it carries an operation": {
			update(marked(markA), marked(nowB), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"a text of the same generation that names no term agrees": {
			update(marked(markA), marked("34/2"), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"a request's token of the same term agrees": {
			remove(marked(markA), carrying(nowB), using(credentialOfB)), fresh(lease), allow(fence.CurrentToken)},
		"a text of an ended term beside a current credential is malformed": {
			update(marked(markA), marked(nowA), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"a text of an ended term beside a current credential is stale as the cached lease shows": {
			update(marked(markA), marked(nowA), using(credentialOfB)), cached(lease), deny(fence.StaleToken)},
		"a text of another history beside a current credential is malformed": {
			update(marked(markA), marked("34.zzzzzzzz/2"), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"a text of the future beside a current credential is malformed": {
			update(marked(markA), marked("35.cccccccc/2"), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"a text of the future that names no term beside a current credential is malformed": {
			update(marked(markA), marked("35/2"), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"a current text beside a credential of an ended term is malformed": {
			update(marked(markA), marked(nowB), using(credentialOfA)), fresh(lease), deny(fence.MalformedToken)},
		"a current text that names no term beside a credential of an ended term is malformed": {
			update(marked(markA), marked("34/2"), using(credentialOfA)), fresh(lease), deny(fence.MalformedToken)},
		"a current text beside a credential that the cached lease takes for ended needs a read": {
			update(marked(markA), marked(nowB), using(credentialOfA)), cached(lease), needsRead},
		"a text and a credential of the same ended term are stale": {
			update(marked(markA), marked(nowA), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a text that names no term and a credential of an ended term are stale": {
			update(marked(markA), marked("33/2"), using(credentialOfA)), fresh(lease), deny(fence.StaleToken)},
		"a malformed text beside a current credential": {
			update(marked(markA), marked("leader"), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"two texts beside a current credential": {
			remove(marked(markA), carrying(nowB, nowB), using(credentialOfB)), fresh(lease), deny(fence.MalformedToken)},
		"a text beside an ordinary token is judged as if there were none": {
			update(marked(markA), marked(nowB), using(unlisted)), fresh(lease), allow(fence.CurrentToken)},
		"a system writer's credential does not matter": {
			remove(marked(markB), by(collector, fence.ChangeOther), using(credentialOfA)), fresh(lease), allow(fence.SystemWriter)},
	})
}

func TestTheCarrierOfACredential(t *testing.T) {
	t.Parallel()
	const markA, nowB, stamped = "33.aaaaaaaa/1", "34.bbbbbbbb/2", "34.bbbbbbbb"
	ofB := token.Token{Generation: 34, Term: termB}
	withOperation := token.Token{Generation: 34, Term: termB, Operation: "2"}
	for name, tc := range map[string]struct {
		write     fence.Write
		view      fence.View
		presented token.Token
		carrier   fence.Carrier
	}{
		"a current one":            {remove(marked(markA), using(credentialOfB)), fresh(listing(held())), ofB, fence.CarrierCredential},
		"a current one, cached":    {remove(marked(markA), using(credentialOfB)), cached(listing(held())), ofB, fence.CarrierCredential},
		"a current one, stamped":   {update(marked(markA), marked(stamped), using(credentialOfB)), fresh(listing(held())), ofB, fence.CarrierCredential},
		"beside an annotation":     {update(marked(markA), marked(nowB), using(credentialOfB)), fresh(listing(held())), withOperation, fence.CarrierAnnotation},
		"beside a request's token": {remove(marked(markA), carrying(nowB), using(credentialOfB)), fresh(listing(held())), withOperation, fence.CarrierRequest},
		"beside the same token in the request": {
			update(marked(markA), marked(stamped), carrying(stamped), using(credentialOfB)), fresh(listing(held())), ofB, fence.CarrierRequest},
		"an ended one":               {remove(marked(markA), using(credentialOfA)), fresh(listing(held())), token.Token{}, fence.CarrierCredential},
		"an unlisted one":            {remove(marked(markA), using(unlisted)), fresh(listing(held())), token.Token{}, fence.CarrierNone},
		"one that is contradicted":   {update(marked(markA), marked("33.aaaaaaaa/2"), using(credentialOfB)), fresh(listing(held())), token.Token{}, fence.CarrierNone},
		"one beside a removed mark":  {update(marked(markA), marked(""), using(credentialOfB)), fresh(listing(held())), token.Token{}, fence.CarrierNone},
		"the stamp without the id":   {update(marked(markA), marked(stamped)), fresh(listing(held())), ofB, fence.CarrierAnnotation},
		"the stamp of an ended term": {update(marked(markA), marked(stamped), using(credentialOfB)), cached(listing(leaseOfA())), ofB, fence.CarrierAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fence.Decide(tc.write, tc.view)
			if diff := cmp.Diff(tc.presented, got.Presented); diff != "" {
				t.Errorf("presented (-want +got):\n%s", diff)
			}
			if got.Carrier != tc.carrier {
				t.Errorf("carrier %q, want %q", got.Carrier, tc.carrier)
			}
		})
	}
}

func TestStampFor(t *testing.T) {
	t.Parallel()
	const markA, markB, nowB, stamped = "33.aaaaaaaa/1", "34.bbbbbbbb/1", "34.bbbbbbbb/2", "34.bbbbbbbb"
	lease := listing(held())
	for name, tc := range map[string]struct {
		write fence.Write
		lease fence.Lease
		want  string
	}{
		"a create":                                        {create(marked(""), using(credentialOfB)), lease, stamped},
		"an update":                                       {update(marked(markA), marked(markA), using(credentialOfB)), lease, stamped},
		"an update of an unmarked object":                 {update(marked(""), marked(""), using(credentialOfB)), lease, stamped},
		"an object without annotations":                   {create(&fence.Object{}, using(credentialOfB)), lease, stamped},
		"an update after one with an operation":           {update(marked(markB), marked(markB), using(credentialOfB)), lease, stamped},
		"an update after one by credential":               {update(marked(stamped), marked(stamped), using(credentialOfB)), lease, ""},
		"an update that leaves the mark out":              {update(marked(markA), marked(""), using(credentialOfB)), lease, stamped},
		"a mark that is no token":                         {update(marked("leader"), marked("leader"), using(credentialOfB)), lease, stamped},
		"a mark above the lease":                          {update(marked("35.cccccccc"), marked("35.cccccccc"), using(credentialOfB)), lease, ""},
		"a mark of another history":                       {update(marked("34.zzzzzzzz"), marked("34.zzzzzzzz"), using(credentialOfB)), lease, stamped},
		"the write sets the annotation itself":            {update(marked(markA), marked(nowB), using(credentialOfB)), lease, ""},
		"the write sets the annotation to something else": {update(marked(markA), marked("leader"), using(credentialOfB)), lease, ""},
		"the request carries a token":                     {create(marked(""), carrying(nowB), using(credentialOfB)), lease, ""},
		"the request carries two":                         {create(marked(""), carrying(nowB, nowB), using(credentialOfB)), lease, ""},
		"the request carries the token of another lease":  {create(marked(""), extra("token.fencedlease.io/other", nowB), using(credentialOfB)), lease, stamped},
		"the credential of an ended term":                 {create(marked(""), using(credentialOfA)), lease, ""},
		"a credential that the lease does not list":       {create(marked(""), using(unlisted)), lease, ""},
		"no credential":                                   {create(marked("")), lease, ""},
		"two credentials":                                 {create(marked(""), using(credentialOfB, credentialOfA)), lease, ""},
		"a released lease, which is left to be refused":   {create(marked(""), using(credentialOfB)), listing(released()), stamped},
		"a lease in Audit":                                {create(marked(""), using(credentialOfB)), listing(inAudit()), stamped},
		"a lease that was never held":                     {create(marked(""), using(credentialOfB)), listing(neverHeld()), ""},
		"a status write":                                  {status(marked(markA), marked(markA), using(credentialOfB)), lease, ""},
		"a scale write":                                   {scale(marked(markA), using(credentialOfB)), lease, ""},
		"a delete":                                        {remove(marked(markA), using(credentialOfB)), lease, ""},
		"nothing at all":                                  {fence.Write{}, fence.Lease{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			stamp, needed := fence.StampFor(tc.write, tc.lease)
			if needed {
				got = stamp.String()
			}
			if got != tc.want || needed == stamp.IsZero() {
				t.Errorf("stamp %q (needed %v), want %q", got, needed, tc.want)
			}
		})
	}
}

// An id is listed once by the schema. Were it listed twice, or under no term, it would open nothing.
func TestCredentialsThatTheSchemaKeepsOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lease fence.Lease
		ids   []string
		want  fence.CredentialState
	}{
		"twice, ended first": {leaseWith(func(l *fence.Lease) {
			l.Credentials = []v1alpha1.Credential{{ID: credentialOfB, Term: termA}, {ID: credentialOfB, Term: termB}}
		}), []string{credentialOfB}, fence.CredentialEnded},
		"a certificate": {leaseWith(func(l *fence.Lease) { l.Credentials = []v1alpha1.Credential{{ID: "X509SHA256=00", Term: termB}} }),
			[]string{"X509SHA256=00"}, fence.CredentialUnlisted},
		"the empty id": {leaseWith(func(l *fence.Lease) { l.Credentials = []v1alpha1.Credential{{Term: termB}} }), []string{""}, fence.CredentialUnlisted},
		"an empty term": {leaseWith(func(l *fence.Lease) { l.Credentials = []v1alpha1.Credential{{ID: credentialOfB}} }), []string{credentialOfB},
			fence.CredentialEnded},
		"an empty term of a lease that was never held": {fence.Lease{Credentials: []v1alpha1.Credential{{ID: credentialOfB}}}, []string{credentialOfB},
			fence.CredentialEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := create(marked(""), using(tc.ids...))
			if got, _ := fence.CredentialOf(w.Writer, tc.lease); got != tc.want {
				t.Errorf("state %d, want %d", got, tc.want)
			}
			if got := fence.Decide(w, fresh(tc.lease)); got.Admits() {
				t.Errorf("admitted: %s", got.Reason)
			}
		})
	}
}
