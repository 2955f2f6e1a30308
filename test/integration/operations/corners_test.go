// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operations_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

var _ = Describe("Operations of several field managers", func() {
	// applying returns an apply of one field by a manager, with a token by annotation or by request.
	applying := func(ctx context.Context, s *story, name string, byRequest bool) func(manager, token, field string, value any) error {
		return func(manager, token, field string, value any) error {
			o := env.BareReport(s.namespace, name)
			o.Object["spec"] = map[string]any{field: value}
			c, opts := admin, []client.ApplyOption{client.FieldOwner(manager), client.ForceOwnership}
			if byRequest {
				c, opts = s.carrying(token), opts[:1]
			} else {
				o.SetAnnotations(map[string]string{s.key(): token})
			}
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...)
		}
	}
	for _, byRequest := range []bool{false, true} {
		It("are recorded and refused, and nobody takes the records of another away, by "+map[bool]string{false: "annotation", true: "request"}[byRequest], func(ctx SpecContext) {
			s := begin(ctx)
			name := newName()
			apply := applying(ctx, s, name, byRequest)
			Expect(apply("a", s.token("a-1"), "value", "1")).To(Succeed())
			Expect(apply("b", s.token("b-1"), "replicas", int64(1))).To(Succeed())
			Expect(apply("a", s.token("a-2"), "value", "2")).To(Succeed())
			Expect(apply("b", s.nonce(), "replicas", int64(2))).To(Succeed())
			Expect(apply("b", s.token("b-2"), "replicas", int64(3))).To(Succeed())
			Expect(apply("a", s.nonce(), "value", "3")).To(Succeed())
			Expect(s.ids(ctx, name)).To(Equal([]string{"b-2", "a-2", "b-1", "a-1"}))
			Expect(apply("b", s.token("a-1"), "replicas", int64(4))).To(beFenced("AlreadyApplied", "a-1="))

			By("of one that applies what it has read, with the records")
			o := s.get(ctx, name)
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			o.SetUID("")
			annotations := o.GetAnnotations()
			annotations[s.key()] = s.token("c-1")
			o.SetAnnotations(annotations)
			Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("c"), client.ForceOwnership)).To(Succeed())
			Expect(apply("b", s.token("b-3"), "replicas", int64(5))).To(Or(Succeed(), MatchError(ContainSubstring("conflict"))))
			Expect(s.ids(ctx, name)).To(ContainElements("c-1", "b-2", "a-2", "b-1", "a-1"))
		})
	}
})

var _ = Describe("Records", func() {
	It("are those of the object, by whichever version it is written", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx)
		old := env.BareReport(s.namespace, name)
		old.SetGroupVersionKind(env.ReportKind(env.ReportOldVersion))
		patch := func(id string) error {
			return admin.Patch(ctx, old.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, s.key(), s.token(id))))
		}
		Expect(patch("a")).To(Succeed())
		Expect(s.apply(ctx, name, "b")).To(Succeed())
		Expect(patch("c")).To(Succeed())
		Expect(s.ids(ctx, name)).To(Equal([]string{"c", "b", "a"}))
		Expect(patch("b")).To(beFenced("AlreadyApplied", "b="))
		Expect(s.apply(ctx, name, "a")).To(beFenced("AlreadyApplied", "a="))
	})

	It("are as many as the largest limit of the lease's guards says, also where that is a wide one", func(ctx SpecContext) {
		s := begin(ctx, limited(2), func(l *v1alpha1.FencedLease) {
			wide, many := *l.Spec.Guards[0].DeepCopy(), int32(4)
			wide.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": l.Namespace}}
			wide.OperationHistoryLimit = &many
			l.Spec.Guards = append(l.Spec.Guards, wide)
		})
		DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, s.lease)).To(Succeed()) })
		name := s.create(ctx)
		for i := range 6 {
			Expect(s.apply(ctx, name, "import-"+strconv.Itoa(i))).To(Succeed())
		}
		Expect(s.ids(ctx, name)).To(Equal([]string{"import-5", "import-4", "import-3", "import-2"}))
	})

	It("of before the guard that are none keep no operation from being recorded", func(ctx SpecContext) {
		s := &story{namespace: cluster.CreateNamespace(GinkgoT())}
		key := v1alpha1.OperationsKey("report-writer")
		planted := func(records string) string {
			o := env.NewReport(s.namespace, newName(), "first")
			o.SetAnnotations(map[string]string{key: records})
			// A wide guard of another spec protects records everywhere, until it is gone.
			Eventually(func() error { return admin.Create(ctx, o) }).Should(Succeed())
			return o.GetName()
		}
		broken := planted("import-17= import-18=1@2026-02-31T00:00:00Z")
		// More than a policy could look through, if it looked at each.
		huge := planted(strings.Repeat("x=1 ", 60<<10))
		s.lease = s.another(ctx, "report-writer")
		Expect(s.apply(ctx, broken, "import-17")).To(Succeed())
		Expect(s.records(ctx, broken)).To(And(HavePrefix("import-17="+strconv.FormatInt(*s.lease.Status.Generation, 10)+"@"), HaveSuffix(" import-17= import-18=1@2026-02-31T00:00:00Z")))
		Expect(s.apply(ctx, broken, "_1")).To(Succeed())
		Expect(s.apply(ctx, broken, "import-17")).To(beFenced("AlreadyApplied", "import-17="))
		Expect(s.apply(ctx, broken, "import-18")).To(beFenced("AlreadyApplied", "import-18=1"), "a time that is none is not known")
		Expect(s.apply(ctx, huge, "_1")).To(Succeed())
		Expect(s.apply(ctx, huge, "import-17")).To(Succeed())
		Expect(len(s.records(ctx, huge))).To(BeNumerically("<", 300))
	})

	It("are left out of a copy of the object, which is told", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx)
		Expect(s.apply(ctx, name, "import-17")).To(Succeed())
		Expect(s.apply(ctx, name, "_17")).To(Succeed())
		o := s.get(ctx, name)
		o.SetName(newName())
		o.SetResourceVersion("")
		o.SetUID("")
		err := admin.Create(ctx, o)
		Expect(err).To(beRefusedByPolicy())
		Expect(err).To(MatchError(HaveSuffix("a new object has none. Leave the annotation out")))
		annotations := o.GetAnnotations()
		delete(annotations, v1alpha1.OperationsKey(s.lease.Name))
		o.SetAnnotations(annotations)
		Expect(admin.Create(ctx, o)).To(Succeed())
	})

	It("of a lease in Audit are put back as well where a write leaves them out", func(ctx SpecContext) {
		s := begin(ctx, func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit })
		name := s.create(ctx)
		Expect(s.apply(ctx, name, "import-17")).To(Succeed())
		stored := s.records(ctx, name)
		Expect(s.annotate(ctx, admin, name, v1alpha1.OperationsKey(s.lease.Name), nil)).To(Succeed())
		Expect(s.records(ctx, name)).To(Equal(stored))
	})

	It("stay where the lease is removed and comes again, and where the limit falls and rises", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx)
		guarded := func(guards string) {
			GinkgoHelper()
			Expect(admin.Patch(ctx, s.lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"guards":`+guards+`}}`)))).To(Succeed())
			Expect(product.AwaitCondition(ctx, admin, s.lease, v1alpha1.ConditionReady, metav1.ConditionTrue)).To(Succeed())
		}
		for _, id := range []string{"import-1", "import-2", "import-3"} {
			Expect(s.apply(ctx, name, id)).To(Succeed())
		}
		Expect(admin.Delete(ctx, s.lease)).To(Succeed())
		// Until the stamping policy knows that nothing is guarded here any more.
		Eventually(func(g Gomega) {
			o, patch := env.BareReport(s.namespace, name), fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, s.key(), s.token("import-4"))
			g.Expect(admin.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)).To(Succeed())
			g.Expect(o.GetAnnotations()[v1alpha1.OperationsKey(s.lease.Name)]).NotTo(HavePrefix("import-4="))
		}).Should(Succeed())
		Expect(s.apply(ctx, name, "import-4")).To(Succeed())
		s.lease = s.another(ctx, s.lease.Name)
		Expect(s.ids(ctx, name)).To(Equal([]string{"import-3", "import-2", "import-1"}), "nothing is recorded that no lease guards")
		Expect(s.apply(ctx, name, "import-2")).To(beFenced("AlreadyApplied", "import-2="))
		guarded(`[{"apiGroups":["example.com"],"resources":["reports/*"],"operationHistoryLimit":0}]`)
		Expect(s.apply(ctx, name, "import-5")).To(Succeed())
		Expect(s.ids(ctx, name)).To(Equal([]string{"import-3", "import-2", "import-1"}))
		Expect(s.apply(ctx, name, "import-3")).To(beFenced("AlreadyApplied", "import-3="))
		guarded(`[{"apiGroups":["example.com"],"resources":["reports/*"],"operationHistoryLimit":2}]`)
		Expect(s.apply(ctx, name, "import-6")).To(Succeed())
		guarded(`[{"apiGroups":["example.com"],"resources":["reports/*"],"operationHistoryLimit":3}]`)
		Expect(s.apply(ctx, name, "import-7")).To(Succeed())
		Expect(s.ids(ctx, name)).To(Equal([]string{"import-7", "import-6", "import-3"}))
	})
})
