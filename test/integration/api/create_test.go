//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// F-20 of the field reports: rules on the old value do not run when an object is created.
var _ = Describe("Creation", func() {
	create := func(ctx SpecContext, lease *unstructured.Unstructured) error { return admin.Create(ctx, lease) }
	apply := func(ctx SpecContext, lease *unstructured.Unstructured) error {
		data, err := json.Marshal(lease)
		if err != nil {
			return err
		}
		return admin.Patch(ctx, lease, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(owner))
	}
	for name, write := range map[string]func(SpecContext, *unstructured.Unstructured) error{"POST": create, "server-side apply": apply} {
		It("ignores a filled status: "+name, func(ctx SpecContext) {
			namespace := cluster.CreateNamespace(GinkgoT())
			key := client.ObjectKey{Namespace: namespace, Name: "writer"}
			var highest int64
			for round := range 4 {
				filled := &unstructured.Unstructured{Object: fields{
					"metadata": fields{"name": key.Name, "namespace": key.Namespace},
					"spec":     fields{"leaseDurationSeconds": int64(15)},
				}}
				filled.SetGroupVersionKind(fencedLease)
				status := first(1)
				possess("intruder", 7, termD)(status)
				filled.Object["status"] = status
				Expect(write(ctx, filled)).To(Succeed())
				Expect(stored(ctx, filled).Object).NotTo(HaveKey("status"))

				lease := &v1alpha1.FencedLease{}
				Expect(admin.Get(ctx, key, lease)).To(Succeed())
				Expect(env.SetFloor(ctx, admin, lease, -1)).To(Succeed())
				for holder := range 5 {
					Expect(env.Acquire(ctx, admin, lease, "holder-"+strconv.Itoa(holder))).To(Succeed())
					Expect(*lease.Status.Generation).To(BeNumerically(">", highest), "round %d: above every earlier generation of the name", round)
					highest = *lease.Status.Generation
				}
				Expect(admin.Delete(ctx, lease)).To(Succeed())
			}
		})
	}

	It("does not happen by an apply of the status", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		absent := &unstructured.Unstructured{}
		absent.SetGroupVersionKind(fencedLease)
		absent.SetNamespace(namespace)
		absent.SetName("absent")
		Expect(apierrors.IsNotFound(byApply.write(ctx, absent, first(1)))).To(BeTrue())
	})

	It("takes a name of 63 characters and refuses one more", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		Expect(admin.Create(ctx, env.NewLease(namespace, strings.Repeat("n", 63)))).To(Succeed())
		for name, write := range map[string]func(SpecContext, *unstructured.Unstructured) error{"POST": create, "server-side apply": apply} {
			names, others := broken(causes(write(ctx, asObject(env.NewLease(namespace, strings.Repeat("n", 64))))))
			Expect(names).To(Equal([]string{"name"}), name)
			Expect(others).To(BeEmpty(), name)
		}
		Expect(admin.Create(ctx, env.NewLease(namespace, "with.dots"))).To(Succeed())
	})

	It("fills the defaults of spec", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		lease := env.NewLease(namespace, "writer", func(l *v1alpha1.FencedLease) {
			l.Spec = v1alpha1.FencedLeaseSpec{Enforcement: v1alpha1.EnforcementEnforce}
		})
		Expect(admin.Create(ctx, lease)).To(Succeed())
		Expect(lease.Spec).To(Equal(v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: 15,
			Enforcement:          v1alpha1.EnforcementEnforce,
			Handover:             v1alpha1.HandoverLazy,
			LateCreates:          v1alpha1.LateCreatesReport,
			MinGeneration:        ptr.To[int64](0),
		}))
	})
})
