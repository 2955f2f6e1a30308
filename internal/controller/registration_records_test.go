// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

const policyNamespace = "team-a"

// recordLimits are the leases that the policies of this test know, with the number of operations that each records.
var recordLimits = map[string]int{"writer": defaultHistory, "few": 2, "none": 0, "trial": 3}

// policies are the expressions of the registration, compiled and evaluated by the API server's own code.
type policies struct {
	stampsMatch, marksMatch, forged plugincel.ConditionEvaluator
	stamps                          patch.Patcher
	composers                       []*plugincel.CompositedCompiler
}

func compilePolicies(t interface{ Fatalf(string, ...any) }, more ...v1alpha1.FencedLease) *policies {
	leases := slices.Clone(more)
	for name, limit := range recordLimits {
		guard := own("reports")
		if limit != defaultHistory {
			guard.OperationHistoryLimit = ptr.To(int32(limit))
		}
		l := lease(policyNamespace, name, guard)
		if name == "trial" {
			l = audit(l)
		}
		leases = append(leases, l)
	}
	r, err := Build(testInput(leases...))
	if err != nil {
		t.Fatalf("build registration: %v", err)
	}
	p := &policies{}
	options := plugincel.OptionalVariableDeclarations{}
	compiler := func() *plugincel.CompositedCompiler {
		c, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		if err != nil {
			t.Fatalf("make compiler: %v", err)
		}
		p.composers = append(p.composers, c)
		return c
	}
	evaluator := func(c *plugincel.CompositedCompiler, accessor plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		e := c.CompileCondition([]plugincel.ExpressionAccessor{accessor}, options, environment.StoredExpressions)
		if errs := e.CompilationErrors(); len(errs) > 0 {
			t.Fatalf("compile %s: %v", accessor.GetExpression(), errs)
		}
		return e
	}
	stamps, marks := compiler(), compiler()
	for _, v := range r.Stamps.Spec.Variables {
		compileVariable(t, stamps, v)
	}
	for _, v := range r.Marks.Spec.Variables {
		compileVariable(t, marks, v)
	}
	p.stampsMatch = evaluator(stamps, (*matchconditions.MatchCondition)(&r.Stamps.Spec.MatchConditions[0]))
	p.marksMatch = evaluator(marks, (*matchconditions.MatchCondition)(&r.Marks.Spec.MatchConditions[0]))
	i := slices.IndexFunc(r.Marks.Spec.Validations, func(v admissionv1.Validation) bool { return strings.Contains(v.Expression, "variables.forged") })
	if i < 0 {
		t.Fatalf("the policy of marks does not look at records")
	}
	p.forged = evaluator(marks, &validating.ValidationCondition{Expression: r.Marks.Spec.Validations[i].Expression})
	patching := options
	patching.HasPatchTypes = true
	mutation := stamps.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: r.Stamps.Spec.Mutations[0].JSONPatch.Expression}, patching, environment.StoredExpressions)
	if errs := mutation.CompilationErrors(); len(errs) > 0 {
		t.Fatalf("compile mutation: %v", errs)
	}
	p.stamps = patch.NewJSONPatcher(mutation)
	return p
}

func compileVariable(t interface{ Fatalf(string, ...any) }, c *plugincel.CompositedCompiler, v admissionv1.Variable) {
	compiled := c.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	if compiled.Error != nil {
		t.Fatalf("compile variable %s: %v", v.Name, compiled.Error)
	}
}

// request is a write of a Report.
type request struct {
	// old is nil for a create.
	old, object *unstructured.Unstructured
	extra       map[string][]string
}

func (r request) attributes() *admission.VersionedAttributes {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Report"}
	verb := admission.Create
	var old runtime.Object
	if r.old != nil {
		verb, old = admission.Update, r.old
	}
	attributes := admission.NewAttributesRecord(r.object, old, kind, policyNamespace, "daily", kind.GroupVersion().WithResource("reports"),
		"", verb, nil, false, &user.DefaultInfo{Name: "worker", Extra: r.extra})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(r.object)}
	if r.old != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(r.old)
	}
	return versioned
}

// holds evaluates one expression within the API server's budget.
func (p *policies) holds(ctx context.Context, t *rapid.T, composer int, e plugincel.ConditionEvaluator, r request) bool {
	versioned := r.attributes()
	ar := plugincel.CreateAdmissionRequest(versioned.Attributes, metav1.GroupVersionResource(versioned.GetResource()), metav1.GroupVersionKind(versioned.VersionedKind))
	results, _, err := e.ForInput(p.composers[composer].CreateContext(ctx), versioned, ar, plugincel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil || results[0].Error != nil {
		t.Fatalf("evaluate %s: %v %v", results[0].ExpressionAccessor.GetExpression(), err, results[0].Error)
	}
	return results[0].EvalResult.Value() == true
}

// stamped returns the object as the stamping policy leaves it.
func (p *policies) stamped(ctx context.Context, t *rapid.T, r request) *unstructured.Unstructured {
	if !p.holds(ctx, t, 0, p.stampsMatch, r) {
		return r.object
	}
	object, err := p.stamps.Patch(p.composers[0].CreateContext(ctx), patch.Request{
		MatchedResource: r.attributes().GetResource(), VersionedAttributes: r.attributes(), ObjectInterfaces: admission.NewObjectInterfacesFromScheme(runtime.NewScheme()),
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatalf("stamp %v: %v", r, err)
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("stamped %T", object)
	}
	return u
}

// admitted says whether the policy of marks finds no record that was changed.
func (p *policies) admitted(ctx context.Context, t *rapid.T, r request) bool {
	return !p.holds(ctx, t, 1, p.marksMatch, r) || p.holds(ctx, t, 1, p.forged, r)
}

// annotationsOf returns the annotations of an object; a nil one has none.
func annotationsOf(o *unstructured.Unstructured) map[string]string {
	if o == nil {
		return nil
	}
	return o.GetAnnotations()
}

// presentedTo returns the token that a write presents for a lease as far as the stamping policy goes, and whether the request
// carries it.
func presentedTo(r request, name string) (presented token.Token, text string, carried bool) {
	key := v1alpha1.TokenKey(name)
	now, hasNow := annotationsOf(r.object)[key]
	stored, hasStored := annotationsOf(r.old)[key]
	inherited := hasNow && hasStored && now == stored
	values, hasExtra := r.extra[key]
	switch {
	case len(values) == 1 && (!hasNow || now == values[0] || inherited):
		text, carried = values[0], true
	case !hasExtra && hasNow && !inherited:
		text = now
	}
	presented, err := token.Parse(text)
	if err != nil {
		return token.Token{}, "", false
	}
	return presented, text, carried
}

// clockOf returns the newest time of the managers of fields.
func clockOf(o *unstructured.Unstructured) (newest time.Time) {
	for _, entry := range o.GetManagedFields() {
		if entry.Time != nil && entry.Time.After(newest) {
			newest = entry.Time.UTC()
		}
	}
	return newest
}

// recordedBy returns what the records of a lease must be after the stamping policy, written with package operation where what
// is stored is well-formed, and whether a record was added.
func recordedBy(r request, name string) (text string, there, added bool) {
	key, limit := v1alpha1.OperationsKey(name), recordLimits[name]
	stored, recorded := annotationsOf(r.old)[key]
	text, there = annotationsOf(r.object)[key]
	if recorded && !there {
		text, there = stored, true
	}
	presented, _, carried := presentedTo(r, name)
	if !presented.Business() {
		return text, there, false
	}
	if _, found := operation.Find(stored, presented.Operation); limit == 0 || found {
		if stored != "" {
			text, there = stored, true
		}
		return text, there, false
	}
	record := operation.Record{Operation: presented.Operation, Generation: presented.Generation}
	if !carried || r.old == nil || !cmp.Equal(r.old.GetManagedFields(), r.object.GetManagedFields()) {
		record.Time = clockOf(r.object)
	}
	if records, err := operation.Parse(stored); err == nil {
		return operation.Format(operation.Add(records, record, limit)), true, true
	}
	// Garbage from before the object was guarded moves on as it is.
	parts := append([]string{record.String()}, strings.Split(stored, " ")...)
	return strings.Join(parts[:min(len(parts), limit)], " "), true, true
}

// mayBecome says whether the records of a lease may be what they are in the new object, by the words of the contract: as they are
// stored, or those with one record in front of the operation that the write presents, and the oldest left out.
func mayBecome(r request, name string) bool {
	key, mark := v1alpha1.OperationsKey(name), v1alpha1.TokenKey(name)
	now, hasNow := annotationsOf(r.object)[key]
	stored, hasStored := annotationsOf(r.old)[key]
	if hasNow == hasStored && now == stored {
		return true
	}
	text, hasMark := annotationsOf(r.object)[mark]
	presented, err := token.Parse(text)
	before, hadMark := annotationsOf(r.old)[mark]
	inherited := hadMark && before == text && !slices.Contains(r.extra[mark], text)
	if !hasNow || !hasMark || err != nil || !presented.Business() || inherited {
		return false
	}
	first, _, _ := strings.Cut(now, " ")
	// With a day that no calendar has, too.
	record, found := operation.Find(first, presented.Operation)
	if _, before := operation.Find(stored, presented.Operation); !found || record.Generation != presented.Generation || before {
		return false
	}
	var kept []string
	if stored != "" {
		kept = strings.Split(stored, " ")
	}
	for n := range len(kept) + 1 {
		if now == strings.Join(append([]string{first}, kept[:n]...), " ") {
			return true
		}
	}
	return false
}

// Few ids, so that they meet again; some are the beginnings of others.
var drawnIDs = rapid.OneOf(rapid.SampledFrom([]string{"a", "ab", "b", "a.b", "import-17", "import-1", ":", "-", strings.Repeat("x", token.MaxOperationLength)}),
	rapid.StringMatching(`[-A-Za-z0-9.:][-A-Za-z0-9_.:]{0,4}`).Filter(token.IsBusinessOperation))

var drawnRecord = rapid.Custom(func(t *rapid.T) operation.Record {
	r := operation.Record{Operation: drawnIDs.Draw(t, "id"), Generation: rapid.Int64Range(1, 40).Draw(t, "generation")}
	if rapid.Bool().Draw(t, "timed") {
		r.Time = time.Unix(rapid.Int64Range(1_700_000_000, 1_800_000_000).Draw(t, "time"), 0).UTC()
	}
	return r
})

var timeInRecord = regexp.MustCompile(`@[^ ]+`)

var drawnRecords = rapid.Custom(func(t *rapid.T) string {
	if rapid.IntRange(0, 9).Draw(t, "garbage") == 0 {
		return rapid.OneOf(rapid.SampledFrom([]string{"", " ", "a", "a=", "a=1 ", " a=1", "a=1  b=2", "b=1 a", "=1", "a= b=1", "a=1@ ab=2",
			"a=1@2026-02-31T00:00:00Z b=1", "b=01 a=0", "ab=1@2026-02-31T00:00:00 a=1@2026-02-31T00:00:00Zx"}), rapid.StringMatching(`[a=1@ ]{0,9}`)).Draw(t, "text")
	}
	var kept []operation.Record
	for _, r := range rapid.SliceOfN(drawnRecord, 0, 5).Draw(t, "records") {
		if !slices.ContainsFunc(kept, func(k operation.Record) bool { return k.Operation == r.Operation }) {
			kept = append(kept, r)
		}
	}
	text := operation.Format(kept)
	if rapid.IntRange(0, 9).Draw(t, "impossible day") == 0 {
		// Of the form of a time, and none.
		text = timeInRecord.ReplaceAllString(text, "@2026-02-31T00:00:00Z")
	}
	return text
})

var drawnToken = rapid.Custom(func(t *rapid.T) string {
	text := rapid.SampledFrom([]string{"33.aaaaaaaa", "34.bbbbbbbb", "34", "999999999999999999", "034", "x", ""}).Draw(t, "possession")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return text
	case 1:
		return text + rapid.SampledFrom([]string{"/_1", "/delete", "/", "/a/b", "/deleted"}).Draw(t, "other")
	default:
		return text + "/" + drawnIDs.Draw(t, "id")
	}
})

// drawnRequest draws a write with and without marks, tokens and records of several leases, and with any attempt at the records.
func drawnRequest(t *rapid.T) request {
	names := slices.Sorted(maps.Keys(recordLimits))
	object := func(annotations map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetAPIVersion("example.com/v1")
		o.SetKind("Report")
		o.SetNamespace(policyNamespace)
		o.SetName("daily")
		o.SetAnnotations(annotations)
		var fields []metav1.ManagedFieldsEntry
		for i := range rapid.IntRange(0, 3).Draw(t, "managers") {
			entry := metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", i), Operation: metav1.ManagedFieldsOperationUpdate}
			if rapid.IntRange(0, 4).Draw(t, "timed") > 0 {
				entry.Time = ptr.To(metav1.Unix(rapid.Int64Range(1_700_000_000, 1_700_000_003).Draw(t, "time"), 0))
			}
			fields = append(fields, entry)
		}
		if len(fields) > 0 {
			o.SetManagedFields(fields)
		}
		return o
	}
	r := request{extra: map[string][]string{}}
	stored, now := map[string]string{"note": "x"}, map[string]string{"note": "y"}
	if rapid.IntRange(0, 3).Draw(t, "creates") > 0 {
		for _, name := range names {
			if rapid.Bool().Draw(t, "marked") {
				stored[v1alpha1.TokenKey(name)] = drawnToken.Draw(t, "mark")
			}
			if rapid.Bool().Draw(t, "has records") {
				stored[v1alpha1.OperationsKey(name)] = drawnRecords.Draw(t, "stored")
			}
		}
		now = maps.Clone(stored)
		r.old = object(stored)
	}
	for _, name := range names {
		if rapid.Bool().Draw(t, "annotates") {
			now[v1alpha1.TokenKey(name)] = drawnToken.Draw(t, "annotation")
		}
		if n := rapid.IntRange(0, 9).Draw(t, "carries"); n < 3 {
			r.extra[v1alpha1.TokenKey(name)] = rapid.SliceOfN(drawnToken, 1, 1+n/2).Draw(t, "extra")
		}
		key := v1alpha1.OperationsKey(name)
		switch rapid.IntRange(0, 5).Draw(t, "attempt") {
		case 0:
			delete(now, key)
		case 1:
			now[key] = drawnRecords.Draw(t, "forged")
		case 2, 3:
			// What the stamping policy would make, or nearly.
			mark, _ := token.Parse(now[v1alpha1.TokenKey(name)])
			record := operation.Record{Operation: mark.Operation, Generation: mark.Generation, Time: rapid.SampledFrom([]time.Time{{}, time.Unix(1_700_000_000, 0)}).Draw(t, "time")}
			parts := append([]string{record.String()}, strings.Split(stored[key], " ")...)
			parts = parts[rapid.IntRange(0, 1).Draw(t, "from"):]
			parts = parts[:rapid.IntRange(0, len(parts)).Draw(t, "to")]
			now[key] = strings.Join(parts, " ") + rapid.SampledFrom([]string{"", "", "", " ", "x", "=1"}).Draw(t, "tail")
		}
	}
	r.object = object(now)
	if r.old != nil && rapid.Bool().Draw(t, "fields stay") {
		r.object.SetManagedFields(r.old.GetManagedFields())
	}
	return r
}

func (r request) String() string {
	return fmt.Sprintf("stored %q, %v\nwritten %q, %v\ncarried %q", annotationsOf(r.old), r.old, annotationsOf(r.object), r.object, r.extra)
}

// recordsAgree is the property: what the policies make of a write's records, and which changes of them they admit, is what
// package operation says.
func recordsAgree(p *policies, draw func(*rapid.T) request) func(*rapid.T) {
	return func(t *rapid.T) {
		ctx := context.Background() //nolint:forbidigo // rapid's own has no context
		r := draw(t)
		want := true
		for name := range recordLimits {
			if name != "trial" && !mayBecome(r, name) {
				want = false
			}
		}
		if got := p.admitted(ctx, t, r); got != want {
			t.Fatalf("without stamps it is admitted: %v, want %v\n%v", got, want, r)
		}

		stamped := request{old: r.old, object: p.stamped(ctx, t, r), extra: r.extra}
		want = true
		for name := range recordLimits {
			text, there, added := recordedBy(r, name)
			got, has := annotationsOf(stamped.object)[v1alpha1.OperationsKey(name)]
			if got != text || has != there {
				t.Fatalf("records of %s: want %q (%v), got %q (%v)\n%v", name, text, there, got, has, r)
			}
			switch may := mayBecome(stamped, name); {
			case added && !may:
				t.Fatalf("the record of %s, %q, is none that the policy of marks admits\n%v", name, text, r)
			case name != "trial" && !may:
				want = false
			}
			if _, _, carried := presentedTo(r, name); carried && annotationsOf(stamped.object)[v1alpha1.TokenKey(name)] != r.extra[v1alpha1.TokenKey(name)][0] {
				t.Fatalf("mark of %s: want %q, got %q", name, r.extra[v1alpha1.TokenKey(name)], annotationsOf(stamped.object)[v1alpha1.TokenKey(name)])
			}
		}
		if got := p.admitted(ctx, t, stamped); got != want {
			t.Fatalf("with stamps it is admitted: %v, want %v\n%v\nstamped %q", got, want, r, annotationsOf(stamped.object))
		}
	}
}

func TestTheRecordPoliciesAgreeWithPackageOperation(t *testing.T) {
	rapid.Check(t, recordsAgree(compilePolicies(t), drawnRequest))
}

// What only begins like a record of the operation must not keep it from being recorded: nobody would find it.
func TestWhatOnlyBeginsLikeARecordStandsInForNone(t *testing.T) {
	rapid.Check(t, recordsAgree(compilePolicies(t), func(t *rapid.T) request {
		r := drawnRequest(t)
		stored := rapid.SampledFrom([]string{
			"a=", "a=0", "a=01", "a=x", "a=1@", "a=1@2026", "a=1@2026-02-01T00:00:00", "a=1@2026-02-01T00:00:00Zx", "a=1.aaaaaaaa", "b=1 a= c=1",
			"a=1234567890123456789", "axb=1", "a=1", "a=1@2026-02-31T00:00:00Z", "a=1@0001-01-01T00:00:00Z", "a= a=1", "a=1@9999-99-99T99:99:99Z b=1",
		}).Draw(t, "stored")
		if r.old == nil {
			r.old = r.object.DeepCopy()
		}
		for _, o := range []*unstructured.Unstructured{r.old, r.object} {
			annotations := o.GetAnnotations()
			annotations[v1alpha1.OperationsKey("writer")] = stored
			annotations[v1alpha1.TokenKey("writer")] = "33/_1"
			if o == r.object {
				annotations[v1alpha1.TokenKey("writer")] = "34/" + rapid.SampledFrom([]string{"a", "a.b"}).Draw(t, "operation")
			}
			o.SetAnnotations(annotations)
		}
		delete(r.extra, v1alpha1.TokenKey("writer"))
		return r
	}))
}

// API servers refuse expressions above a length. One policy names the leases of all users: nobody's guards come into force any
// more if it is refused.
func TestThePoliciesHoldThousandsOfLeases(t *testing.T) {
	const many = 5000
	name := func(kind string, i int) string { return fmt.Sprintf("%s-of-a-team-with-a-long-name-%04d", kind, i) }
	var leases []v1alpha1.FencedLease
	for i := range many {
		few, everywhere := own("reports"), wide(matching("team", fmt.Sprint(i%3)), "reports")
		few.OperationHistoryLimit = ptr.To(int32(2))
		leases = append(leases,
			lease(policyNamespace, name("few", i), few),
			lease(name("namespace", i), "few", few),
			audit(lease(policyNamespace, name("trial", i), own("reports"))),
			audit(lease(name("namespace", i), "trial", own("reports"))),
			audit(lease(policyNamespace, name("wide", i), everywhere)))
	}
	p := compilePolicies(t, leases...)
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background() //nolint:forbidigo // rapid's own has no context
		i := rapid.IntRange(0, many-1).Draw(t, "lease")
		few, trial, records := name("few", i), name("trial", i), "c=3 b=2 a=1"
		old := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Report"}}
		old.SetAnnotations(map[string]string{v1alpha1.OperationsKey(few): records, v1alpha1.OperationsKey(trial): records, v1alpha1.OperationsKey("writer"): records})
		object := old.DeepCopy()
		set := func(key, value string) {
			annotations := object.GetAnnotations()
			annotations[key] = value
			object.SetAnnotations(annotations)
		}
		set(v1alpha1.TokenKey(few), "34/d")
		stamped := p.stamped(ctx, t, request{old: old, object: object})
		if got := stamped.GetAnnotations()[v1alpha1.OperationsKey(few)]; got != "d=34 c=3" {
			t.Fatalf("the records of a lease with a limit of 2 are %q", got)
		}
		object = old.DeepCopy()
		set(v1alpha1.OperationsKey(trial), "forged=1")
		if !p.admitted(ctx, t, request{old: old, object: object}) {
			t.Fatalf("the records of %s, in Audit, are protected", trial)
		}
		object = old.DeepCopy()
		set(v1alpha1.OperationsKey(few), "forged=1")
		if p.admitted(ctx, t, request{old: old, object: object}) {
			t.Fatalf("the records of %s are not protected", few)
		}
	})
}

func FuzzTheRecordPoliciesAgree(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(recordsAgree(compilePolicies(f), drawnRequest)))
}

func TestTheLargestLimitOfALeaseForAResourceCounts(t *testing.T) {
	limited := func(g v1alpha1.Guard, limit int32) v1alpha1.Guard {
		g.OperationHistoryLimit = ptr.To(limit)
		return g
	}
	everywhere := &metav1.LabelSelector{}
	for name, test := range map[string]struct {
		leases []v1alpha1.FencedLease
		want   string
	}{
		"of two guards in one namespace":         {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), limited(own("reports"), 5))}, "{'a example.com/reports x': 5}"},
		"the default is one as well":             {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), own("reports"))}, "{}"},
		"of a wide guard, in the own namespace":  {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), limited(wide(everywhere, "reports"), 5))}, "{'* example.com/reports x': 5, 'a example.com/reports x': 5}"},
		"of the own namespace, beside a wide":    {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 5), limited(wide(everywhere, "reports"), 2))}, "{'* example.com/reports x': 2, 'a example.com/reports x': 5}"},
		"the default, of a wide guard":           {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), wide(everywhere, "reports"))}, "{}"},
		"the default, beside a wide guard":       {[]v1alpha1.FencedLease{lease("a", "x", own("reports"), limited(wide(everywhere, "reports"), 2))}, "{'* example.com/reports x': 2, 'a example.com/reports x': 32}"},
		"not of another lease of the same name":  {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2)), lease("b", "x", limited(wide(matching("team", "b"), "reports"), 5))}, "{'* example.com/reports x': 5, 'a example.com/reports x': 2}"},
		"not of a guard of another resource":     {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), limited(wide(everywhere, "jobs"), 5))}, "{'* example.com/jobs x': 5, 'a example.com/reports x': 2}"},
		"not of a guard of the subresource only": {[]v1alpha1.FencedLease{lease("a", "x", limited(own("reports"), 2), limited(own("reports/status"), 5))}, "{'a example.com/reports x': 2}"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string{test.want}, celLimits(resolve(testInput(test.leases...)).placed)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
