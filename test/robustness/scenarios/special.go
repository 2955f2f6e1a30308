// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/faults"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Kinds of faults.
const (
	KindPause        = faults.KindPause
	KindKill         = "SIGKILL"
	KindClock        = "clock step"
	KindCertificates = "certificates deleted"
	KindEnded        = "manager ended by itself"
	KindRotation     = "certificates rotated"
	KindLeaseDeleted = "lease deleted"
	KindHandover     = "handover changed"
	KindLateCreate   = "late create"
	KindRestore      = "restore without raised revisions"
	KindRestoreBump  = "restore with raised revisions"

	bump = 1_000_000_000
)

// bundle returns the authorities that API servers trust the webhook by.
func (w *World) bundle(ctx context.Context) (string, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := w.admin.Get(ctx, client.ObjectKey{Name: "fencedlease-guards"}, configuration); err != nil {
		return "", err
	}
	if len(configuration.Webhooks) == 0 {
		return "", errors.New("no webhook is registered")
	}
	return string(configuration.Webhooks[0].ClientConfig.CABundle), nil
}

// rotations records each change of the authorities until ctx ends. Certificates are so short-lived that they come by
// themselves.
func (w *World) rotations(ctx context.Context) {
	last := ""
	for history.Sleep(ctx, time.Second) == nil {
		now, err := w.bundle(ctx)
		if err != nil || now == last {
			continue
		}
		if last != "" {
			moment := history.Now()
			if err := w.inject.Log.Write(history.Fault{Kind: KindRotation, Target: "webhook", Begin: moment, End: moment, Effect: "another bundle"}); err != nil {
				w.options.Say("record a rotation: %v", err)
			}
		}
		last = now
	}
}

// Certificates deletes the Secret of the webhook's authority.
func (w *World) Certificates() Choice {
	secrets := func(ctx context.Context) ([]corev1.Secret, error) {
		list := &corev1.SecretList{}
		if err := w.admin.List(ctx, list, client.InNamespace(product.Namespace)); err != nil {
			return nil, err
		}
		if len(list.Items) == 0 {
			return nil, errors.New("there is no Secret")
		}
		return list.Items, nil
	}
	return func(context.Context) (faults.Fault, error) {
		return faults.Fault{
			Kind: KindCertificates, Target: "managers", Hold: seconds(0.5, 2),
			Begin: func(ctx context.Context) error {
				return w.eventually(ctx, "delete the Secret of the authority", func(ctx context.Context) error {
					all, err := secrets(ctx)
					for i := range all {
						err = errors.Join(err, client.IgnoreNotFound(w.admin.Delete(ctx, &all[i])))
					}
					return err
				})
			},
			End: func(ctx context.Context) error {
				return w.eventually(ctx, "wait for the Secret of the authority", func(ctx context.Context) error {
					_, err := secrets(ctx)
					return err
				})
			},
		}, nil
	}
}

// LeaseDeleted deletes a lease by hand and creates it again.
func (w *World) LeaseDeleted() Choice {
	return func(context.Context) (faults.Fault, error) {
		chosen := w.options.Leases[w.random.IntN(len(w.options.Leases))]
		return faults.Fault{
			Kind: KindLeaseDeleted, Target: chosen.Name, Hold: seconds(0.2, 2),
			Begin: func(ctx context.Context) error {
				return w.eventually(ctx, "delete lease", func(ctx context.Context) error {
					return client.IgnoreNotFound(w.admin.Delete(ctx, w.newLease(chosen)))
				})
			},
			End: func(ctx context.Context) error {
				err := w.eventually(ctx, "create lease", func(ctx context.Context) error {
					return client.IgnoreAlreadyExists(w.admin.Create(ctx, w.newLease(chosen)))
				})
				if err != nil {
					return err
				}
				return w.ready(ctx, chosen)
			},
		}, nil
	}
}

// HandoverChanged changes how a lease is handed over, and back. Terms keep the strategy that they began with, and a term
// after one with a seal begins with a seal in any case.
func (w *World) HandoverChanged() Choice {
	return func(context.Context) (faults.Fault, error) {
		chosen := w.options.Leases[w.random.IntN(len(w.options.Leases))]
		to := func(handover v1alpha1.Handover) func(context.Context) error {
			return func(ctx context.Context) error {
				return w.eventually(ctx, "change handover", func(ctx context.Context) error {
					patch := fmt.Sprintf(`{"spec":{"handover":%q}}`, handover)
					return w.admin.Patch(ctx, w.newLease(chosen), client.RawPatch(types.MergePatchType, []byte(patch)))
				})
			}
		}
		other := v1alpha1.HandoverSeal
		if chosen.Handover == v1alpha1.HandoverSeal {
			other = v1alpha1.HandoverLazy
		}
		return faults.Fault{Kind: KindHandover, Target: chosen.Name + " to " + string(other), Hold: seconds(5, 9), Begin: to(other), End: to(chosen.Handover)}, nil
	}
}

// ready returns when the guards of a lease are in force.
func (w *World) ready(ctx context.Context, lease Lease) error {
	return w.eventually(ctx, "wait for lease "+lease.Name, func(ctx context.Context) error {
		stored := w.newLease(lease)
		if err := w.admin.Get(ctx, client.ObjectKeyFromObject(stored), stored); err != nil {
			return err
		}
		for _, condition := range stored.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" && condition.ObservedGeneration == stored.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", stored.Status.Conditions)
	})
}

// Restore turns the store back to a snapshot of some seconds ago, with or without raised revisions.
func (w *World) Restore(raised bool) Choice {
	kind, by := KindRestore, uint64(0)
	if raised {
		kind, by = KindRestoreBump, bump
	}
	return func(context.Context) (faults.Fault, error) {
		path := filepath.Join(w.cluster.Dir(), "snapshot-"+strconv.Itoa(len(w.meta.Epochs)))
		return faults.Fault{
			// What happens meanwhile is undone.
			Kind: kind, Target: "etcd", Hold: w.beyondLease(),
			Begin: func(ctx context.Context) error { return w.cluster.EtcdSnapshot(ctx, path) },
			End:   func(ctx context.Context) error { return w.restore(ctx, path, by) },
		}, nil
	}
}

func (w *World) restore(ctx context.Context, path string, by uint64) error {
	out, err := exec.CommandContext(ctx, w.cluster.Binary("etcdutl"), "snapshot", "status", path, "--write-out=json").Output()
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	var status struct {
		Revision int64 `json:"revision"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	epoch := history.Epoch{Cut: history.Now(), Snapshot: status.Revision, Base: status.Revision + int64(by)}
	// Once the API servers are gone nobody writes to the store any more.
	for i := range w.cluster.APIServers() {
		if err := w.cluster.KillAPIServer(i); err != nil {
			return err
		}
	}
	if err := w.recorder.EndEpoch(ctx); err != nil {
		return err
	}
	// All of the old epoch has happened, and nothing of the new one.
	epoch.Begin = history.Now()
	if err := w.cluster.RestoreSnapshot(ctx, path, by); err != nil {
		return err
	}
	if err := w.recorder.NextEpoch(ctx, epoch.Base); err != nil {
		return err
	}
	w.meta.Epochs = append(w.meta.Epochs, epoch)
	for _, m := range w.managers {
		if err := w.eventually(ctx, "wait for "+m.name, m.ready); err != nil {
			return err
		}
	}
	for _, lease := range w.options.Leases {
		if err := w.ready(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}
