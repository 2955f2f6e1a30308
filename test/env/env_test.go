//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

const timeout = time.Minute

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := env.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLeaseAndStore(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	e := env.StartT(t, env.Options{AuditLog: true})
	g.Expect(e.InstallCRDs(ctx)).To(Succeed())
	g.Expect(e.InstallGuardedCRD(ctx)).To(Succeed())
	c := newClient(t, e.Config())
	namespace := e.CreateNamespace(t)

	lease := env.NewLease(namespace, "writer")
	g.Expect(env.CreateLease(ctx, c, lease)).To(Succeed())
	g.Expect(env.Acquire(ctx, c, lease, "a")).To(Succeed())
	first := lease.DeepCopy()
	g.Expect(env.Renew(ctx, c, first)).To(Succeed())

	t.Log("a snapshot is turned back without raised revisions: what came later is gone")
	snapshot := filepath.Join(e.Dir(), "snapshot.db")
	g.Expect(e.EtcdSnapshot(ctx, snapshot)).To(Succeed())
	g.Expect(env.Acquire(ctx, c, lease, "b")).To(Succeed())
	late := lease.DeepCopy()
	g.Expect(env.Renew(ctx, c, first)).NotTo(Succeed(), "a late renewal")
	g.Expect(e.RestoreSnapshot(ctx, snapshot, 0)).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	g.Expect(lease.Status.Term).To(Equal(first.Status.Term))
	g.Expect(lease.Status.Generation).To(HaveValue(BeNumerically("<", *late.Status.Generation)))

	t.Log("and with raised revisions: new writes are above all earlier ones")
	g.Expect(e.RestoreSnapshot(ctx, snapshot, 1_000_000)).To(Succeed())
	g.Expect(env.Release(ctx, c, first)).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	g.Expect(lease.Status.HolderIdentity).To(HaveValue(BeEmpty()))
	g.Expect(len(lease.ResourceVersion)).To(BeNumerically(">=", 7), lease.ResourceVersion)

	t.Log("processes stop, pause and come back at the same address")
	g.Expect(e.RestartAPIServer(ctx, 0)).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	g.Expect(e.RestartEtcd(ctx)).To(Succeed())
	g.Eventually(ctx, func() error { return c.Get(ctx, client.ObjectKeyFromObject(lease), lease) }, timeout).Should(Succeed())
	g.Expect(e.PauseEtcd()).To(Succeed())
	impatient := e.Config()
	impatient.Timeout = time.Second
	g.Expect(newClient(t, impatient).Get(ctx, client.ObjectKeyFromObject(lease), lease)).NotTo(Succeed())
	g.Expect(e.ContinueEtcd()).To(Succeed())
	g.Eventually(ctx, func() error { return c.Get(ctx, client.ObjectKeyFromObject(lease), lease) }, timeout).Should(Succeed())

	audit, err := os.ReadFile(e.AuditLogPath(0))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(audit)).To(ContainSubstring(`"resource":"fencedleases"`))
}

func TestUsersAndGap(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	e := env.StartT(t, env.Options{APIServers: 2, ControllerManager: true})
	g.Expect(e.InstallCRDs(ctx)).To(Succeed())
	g.Expect(e.InstallGuardedCRD(ctx)).To(Succeed())
	c, second := newClient(t, e.Config()), newClient(t, e.Via(1, e.Config()))
	namespace := e.CreateNamespace(t)

	t.Log("users and service accounts are who they say")
	user, err := e.AddUser("jane", "writers")
	g.Expect(err).NotTo(HaveOccurred())
	review := &authenticationv1.SelfSubjectReview{}
	g.Expect(newClient(t, user).Create(ctx, review)).To(Succeed())
	g.Expect(review.Status.UserInfo.Username).To(Equal("jane"))
	g.Expect(review.Status.UserInfo.Groups).To(ContainElement("writers"))
	account, err := e.ServiceAccount(ctx, namespace, "worker")
	g.Expect(err).NotTo(HaveOccurred())
	review = &authenticationv1.SelfSubjectReview{}
	g.Expect(newClient(t, e.Via(1, account)).Create(ctx, review)).To(Succeed())
	g.Expect(review.Status.UserInfo.Username).To(Equal("system:serviceaccount:" + namespace + ":worker"))
	out, err := e.Kubectl(ctx, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal("admin"))
	_, err = e.KubectlAs(ctx, user, "", "get", "flease", "-n", namespace)
	g.Expect(err).To(MatchError(ContainSubstring("forbidden")))

	t.Log("every API server is listed")
	slices := &discoveryv1.EndpointSliceList{}
	g.Expect(c.List(ctx, slices, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})).To(Succeed())
	g.Expect(slices.Items).To(HaveLen(2))

	t.Log("a request waits in the gap while another one commits, and is asked about again")
	gap, err := e.StartAdmissionGap(ctx, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports"}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	report := env.NewReport(namespace, "daily", "0")
	g.Expect(c.Create(ctx, report)).To(Succeed())
	hold := gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == "daily" })
	written := make(chan error, 1)
	go func() {
		written <- second.Patch(ctx, report.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"a"}}`)))
	}()
	g.Eventually(ctx, hold.Entered(), timeout).Should(Receive())
	g.Expect(c.Patch(ctx, report.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"b"}}`)))).To(Succeed())
	g.Consistently(written).ShouldNot(Receive())
	hold.Release()
	g.Eventually(ctx, written, timeout).Should(Receive(BeNil()))
	g.Expect(gap.Requests()).To(HaveLen(3))
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(report), report)).To(Succeed())
	g.Expect(report.Object["spec"]).To(HaveKeyWithValue("value", "a"))
	g.Expect(gap.Close(ctx)).To(Succeed())

	t.Log("the controller manager deletes a namespace with what is in it")
	g.Expect(env.CreateLease(ctx, c, env.NewLease(namespace, "writer"))).To(Succeed())
	g.Expect(c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	g.Eventually(ctx, func() bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}))
	}, timeout).Should(BeTrue())
}

func TestNextStatusAsksForASeal(t *testing.T) {
	for name, test := range map[string]struct {
		spec, old v1alpha1.Handover
		seal      v1alpha1.Seal
		sealed    int64
		want      v1alpha1.Seal
	}{
		"lazy after lazy":                   {v1alpha1.HandoverLazy, v1alpha1.HandoverLazy, v1alpha1.SealNotRequired, 0, v1alpha1.SealNotRequired},
		"seal after lazy":                   {v1alpha1.HandoverSeal, v1alpha1.HandoverLazy, v1alpha1.SealNotRequired, 0, v1alpha1.SealRequired},
		"lazy after seal":                   {v1alpha1.HandoverLazy, v1alpha1.HandoverSeal, v1alpha1.SealRequired, 7, v1alpha1.SealRequired},
		"lazy after lazy that was sealed":   {v1alpha1.HandoverLazy, v1alpha1.HandoverLazy, v1alpha1.SealRequired, 7, v1alpha1.SealNotRequired},
		"lazy after lazy that never sealed": {v1alpha1.HandoverLazy, v1alpha1.HandoverLazy, v1alpha1.SealRequired, 6, v1alpha1.SealRequired},
	} {
		t.Run(name, func(t *testing.T) {
			lease := env.NewLease("reports", "writer", func(l *v1alpha1.FencedLease) {
				l.Spec.Handover = test.spec
				l.Status = env.FirstStatus(3)
				l.Status.Generation, l.Status.SealedGeneration = ptr.To[int64](7), ptr.To(test.sealed)
				l.Status.Handover, l.Status.Seal = test.old, test.seal
			})
			next := env.NextStatus(lease, "b")
			if next.Seal != test.want || *next.Generation != 8 || !strings.HasPrefix(*next.Token, "8."+*next.Term) {
				t.Errorf("NextStatus() = seal %s, token %s; want %s, token 8.%s", next.Seal, *next.Token, test.want, *next.Term)
			}
		})
	}
}
