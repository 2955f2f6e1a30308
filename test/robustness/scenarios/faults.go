// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"slices"
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

// Leaders are the faults of leaders' processes: paused beyond the lease, killed, told a wrong time.
func (w *World) Leaders() []Choice {
	choices := []Choice{
		func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Pause("leader "+a.identity(), a, w.beyondLease()), nil
		},
		func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Fault{
				Kind: KindKill, Target: "leader " + a.identity(), Hold: seconds(0.5, 2),
				Begin: func(context.Context) error { return a.Kill() }, End: a.start,
			}, nil
		},
	}
	for _, step := range []time.Duration{-time.Minute, time.Minute} {
		choices = append(choices, func(ctx context.Context) (faults.Fault, error) {
			a := w.holder(ctx, w.anyLease())
			return faults.Fault{
				Kind: KindClock, Target: "leader " + a.identity() + " by " + step.String(), Hold: seconds(1, 3),
				Begin: func(context.Context) error { return a.Say("clock " + step.String()) },
				End:   func(context.Context) error { return a.Say("clock " + (-step).String()) },
			}, nil
		})
	}
	return choices
}

// LeaderNetwork disturbs what is between a leader and its API server.
func (w *World) LeaderNetwork() []Choice {
	return w.disturb(w.beyondLease(), func(ctx context.Context) (string, *env.Proxy) {
		a := w.holder(ctx, w.anyLease())
		return "leader " + a.identity() + " - API server", a.proxy
	})
}

// disturb returns a fault of the network for each mode.
func (w *World) disturb(hold [2]time.Duration, target func(context.Context) (string, *env.Proxy)) []Choice {
	var choices []Choice
	for _, mode := range disturbances() {
		choices = append(choices, func(ctx context.Context) (faults.Fault, error) {
			name, proxy := target(ctx)
			return faults.Network(name, proxy, mode, w.delay(), hold), nil
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

// Managers are the faults of the managers' processes.
func (w *World) Managers() []Choice {
	return []Choice{
		func(context.Context) (faults.Fault, error) {
			m := w.managers[w.random.IntN(len(w.managers))]
			return faults.Pause(m.name, m, seconds(2, 5)), nil
		},
		func(context.Context) (faults.Fault, error) {
			m := w.managers[w.random.IntN(len(w.managers))]
			return faults.Fault{
				Kind: KindKill, Target: m.name, Hold: seconds(0.5, 2),
				Begin: func(context.Context) error { return m.kill() },
				End:   func(ctx context.Context) error { return m.revive(ctx, w) },
			}, nil
		},
	}
}

// WebhookNetwork disturbs what is between API servers and the webhook.
func (w *World) WebhookNetwork() []Choice {
	return w.disturb(seconds(2, 5), func(context.Context) (string, *env.Proxy) { return "API server - webhook", w.hub })
}

// ManagerNetwork disturbs what is between a manager and its API server.
func (w *World) ManagerNetwork() []Choice {
	return w.disturb(seconds(2, 5), func(context.Context) (string, *env.Proxy) {
		m := w.managers[w.random.IntN(len(w.managers))]
		return m.name + " - API server", m.apiProxy
	})
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

// APIServers are the faults of API servers.
func (w *World) APIServers() []Choice {
	server := func() int { return w.random.IntN(w.cluster.APIServers()) }
	return []Choice{
		func(context.Context) (faults.Fault, error) {
			i := server()
			return faults.Pause("API server "+strconv.Itoa(i), apiServer{w.cluster, i}, seconds(2, 5)), nil
		},
		func(context.Context) (faults.Fault, error) {
			i := server()
			return faults.Fault{
				Kind: KindKill, Target: "API server " + strconv.Itoa(i), Hold: seconds(0.1, 1),
				Begin: func(context.Context) error { return w.cluster.KillAPIServer(i) },
				End:   func(ctx context.Context) error { return w.cluster.StartAPIServer(ctx, i) },
			}, nil
		},
	}
}

// Etcd are the faults of members of etcd.
func (w *World) Etcd() []Choice {
	member := func() int { return w.random.IntN(w.cluster.EtcdMembers()) }
	return []Choice{
		func(context.Context) (faults.Fault, error) {
			i := member()
			return faults.Pause("etcd member "+strconv.Itoa(i), etcdMember{w.cluster, i}, seconds(2, 5)), nil
		},
		func(context.Context) (faults.Fault, error) {
			i := member()
			return faults.Fault{
				Kind: KindKill, Target: "etcd member " + strconv.Itoa(i), Hold: seconds(0.1, 1.5),
				Begin: func(context.Context) error { return w.cluster.KillEtcdMember(i) },
				End:   func(ctx context.Context) error { return w.cluster.StartEtcdMember(ctx, i) },
			}, nil
		},
	}
}

// EtcdNetwork disturbs what is between an API server and a member of etcd.
func (w *World) EtcdNetwork() []Choice {
	return w.disturb(seconds(2, 5), func(context.Context) (string, *env.Proxy) {
		i, m := w.random.IntN(w.cluster.APIServers()), w.random.IntN(w.cluster.EtcdMembers())
		return fmt.Sprintf("API server %d - etcd member %d", i, m), w.cluster.EtcdProxy(i, m)
	})
}

// All are all faults.
func (w *World) All() []Choice {
	return slices.Concat(w.Leaders(), w.LeaderNetwork(), w.Managers(), w.ManagerNetwork(), w.WebhookNetwork(), w.APIServers(), w.Etcd(), w.EtcdNetwork(),
		[]Choice{w.Certificates(), w.LeaseDeleted(), w.HandoverChanged(), w.LateCreate(), w.Restore(false), w.Restore(true)})
}
