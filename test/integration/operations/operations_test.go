// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const owner = client.FieldOwner("test")

// write is one way to write the main resource of a Report; annotation is the token to present by it, or empty.
type write struct {
	creates bool
	do      func(ctx context.Context, c client.Client, s *story, name, annotation string) error
}

func writes() map[string]write {
	return map[string]write{
		"POST": {creates: true, do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Create(ctx, s.report(name, "second", annotation))
		}},
		"apply that creates": {creates: true, do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.report(name, "second", annotation)), owner)
		}},
		"PUT": {do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			o := s.get(ctx, name)
			o.Object["spec"] = map[string]any{"value": "second"}
			if annotation != "" {
				annotations := o.GetAnnotations()
				annotations[s.key()] = annotation
				o.SetAnnotations(annotations)
			}
			return c.Update(ctx, o)
		}},
		"merge patch": {do: mergePatch},
		"JSON patch": {do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			patch := `[{"op":"replace","path":"/spec/value","value":"second"}`
			if annotation != "" {
				patch += fmt.Sprintf(`,{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1%s","value":%q}`, s.lease.Name, annotation)
			}
			return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.JSONPatchType, []byte(patch+"]")))
		}},
		"apply": {do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.report(name, "second", annotation)), owner, client.ForceOwnership)
		}},
	}
}

func mergePatch(ctx context.Context, c client.Client, s *story, name, annotation string) error {
	patch := `{"spec":{"value":"second"}}`
	if annotation != "" {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"value":"second"}}`, s.key(), annotation)
	}
	return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// annotate sets an annotation, or removes it if the value is nil, with a nonce of the current term.
func (s *story) annotate(ctx context.Context, c client.Client, name, key string, value *string) error {
	text := "null"
	if value != nil {
		text = strconv.Quote(*value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%s}}}`, s.key(), s.nonce(), key, text)
	return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// apply applies an operation by annotation.
func (s *story) apply(ctx context.Context, name, id string) error {
	return mergePatch(ctx, admin, s, name, s.token(id))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("An operation", func() {
	for name, w := range writes() {
		for _, byRequest := range []bool{false, true} {
			carrier := map[bool]string{false: "annotation", true: "request"}[byRequest]
			It("is recorded with the change by "+name+" and "+carrier, func(ctx SpecContext) {
				s := begin(ctx)
				object := newName()
				if !w.creates {
					object = s.create(ctx)
				}
				c, annotation := admin, s.token("import-17")
				if byRequest {
					c, annotation = s.carrying(annotation), ""
				}
				Expect(w.do(ctx, c, s, object, annotation)).To(Succeed())
				records, err := operation.Parse(s.records(ctx, object))
				Expect(err).NotTo(HaveOccurred())
				Expect(records).To(HaveLen(1), s.records(ctx, object))
				Expect(records[0].Operation).To(Equal("import-17"))
				Expect(records[0].Generation).To(Equal(*s.lease.Status.Generation))
				// By a request that follows another one in the same second, the managers of fields do not show that it changes
				// anything, and the time is left out.
				if !byRequest || w.creates {
					Expect(records[0].Time.IsZero()).To(BeFalse(), records[0].String())
				}
				Expect(s.value(ctx, object)).To(Equal("second"))
			})
		}
	}

	It("is not applied again by any verb, and its record is told", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		Expect(s.apply(ctx, object, "import-17")).To(Succeed())
		told := "import-17=" + strconv.FormatInt(*s.lease.Status.Generation, 10) + "@"
		Expect(s.apply(ctx, object, "import-17")).To(beFenced("MissingToken", told), "the same write once more inherits the mark")
		for _, id := range []string{"import-18", "import-19"} {
			Expect(s.apply(ctx, object, id)).To(Succeed())
		}
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-19", "import-18", "import-17"}))
		before := s.get(ctx, object)
		check := func() {
			GinkgoHelper()
			applied := beFenced("AlreadyApplied", told)
			token := s.token("import-17")
			c := s.carrying(token)
			for name, w := range writes() {
				if w.creates {
					continue
				}
				Expect(w.do(ctx, admin, s, object, token)).To(applied, name)
				Expect(w.do(ctx, c, s, object, "")).To(applied, name)
			}
			status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Done"}}`))
			Expect(c.Status().Patch(ctx, env.BareReport(s.namespace, object), status)).To(applied)
			scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":4}}`))
			Expect(c.SubResource("scale").Patch(ctx, env.BareReport(s.namespace, object), scale)).To(applied)
			Expect(c.Delete(ctx, env.BareReport(s.namespace, object))).To(applied)
			Expect(mergePatch(ctx, client.NewDryRunClient(c), s, object, "")).To(applied)
			Expect(s.get(ctx, object)).To(Equal(before))
		}
		check()
		ended := s.token("import-17")
		take(ctx, s.lease, "b")
		check()
		Expect(mergePatch(ctx, admin, s, object, ended)).To(beFenced("StaleToken", ""), "an ended leader is told that it is stale")
	})

	It("falls out behind as many as the limit allows, and not at all where the limit is 0", func(ctx SpecContext) {
		s := begin(ctx, limited(3))
		object := s.create(ctx)
		for i := range 5 {
			Expect(s.apply(ctx, object, "import-"+strconv.Itoa(i))).To(Succeed())
		}
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-4", "import-3", "import-2"}))
		Expect(s.apply(ctx, object, "import-2")).To(beFenced("AlreadyApplied", "import-2="))
		Expect(s.apply(ctx, object, "import-1")).To(Succeed())

		none := begin(ctx, limited(0))
		object = none.create(ctx)
		Expect(none.apply(ctx, object, "import-1")).To(Succeed())
		Expect(none.apply(ctx, object, "import-2")).To(Succeed())
		Expect(none.apply(ctx, object, "import-1")).To(Succeed())
		Expect(none.records(ctx, object)).To(BeEmpty())
	})

	It("has room in the costs of CEL and the size of annotations for the longest of all records", func(ctx SpecContext) {
		s := begin(ctx, limited(operation.MaxRecords))
		object := s.create(ctx)
		id := func(i int) string { return fmt.Sprintf("%03d", i) + strings.Repeat("x", 125) }
		for i := range operation.MaxRecords + 2 {
			Expect(s.apply(ctx, object, id(i))).To(Succeed())
		}
		ids := s.ids(ctx, object)
		Expect(ids).To(HaveLen(operation.MaxRecords))
		Expect(ids[0]).To(Equal(id(operation.MaxRecords + 1)))
		Expect(s.apply(ctx, object, id(2))).To(beFenced("AlreadyApplied", id(2)+"="))
		Expect(s.apply(ctx, object, id(1))).To(Succeed())
	})

	It("of one lease is nothing to another that guards the object, and is refused for either", func(ctx SpecContext) {
		s := begin(ctx)
		second := &story{namespace: s.namespace, lease: s.another(ctx, "second")}
		object := s.report(newName(), "first", s.nonce())
		object.SetAnnotations(map[string]string{s.key(): s.nonce(), second.key(): second.nonce()})
		Expect(admin.Create(ctx, object)).To(Succeed())
		both := func(a, b string) error {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`, s.key(), s.token(a), second.key(), second.token(b))
			return admin.Patch(ctx, env.BareReport(s.namespace, object.GetName()), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		Expect(both("one", "two")).To(Succeed())
		Expect(both("two", "one")).To(Succeed())
		Expect(both("three", "two")).To(beFenced("AlreadyApplied", "two="))
		Expect(both("one", "three")).To(beFenced("AlreadyApplied", "one="))
		Expect(s.ids(ctx, object.GetName())).To(Equal([]string{"two", "one"}))
		Expect(second.ids(ctx, object.GetName())).To(Equal([]string{"one", "two"}))
	})

	It("is not recorded by a dry run, of which the answer shows the record", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		o := env.BareReport(s.namespace, object)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"value":"second"}}`, s.key(), s.token("import-17"))
		Expect(client.NewDryRunClient(admin).Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		Expect(o.GetAnnotations()[v1alpha1.OperationsKey(s.lease.Name)]).To(HavePrefix("import-17="))
		Expect(s.records(ctx, object)).To(BeEmpty())
		Expect(s.apply(ctx, object, "import-17")).To(Succeed())
	})

	It("that only tells writes apart, or asks for the deletion, is not recorded", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		Expect(s.apply(ctx, object, "_17")).To(Succeed())
		Expect(s.apply(ctx, object, "delete")).To(Succeed())
		Expect(s.records(ctx, object)).To(BeEmpty())
	})

	It("is recorded once if the API server must try again", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		hold := gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == object && r.UserInfo.Username == "worker" })
		result := make(chan error, 1)
		c := s.carrying(s.token("import-17"))
		go func() { result <- mergePatch(ctx, c, s, object, "") }()
		Eventually(hold.Entered()).Should(Receive())
		Expect(s.apply(ctx, object, "import-18")).To(Succeed())
		hold.Release()
		Eventually(result).Should(Receive(Succeed()))
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-17", "import-18"}))
	})

	It("that two send at once is applied by exactly one", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		const senders = 8
		var all sync.WaitGroup
		results := make([]error, senders)
		c := s.carrying(s.token("import-17"))
		for i := range senders {
			all.Go(func() { results[i] = mergePatch(ctx, c, s, object, "") })
		}
		all.Wait()
		applied := 0
		for _, err := range results {
			if err == nil {
				applied++
				continue
			}
			Expect(err).To(beFenced("AlreadyApplied", "import-17="))
		}
		Expect(applied).To(Equal(1))
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-17"}))
	})

	It("whose answer is lost after the commit is told to have been applied", func(ctx SpecContext) {
		s := begin(ctx)
		object := s.create(ctx)
		config := cluster.Config()
		config.Impersonate.UserName, config.Impersonate.Groups = "worker", []string{"system:masters"}
		config.Impersonate.Extra = map[string][]string{s.key(): {s.token("import-17")}}
		var lost atomic.Int64
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				answer, err := next.RoundTrip(r)
				if err == nil && r.Method == http.MethodPatch && answer.StatusCode == http.StatusOK && lost.Add(1) == 1 {
					return nil, errors.Join(errors.New("the connection is lost"), answer.Body.Close())
				}
				return answer, err
			})
		})
		c, err := env.Client(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(mergePatch(ctx, c, s, object, "")).To(MatchError(ContainSubstring("the connection is lost")))
		Expect(mergePatch(ctx, c, s, object, "")).To(beFenced("AlreadyApplied", "import-17="))
		Expect(s.value(ctx, object)).To(Equal("second"))
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-17"}))
	})
})

var _ = Describe("The record of operations", Ordered, func() {
	var s *story
	var object, key string
	BeforeAll(func(ctx SpecContext) {
		s = begin(ctx)
		object, key = s.create(ctx), v1alpha1.OperationsKey(s.lease.Name)
		for _, id := range []string{"import-17", "import-18"} {
			Expect(s.apply(ctx, object, id)).To(Succeed())
		}
	})

	tamper := func(ctx context.Context) {
		GinkgoHelper()
		stored := s.records(ctx, object)
		refused := beRefusedByPolicy()
		for _, text := range []string{"", "forged=1", "import-19=1 " + stored, stored + " import-16=1", strings.Fields(stored)[0]} {
			Expect(s.annotate(ctx, admin, object, key, &text)).To(refused, text)
		}
		forged := s.report(newName(), "first", s.nonce())
		forged.SetAnnotations(map[string]string{s.key(): s.nonce(), key: "import-17=1"})
		Expect(admin.Create(ctx, forged)).To(refused, "a create with a record")
		Expect(s.records(ctx, object)).To(Equal(stored))
	}

	It("is changed by nobody, whatever the token", func(ctx SpecContext) { tamper(ctx) })

	It("is what the API server makes of it where the writer sets it beside an operation", func(ctx SpecContext) {
		stored := s.records(ctx, object)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"forged=1"}}}`, s.key(), s.token("import-19"), key)
		Expect(admin.Patch(ctx, env.BareReport(s.namespace, object), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		Expect(s.records(ctx, object)).To(And(HavePrefix("import-19="), HaveSuffix(" "+stored)))
		forged := s.report(newName(), "first", "")
		forged.SetAnnotations(map[string]string{s.key(): s.token("import-1"), key: "forged=1"})
		Expect(admin.Create(ctx, forged)).To(Succeed())
		Expect(s.ids(ctx, forged.GetName())).To(Equal([]string{"import-1"}))
	})

	It("stays where a writer that knows nothing of it writes", func(ctx SpecContext) {
		stored := s.records(ctx, object)
		o := s.report(object, "third", s.nonce())
		Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), owner, client.ForceOwnership)).To(Succeed())
		Expect(s.records(ctx, object)).To(Equal(stored))
	})

	It("is put back where a write takes it away", func(ctx SpecContext) {
		stored := s.records(ctx, object)
		Expect(s.annotate(ctx, admin, object, key, nil)).To(Succeed())
		Expect(s.records(ctx, object)).To(Equal(stored))
		bare := s.get(ctx, object)
		bare.SetAnnotations(map[string]string{s.key(): s.nonce()})
		Expect(admin.Update(ctx, bare)).To(Succeed())
		Expect(s.records(ctx, object)).To(Equal(stored))
		bare = s.get(ctx, object)
		bare.SetAnnotations(nil)
		Expect(s.carrying(s.nonce()).Update(ctx, bare)).To(Succeed())
		Expect(s.records(ctx, object)).To(Equal(stored))
		bare = s.get(ctx, object)
		bare.SetAnnotations(map[string]string{s.key(): s.token("import-20")})
		Expect(admin.Update(ctx, bare)).To(Succeed())
		Expect(s.records(ctx, object)).To(And(HavePrefix("import-20="), HaveSuffix(" "+stored)))
	})

	// What a field manager has applied with an operation, an apply of the same manager without one would take away.
	for _, byRequest := range []bool{false, true} {
		carrier := map[bool]string{false: "annotation", true: "request"}[byRequest]
		It("stays through applies of one field manager with an operation and without, by "+carrier, func(ctx SpecContext) {
			name := newName()
			apply := func(value, text string, byRequest bool) {
				GinkgoHelper()
				c, annotation := admin, text
				if byRequest {
					c, annotation = s.carrying(text), ""
				}
				Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.report(name, value, annotation)), owner)).To(Succeed())
				Expect(s.value(ctx, name)).To(Equal(value))
			}
			apply("first", s.token("import-17"), byRequest)
			apply("second", s.nonce(), byRequest)
			Expect(s.ids(ctx, name)).To(Equal([]string{"import-17"}))
			apply("third", s.token("import-18"), byRequest)
			apply("fourth", s.nonce(), byRequest)
			apply("fifth", s.nonce(), byRequest)
			Expect(s.ids(ctx, name)).To(Equal([]string{"import-18", "import-17"}))
			apply("sixth", s.nonce(), !byRequest)
			Expect(s.ids(ctx, name)).To(Equal([]string{"import-18", "import-17"}))
		})
	}

	It("is changed by nobody while every manager is down", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			var err error
			manager, err = product.StartManager(ctx, cluster, GinkgoLogr)
			Expect(err).NotTo(HaveOccurred())
		})
		tamper(ctx)
	})
})
