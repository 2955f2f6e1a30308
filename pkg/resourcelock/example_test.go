// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

// newElector returns an elector that runs work with the term that it leads under.
func newElector(config *rest.Config, identity string, work func(context.Context, resourcelock.Term)) (*leaderelection.LeaderElector, *resourcelock.Lock, error) {
	const renewDeadline = 10 * time.Second
	lock, err := resourcelock.New(config, "reports", "report-writer", identity, resourcelock.Options{RenewDeadline: renewDeadline})
	if err != nil {
		return nil, nil, err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            "report-writer",
		LeaseDuration:   15 * time.Second, // that of spec.leaseDurationSeconds
		RenewDeadline:   renewDeadline,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				// Taken once: all work below presents this term, and no later one.
				if term, leads := lock.Term(); leads {
					work(ctx, term)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	return elector, lock, err
}

// In a pod, config comes from rest.InClusterConfig. Each call of elector.Run leads at most once: call it again to lead
// again, under a new term.
func Example() {
	config := &rest.Config{Host: "https://kubernetes.default.svc"}
	elector, lock, err := newElector(config, "report-7f9c_3b1e", func(ctx context.Context, term resourcelock.Term) {
		fmt.Println("each write carries", term.TokenKey(), term.Token())
		<-ctx.Done()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, leads := lock.Term()
	fmt.Println(lock.Describe(), elector.IsLeader(), leads)
	// Output: reports/report-writer false false
}

func ExampleTerm_Token() {
	term := resourcelock.Term{Namespace: "reports", Name: "report-writer", Generation: 48215, ID: "k3v9x2ab"}
	operation, err := term.Token().WithOperation("17")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", term.TokenKey(), operation)
	// Output: token.fencedlease.io/report-writer: 48215.k3v9x2ab/17
}

func ExampleLostError() {
	var err error = &resourcelock.LostError{
		Term:           resourcelock.Term{Namespace: "reports", Name: "report-writer", Generation: 33, ID: "a1a1a1a1", Holder: "worker-a"},
		HolderIdentity: "worker-b",
		Generation:     34,
	}
	var lost *resourcelock.LostError
	if errors.As(err, &lost) {
		fmt.Println("now leads:", lost.HolderIdentity)
	}
	// Output: now leads: worker-b
}
