// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/faults"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/truth"
)

const (
	pollInterval = 50 * time.Millisecond
	patience     = 2 * time.Minute
	objects      = 4
	worker       = "worker"
)

// World is a control plane with the product and actors on it.
type World struct {
	options  Options
	cluster  *env.Environment
	admin    client.Client
	hub      *env.Proxy
	managers []*managerProcess
	actors   []*actorProcess
	recorder *truth.Recorder
	meta     history.Meta
	random   *rand.Rand
	inject   *faults.Injector
	started  int64
}

// Run runs a scenario and leaves its history in the folder. What the history says is for others to judge: an error means
// that there is none.
func Run(ctx context.Context, options Options) (err error) {
	w := &World{
		options: options,
		random:  rand.New(rand.NewPCG(options.Seed, 0)), //nolint:gosec // no secret
		meta:    history.Meta{Scenario: options.Name, Seed: options.Seed, Epochs: []history.Epoch{{}}},
	}
	log, err := history.Append(history.FaultsFile(options.Dir))
	if err != nil {
		return err
	}
	w.inject = &faults.Injector{Log: log, Random: w.random, Say: options.Say}
	defer func() { err = errors.Join(err, log.Close()) }()
	defer func() {
		if w.cluster != nil {
			err = errors.Join(err, w.keepLogs(), w.cluster.Stop())
		}
	}()
	if err := w.start(ctx); err != nil {
		return fmt.Errorf("start the scenario: %w", err)
	}
	if err := w.traffic(ctx); err != nil {
		return errors.Join(err, w.recorder.Close())
	}
	return errors.Join(w.recorder.Sync(ctx), w.recorder.Close(), history.WriteMeta(options.Dir, w.meta))
}

func (w *World) start(ctx context.Context) error {
	var err error
	w.cluster, err = env.Start(ctx, env.Options{APIServers: w.options.APIServers, EtcdMembers: w.options.EtcdMembers, EtcdProxies: true})
	if err != nil {
		return err
	}
	if w.admin, err = env.Client(w.cluster.Config()); err != nil {
		return err
	}
	if err := w.cluster.InstallGuardedCRD(ctx); err != nil {
		return err
	}
	if err := product.Install(ctx, w.cluster); err != nil {
		return err
	}
	if w.hub, err = w.cluster.StartProxy(ctx); err != nil {
		return err
	}
	if err := w.startManagers(ctx); err != nil {
		return err
	}
	for _, lease := range w.options.Leases {
		if err := w.createLease(ctx, lease); err != nil {
			return err
		}
	}
	members := make([]string, 0, w.cluster.EtcdMembers())
	for i := range w.cluster.EtcdMembers() {
		members = append(members, w.cluster.EtcdMemberURL(i))
	}
	if w.recorder, err = truth.Start(ctx, w.options.Dir, members); err != nil {
		return err
	}
	return w.prepareActors(ctx)
}

// createLease makes the namespaces of a lease, and a lease that is in force.
func (w *World) createLease(ctx context.Context, lease Lease) error {
	entry := history.Lease{LeaseRef: history.LeaseRef{Namespace: lease.Name, Name: lease.Name}, Handover: string(lease.Handover), LateCreates: string(lease.LateCreates), History: lease.history()}
	for i := range objects {
		entry.Objects = append(entry.Objects, "report-"+strconv.Itoa(i))
	}
	namespaces := []string{lease.Name}
	if lease.Elsewhere {
		entry.Elsewhere = lease.Name + "-objects"
		namespaces = append(namespaces, entry.Elsewhere)
	}
	for _, name := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: guardedLabels(lease, name != lease.Name)}}
		if err := w.admin.Create(ctx, namespace); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
	}
	w.meta.Leases = append(w.meta.Leases, entry)
	return w.eventually(ctx, "create lease "+lease.Name, func(ctx context.Context) error {
		return product.CreateLease(ctx, w.admin, w.newLease(lease))
	})
}

func (w *World) newLease(lease Lease) *v1alpha1.FencedLease {
	return env.NewLease(lease.Name, lease.Name, func(l *v1alpha1.FencedLease) {
		l.Spec.LeaseDurationSeconds, l.Spec.Handover = w.options.LeaseSeconds, lease.Handover
		l.Spec.LateCreates = lease.LateCreates
		if lease.History > 0 {
			l.Spec.Guards[0].OperationHistoryLimit = &lease.History
		}
		if len(lease.Labels) > 0 {
			l.Spec.Guards[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: lease.Labels}
		}
		if lease.Elsewhere {
			l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: guardedLabels(lease, true)}
		}
	})
}

// guardedLabels are those of the namespace of a lease's objects, if it is not the lease's.
func guardedLabels(lease Lease, elsewhere bool) map[string]string {
	if !elsewhere {
		return nil
	}
	return map[string]string{"example.com/guarded-by": lease.Name}
}

// eventually tries until it succeeds.
func (w *World) eventually(ctx context.Context, what string, try func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, last)
	}
	return nil
}

// traffic lets the actors write while things break, until everything is quiet again.
func (w *World) traffic(ctx context.Context) error {
	w.meta.Begin = history.Now()
	for _, a := range w.actors {
		if err := a.start(ctx); err != nil {
			return err
		}
	}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { w.rotations(watching) })
	for _, m := range w.managers {
		watcher.Go(func() { m.supervise(watching, w) })
	}
	defer watcher.Wait()
	defer stop()
	if err := history.Sleep(ctx, w.options.Quiet); err != nil {
		return err
	}
	begin := history.Now()
	for round := 0; round == 0 || time.Duration(history.Now()-begin) < w.options.Duration; round++ {
		choices := w.options.Faults(w)
		w.random.Shuffle(len(choices), func(i, j int) { choices[i], choices[j] = choices[j], choices[i] })
		for _, choose := range choices {
			fault, err := choose(ctx)
			if err != nil {
				return err
			}
			if err := w.inject.Inject(ctx, fault); err != nil {
				return err
			}
			if err := history.Sleep(ctx, w.options.Between); err != nil {
				return err
			}
			if round > 0 && time.Duration(history.Now()-begin) >= w.options.Duration {
				break
			}
		}
	}
	if err := history.Sleep(ctx, w.options.Quiet); err != nil {
		return err
	}
	w.meta.End = history.Now()
	var errs []error
	for _, a := range w.actors {
		errs = append(errs, a.end())
	}
	return errors.Join(errs...)
}
