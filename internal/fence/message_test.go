// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/fence"
)

var updateGolden = flag.Bool("update", false, "write testdata/messages.golden anew")

const (
	// usualMessage bounds a message about texts of usual length: six lines of a terminal with eighty columns.
	usualMessage = 480
	// longestMessage bounds every message, whatever a client sends.
	longestMessage = 1500
)

// explained is a write whose refusal is read by a human. Its message must hold each of the texts.
type explained struct {
	sentence string
	write    fence.Write
	view     fence.View
	reason   fence.Reason
	holds    []string
}

// limit is the length that the message may have: hostile bytes take four times their number.
func (e explained) limit() int {
	if strings.HasSuffix(e.sentence, "long") {
		return longestMessage
	}
	return usualMessage
}

func explanations() []explained {
	const markB, nowA, nowB = "34.bbbbbbbb/17", "33.aaaaaaaa/9", "34.bbbbbbbb/18"
	const holder, needed = `"report-b"`, "34.bbbbbbbb"
	return []explained{
		{"an ended leader updates after the new one wrote", update(marked(markB), marked(nowA)), cached(held()),
			fence.StaleToken, []string{holder, nowA, markB, needed, "acquire"}},
		{"an ended leader updates and the cached lease is still its own", update(marked(markB), marked(nowA)), cached(leaseOfA()),
			fence.StaleToken, []string{nowA, markB, "generation 34 or above", "not known to this replica", "acquire"}},
		{"an ended leader updates before the new one wrote", update(marked("33.aaaaaaaa/8"), marked(nowA)), fresh(held()),
			fence.StaleToken, []string{holder, nowA, needed, "acquire"}},
		{"an ended leader writes after the lease was released", create(marked(nowA)), fresh(released()),
			fence.StaleToken, []string{"nobody holds", nowA, "acquire"}},
		{"the holder updates an object whose mark is ahead of the lease", update(marked("40.cccccccc/1"), marked(nowB)), fresh(held()),
			fence.StaleToken, []string{holder, nowB, "40.cccccccc/1", needed, "acquire"}},
		{"the holder updates an object whose mark no history can have produced",
			update(marked("2000000000000000.cccccccc/1"), marked(nowB)), fresh(held()),
			fence.StaleToken, []string{holder, nowB, "2000000000000000.cccccccc/1", needed, "delete the object"}},
		{"an update inherits the mark", update(marked(markB), marked(markB)), fresh(held()),
			fence.MissingToken, []string{holder, markB, needed, tokenKey, "/<operation>"}},
		{"an operation is repeated", update(recording(markB, "18=33@2026-05-04T10:11:12Z"), marked(nowB)), fresh(held()),
			fence.AlreadyApplied, []string{holder, `"18"`, "generation 33 at 2026-05-04T10:11:12Z", "read the object"}},
		{"an operation of which no time is recorded is repeated by a delete", remove(recording(markB, "18=33"), carrying(nowB)), fresh(held()),
			fence.AlreadyApplied, []string{holder, `"18"`, "generation 33,", "read the object"}},
		{"a create carries nothing", create(marked("")), fresh(held()),
			fence.MissingToken, []string{holder, needed, tokenKey}},
		{"a scale carries nothing", scale(marked(markB)), fresh(held()),
			fence.MissingToken, []string{holder, needed, tokenKey}},
		{"a delete carries nothing", remove(marked(markB)), fresh(held()),
			fence.MissingToken, []string{holder, needed, tokenKey, "/delete"}},
		{"an update carries nothing and nobody has held the lease", update(marked(""), marked("")), fresh(neverHeld()),
			fence.MissingToken, []string{"nobody has held", tokenKey}},
		{"an update carries nothing and the lease was released", update(marked(""), marked("")), fresh(released()),
			fence.MissingToken, []string{"nobody holds", tokenKey}},
		{"a released leader writes on", update(marked(markB), marked(nowB)), fresh(released()),
			fence.Released, []string{"nobody holds", nowB, "Acquire"}},
		{"a token is above the lease", create(marked("35.cccccccc/1")), fresh(held()),
			fence.FutureToken, []string{holder, "35.cccccccc/1", needed, "acquire"}},
		{"a token is above a lease that nobody has held", create(marked("1.cccccccc")), fresh(neverHeld()),
			fence.FutureToken, []string{"nobody has held", "1.cccccccc", "acquire"}},
		{"a token is above what any history can have produced", create(marked("2000000000000000")), fresh(held()),
			fence.FutureToken, []string{holder, "2000000000000000", needed, "forged or corrupted"}},
		{"a token is of another history", create(marked("34.zzzzzzzz/1")), fresh(held()),
			fence.ForkedTerm, []string{holder, "34.zzzzzzzz/1", needed, "acquire"}},
		{"a token is no token", create(marked("leader")), fresh(held()),
			fence.MalformedToken, []string{holder, `"leader"`, needed, "<generation>.<term>"}},
		{"a token is not text for a terminal", create(marked("34\x1b[2J\n")), fresh(held()),
			fence.MalformedToken, []string{holder, `"34\x1b[2J\n"`, needed, "<generation>.<term>"}},
		{"a request carries two values", remove(marked(markB), carrying(nowB, nowA)), fresh(held()),
			fence.MalformedToken, []string{holder, "2 values", needed, "one place"}},
		{"annotation and request differ", update(marked(markB), marked(nowB), carrying(nowA)), fresh(held()),
			fence.MalformedToken, []string{holder, nowB, nowA, needed, "one place"}},
		{"annotation and request differ and are long", update(marked(markB), marked("3"+strings.Repeat("\xff", 99)), carrying(strings.Repeat("世", 99))), fresh(held()),
			fence.MalformedToken, []string{holder, `"3\xff\xff`, `世"…`, needed, "one place"}},
		{"an update removes the mark", update(marked(markB), marked("")), fresh(held()),
			fence.MarkTampered, []string{holder, markB, tokenKey, "patch or apply"}},
		{"an update empties the finalizers", update(terminating(markB, 1), terminating(markB, 0)), fresh(held()),
			fence.FinalDelete, []string{holder, needed, tokenKey, "finalizer"}},
		{"a status write would delete", status(terminating(markB, 0), terminating("", 0)), fresh(held()),
			fence.FinalDelete, []string{holder, needed, tokenKey, "finalizer"}},
		{"a token was not stamped", update(marked(markB), marked(markB), carrying(nowB)), fresh(held()),
			fence.NotStamped, []string{nowB, tokenKey, "fencedlease-stamps", "Try again"}},
		{"a credential of an ended term is used, as the cached lease shows", remove(marked(markB), using(credentialOfA)), cached(listing(held())),
			fence.StaleToken, []string{holder, `term "aaaaaaaa"`, needed, "acquire", "credential of the new term"}},
		{"a credential of an ended term is used after the lease was released", create(marked(""), using(credentialOfA)), fresh(listing(released())),
			fence.StaleToken, []string{"nobody holds", `term "aaaaaaaa"`, "acquire"}},
		{"a credential of an ended term meets a mark that the cached lease does not know", update(marked("35.cccccccc/1"), marked("35.cccccccc/1"), using(credentialOfA)),
			cached(listing(held())), fence.StaleToken, []string{"generation 35 or above", `term "aaaaaaaa"`, "acquire"}},
		{"a credential of a released term is used", scale(marked(markB), using(credentialOfB)), fresh(listing(released())),
			fence.Released, []string{"nobody holds", needed, "by credential", "Acquire"}},
		{"a credential of the holder meets a mark above it", status(marked("40.cccccccc/1"), marked("40.cccccccc/1"), using(credentialOfB)), fresh(listing(held())),
			fence.StaleToken, []string{holder, "40.cccccccc/1", needed, "by credential"}},
		{"a credential is not listed", update(marked(markB), marked(markB), using(unlisted)), fresh(listing(held())),
			fence.MissingToken, []string{holder, needed, unlisted, "status.credentials", tokenKey}},
		{"a credential is not listed and is long", update(marked(markB), marked(markB), using("JTI="+strings.Repeat("\xff", 999))), fresh(listing(held())),
			fence.MissingToken, []string{holder, needed, `\xff\xff`, "status.credentials", tokenKey}},
		{"an ordinary service account writes where no term has a credential", create(marked(""), using(unlisted)), fresh(held()),
			fence.MissingToken, []string{holder, needed, "presents no token;", tokenKey}},
		{"a token is not of the term of the request's credential", update(marked(markB), marked(nowA), using(credentialOfB)), fresh(listing(held())),
			fence.MalformedToken, []string{holder, nowA, needed, "credential", "one place"}},
		{"a token is not of the ended term of the request's credential", remove(marked(markB), carrying(nowB), using(credentialOfA)), fresh(listing(held())),
			fence.MalformedToken, []string{holder, nowB, `term "aaaaaaaa", which has ended`, "one place"}},
		{"a credential's token was not stamped", update(marked(markB), marked(markB), using(credentialOfB)), fresh(listing(held())),
			fence.NotStamped, []string{needed, tokenKey, "fencedlease-guards", "Try again"}},
		{"a term writes before it is sealed", update(marked("33.aaaaaaaa/1"), marked(nowB)), fresh(unsealed()),
			fence.SealPending, []string{holder, needed, "sealedGeneration is 33", "sealedGeneration is 34 and try again", "Sealed"}},
		{"an operation cannot be judged", write(fence.Connect, "proxy", nil, nil), fresh(held()),
			fence.UnsupportedOperation, []string{`"proxy"`, "registration"}},
		{"an update shows no old object", update(nil, marked(nowB)), fresh(held()),
			fence.UnsupportedOperation, []string{`"UPDATE"`, "registration"}},
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	explainedReasons := map[fence.Reason]bool{}
	for _, tc := range explanations() {
		got := fence.Decide(tc.write, tc.view)
		if strings.Contains(got.Message, `\xe4`) {
			t.Errorf("%s: a character is cut:\n%s", tc.sentence, got.Message)
		}
		if got.Reason != tc.reason {
			t.Errorf("%s: reason %s, want %s", tc.sentence, got.Reason, tc.reason)
		}
		for _, part := range append(tc.holds, "FencedLease reports/report-writer: ") {
			if !strings.Contains(got.Message, part) {
				t.Errorf("%s: the message does not hold %q:\n%s", tc.sentence, part, got.Message)
			}
		}
		checkMessage(t, got.Message, tc.limit())
		explainedReasons[got.Reason] = true
		text.WriteString("# " + tc.sentence + ": " + string(got.Outcome) + " " + string(got.Reason) + "\n" + got.Message + "\n\n")
	}
	for _, reason := range slices.Concat(fence.DenyReasons(), fence.UnavailableReasons()) {
		if !explainedReasons[reason] {
			t.Errorf("no message for %s", reason)
		}
	}

	path := filepath.Join("testdata", "messages.golden")
	if *updateGolden {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden messages (go test -update writes them): %v", err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("messages (-want +got; go test -update writes them anew):\n%s", diff)
	}
}

func checkMessage(t testing.TB, message string, limit int) {
	t.Helper()
	if len(message) > limit {
		t.Errorf("a message of %d bytes, at most %d fit:\n%s", len(message), limit, message)
	}
	if !utf8.ValidString(message) {
		t.Errorf("the message is not UTF-8: %q", message)
	}
	if i := strings.IndexFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("the message holds something that is not printable at byte %d: %q", i, message)
	}
}

func TestMessagesStayShortWhateverAClientSends(t *testing.T) {
	t.Parallel()
	const megabyte = 1 << 20
	longHolder := leaseWith(func(l *fence.Lease) {
		l.Namespace, l.Name = strings.Repeat("n", 63), strings.Repeat("l", 63)
		l.Holder, l.Generation = strings.Repeat("\x00", 253), 999_999_999_999_999_998
	})
	longKey := "token.fencedlease.io/" + longHolder.Name
	longest := "999999999999999999.bbbbbbbb/" + strings.Repeat("o", 128)
	object := func(text string) *fence.Object { return &fence.Object{Annotations: map[string]string{longKey: text}} }
	texts := map[string]string{
		"digits":      strings.Repeat("9", megabyte),
		"zero bytes":  strings.Repeat("\x00", megabyte),
		"no UTF-8":    strings.Repeat("\xff", megabyte),
		"wide runes":  strings.Repeat("世", megabyte/3),
		"lines":       strings.Repeat("\n", megabyte),
		"zeros, 156":  strings.Repeat("\x00", 156),
		"runes, 156":  strings.Repeat("\U000e0001", 39),
		"a long one":  longest,
		"a long one'": strings.Replace(longest, "bbbbbbbb", "zzzzzzzz", 1),
	}
	for name, text := range texts {
		for operation, w := range map[string]fence.Write{
			"create":          create(object(text)),
			"update":          update(object("1"), object(text)),
			"inherits":        update(object(text), object(text)),
			"request":         remove(object(longest), extra(longKey, text)),
			"two values":      remove(object(longest), extra(longKey, text, text)),
			"both":            update(object(longest), object(text), extra(longKey, text+"x")),
			"stale":           update(object(longest), object("999999999999999998.zzzzzzzz/"+strings.Repeat("o", 128))),
			"not stamped":     update(object("1"), object("1"), extra(longKey, text)),
			"removes":         update(object(longest), object(text), func(w *fence.Write) { w.New.Annotations = nil }),
			"final":           update(object(text), object(text), func(w *fence.Write) { w.Old.Terminating = true }),
			"operation":       write(fence.Operation(text), "", nil, nil),
			"subresource":     write(fence.Update, text, nil, nil),
			"override reason": create(object(""), func(w *fence.Write) { w.Override.Reason = text }),
		} {
			for _, holder := range []fence.Lease{longHolder, {Namespace: longHolder.Namespace, Name: longHolder.Name}} {
				for _, v := range []fence.View{fresh(holder), cached(holder)} {
					got := fence.Decide(w, v)
					if got.Message == "" {
						continue
					}
					checkMessage(t, got.Message, longestMessage)
					if t.Failed() {
						t.Fatalf("%s in %s: %s", name, operation, got.Reason)
					}
				}
			}
		}
	}
}
