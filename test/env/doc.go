// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env runs a real control plane for tests: etcd, one or more API servers, and if asked for the controller
// manager, each a process of its own on free ports, with certificates and a data folder that are gone afterwards.
//
// A suite starts its own and stops it:
//
//	var cluster *env.Environment
//
//	var _ = BeforeSuite(func(ctx SpecContext) {
//		var err error
//		cluster, err = env.Start(ctx, env.Options{})
//		Expect(err).NotTo(HaveOccurred())
//		DeferCleanup(cluster.Stop)
//		Expect(cluster.InstallCRDs(ctx)).To(Succeed())
//	})
//
// A plain test calls env.StartT(t, env.Options{}) instead, which stops it at the end of the test.
//
// What there is:
//   - Config, AddUser and ServiceAccount give client configurations of the administrator, of users with their own
//     certificates, and of service accounts with requested tokens. Via sends a configuration to another API server.
//   - InstallCRDs installs config/crd/bases, InstallGuardedCRD a kind to guard (ReportCRD builds variants of it).
//   - CreateNamespace makes a namespace of its own for a test. Client makes a client without a cache.
//   - Restart, Stop, Start, Pause and Continue exist for etcd and for each API server. Addresses never change, so clients
//     and watches reconnect. Kill is Stop without a chance to end in order.
//   - With Options.EtcdMembers each member of etcd can be killed, started, paused and continued alone.
//   - StartProxy puts a proxy between any two parties, which delays, holds, cuts or loses answers.
//   - NewProgram runs any program like the parts of the control plane, so that it can be killed and paused.
//   - EtcdSnapshot and RestoreSnapshot turn the store back, with or without raised revisions.
//   - Kubectl runs kubectl as the administrator, KubectlAs as anybody.
//   - SetFloor, Acquire, Renew and Release write a FencedLease's status as the controller and holders do.
//   - StartAdmissionGap registers a webhook that holds chosen requests between the check and the commit.
//
// The binaries come from KUBEBUILDER_ASSETS; if it is not set, hack/controlplane/build.sh builds them once. The
// environment variable FENCEDLEASE_ENV_KEEP keeps the folder with the logs of all processes; a failed start says where
// the end of them is.
//
// On Linux every process is killed by the kernel as soon as the test binary ends, however it ends.
package env
