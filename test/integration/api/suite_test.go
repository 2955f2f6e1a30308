//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/test/env"
)

// timeout bounds every wait. It is far above what any of them needs.
const timeout = time.Minute

var (
	cluster *env.Environment
	// admin reads from and writes to the API server, without a cache.
	admin client.Client
	// installed is the definition as the API server has it.
	installed *apiextensionsv1.CustomResourceDefinition
)

func TestAPI(t *testing.T) {
	log.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	RunSpecs(t, "API")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(timeout)
	var err error
	cluster, err = env.Start(ctx, env.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cluster.Stop)
	Expect(cluster.InstallCRDs(ctx)).To(Succeed())
	admin, err = env.Client(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	installed = &apiextensionsv1.CustomResourceDefinition{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: "fencedleases.coordination.fencedlease.io"}, installed)).To(Succeed())
})
