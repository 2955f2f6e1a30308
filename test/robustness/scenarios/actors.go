// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/traffic"
)

// endGrace is how long an actor may take to end: its calls in flight are cut short.
const endGrace = 20 * time.Second

// actorProcess is a candidate for a lease, whose process can be replaced by another one.
type actorProcess struct {
	*env.Program
	world  *World
	config traffic.Config
	proxy  *env.Proxy
}

// prepareActors makes three candidates for each lease: two by pkg/leader, one by client-go's elector.
func (w *World) prepareActors(ctx context.Context) error {
	for n, lease := range w.meta.Leases {
		if err := w.grant(ctx, lease); err != nil {
			return err
		}
		for i, kind := range []traffic.Kind{traffic.Elector, traffic.Elector, traffic.Lock} {
			a := &actorProcess{world: w, config: traffic.Config{
				Name: lease.Name + "-" + string('a'+rune(i)), Seed: w.options.Seed, Kind: kind, ServiceAccount: worker, Lease: lease, Labels: w.options.Leases[n].Labels,
				LeaseDuration: time.Duration(w.options.LeaseSeconds) * time.Second, Dir: w.options.Dir,
				Workers: w.options.Workers, Pace: w.options.Pace, Zombie: w.options.Zombie, Steal: w.options.Steal,
			}}
			var err error
			if a.config.Kubeconfig, a.proxy, err = w.access(ctx, a.config.Name, lease.Namespace, worker, i); err != nil {
				return err
			}
			w.actors = append(w.actors, a)
		}
	}
	return nil
}

// grant lets the workers of a lease lead, write, impersonate themselves and request term credentials.
func (w *World) grant(ctx context.Context, lease history.Lease) error {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: lease.Namespace, Name: worker}}
	extra := fenced.ServiceAccountRules(worker, lease.Name)
	rules := append([]rbacv1.PolicyRule{
		{APIGroups: []string{env.GuardedGroup}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{worker}, Verbs: []string{"create"}},
	}, extra.Role...)
	meta := metav1.ObjectMeta{Name: "worker-of-" + lease.Name}
	namespaced := meta
	namespaced.Namespace = lease.Namespace
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	granted := []client.Object{
		&rbacv1.Role{ObjectMeta: namespaced, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: namespaced, Subjects: subjects, RoleRef: role},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: extra.ClusterRole},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}},
	}
	if lease.Elsewhere != "" {
		elsewhere := meta
		elsewhere.Namespace = lease.Elsewhere
		granted = append(granted, &rbacv1.Role{ObjectMeta: elsewhere, Rules: rules[:1]}, &rbacv1.RoleBinding{ObjectMeta: elsewhere, Subjects: subjects, RoleRef: role})
	}
	for _, o := range granted {
		if err := w.admin.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T: %w", o, err)
		}
	}
	return nil
}

// start starts a process of the actor. Each has a number of its own.
func (a *actorProcess) start(context.Context) error {
	a.config.Number = a.world.started
	a.world.started++
	environ, err := a.config.Environ()
	if err != nil {
		return err
	}
	a.Program = a.world.cluster.NewProgram(a.identity(), a.world.options.Executable, environ)
	return a.Start()
}

// identity is what the lease shows while the process leads.
func (a *actorProcess) identity() string {
	return a.config.Name + "-" + strconv.FormatInt(a.config.Number, 10)
}

// end ends the process in order.
func (a *actorProcess) end() error {
	select {
	case <-a.Ended():
		return fmt.Errorf("%s had ended by itself, see %s", a.identity(), a.LogPath())
	default:
	}
	if err := a.CloseInput(); err != nil {
		return err
	}
	select {
	case <-a.Ended():
		return nil
	case <-time.After(endGrace):
		return errors.Join(fmt.Errorf("%s does not end", a.identity()), a.Kill())
	}
}

// holder returns the actor that holds a lease, or one by chance if that cannot be told.
func (w *World) holder(ctx context.Context, lease history.Lease) *actorProcess {
	var candidates []*actorProcess
	for _, a := range w.actors {
		if a.config.Lease.LeaseRef == lease.LeaseRef {
			candidates = append(candidates, a)
		}
	}
	chosen := candidates[w.random.IntN(len(candidates))]
	stored := &v1alpha1.FencedLease{}
	if err := w.admin.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: lease.Name}, stored); err != nil {
		return chosen
	}
	for _, a := range candidates {
		if h := stored.Status.HolderIdentity; h != nil && *h == a.identity() {
			return a
		}
	}
	return chosen
}
