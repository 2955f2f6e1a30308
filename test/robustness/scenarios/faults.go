// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/faults"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Choice chooses a fault when its time has come: who leads is known only then.
type Choice func(ctx context.Context) (faults.Fault, error)

// seconds returns bounds.
func seconds(from, to float64) [2]time.Duration {
	return [2]time.Duration{time.Duration(from * float64(time.Second)), time.Duration(to * float64(time.Second))}
}

// beyondLease is long enough that a silent holder loses the lease.
func (w *World) beyondLease() [2]time.Duration {
	d := time.Duration(w.options.LeaseSeconds) * time.Second
	return [2]time.Duration{d + time.Second, 2*d + time.Second}
}

func (w *World) anyLease() history.Lease { return w.meta.Leases[w.random.IntN(len(w.meta.Leases))] }

// Leaders are the faults of leaders: paused beyond the lease, killed, told a wrong time, cut off in every way.
func (w *World) Leaders() []Choice {
	choices := []Choice{
		func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Pause("leader "+a.identity(), a, w.beyondLease()), nil
		},
		func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Fault{
				Kind: "SIGKILL", Target: "leader " + a.identity(), Hold: seconds(0.5, 3),
				Begin: func(context.Context) error { return a.Kill() }, End: a.start,
			}, nil
		},
	}
	for _, step := range []time.Duration{-time.Minute, time.Minute} {
		choices = append(choices, func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Fault{
				Kind: "clock step", Target: "leader " + a.identity() + " by " + step.String(), Hold: seconds(1, 4),
				Begin: func(context.Context) error { return a.Say("clock " + step.String()) },
				End:   func(context.Context) error { return a.Say("clock " + (-step).String()) },
			}, nil
		})
	}
	for _, mode := range disturbances() {
		choices = append(choices, func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Network("leader "+a.identity()+" - API server", a.proxy, mode, w.delay(), w.beyondLease()), nil
		})
	}
	return choices
}

func disturbances() []env.ProxyMode {
	return []env.ProxyMode{env.ProxyDelay, env.ProxyHold, env.ProxyHalfClose, env.ProxyCut}
}

// delay returns how late things pass.
func (w *World) delay() time.Duration {
	return time.Duration(50+w.random.IntN(400)) * time.Millisecond
}

// Managers are the faults of the managers and of the ways to them and from them.
func (w *World) Managers() []Choice {
	choices := []Choice{
		func(context.Context) (faults.Fault, error) {
			m := w.managers[w.random.IntN(len(w.managers))]
			return faults.Pause(m.name, m, seconds(2, 6)), nil
		},
		func(context.Context) (faults.Fault, error) {
			m := w.managers[w.random.IntN(len(w.managers))]
			return faults.Fault{
				Kind: "SIGKILL", Target: m.name, Hold: seconds(0.5, 3),
				Begin: func(context.Context) error { return m.kill() },
				End:   func(ctx context.Context) error { return m.start(ctx, w) },
			}, nil
		},
	}
	for _, mode := range disturbances() {
		choices = append(choices,
			func(context.Context) (faults.Fault, error) {
				return faults.Network("API server - webhook", w.hub, mode, w.delay(), seconds(2, 6)), nil
			},
			func(context.Context) (faults.Fault, error) {
				m := w.managers[w.random.IntN(len(w.managers))]
				return faults.Network(m.name+" - API server", m.apiProxy, mode, w.delay(), seconds(2, 6)), nil
			},
		)
	}
	return choices
}

// apiServer and etcdMember give one process of the control plane the methods of faults.
type apiServer struct {
	cluster *env.Environment
	i       int
}

func (a apiServer) Pause() error    { return a.cluster.PauseAPIServer(a.i) }
func (a apiServer) Continue() error { return a.cluster.ContinueAPIServer(a.i) }

type etcdMember struct {
	cluster *env.Environment
	i       int
}

func (m etcdMember) Pause() error    { return m.cluster.PauseEtcdMember(m.i) }
func (m etcdMember) Continue() error { return m.cluster.ContinueEtcdMember(m.i) }

// ControlPlane are the faults of API servers, of members of etcd, and of the ways between them.
func (w *World) ControlPlane() []Choice {
	server := func() int { return w.random.IntN(w.cluster.APIServers()) }
	member := func() int { return w.random.IntN(w.cluster.EtcdMembers()) }
	choices := []Choice{
		func(context.Context) (faults.Fault, error) {
			i := server()
			return faults.Pause("API server "+strconv.Itoa(i), apiServer{w.cluster, i}, seconds(2, 5)), nil
		},
		func(context.Context) (faults.Fault, error) {
			i := server()
			return faults.Fault{
				Kind: "SIGKILL", Target: "API server " + strconv.Itoa(i), Hold: seconds(0.1, 1),
				Begin: func(context.Context) error { return w.cluster.KillAPIServer(i) },
				End:   func(ctx context.Context) error { return w.cluster.StartAPIServer(ctx, i) },
			}, nil
		},
		func(context.Context) (faults.Fault, error) {
			i := member()
			return faults.Pause("etcd member "+strconv.Itoa(i), etcdMember{w.cluster, i}, seconds(2, 5)), nil
		},
		func(context.Context) (faults.Fault, error) {
			i := member()
			return faults.Fault{
				Kind: "SIGKILL", Target: "etcd member " + strconv.Itoa(i), Hold: seconds(0.1, 2),
				Begin: func(context.Context) error { return w.cluster.KillEtcdMember(i) },
				End:   func(ctx context.Context) error { return w.cluster.StartEtcdMember(ctx, i) },
			}, nil
		},
	}
	for _, mode := range disturbances() {
		choices = append(choices, func(context.Context) (faults.Fault, error) {
			i, m := server(), member()
			return faults.Network(fmt.Sprintf("API server %d - etcd member %d", i, m), w.cluster.EtcdProxy(i, m), mode, w.delay(), seconds(2, 5)), nil
		})
	}
	return choices
}
