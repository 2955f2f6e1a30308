// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"errors"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

var _ = Describe("A leader that gives its term's credential to a program", func() {
	It("has it fenced on every verb, also when it is the leader again", func(ctx SpecContext) {
		s := &story{namespace: cluster.CreateNamespace(GinkgoT())}
		s.lease = env.NewLease(s.namespace, "report-writer")
		Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
		w := newWorker(ctx, s.namespace)
		elector, err := leader.New(leader.Options{Config: cluster.Config(), Namespace: s.namespace, Name: s.lease.Name, Identity: "a"})
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "token")
		config := cluster.Config()
		program := func() client.Client {
			GinkgoHelper()
			c, err := env.Client(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerTokenFile: file, QPS: -1})
			Expect(err).NotTo(HaveOccurred())
			return c
		}
		named := func(ctx context.Context, c client.Client) string {
			GinkgoHelper()
			report := env.NewReport(s.namespace, newName(), "first")
			report.SetLabels(map[string]string{"name": report.GetName()})
			Expect(c.Create(ctx, report)).To(Succeed())
			return report.GetName()
		}
		all := func(ctx context.Context, c client.Client, names func(write) string, matcher gomegatypes.GomegaMatcher) {
			GinkgoHelper()
			for _, way := range writes() {
				Expect(way.do(ctx, c, s, names(way), "")).To(matcher, way.name)
			}
		}
		errDone := errors.New("done")
		var former client.Client
		var formerOwn client.Client
		terms := 0
		err = elector.Run(ctx, func(working context.Context, term *leader.Term) error {
			defer GinkgoRecover()
			terms++
			credential, err := term.Credential(working, leader.CredentialOptions{
				Config: cluster.Config(), ServiceAccount: types.NamespacedName{Name: account}, PodName: w.pod.Name, PodUID: w.pod.UID, TokenFile: file,
			})
			Expect(err).NotTo(HaveOccurred())
			defer func() { Expect(credential.Close()).To(Succeed()) }()
			present := program()
			object := func(way write) string {
				if way.creates {
					return newName()
				}
				return named(ctx, present)
			}
			if terms == 2 {
				By("accepting the program of the second term, and refusing that of the first")
				all(ctx, present, object, Succeed())
				all(ctx, former, object, beFenced("StaleToken"))
				all(ctx, formerOwn, object, Satisfy(func(err error) bool { return errors.Is(err, fenced.ErrTermEnded) }))
				return errDone
			}
			By("accepting the program of the first term")
			all(ctx, present, object, Succeed())
			own, err := env.Client(credential.Config(config))
			Expect(err).NotTo(HaveOccurred())
			all(ctx, own, object, Succeed())
			former, formerOwn = present, own

			By("somebody else taking over for a moment")
			s.takeOver(ctx)
			<-working.Done()
			Expect(writes()[0].do(ctx, former, s, newName(), "")).To(beFenced("StaleToken"))
			Expect(env.Release(ctx, admin, s.lease)).To(Succeed())
			return nil
		})
		Expect(err).To(MatchError(errDone))
		Expect(terms).To(Equal(2))
	})
})
