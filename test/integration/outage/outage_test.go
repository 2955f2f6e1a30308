// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package outage_test shows what holds while the managers are down, while certificates rotate and after the store was
// restored. Each story has a control plane of its own, as it breaks it.
package outage_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const patience = 90 * time.Second

// world is a control plane with the product, a lease and its holder.
type world struct {
	t       *testing.T
	cluster *env.Environment
	admin   client.Client
	lease   *v1alpha1.FencedLease
}

func newWorld(t *testing.T, options env.Options) *world {
	t.Helper()
	w := &world{t: t, cluster: env.StartT(t, options)}
	must(t, w.cluster.InstallGuardedCRD(t.Context()))
	must(t, product.Install(t.Context(), w.cluster))
	var err error
	w.admin, err = env.Client(w.cluster.Config())
	must(t, err)
	return w
}

func (w *world) start(mutations ...func(*manager.Options)) *product.Manager {
	w.t.Helper()
	m, err := product.StartManager(w.t.Context(), w.cluster, logr.Discard(), mutations...)
	must(w.t, err)
	w.t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			w.t.Errorf("stop manager: %v", err)
		}
	})
	return m
}

// hold creates the lease and takes it.
func (w *world) hold(holder string) {
	w.t.Helper()
	if w.lease == nil {
		w.lease = env.NewLease(w.cluster.CreateNamespace(w.t), "report-writer")
		must(w.t, product.CreateLease(w.t.Context(), w.admin, w.lease))
	}
	w.eventually("acquire", func() error { return env.Acquire(w.t.Context(), w.admin, w.lease, holder) })
}

func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v: %v", what, err, last)
	}
}

func (w *world) report(name, token string) *unstructured.Unstructured {
	report := env.NewReport(w.lease.Namespace, name, "first")
	if token != "" {
		report.SetAnnotations(map[string]string{v1alpha1.TokenKey(w.lease.Name): token})
	}
	return report
}

func (w *world) patch(name, annotations, value string) error {
	return w.admin.Patch(w.t.Context(), w.report(name, ""), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{`+annotations+`}},"spec":{"value":"`+value+`"}}`)))
}

func mark(token string) string { return `"token.fencedlease.io/report-writer":"` + token + `"` }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "must not fall or vanish")
}

func unavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

func fenced(err error) bool {
	return string(apierrors.ReasonForError(err)) == v1alpha1.StatusReasonFenced
}

func TestManagersAreDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, env.Options{ControllerManager: true})
	m := w.start()
	w.hold("a")
	must(t, w.admin.Create(t.Context(), w.report("daily", env.Token(w.lease, "1"))))
	must(t, m.Stop())

	t.Run("guarded writes fail closed", func(t *testing.T) {
		if err := w.patch("daily", mark(env.Token(w.lease, "2")), "x"); !unavailable(err) {
			t.Errorf("want a 500-class answer, got %v", err)
		}
	})
	t.Run("marks neither fall nor vanish", func(t *testing.T) {
		for _, annotations := range []string{mark("1.zzzzzzzz/1"), `"token.fencedlease.io/report-writer":null`, mark("garbage")} {
			if err := w.patch("daily", annotations, "x"); !refusedByPolicy(err) {
				t.Errorf("%s: want a refusal by policy, got %v", annotations, err)
			}
		}
	})
	t.Run("leaders renew, release and acquire", func(t *testing.T) {
		must(t, env.Renew(t.Context(), w.admin, w.lease))
		must(t, env.Release(t.Context(), w.admin, w.lease))
		w.hold("b")
	})
	t.Run("everything else can be written (open-policy-agent/gatekeeper#3183)", func(t *testing.T) {
		for _, o := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.lease.Namespace, Name: "c"}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: "s"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: "l"}},
			&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: w.lease.Namespace, Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: w.lease.Namespace}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: ptr.To(false)},
			},
			env.NewReport("default", "unguarded", "x"),
		} {
			w.eventually("create", func() error { return w.admin.Create(t.Context(), o) })
		}
	})
	t.Run("the namespace of guarded objects goes", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.lease.Namespace}}
		must(t, w.admin.Delete(t.Context(), namespace))
		w.eventually("namespace gone", func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
				return errors.New("it is still there")
			}
			return nil
		})
	})
}

func TestUninstallInAnyOrder(t *testing.T) {
	t.Parallel()
	steps := map[string]func(w *world) error{
		"namespace": func(w *world) error {
			return w.admin.Delete(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: product.Namespace}})
		},
		"definition": func(w *world) error {
			_, err := w.cluster.Kubectl(w.t.Context(), "delete", "crd", "fencedleases.coordination.fencedlease.io", "--ignore-not-found", "--timeout=60s")
			return err
		},
		"manifest": func(w *world) error {
			_, err := w.cluster.Kubectl(w.t.Context(), "delete", "-f", "dist/install.yaml", "--ignore-not-found", "--timeout=60s")
			return err
		},
	}
	for _, order := range [][]string{{"namespace", "definition", "manifest"}, {"definition", "manifest", "namespace"}, {"manifest"}} {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			w := newWorld(t, env.Options{ControllerManager: true})
			m := w.start()
			w.hold("a")
			must(t, w.admin.Create(t.Context(), w.report("daily", env.Token(w.lease, "1"))))
			must(t, m.Stop())
			for _, step := range order {
				if err := client.IgnoreNotFound(steps[step](w)); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
			}
			w.eventually("registration gone", func() error {
				out, err := w.cluster.Kubectl(t.Context(), "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,"+
					"validatingadmissionpolicies,mutatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicybindings", "-o", "name")
				if err == nil && strings.Contains(out, "fencedlease") {
					return errors.New("left: " + out)
				}
				return err
			})
			w.eventually("write without a token", func() error { return w.patch("daily", "", "free") })
			must(t, w.admin.Delete(t.Context(), w.report("daily", "")))
		})
	}
}

// TestCertificatesRotate keeps writing through two full rotations of the CA, by two API servers and two replicas, and then
// loses the Secret.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, env.Options{APIServers: 2})
	shared := w.cluster.StartBalancer(t)
	fast := func(o *manager.Options) {
		o.CALife, o.LeafLife, o.CertSettle = 48*time.Second, 12*time.Second, 2*time.Second
		o.CertCheck, o.CertReread = 250*time.Millisecond, time.Second
		o.LeaderElect = true
		o.WebhookURL = shared.URL
		shared.Add(o.WebhookPort)
	}
	w.start(fast)
	w.start(fast)
	w.hold("a")
	must(t, w.admin.Create(t.Context(), w.report("daily", env.Token(w.lease, "0"))))

	secret := func() (string, error) {
		list := &corev1.SecretList{}
		if err := w.admin.List(t.Context(), list, client.InNamespace(product.Namespace)); err != nil {
			return "", err
		}
		if len(list.Items) != 1 {
			return "", errors.New("there are " + strconv.Itoa(len(list.Items)) + " Secrets")
		}
		return list.Items[0].Name, nil
	}
	bundle := func() (string, error) {
		return w.cluster.Kubectl(t.Context(), "get", "validatingwebhookconfiguration", "fencedlease-guards", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
	}

	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var failures, written sync.Map
	for i := range 2 {
		config := w.cluster.Via(i, w.cluster.Config())
		c, err := env.Client(config)
		must(t, err)
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				token := mark(env.Token(w.lease, strconv.Itoa(i)+"-"+strconv.Itoa(n)))
				err := c.Patch(ctx, w.report("daily", ""), client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{`+token+`}},"spec":{"value":"`+strconv.Itoa(n)+`"}}`)))
				if err != nil && ctx.Err() == nil {
					failures.Store(err.Error(), true)
				}
				written.Store(i, n)
			}
		})
	}
	seen := map[string]bool{}
	w.eventually("two rotations", func() error {
		current, err := bundle()
		if err != nil {
			return err
		}
		seen[current] = true
		// Each rotation gives a bundle of two CAs and then one of the next alone.
		if len(seen) < 5 {
			return errors.New(strconv.Itoa(len(seen)) + " bundles seen")
		}
		return nil
	})
	name, err := secret()
	must(t, err)
	must(t, w.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: name}}))
	w.eventually("Secret is back", func() error { _, err := secret(); return err })
	stop()
	writers.Wait()
	failures.Range(func(failure, _ any) bool {
		t.Errorf("a guarded write failed: %v", failure)
		return true
	})
	written.Range(func(i, n any) bool {
		t.Logf("writer %v made %v writes", i, n)
		if count, ok := n.(int); !ok || count < 100 {
			t.Errorf("writer %v made only %v writes", i, n)
		}
		return true
	})
}

func TestStoreIsRestored(t *testing.T) {
	t.Parallel()
	for name, bump := range map[string]uint64{"with raised revisions": 1_000_000_000, "without": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, env.Options{})
			m := w.start()
			w.hold("a")
			must(t, w.admin.Create(t.Context(), w.report("daily", env.Token(w.lease, "1"))))
			snapshot := filepath.Join(t.TempDir(), "snapshot")
			must(t, w.cluster.EtcdSnapshot(t.Context(), snapshot))

			// A history that the restore undoes: two more terms, and a write under the last.
			w.hold("b")
			w.hold("c")
			undone := w.lease.DeepCopy()
			must(t, w.patch("daily", mark(env.Token(undone, "undone")), "undone"))
			must(t, w.cluster.RestoreSnapshot(t.Context(), snapshot, bump))
			w.eventually("the manager is ready again", func() error { return m.Ready(t.Context()) })

			t.Run("a token of the undone history is never current", func(t *testing.T) {
				w.eventually("refusal", func() error {
					err := w.patch("daily", mark(env.Token(undone, "undone-2")), "late")
					if err == nil {
						t.Fatal("the write of an undone term was admitted")
					}
					if !fenced(err) {
						return err
					}
					return nil
				})
			})
			t.Run("the next terms have other tokens, and the undone ones stay refused", func(t *testing.T) {
				w.eventually("floor above the undone history", func() error {
					must(t, client.IgnoreNotFound(w.admin.Get(t.Context(), client.ObjectKeyFromObject(w.lease), w.lease)))
					if ptr.Deref(w.lease.Status.GenerationFloor, 0) < *undone.Status.Generation {
						return errors.New("floor is " + strconv.FormatInt(ptr.Deref(w.lease.Status.GenerationFloor, 0), 10))
					}
					return nil
				})
				w.hold("d")
				if *w.lease.Status.Generation <= *undone.Status.Generation {
					t.Errorf("generation %d after the restore, %d was handed out before", *w.lease.Status.Generation, *undone.Status.Generation)
				}
				w.eventually("a current write", func() error { return w.patch("daily", mark(env.Token(w.lease, "current")), "current") })
				if err := w.patch("daily", mark(env.Token(undone, "undone-3")), "late"); err == nil {
					t.Error("the write of an undone term was admitted")
				}
			})
		})
	}
}
