// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const account = "worker"

// worker is a service account that may write Reports and statuses of leases, whose clients read their token from a
// file. Nothing else of them ever changes.
type worker struct {
	namespace string
	tokens    kubernetes.Interface
	pod       *corev1.Pod
	file      string
	files     int
}

func newWorker(ctx context.Context, namespace string) *worker {
	GinkgoHelper()
	w := &worker{namespace: namespace, file: filepath.Join(GinkgoT().TempDir(), "token")}
	var err error
	w.tokens, err = kubernetes.NewForConfig(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports", "reports/status", "reports/scale"}, Verbs: []string{"*"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases/status"}, Verbs: []string{"patch"}},
		},
	})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	})).To(Succeed())
	w.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	Expect(admin.Create(ctx, w.pod)).To(Succeed())
	c := w.with(w.mint(ctx).token)
	Eventually(func() error { return c.List(ctx, reportList(), client.InNamespace(namespace)) }).Should(Succeed())
	return w
}

func reportList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	return list
}

// credential is a token, and the id by which the API server knows it.
type credential struct{ token, id string }

// mint requests a token that is bound to the worker's pod, like the one that the kubelet gives it.
func (w *worker) mint(ctx context.Context) credential {
	GinkgoHelper()
	answer, err := w.tokens.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](600),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	parts := strings.Split(answer.Status.Token, ".")
	Expect(parts).To(HaveLen(3))
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	Expect(err).NotTo(HaveOccurred())
	claims := struct {
		ID string `json:"jti"`
	}{}
	Expect(json.Unmarshal(payload, &claims)).To(Succeed())
	Expect(claims.ID).NotTo(BeEmpty())
	return credential{token: answer.Status.Token, id: "JTI=" + claims.ID}
}

// with returns a new client of the same configuration, whose token file holds another token. (A client keeps what it has
// read from its file for a while.)
func (w *worker) with(token string) client.Client {
	GinkgoHelper()
	w.files++
	file := w.file + "-" + string(rune('a'+w.files%26))
	Expect(os.WriteFile(file, []byte(token), 0o600)).To(Succeed())
	config := cluster.Config()
	c, err := env.Client(&rest.Config{
		Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerTokenFile: file, QPS: -1,
	})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// record adds a credential's id for a term, as the holder that the lease shows.
func record(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease, id, term string) error {
	GinkgoHelper()
	live := &v1alpha1.FencedLease{}
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(lease), live)).To(Succeed())
	entries := append([]v1alpha1.Credential{{ID: id, Term: term}}, live.Status.Credentials...)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"generation": lease.Status.Generation, "term": lease.Status.Term, "holderIdentity": lease.Status.HolderIdentity,
		"credentials": entries[:min(len(entries), 8)],
	}})
	Expect(err).NotTo(HaveOccurred())
	return c.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, patch))
}

// mintFor requests a token and records it for the current term of the lease.
func (w *worker) mintFor(ctx context.Context, lease *v1alpha1.FencedLease) credential {
	GinkgoHelper()
	c := w.mint(ctx)
	Expect(record(ctx, w.with(w.mint(ctx).token), lease, c.id, *lease.Status.Term)).To(Succeed())
	return c
}

// stamping returns the number of reviews of the stamping path.
func stamping() float64 {
	GinkgoHelper()
	families, err := manager.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() == "fencedlease_credential_stamps_total" {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func movesMark(w write) bool {
	switch w.name {
	case "POST", "apply that creates", "PUT", "merge patch", "JSON patch", "apply":
		return true
	default:
		return false
	}
}

var _ = Describe("A client of which nothing but the token file says its term", Ordered, func() {
	var (
		s                  *story
		w                  *worker
		tokenOfA, tokenOfB credential
		ofA, ofB, ordinary client.Client
	)
	named := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"name": o.GetName()}) }
	object := func(ctx context.Context, way write, token string) string {
		GinkgoHelper()
		if way.creates {
			return newName()
		}
		return s.create(ctx, token, named)
	}
	var spare []string
	old := func(way write) string {
		GinkgoHelper()
		if way.creates {
			return newName()
		}
		Expect(spare).NotTo(BeEmpty())
		name := spare[0]
		spare = spare[1:]
		return name
	}

	BeforeAll(func(ctx SpecContext) {
		s = begin(ctx)
		w = newWorker(ctx, s.namespace)
		tokenOfA = w.mintFor(ctx, s.lease)
		ofA = w.with(tokenOfA.token)
		ordinary = w.with(w.mint(ctx).token)
		for range 80 {
			spare = append(spare, s.create(ctx, s.a, named))
		}
	})

	It("is accepted on every verb while its term is current, and leaves its mark", func(ctx SpecContext) {
		for _, way := range writes() {
			name := object(ctx, way, s.a)
			Expect(way.do(ctx, client.NewDryRunClient(ofA), s, name, "")).To(Succeed(), "dry-run of "+way.name)
			Expect(way.do(ctx, ofA, s, name, "")).To(Succeed(), way.name)
			if movesMark(way) {
				Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.a), way.name)
			}
		}
	})

	Context("after a handover", func() {
		BeforeAll(func(ctx SpecContext) {
			s.takeOver(ctx)
			tokenOfB = w.mintFor(ctx, s.lease)
			ofB = w.with(tokenOfB.token)
		})

		for _, way := range writes() {
			for _, dryRun := range []bool{false, true} {
				what, clientFor := way.name, func(c client.Client) client.Client { return c }
				if dryRun {
					what, clientFor = what+", dry-run", client.NewDryRunClient
				}
				It(what+" with the credential of the current term is accepted", func(ctx SpecContext) {
					name := old(way)
					Expect(way.do(ctx, clientFor(ofB), s, name, "")).To(Succeed())
					switch {
					case dryRun:
					case movesMark(way):
						Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.b))
					case way.name == "DELETE" || way.name == "deletecollection":
						Expect(admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, env.BareReport(s.namespace, name))).To(Satisfy(apierrors.IsNotFound))
					}
				})
				It(what+" with the credential of the ended term is refused before B has written", func(ctx SpecContext) {
					Expect(way.do(ctx, clientFor(ofA), s, old(way), "")).To(beFenced("StaleToken"))
				})
				It(what+" with the credential of the ended term is refused after B has written", func(ctx SpecContext) {
					Expect(way.do(ctx, clientFor(ofA), s, object(ctx, way, s.b), "")).To(beFenced("StaleToken"))
				})
				It(what+" with an ordinary token of the same pod presents nothing", func(ctx SpecContext) {
					Expect(way.do(ctx, clientFor(ordinary), s, object(ctx, way, s.b), "")).To(beFenced("MissingToken"))
				})
			}
		}

		It("explains itself when its term has ended", func(ctx SpecContext) {
			err := writes()[3].do(ctx, ofA, s, object(ctx, writes()[3], s.b), "")
			Expect(err).To(MatchError(And(ContainSubstring("credential is stale"), ContainSubstring(`"b" holds generation`), ContainSubstring(s.b))))
			err = writes()[3].do(ctx, ordinary, s, object(ctx, writes()[3], s.b), "")
			Expect(err).To(MatchError(ContainSubstring("is not in status.credentials")))
		})

		It("cannot be recorded late by the holder of the ended term", func(ctx SpecContext) {
			ended := s.lease.DeepCopy()
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), ended)).To(Succeed())
			live := ended.DeepCopy()
			ended.Status.Generation, ended.Status.Term, ended.Status.HolderIdentity = ptr.To(*live.Status.Generation-1), ptr.To(strings.Split(s.a, ".")[1]), ptr.To("a")
			Expect(record(ctx, ordinary, ended, w.mint(ctx).id, *ended.Status.Term)).To(Satisfy(apierrors.IsInvalid), "as A, for A's term")
			Expect(record(ctx, ordinary, live, w.mint(ctx).id, *ended.Status.Term)).To(Satisfy(apierrors.IsInvalid), "as B, for A's term")
		})

		It("moves the mark in the same commit", func(ctx SpecContext) {
			name := object(ctx, writes()[3], s.b)
			report := env.BareReport(s.namespace, name)
			Expect(ofB.Patch(ctx, report, client.RawPatch(types.MergePatchType, s.mergePatch("", `"spec":{"value":"second"}`)))).To(Succeed())
			Expect(report.GetAnnotations()).To(HaveKeyWithValue(s.key(), s.b))
			Expect(s.get(ctx, name).GetResourceVersion()).To(Equal(report.GetResourceVersion()))
			By("owning no field of it, so that nobody who applies the annotation meets a conflict")
			created := s.report(newName(), "")
			Expect(ofB.Create(ctx, created)).To(Succeed())
			Expect(json.Marshal(created.GetManagedFields())).NotTo(ContainSubstring(s.key()))
		})

		It("creates by generateName, and objects with annotations of others", func(ctx SpecContext) {
			report := s.report("", "")
			report.SetGenerateName("report-")
			report.SetAnnotations(map[string]string{"example.com/note": "x"})
			Expect(ofA.Create(ctx, report.DeepCopy())).To(beFenced("StaleToken"))
			Expect(ordinary.Create(ctx, report.DeepCopy())).To(beFenced("MissingToken"))
			Expect(ofB.Create(ctx, report)).To(Succeed())
			Expect(report.GetAnnotations()).To(Equal(map[string]string{"example.com/note": "x", s.key(): s.b}))
		})

		It("may leave the mark out of an update, as it is set again", func(ctx SpecContext) {
			read := s.get(ctx, object(ctx, writes()[3], s.b))
			read.SetAnnotations(nil)
			setValue(read)
			Expect(ofA.Update(ctx, read.DeepCopy())).To(beRefusedByPolicy())
			Expect(ofB.Update(ctx, read)).To(Succeed())
			Expect(read.GetAnnotations()).To(HaveKeyWithValue(s.key(), s.b))
		})

		It("may present the token of its term as well, with an operation, and no other", func(ctx SpecContext) {
			name := object(ctx, writes()[3], s.b)
			text := fresh(s.b)
			Expect(writes()[3].do(ctx, ofB, s, name, text)).To(Succeed())
			Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), text))
			Expect(writes()[3].do(ctx, ofA, s, name, fresh(s.b))).To(beFenced("MalformedToken"))
			Expect(writes()[3].do(ctx, ofB, s, old(writes()[3]), fresh(s.a))).To(beFenced("MalformedToken", "StaleToken"))
			Expect(writes()[7].do(ctx, ofB, s, name, fresh(s.b))).To(Succeed(), "status")
			Expect(writes()[7].do(ctx, ofA, s, name, fresh(s.b))).To(beFenced("MalformedToken"), "status")
		})

		It("is looked at in the mutating phase only where it may set a mark", func(ctx SpecContext) {
			reviews := func(write func() error, want bool) {
				GinkgoHelper()
				before := stamping()
				Expect(write()).To(Succeed())
				if want {
					Expect(stamping()).To(BeNumerically(">", before))
				} else {
					Expect(stamping()).To(Equal(before))
				}
			}
			patch := writes()[3]
			reviews(func() error { return patch.do(ctx, ofB, s, old(patch), "") }, true)
			reviews(func() error { return patch.do(ctx, ordinary, s, old(patch), fresh(s.b)) }, false)
			reviews(func() error { return patch.do(ctx, s.carrying(s.b), s, old(patch), "") }, false)
			for _, way := range writes() {
				if !movesMark(way) {
					reviews(func() error { return way.do(ctx, ofB, s, old(way), "") }, false)
				}
			}
			unguarded := env.BareReport(cluster.CreateNamespace(GinkgoT()), newName())
			reviews(func() error { return admin.Create(ctx, unguarded) }, false)
		})

		It("is fenced with kubectl", func(ctx SpecContext) {
			kubectl := func(token, stdin string, args ...string) error {
				config := cluster.Config()
				config.TLSClientConfig = rest.TLSClientConfig{CAData: config.CAData}
				config.BearerToken = token
				_, err := cluster.KubectlAs(ctx, config, stdin, append([]string{"-n", s.namespace}, args...)...)
				return err
			}
			name := object(ctx, writes()[3], s.b)
			for _, args := range [][]string{
				{"apply", "-f", "-"}, {"apply", "--server-side", "--force-conflicts", "-f", "-"},
				{"patch", "report", name, "--type=merge", "-p", `{"spec":{"value":"k"}}`},
				{"patch", "report", name, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Done"}}`},
				{"scale", "report", name, "--replicas=2"},
				{"label", "report", name, "a=b"},
				{"delete", "report", name},
			} {
				manifest, err := json.Marshal(s.report(name, ""))
				Expect(err).NotTo(HaveOccurred())
				Expect(kubectl(tokenOfA.token, string(manifest), args...)).To(MatchError(ContainSubstring("credential is stale")), strings.Join(args, " "))
				Expect(kubectl(tokenOfB.token, string(manifest), args...)).To(Succeed(), strings.Join(args, " "))
			}
		})
	})
})

var _ = Describe("Term credentials", func() {
	It("work at once when they were recorded a moment ago, and say nothing when they have fallen out", func(ctx SpecContext) {
		s := begin(ctx)
		w := newWorker(ctx, s.namespace)
		first := w.with(w.mintFor(ctx, s.lease).token)
		Expect(writes()[0].do(ctx, first, s, newName(), "")).To(Succeed())
		for range 15 {
			name := s.create(ctx, s.a)
			c := w.with(w.mintFor(ctx, s.lease).token)
			Expect(writes()[3].do(ctx, c, s, name, "")).To(Succeed())
			Expect(writes()[0].do(ctx, c, s, newName(), "")).To(Succeed())
		}
		Expect(writes()[0].do(ctx, first, s, newName(), "")).To(beFenced("MissingToken"), "eight fit")
	})

	It("are refused after the release of their term", func(ctx SpecContext) {
		s := begin(ctx)
		w := newWorker(ctx, s.namespace)
		c := w.with(w.mintFor(ctx, s.lease).token)
		name := s.create(ctx, s.a)
		Expect(writes()[3].do(ctx, c, s, name, "")).To(Succeed())
		Expect(env.Release(ctx, admin, s.lease)).To(Succeed())
		Expect(writes()[3].do(ctx, c, s, name, "")).To(beFenced("Released"))
		Expect(writes()[0].do(ctx, c, s, newName(), "")).To(beFenced("Released"))
	})

	It("count for each of two leases that guard an object", func(ctx SpecContext) {
		s := begin(ctx)
		w := newWorker(ctx, s.namespace)
		second := env.NewLease(s.namespace, "archiver")
		Expect(product.CreateLease(ctx, admin, second)).To(Succeed())
		Eventually(func() error { return env.Acquire(ctx, admin, second, "archiver-a") }).Should(Succeed())
		both := w.mintFor(ctx, s.lease)
		name := newName()
		Expect(w.with(both.token).Create(ctx, s.report(name, ""))).To(beFenced("MissingToken"), "listed by one")
		Expect(record(ctx, admin, second, both.id, *second.Status.Term)).To(Succeed())
		c := w.with(both.token)
		Expect(c.Create(ctx, s.report(name, ""))).To(Succeed())
		Expect(s.get(ctx, name).GetAnnotations()).To(Equal(map[string]string{
			s.key(): s.a, v1alpha1.TokenKey(second.Name): *second.Status.Token,
		}))
		s.takeOver(ctx)
		Expect(writes()[3].do(ctx, c, s, name, "")).To(beFenced("StaleToken"), "ended for one")
	})

	It("leave their mark in Audit, where the credential of an ended term is warned of", func(ctx SpecContext) {
		s := begin(ctx, func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit })
		w := newWorker(ctx, s.namespace)
		ofA := w.mintFor(ctx, s.lease)
		name := newName()
		Expect(w.with(ofA.token).Create(ctx, s.report(name, ""))).To(Succeed())
		Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.a))
		s.takeOver(ctx)
		warnings := &warningRecorder{}
		config := cluster.Config()
		c, err := env.Client(&rest.Config{
			Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerToken: ofA.token, QPS: -1,
			WarningHandlerWithContext: warnings,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(writes()[3].do(ctx, c, s, name, "")).To(Succeed())
		Expect(warnings.all()).To(ContainElement(ContainSubstring("would be refused (StaleToken) if not in Audit")))
		Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.a))
	})

	for _, way := range writes() {
		if way.creates {
			continue
		}
		It("keep a "+way.name+" that pauses between its check and its commit out when B has taken over and written", func(ctx SpecContext) {
			s := begin(ctx)
			w := newWorker(ctx, s.namespace)
			ofA := w.with(w.mintFor(ctx, s.lease).token)
			name := s.create(ctx, s.a)
			if way.name == "deletecollection" {
				label(ctx, s, name)
			}
			err := pause(ctx, name, func(ctx context.Context) error { return way.do(ctx, ofA, s, name, "") }, func() {
				s.takeOver(ctx)
				ofB := w.with(w.mintFor(ctx, s.lease).token)
				Expect(ofB.Patch(ctx, env.BareReport(s.namespace, name),
					client.RawPatch(types.MergePatchType, s.mergePatch("", `"spec":{"value":"of B"}`)))).To(Succeed())
			})
			Expect(err).To(beFenced("StaleToken"))
			Expect(s.value(ctx, name)).To(Equal("of B"))
			Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.b))
		})
	}
})
