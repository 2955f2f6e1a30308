// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// candidate is a process that campaigns for the story's lease. Each time that it leads it sends its token and the outcome of
// a write that it makes at once.
type candidate struct {
	led  chan firstWrite
	stop func()
}

type firstWrite struct {
	token string
	err   error
}

// write is the first thing that a leader does, with a client of its term.
func (s *story) firstWrite(ctx context.Context, config *rest.Config, token, name string) firstWrite {
	c, err := env.Client(config)
	if err == nil {
		o := env.BareReport(s.namespace, name)
		o.Object["spec"] = map[string]any{"value": "by " + token}
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("leader"), client.ForceOwnership)
	}
	return firstWrite{token, err}
}

// byLeader campaigns with pkg/leader.
func byLeader(ctx context.Context, s *story, identity, name string) *candidate {
	GinkgoHelper()
	elector, err := leader.New(leader.Options{Config: cluster.Config(), Namespace: s.namespace, Name: s.lease.Name, Identity: identity})
	Expect(err).NotTo(HaveOccurred())
	return run(ctx, func(ctx context.Context, led chan<- firstWrite) {
		_ = elector.Run(ctx, func(working context.Context, term *leader.Term) error {
			led <- s.firstWrite(working, term.Wrap(cluster.Config()), term.Token().String(), name)
			<-working.Done()
			return nil
		})
	})
}

// byLock campaigns with client-go's elector over pkg/resourcelock.
func byLock(ctx context.Context, s *story, identity, name string) *candidate {
	GinkgoHelper()
	lock, err := resourcelock.New(cluster.Config(), s.namespace, s.lease.Name, identity, resourcelock.Options{})
	Expect(err).NotTo(HaveOccurred())
	return run(ctx, func(ctx context.Context, led chan<- firstWrite) {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: identity, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(working context.Context) {
					token, _ := lock.Token()
					config := cluster.Config()
					config.Impersonate = rest.ImpersonationConfig{
						UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {token.String()}},
					}
					led <- s.firstWrite(working, config, token.String(), name)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err == nil {
			elector.Run(ctx)
		}
	})
}

func run(ctx context.Context, campaign func(context.Context, chan<- firstWrite)) *candidate {
	ctx, cancel := context.WithCancel(ctx)
	led, ended := make(chan firstWrite, 8), make(chan struct{})
	go func() {
		defer close(ended)
		campaign(ctx, led)
	}()
	c := &candidate{led: led, stop: func() { cancel(); <-ended }}
	DeferCleanup(c.stop)
	return c
}

var _ = Describe("A leader of a lease that hands over by seal", func() {
	for name, campaign := range map[string]func(context.Context, *story, string, string) *candidate{
		"with pkg/leader": byLeader, "with client-go's elector over pkg/resourcelock": byLock,
	} {
		It(name+" begins when its term is sealed, and writes at once", func(ctx SpecContext) {
			s := &story{namespace: cluster.CreateNamespace(GinkgoT())}
			s.lease = env.NewLease(s.namespace, "report-writer", bySeal)
			Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
			a := campaign(ctx, s, "a", "of-leaders")
			var first, second firstWrite
			Eventually(a.led).Should(Receive(&first))
			Expect(first.err).NotTo(HaveOccurred())

			hold := s.holdStamps()
			defer hold.Release()
			b := campaign(ctx, s, "b", "of-leaders")
			a.stop()
			Eventually(hold.Entered()).Should(Receive())
			Eventually(s.condition(ctx, v1alpha1.ConditionSealed)).Should(haveReason(metav1.ConditionFalse, v1alpha1.ReasonSealPending))
			Expect(*s.lease.Status.HolderIdentity).To(Equal("b"))
			Expect(b.led).NotTo(Receive(), "B has begun before its term was sealed")

			hold.Release()
			Eventually(b.led).Should(Receive(&second))
			Expect(second.err).NotTo(HaveOccurred())
			Expect(s.value(ctx, "of-leaders")).To(Equal("by " + second.token))
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease)).To(Succeed())
			Expect(*s.lease.Status.SealedGeneration).To(Equal(generationOf(second.token)))
		})
	}
})
