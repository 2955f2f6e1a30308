// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

const recordText = "import-17=34@2026-05-04T10:11:12Z"

var record = operation.Record{Operation: "import-17", Generation: 34, Time: time.Date(2026, 5, 4, 10, 11, 12, 0, time.UTC)}

// answering is a client whose writes fail, and which has one object.
type answering struct {
	recorder
	answer error
	stored *unstructured.Unstructured
	sent   []client.Object
}

func (a *answering) keep(obj client.Object) error {
	copied, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return errors.New("no object")
	}
	a.sent = append(a.sent, copied)
	return a.answer
}

func (a *answering) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return a.keep(obj)
}

func (a *answering) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return a.keep(obj)
}

func (a *answering) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return a.keep(obj)
}

func (a *answering) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return a.answer
}

func (a *answering) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	return a.keep(obj)
}

func (a *answering) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	u, ok := obj.(*unstructured.Unstructured)
	if a.stored == nil || !ok || key.Name != a.stored.GetName() {
		return apierrors.NewNotFound(reports, key.Name)
	}
	a.stored.DeepCopyInto(u)
	return nil
}

func (a *answering) Status() client.SubResourceWriter {
	return &subRecorder{&recorder{err: a.answer}, "status"}
}
func (a *answering) SubResource(name string) client.SubResourceClient {
	return &subRecorder{&recorder{err: a.answer}, name}
}

// applied is the answer to a write whose operation is recorded.
func applied(cause fenced.CauseType, record string) error {
	err := webhookRefusal(string(cause), "FencedLease reports/report-writer: no")
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1alpha1.CauseOperationRecord, Message: record})
	}
	return err
}

// operated is a possession of the lease that guards Reports.
type operated struct{ held }

func (*operated) Guards() []v1alpha1.Guard {
	return []v1alpha1.Guard{{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}}}
}

func report(records string) *unstructured.Unstructured {
	o := object(reportKind, "reports", "weekly")
	o.SetUID("one")
	if records != "" {
		o.SetAnnotations(map[string]string{"operations.fencedlease.io/report-writer": records})
	}
	return o
}

func withOperation(t *testing.T, id string, leases ...types.NamespacedName) (context.Context, *fenced.Operation) {
	t.Helper()
	ctx, o, err := fenced.WithOperation(t.Context(), id, leases...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, o
}

func TestOperationIDsAreCheckedAtOnce(t *testing.T) {
	for id, valid := range map[string]bool{
		"import-17": true, "a": true, "deleted": true, strings.Repeat("a", 128): true,
		"": false, "_1": false, "_ ": false, strings.Repeat("a b", 999): false, "delete": false, "a b": false, "a/b": false, "a=b": false, strings.Repeat("a", 129): false,
	} {
		_, _, err := fenced.WithOperation(t.Context(), id)
		if (err == nil) != valid {
			t.Errorf("WithOperation(%q): %v", id, err)
		}
		// The message names the id that was given, and nothing that was not.
		if err != nil && (!strings.HasPrefix(err.Error(), "use operation id "+strconv.Quote(id[:min(len(id), 128)])+": ") || len(err.Error()) > 300) {
			t.Errorf("WithOperation(%q) is explained by %q", id, err)
		}
	}
}

func TestAReplayIsNoReasonToStepDown(t *testing.T) {
	replay := fmt.Errorf("update: %w", applied(fenced.AlreadyApplied, recordText))
	if got, ok := fenced.AlreadyAppliedRecord(replay); !ok || got != record || fenced.IsFenced(replay) {
		t.Errorf("got %v, %v, fenced: %v", got, ok, fenced.IsFenced(replay))
	}
	if refusal, ok := fenced.Cause(replay); !ok || refusal.Type != fenced.AlreadyApplied || refusal.Record != record {
		t.Errorf("the cause is %+v, %v", refusal, ok)
	}
	stale := webhookRefusal("StaleToken", "FencedLease reports/report-writer: no")
	if !fenced.IsFenced(errors.Join(replay, stale)) {
		t.Error("a refusal hides behind a replay")
	}
	if _, ok := fenced.AlreadyAppliedRecord(stale); ok {
		t.Error("a stale token counts as a replay")
	}
}

// writes are those that end in success if they are replays.
func writes() map[string]func(context.Context, client.Client, *unstructured.Unstructured) error {
	return map[string]func(context.Context, client.Client, *unstructured.Unstructured) error{
		"create": func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Create(ctx, o)
		},
		"update": func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Update(ctx, o)
		},
		"patch": func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Patch(ctx, o, merge())
		},
		"apply": func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Apply(ctx, configuration(o))
		},
	}
}

func TestReplaysOfAnObject(t *testing.T) {
	other := report(recordText)
	other.SetUID("two")
	for name, test := range map[string]struct {
		answer error
		stored *unstructured.Unstructured
		replay bool
	}{
		"the fence says that it was applied":            {applied(fenced.AlreadyApplied, recordText), report(recordText), true},
		"the mark of the first attempt is inherited":    {applied(fenced.MissingToken, recordText), report(recordText), true},
		"the version has moved on by the first attempt": {apierrors.NewConflict(reports, "weekly", nil), report(recordText), true},
		"the object exists by the first attempt":        {apierrors.NewAlreadyExists(reports, "weekly"), report(recordText), true},
		"the version has moved on by others":            {apierrors.NewConflict(reports, "weekly", nil), report("import-18=34"), false},
		"the object was made by others":                 {apierrors.NewAlreadyExists(reports, "weekly"), report(""), false},
		"the object of that uid is gone":                {apierrors.NewConflict(reports, "weekly", nil), other, false},
		"a reader that is behind":                       {applied(fenced.AlreadyApplied, recordText), report(""), false},
		"the object cannot be read":                     {applied(fenced.AlreadyApplied, recordText), nil, false},
		"the term is stale":                             {webhookRefusal("StaleToken", "no"), report(recordText), false},
		"the write presents nothing":                    {webhookRefusal("MissingToken", "no"), report(recordText), false},
		"no answer at all":                              {errors.New("connection reset"), report(recordText), false},
	} {
		for verb, write := range writes() {
			t.Run(name+", "+verb, func(t *testing.T) {
				for carrier, made := range map[string]func(c client.Client) client.Client{
					"annotation": func(c client.Client) client.Client { return fenced.Client(c, &operated{}) },
					"request":    func(c client.Client) client.Client { return fenced.Replaying(c, &operated{}) },
				} {
					ctx, op := withOperation(t, "import-17")
					server := &answering{answer: test.answer, stored: test.stored}
					o := report("")
					o.SetLabels(map[string]string{"wanted": "yes"})
					err := write(ctx, made(server), o)
					got, replayed := op.Replayed()
					switch {
					case test.replay && (err != nil || !replayed || got != record || len(o.GetLabels()) > 0):
						t.Errorf("%s: %v; replayed %v %v; the object is %v", carrier, err, replayed, got, o.Object)
					case !test.replay && (err == nil || replayed || o.GetLabels()["wanted"] != "yes" || len(o.GetAnnotations()) > 0):
						t.Errorf("%s: %v; replayed %v; the object is %v", carrier, err, replayed, o.Object)
					}
					if replayed {
						want := []fenced.Replay{{
							Lease: (&held{}).Lease(), Kind: reportKind.GroupKind(), Object: client.ObjectKeyFromObject(o), Record: record,
						}}
						if diff := cmp.Diff(want, op.Replays()); diff != "" {
							t.Errorf("%s (-want +got):\n%s", carrier, diff)
						}
					}
					// Without an operation nothing is a replay.
					if err := write(t.Context(), made(server), report("")); err == nil {
						t.Errorf("%s: a write without an operation ends well", carrier)
					}
				}
			})
		}
	}
}

// another is a possession of a second lease that guards Reports.
type another struct{ operated }

func (*another) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: "reports", Name: "other"}
}

func (*another) Token() token.Token { return token.Token{Generation: 7, Term: "aaaaaaaa"} }

// With one operation for both leases, one record says that the write was made: the other lease may keep none. Of two operations each
// needs its own: that one is recorded tells nothing of the other, which was not applied with this write.
func TestAReplayOfTwoOperationsNeedsTheRecordsOfBoth(t *testing.T) {
	stored := func(mine, others string) *unstructured.Unstructured {
		o := report("")
		annotations := map[string]string{}
		for name, records := range map[string]string{"report-writer": mine, "other": others} {
			if records != "" {
				annotations[v1alpha1.OperationsKey(name)] = records
			}
		}
		o.SetAnnotations(annotations)
		return o
	}
	for name, test := range map[string]struct {
		one          bool // operation of both leases
		stored       *unstructured.Unstructured
		mine, others bool
		fails        bool
	}{
		"two, of which both are recorded":        {stored: stored("a=3", "b=4"), mine: true, others: true},
		"two, of which the first is recorded":    {stored: stored("a=3", ""), fails: true},
		"two, of which the second is recorded":   {stored: stored("c=3", "b=4"), fails: true},
		"two, each recorded for the other lease": {stored: stored("b=3", "a=4"), fails: true},
		"one, recorded for both":                 {one: true, stored: stored("a=3", "a=4"), mine: true, others: true},
		"one, recorded for the first":            {one: true, stored: stored("a=3", ""), mine: true},
		"one, recorded for the second":           {one: true, stored: stored("", "a=4"), others: true},
	} {
		for verb, write := range writes() {
			t.Run(name+", "+verb, func(t *testing.T) {
				for carrier, made := range map[string]func(c client.Client) client.Client{
					"annotation": func(c client.Client) client.Client { return fenced.Client(fenced.Client(c, &operated{}), &another{}) },
					"request": func(c client.Client) client.Client {
						return fenced.Replaying(fenced.Replaying(c, &operated{}), &another{})
					},
				} {
					ctx, a := withOperation(t, "a")
					b := a
					if !test.one {
						var err error
						if ctx, b, err = fenced.WithOperation(ctx, "b", (&another{}).Lease()); err != nil {
							t.Fatal(err)
						}
					}
					err := write(ctx, made(&answering{answer: applied(fenced.AlreadyApplied, "a=3"), stored: test.stored}), report(""))
					if (err != nil) != test.fails {
						t.Errorf("%s: %v", carrier, err)
					}
					if _, ok := fenced.AlreadyAppliedRecord(err); test.fails && !ok {
						t.Errorf("%s: %v does not say what was applied", carrier, err)
					}
					var want, got []types.NamespacedName
					if test.mine {
						want = append(want, (&operated{}).Lease())
					}
					if test.others {
						want = append(want, (&another{}).Lease())
					}
					for _, o := range slices.Compact([]*fenced.Operation{a, b}) {
						for _, r := range o.Replays() {
							got = append(got, r.Lease)
						}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: leases of the replays (-want +got):\n%s", carrier, diff)
					}
				}
			})
		}
	}
}

// What was recorded is a write of the object, which says nothing about a status.
func TestAStatusIsNotTakenForWritten(t *testing.T) {
	for name, answer := range map[string]error{
		"told":      applied(fenced.AlreadyApplied, recordText),
		"inherited": applied(fenced.MissingToken, recordText),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, op := withOperation(t, "import-17")
			err := fenced.Client(&answering{answer: answer, stored: report(recordText)}, &operated{}).Status().Update(ctx, report(""))
			if got, ok := fenced.AlreadyAppliedRecord(err); !ok || got != record || fenced.IsFenced(err) {
				t.Errorf("got %v", err)
			}
			if _, replayed := op.Replayed(); replayed {
				t.Error("the operation says that it was replayed")
			}
		})
	}
}

func TestMarksCarryTheOperationOfTheirLease(t *testing.T) {
	mine, others := (&held{}).Lease(), types.NamespacedName{Namespace: "reports", Name: "other"}
	outer, _ := withOperation(t, "of-all")
	inner, _, err := fenced.WithOperation(outer, "of-other", others)
	if err != nil {
		t.Fatal(err)
	}
	innermost, _, err := fenced.WithOperation(inner, "of-mine", mine)
	if err != nil {
		t.Fatal(err)
	}
	for want, ctx := range map[string]context.Context{"of-all": inner, "of-mine": innermost, "_": t.Context()} {
		server := &answering{}
		if err := fenced.Client(server, &operated{}).Update(ctx, report("")); err != nil {
			t.Fatal(err)
		}
		mark, err := token.Parse(server.sent[0].GetAnnotations()["token.fencedlease.io/report-writer"])
		if err != nil || !strings.HasPrefix(mark.Operation, want) {
			t.Errorf("want operation %s, got %s, %v", want, mark, err)
		}
		var carried string
		config := fenced.Wrap(&rest.Config{Host: "https://localhost", Transport: transportFunc(func(req *http.Request) (*http.Response, error) {
			carried = req.Header.Get("Impersonate-Extra-Token.fencedlease.io%2freport-Writer")
			return reply{code: http.StatusOK, body: `{}`}.response(), nil
		})}, &operated{}, fenced.AsUser(rest.ImpersonationConfig{UserName: "worker"}))
		transport, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://localhost/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		wantCarried := "48215.k3v9x2ab/" + want
		if want == "_" {
			wantCarried = "48215.k3v9x2ab"
		}
		if carried != wantCarried {
			t.Errorf("want %s with the request, got %s", wantCarried, carried)
		}
	}
}

func TestNamesFollowFromTheOperation(t *testing.T) {
	names := map[string]string{}
	for _, prefix := range []string{"page-", "style-", strings.Repeat("long-", 20), strings.Repeat("long-", 20) + "x"} {
		for _, id := range []string{"import-17", "import-18"} {
			ctx, _ := withOperation(t, id)
			var first string
			for range 2 {
				server := &answering{}
				o := object(reportKind, "reports", "")
				o.SetGenerateName(prefix)
				if err := fenced.Client(server, &operated{}).Create(ctx, o); err != nil {
					t.Fatal(err)
				}
				name := server.sent[0].GetName()
				if problems := validation.IsDNS1123Label(name); len(problems) > 0 || !strings.HasPrefix(name, prefix[:5]) {
					t.Errorf("%q: %v", name, problems)
				}
				if first != "" && first != name {
					t.Errorf("%s with %s is %s, then %s", prefix, id, first, name)
				}
				first = name
			}
			if before, taken := names[first]; taken {
				t.Errorf("%s/%s has the name of %s", prefix, id, before)
			}
			names[first] = prefix + "/" + id
		}
	}
	server := &answering{answer: errors.New("no")}
	o := object(reportKind, "reports", "")
	o.SetGenerateName("page-")
	ctx, _ := withOperation(t, "import-17")
	if err := fenced.Client(server, &operated{}).Create(ctx, o); err == nil || o.GetName() != "" {
		t.Errorf("after a failed create the object is called %q: %v", o.GetName(), err)
	}
}

func TestADeleteOfAnOperationIsAboutOneObject(t *testing.T) {
	ctx, _ := withOperation(t, "import-17")
	for carrier, c := range map[string]func(client.Client) client.Client{
		"annotation": func(c client.Client) client.Client { return fenced.Client(c, &operated{}) },
		"request":    func(c client.Client) client.Client { return fenced.Replaying(c, &operated{}) },
	} {
		server := &answering{}
		if err := c(server).Delete(ctx, object(reportKind, "reports", "weekly")); !errors.Is(err, fenced.ErrDeleteWithoutUID) || len(server.sent) > 0 {
			t.Errorf("%s: without a uid: %v, sent %v", carrier, err, server.sent)
		}
		later := report("")
		later.SetUID("two")
		server = &answering{answer: apierrors.NewConflict(reports, "weekly", nil), stored: later}
		if err := c(server).Delete(ctx, report("")); !apierrors.IsNotFound(err) {
			t.Errorf("%s: of another object: %v", carrier, err)
		}
		server.stored = report("")
		if err := c(server).Delete(ctx, report("")); !apierrors.IsConflict(err) {
			t.Errorf("%s: of the same object: %v", carrier, err)
		}
	}
}

// It has no uid: the repetition would delete what was created since.
func TestADeleteOfManyIsNoOperation(t *testing.T) {
	ctx, _ := withOperation(t, "import-17")
	server := &answering{}
	c := fenced.Replaying(server, &operated{})
	if err := c.DeleteAllOf(ctx, report(""), client.InNamespace("reports")); !errors.Is(err, fenced.ErrDeleteWithoutUID) || len(server.calls) > 0 {
		t.Errorf("of guarded objects: %v, sent %v", err, server.calls)
	}
	if err := c.DeleteAllOf(ctx, report(""), client.InNamespace("elsewhere")); err != nil || len(server.calls) != 1 {
		t.Errorf("of other objects: %v, sent %v", err, server.calls)
	}
	if err := c.DeleteAllOf(t.Context(), report(""), client.InNamespace("reports")); err != nil || len(server.calls) != 2 {
		t.Errorf("without an operation: %v, sent %v", err, server.calls)
	}
}

func TestLookupOperation(t *testing.T) {
	lease := (&held{}).Lease()
	for name, test := range map[string]struct {
		records string
		want    fenced.OperationOutcome
		problem bool
	}{
		"recorded":                {"import-18=35 " + recordText, fenced.OperationOutcome{State: fenced.OperationApplied, Record: record}, false},
		"not recorded":            {"import-20=36 import-19=35", fenced.OperationOutcome{State: fenced.OperationNotRecorded, Horizon: operation.Record{Operation: "import-19", Generation: 35}}, false},
		"no records":              {"", fenced.OperationOutcome{State: fenced.OperationUnknown}, false},
		"records that are broken": {"import-20", fenced.OperationOutcome{State: fenced.OperationUnknown}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fenced.LookupOperation(t.Context(), &answering{stored: report(test.records)}, report(""), lease, "import-17")
			if err != nil {
				t.Fatal(err)
			}
			if (got.Problem != nil) != test.problem {
				t.Errorf("the problem is %v", got.Problem)
			}
			got.Problem = nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := fenced.LookupOperation(t.Context(), &answering{}, report(""), lease, "import-17"); !apierrors.IsNotFound(err) {
		t.Errorf("of an object that is gone: %v", err)
	}
	if _, err := fenced.LookupOperation(t.Context(), &answering{stored: report("")}, report(""), lease, "_1"); err == nil {
		t.Error("a nonce is looked up")
	}
}
