//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// number returns an environment variable's value.
func number(name string, otherwise uint64) uint64 {
	GinkgoHelper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	Expect(err).NotTo(HaveOccurred(), name)
	return n
}

// history drives one lease by random writes, right and wrong ones, and checks after each what the API server has stored.
type history struct {
	ctx    SpecContext
	random *rand.Rand
	lease  *v1alpha1.FencedLease // as it was read last, from the API server
	// earlier are leases as they were read at some time in the past.
	earlier []*v1alpha1.FencedLease
	// highest is the highest generation that was ever handed out, and so the highest mark that a guarded object could have.
	highest int64
	terms   map[string]int64
	did     map[string]int
}

// F-07 of the field reports: a counter of transitions fell back to zero at renewals.
var _ = Describe("The generation", func() {
	It("never falls, and changes only with the term, whatever is written in whatever order", func(ctx SpecContext) {
		steps, seed := number("FENCEDLEASE_STEPS", 1500), number("FENCEDLEASE_SEED", uint64(time.Now().UnixNano()))
		GinkgoWriter.Printf("FENCEDLEASE_STEPS=%d FENCEDLEASE_SEED=%d\n", steps, seed)
		AddReportEntry("seed", seed)
		h := &history{
			ctx: ctx, random: rand.New(rand.NewPCG(seed, 0)), terms: map[string]int64{}, did: map[string]int{},
			lease: env.NewLease(cluster.CreateNamespace(GinkgoT()), "writer", func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil }),
		}
		h.create()
		for i := range steps {
			GinkgoWriter.Printf("step %d\n", i)
			h.step()
		}
		AddReportEntry("steps", fmt.Sprintf("%v, highest generation %d", h.did, h.highest))
		for _, kind := range []string{"acquired", "renewed", "released", "spec edited", "floor raised", "deleted", "refused"} {
			Expect(h.did[kind]).To(BeNumerically(">", 0), kind)
		}
	})
})

// step makes one random write and checks its result.
func (h *history) step() {
	GinkgoHelper()
	holder := "holder-" + strconv.Itoa(h.random.IntN(3))
	before := h.lease.DeepCopy()
	switch n := h.random.IntN(100); {
	case n < 25:
		h.must("acquired", env.Acquire(h.ctx, admin, h.lease.DeepCopy(), holder))
	case n < 40:
		if ptr.Deref(h.lease.Status.HolderIdentity, "") != "" {
			h.must("renewed", env.Renew(h.ctx, admin, h.lease))
		}
	case n < 50:
		if ptr.Deref(h.lease.Status.Term, "") != "" {
			h.must("released", env.Release(h.ctx, admin, h.lease))
		}
	case n < 60:
		h.may(h.late())
	case n < 75:
		h.may(h.wrong(holder))
	case n < 83:
		spec := &h.lease.DeepCopy().Spec
		spec.Handover = []v1alpha1.Handover{v1alpha1.HandoverLazy, v1alpha1.HandoverSeal}[h.random.IntN(2)]
		spec.MinGeneration = ptr.To(max(0, h.highest+h.random.Int64N(40)-20))
		spec.LeaseDurationSeconds = 1 + h.random.Int32N(60)
		h.must("spec edited", admin.Patch(h.ctx, h.lease.DeepCopy(), mergePatch(fields{"spec": spec})))
	case n < 88:
		floor := *h.lease.Status.GenerationFloor + h.random.Int64N(20)
		h.must("floor raised", admin.Status().Patch(h.ctx, h.lease.DeepCopy(), mergePatch(fields{"status": fields{"generationFloor": floor}})))
	case n < 94:
		h.must("sealed", admin.Status().Patch(h.ctx, h.lease.DeepCopy(), mergePatch(fields{"status": fields{"sealedGeneration": h.lease.Status.Generation}})))
	default:
		h.must("deleted", admin.Delete(h.ctx, h.lease))
		h.earlier = append(h.earlier, before)
		h.create()
		return
	}
	h.check(before)
}

// create makes the lease anew, with a status that must be ignored, and sets its floor as the controller does: to its
// resourceVersion or to the highest mark of what it guards, whichever is larger.
func (h *history) create() {
	GinkgoHelper()
	status := env.FirstStatus(1)
	h.lease = env.NewLease(h.lease.Namespace, h.lease.Name, func(l *v1alpha1.FencedLease) { l.Spec.Guards, l.Status = nil, status })
	Expect(admin.Create(h.ctx, h.lease)).To(Succeed())
	Expect(h.lease.Status.Generation).To(BeNil())
	version, err := strconv.ParseInt(h.lease.ResourceVersion, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	Expect(env.SetFloor(h.ctx, admin, h.lease, max(version, h.highest))).To(Succeed())
}

// late repeats a write of an earlier time.
func (h *history) late() error {
	if len(h.earlier) == 0 {
		return nil
	}
	old := h.earlier[h.random.IntN(len(h.earlier))].DeepCopy()
	switch h.random.IntN(4) {
	case 0:
		return env.Renew(h.ctx, admin, old)
	case 1:
		return env.Release(h.ctx, admin, old)
	case 2:
		// An update as it was prepared then.
		old.Status = env.NextStatus(old, "late")
		return admin.Status().Update(h.ctx, old)
	default:
		// The whole status of then, with the resourceVersion of now.
		old.ResourceVersion, old.UID = h.lease.ResourceVersion, h.lease.UID
		return admin.Status().Update(h.ctx, old)
	}
}

// wrong changes fields of the status at random, conditioned on the resourceVersion or not.
func (h *history) wrong(holder string) error {
	status := fields{}
	if h.random.IntN(2) == 0 {
		status["generation"] = max(0, *h.lease.Status.Generation+h.random.Int64N(7)-3)
	}
	if h.random.IntN(2) == 0 {
		status["term"] = []string{"", env.NewTerm(), *h.lease.Status.Term}[h.random.IntN(3)]
	}
	if h.random.IntN(2) == 0 {
		status["holderIdentity"] = []string{"", holder}[h.random.IntN(2)]
	}
	if h.random.IntN(2) == 0 {
		status["token"] = fmt.Sprintf("%v.%v", status["generation"], status["term"])
	}
	if h.random.IntN(4) == 0 {
		status["generationFloor"] = max(0, *h.lease.Status.GenerationFloor-h.random.Int64N(5))
	}
	if h.random.IntN(4) == 0 {
		status["handover"] = []string{"Lazy", "Seal"}[h.random.IntN(2)]
	}
	if h.random.IntN(8) == 0 {
		status[required[h.random.IntN(len(required))]] = nil
	}
	patch := fields{"status": status}
	if h.random.IntN(10) == 0 {
		patch["status"] = nil
	}
	if h.random.IntN(2) == 0 {
		patch["metadata"] = fields{"resourceVersion": h.lease.ResourceVersion}
	}
	return admin.Status().Patch(h.ctx, h.lease.DeepCopy(), mergePatch(patch))
}

// must counts a write that is right at this time.
func (h *history) must(kind string, err error) {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred(), kind)
	h.did[kind]++
}

// may counts a write that may be refused.
func (h *history) may(err error) {
	GinkgoHelper()
	switch {
	case err == nil:
		h.did["passed"]++
	case apierrors.IsInvalid(err):
		Expect(err).NotTo(MatchError(ContainSubstring("no such key")))
		h.did["refused"]++
	case apierrors.IsConflict(err):
		h.did["conflicts"]++
	default:
		Expect(err).NotTo(HaveOccurred())
	}
}

// check reads the lease from the API server and compares it with what it was before the write.
func (h *history) check(before *v1alpha1.FencedLease) {
	GinkgoHelper()
	h.lease = &v1alpha1.FencedLease{}
	Expect(admin.Get(h.ctx, client.ObjectKeyFromObject(before), h.lease)).To(Succeed())
	was, is := before.Status, h.lease.Status
	Expect(is.Generation).NotTo(BeNil(), "the status is there")
	Expect(*is.GenerationFloor).To(BeNumerically(">=", *was.GenerationFloor), "the floor never falls")
	Expect(*is.SealedGeneration).To(BeNumerically(">=", *was.SealedGeneration), "the seal never falls")
	if *is.Term == *was.Term {
		Expect(*is.Generation).To(Equal(*was.Generation), "the generation changes only with the term")
	} else {
		Expect(*is.Generation).To(BeNumerically(">", max(*was.Generation, *was.GenerationFloor, h.highest)), "a new term has a generation that was never used")
		Expect(h.terms).NotTo(HaveKey(*is.Term))
		h.terms[*is.Term] = *is.Generation
		h.highest = *is.Generation
	}
	if *is.Term != "" {
		Expect(*is.Token).To(Equal(fmt.Sprintf("%d.%s", *is.Generation, *is.Term)))
	}
	if h.random.IntN(4) == 0 {
		h.earlier = append(h.earlier, h.lease.DeepCopy())
	}
	if len(h.earlier) > 50 {
		h.earlier = h.earlier[1:]
	}
}
