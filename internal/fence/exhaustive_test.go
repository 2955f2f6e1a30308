// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// named is one value of a dimension.
type named[T any] struct {
	name  string
	value T
}

type shape struct {
	operation   fence.Operation
	subresource string
	// terminating says that the object is being deleted; before and after are its finalizers.
	terminating   bool
	before, after int
}

var shapes = []named[shape]{
	{"create", shape{operation: fence.Create}},
	{"update", shape{operation: fence.Update, before: 1, after: 1}},
	{"update of a terminating object", shape{operation: fence.Update, terminating: true, before: 2, after: 1}},
	{"final delete", shape{operation: fence.Update, terminating: true, before: 1, after: 0}},
	{"update of a terminating object without finalizers", shape{operation: fence.Update, terminating: true}},
	{"status", shape{operation: fence.Update, subresource: fence.SubresourceStatus, before: 1}},
	{"status of a terminating object", shape{operation: fence.Update, subresource: fence.SubresourceStatus, terminating: true, before: 1}},
	{"status of a terminating object without finalizers", shape{operation: fence.Update, subresource: fence.SubresourceStatus, terminating: true}},
	{"scale", shape{operation: fence.Update, subresource: fence.SubresourceScale, before: 1, after: 1}},
	{"delete", shape{operation: fence.Delete, before: 1}},
	{"delete of a terminating object", shape{operation: fence.Delete, terminating: true, before: 1}},
}

var markStates = []named[string]{
	{"none", ""},
	{"older", "33.aaaaaaaa/9"},
	{"equal", "34.bbbbbbbb/9"},
	{"newer", "35.cccccccc/9"},
	{"other term", "34.zzzzzzzz/9"},
	{"garbage", "leader"},
	{"implausible", "2000000000000000.aaaaaaaa/9"},
	{"as a credential stamps it", "34.bbbbbbbb"},
	{"delete intent", "34.bbbbbbbb/delete"},
	{"delete intent without a term", "34/delete"},
	{"delete intent of an ended term", "33.aaaaaaaa/delete"},
	{"delete intent of an ended generation without a term", "33/delete"},
	{"delete intent of another history", "34.zzzzzzzz/delete"},
}

var presentedTokens = []named[string]{
	{"older", "33.aaaaaaaa/2"},
	{"older without a term", "33/2"},
	{"current", "34.bbbbbbbb/2"},
	{"current, as a credential stamps it", "34.bbbbbbbb"},
	{"current without a term", "34/2"},
	{"current and as an earlier write's", "34.bbbbbbbb/9"},
	{"other term", "34.zzzzzzzz/2"},
	{"future", "35.cccccccc/2"},
	{"implausible", "2000000000000001/2"},
}

// records are what the stored object records.
var records = []named[string]{
	{"others, and texts that are like the operation", "12=34 22=34@2026-05-04T10:11:12Z 2:=33 _2=34 2=x"},
	{"the operation", "3=34@2026-05-04T10:11:12Z 2=33 1=33"},
}

// carrier puts a token into a write.
type carrier struct {
	// presents says that the carrier's text matters; others are tried once.
	presents bool
	// annotates says that the carrier is the annotation of the new state, which deletes and scale writes do not have.
	annotates bool
	put       func(w *fence.Write, text string)
}

var carriers = []named[carrier]{
	{"no annotation", carrier{annotates: true, put: func(w *fence.Write, _ string) { delete(w.New.Annotations, tokenKey) }}},
	{"annotation inherited", carrier{put: func(*fence.Write, string) {}}},
	{"annotation changed", carrier{presents: true, annotates: true, put: func(w *fence.Write, text string) {
		w.New.Annotations[tokenKey] = text
	}}},
	{"annotation malformed", carrier{annotates: true, put: func(w *fence.Write, _ string) { w.New.Annotations[tokenKey] = "034.bbbbbbbb" }}},
	{"annotation empty", carrier{annotates: true, put: func(w *fence.Write, _ string) { w.New.Annotations[tokenKey] = "" }}},
	{"request", carrier{presents: true, put: func(w *fence.Write, text string) { carrying(text)(w) }}},
	{"request malformed", carrier{put: func(w *fence.Write, _ string) { carrying("34.bbbbbbbb ")(w) }}},
	{"request with no value", carrier{put: func(w *fence.Write, _ string) { carrying()(w) }}},
	{"both equal", carrier{presents: true, annotates: true, put: func(w *fence.Write, text string) {
		w.New.Annotations[tokenKey] = text
		carrying(text)(w)
	}}},
	{"both different", carrier{presents: true, annotates: true, put: func(w *fence.Write, text string) {
		w.New.Annotations[tokenKey] = "34.bbbbbbbb/3"
		carrying(text)(w)
	}}},
	{"both malformed and equal", carrier{annotates: true, put: func(w *fence.Write, _ string) {
		w.New.Annotations[tokenKey] = "x"
		carrying("x")(w)
	}}},
	{"two values", carrier{presents: true, put: func(w *fence.Write, text string) { carrying(text, text)(w) }}},
	{"two values and an annotation", carrier{presents: true, annotates: true, put: func(w *fence.Write, text string) {
		w.New.Annotations[tokenKey] = text
		carrying(text, "33")(w)
	}}},
}

var leaseStates = []named[fence.Lease]{
	{"never held", neverHeld()},
	{"held", listing(held())},
	{"released", listing(released())},
	{"gone", listing(gone())},
	{"audit", listing(inAudit())},
	{"sealed", sealed()},
	{"sealed and released", leaseWith(func(l *fence.Lease) { *l = sealed(); l.Holder = "" })},
	{"sealed once, lazy now", leaseWith(func(l *fence.Lease) { *l = sealed(); l.Handover = v1alpha1.HandoverLazy })},
	{"not sealed yet", unsealed()},
	{"not sealed yet, lazy", sealedWith(func(l *fence.Lease) { l.SealedGeneration, l.Handover = 33, v1alpha1.HandoverLazy })},
	{"not sealed yet, without need", sealedWith(func(l *fence.Lease) {
		l.SealedGeneration, l.Handover, l.Seal = 33, v1alpha1.HandoverLazy, v1alpha1.SealNotRequired
	})},
	{"not sealed yet and released", sealedWith(func(l *fence.Lease) { l.SealedGeneration, l.Holder = 33, "" })},
	{"not sealed yet, in audit", sealedWith(func(l *fence.Lease) { l.SealedGeneration, l.Audit = 33, true })},
	{"sealed, in audit", leaseWith(func(l *fence.Lease) { *l = sealed(); l.Audit = true })},
	{"sealed and gone", leaseWith(func(l *fence.Lease) { *l = sealed(); l.Gone = true })},
	{"audit and released", listing(leaseWith(func(l *fence.Lease) { l.Audit, l.Holder = true, "" }))},
}

// viewsOf returns where a lease was read. A seal covers what is written where the term has to do with seals; what it does not
// cover is in the table of sealed terms.
func viewsOf(lease fence.Lease) []named[fence.View] {
	covers := lease.Handover != ""
	return []named[fence.View]{
		{"read", fence.View{Origin: fence.Linearizable, SealCovers: covers}},
		{"cached", fence.View{Origin: fence.Cached, SealCovers: covers}},
	}
}

type writerState struct {
	edit        edit
	mustPresent bool
}

func writerStates() []named[writerState] {
	states := []named[writerState]{
		{"subject", writerState{by(worker, fence.ChangeOther), true}},
		{"not subject", writerState{by(worker, fence.ChangeOther), false}},
		{"subject with an unchanged object", writerState{by(worker, fence.ChangeNothing), true}},
		{"override asked", writerState{overriding(false), true}},
		{"override permitted", writerState{overriding(true), true}},
		{"override permitted and not asked", writerState{func(w *fence.Write) { w.Override.Permitted = true }, true}},
	}
	for _, user := range []string{collector, migrator, shared} {
		for _, change := range []fence.Change{fence.ChangeNothing, fence.ChangeOwnership, fence.ChangeOther} {
			states = append(states, named[writerState]{fmt.Sprintf("%s with change %d", user, change), writerState{by(user, change), true}})
		}
	}
	for _, c := range []named[[]string]{
		{"current", []string{credentialOfB}}, {"ended", []string{credentialOfA}},
		{"unlisted", []string{unlisted}}, {"two", []string{credentialOfB, credentialOfA}},
	} {
		states = append(states, named[writerState]{"subject with a credential: " + c.name, writerState{using(c.value...), true}})
	}
	return append(states,
		named[writerState]{"not subject with an ended credential", writerState{using(credentialOfA), false}},
		named[writerState]{"not subject with an unlisted credential", writerState{using(unlisted), false}},
		named[writerState]{"override permitted with an ended credential", writerState{both(using(credentialOfA), overriding(true)), true}},
		named[writerState]{"override permitted with an unlisted credential", writerState{both(using(unlisted), overriding(true)), true}},
		named[writerState]{"collector with an ended credential", writerState{both(using(credentialOfA), by(collector, fence.ChangeOwnership)), true}},
	)
}

func both(a, b edit) edit {
	return func(w *fence.Write) {
		a(w)
		b(w)
	}
}

// build makes the write; it is nil for combinations that cannot exist.
func build(s shape, mark, recorded, text string, c carrier, who edit) *fence.Write {
	w := write(s.operation, s.subresource, nil, nil)
	if s.operation == fence.Create && (mark != "" || recorded != records[0].value) {
		return nil
	}
	if s.operation != fence.Create {
		w.Old = recording(mark, recorded)
		w.Old.Terminating, w.Old.Finalizers = s.terminating, s.before
	}
	if s.operation != fence.Delete {
		w.New = recording(mark, recorded)
		w.New.Terminating, w.New.Finalizers = s.terminating, s.after
	}
	if c.annotates && (w.New == nil || s.subresource == fence.SubresourceScale) {
		return nil
	}
	c.put(&w, text)
	who(&w)
	return &w
}

// The whole product of what the decision depends on. There is no dimension for dry runs: see
// TestADryRunCannotMatter.
func TestEveryCombinationAgreesWithTheContract(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[essence]int{}
	t.Run("shapes", func(t *testing.T) {
		for _, s := range shapes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				counts := exhaust(t, s.value)
				mu.Lock()
				defer mu.Unlock()
				for e, n := range counts {
					seen[e] += n
				}
			})
		}
	})

	// A table that never reaches a verdict shows nothing about it.
	total := 0
	for _, n := range seen {
		total += n
	}
	t.Logf("%d combinations, %d different verdicts", total, len(seen))
	for _, r := range fence.AllowReasons() {
		if seen[allow(r)] == 0 {
			t.Errorf("no combination leads to Allow %s", r)
		}
	}
	for _, r := range fence.DenyReasons() {
		if seen[deny(r)] == 0 || seen[audit(r)] == 0 {
			t.Errorf("no combination leads to Deny %s, enforced and audited", r)
		}
	}
	if seen[needsRead] == 0 || seen[unavailable(fence.NotStamped)] == 0 {
		t.Error("no combination leads to NeedsRead, or to NotStamped")
	}
}

func exhaust(t *testing.T, s shape) map[essence]int {
	t.Helper()
	seen := map[essence]int{}
	failures := 0
	who := writerStates()
	for _, m := range markStates {
		for _, c := range carriers {
			texts := presentedTokens
			if !c.value.presents {
				texts = presentedTokens[:1]
			}
			for _, text := range texts {
				for _, writer := range who {
					for _, r := range records {
						w := build(s, m.value, r.value, text.value, c.value, writer.value.edit)
						if w == nil {
							continue
						}
						for _, l := range leaseStates {
							for _, from := range viewsOf(l.value) {
								v := from.value
								v.Lease, v.MustPresent = l.value, writer.value.mustPresent
								got := fence.Decide(*w, v)
								want, problem := reference(*w, v), notTotal(got)
								seen[want]++
								if want == essenceOf(got) && problem == "" {
									continue
								}
								failures++
								t.Errorf("mark %s, records %s; %s, token %s; lease %s, %s; writer %s: want %+v, got %+v; %s\n%s",
									m.name, r.name, c.name, text.name, l.name, from.name, writer.name, want, essenceOf(got), problem, got.Message)
								if failures == 20 {
									t.Fatal("too many differences")
								}
							}
						}
					}
				}
			}
		}
	}
	return seen
}

// What the registration does not ask for is never admitted, whoever writes and whatever the lease says.
func TestShapesThatNoGuardAsksForAreUnavailable(t *testing.T) {
	t.Parallel()
	operations := []fence.Operation{fence.Create, fence.Update, fence.Delete, fence.Connect, "", "*", "create", "PATCH"}
	subresources := []string{"", "status", "scale", "log", "exec", "eviction", "*", "Status", "status/"}
	objects := []*fence.Object{nil, marked("34.bbbbbbbb/1")}
	unsupported := 0
	for _, operation := range operations {
		for _, subresource := range subresources {
			for _, before := range objects {
				for _, after := range objects {
					for _, writer := range writerStates() {
						for _, l := range leaseStates {
							for _, from := range viewsOf(l.value) {
								w := write(operation, subresource, before, after, writer.value.edit)
								v := from.value
								v.Lease, v.MustPresent = l.value, writer.value.mustPresent
								got, want := fence.Decide(w, v), reference(w, v)
								if want == unavailable(fence.UnsupportedOperation) {
									unsupported++
									if got.Admits() {
										t.Fatalf("%s on %q by %s is admitted", operation, subresource, writer.name)
									}
								}
								if want != essenceOf(got) || notTotal(got) != "" {
									t.Fatalf("%s on %q (old %v, new %v) by %s: want %+v, got %+v; %s", operation, subresource,
										before != nil, after != nil, writer.name, want, essenceOf(got), notTotal(got))
								}
							}
						}
					}
				}
			}
		}
	}
	if unsupported == 0 {
		t.Error("no combination was unsupported")
	}
}

// A dry run is judged like the write that it stands for. The decision cannot do otherwise: nothing that it is given tells
// a dry run apart. A field that is added must be added here, which is the moment to think of it.
func TestADryRunCannotMatter(t *testing.T) {
	t.Parallel()
	kind := reflect.TypeOf(fence.Decide)
	got := []string{}
	for i := range kind.NumIn() {
		got = append(got, fieldsOf(kind.In(i), kind.In(i).Name())...)
	}
	want := []string{
		"Write.Operation", "Write.Subresource",
		"Write.Old.Annotations", "Write.Old.Terminating", "Write.Old.Finalizers",
		"Write.New.Annotations", "Write.New.Terminating", "Write.New.Finalizers",
		"Write.Writer.Username", "Write.Writer.Groups", "Write.Writer.Extra",
		"Write.Change", "Write.System.Collectors", "Write.System.Migrators", "Write.Override.Reason", "Write.Override.Permitted",
		"View.Lease.Namespace", "View.Lease.Name", "View.Lease.Gone", "View.Lease.Audit", "View.Lease.Generation",
		"View.Lease.Term", "View.Lease.Holder", "View.Lease.Handover", "View.Lease.Seal", "View.Lease.SealedGeneration", "View.Lease.Credentials",
		"View.Origin", "View.MustPresent", "View.SealCovers",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inputs of the decision (-want +got):\n%s", diff)
	}
}

func fieldsOf(kind reflect.Type, path string) []string {
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct {
		return []string{path}
	}
	fields := []string{}
	for i := range kind.NumField() {
		field := kind.Field(i)
		fields = append(fields, fieldsOf(field.Type, path+"."+field.Name)...)
	}
	return slices.Clip(fields)
}
