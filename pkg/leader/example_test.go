// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

// publish writes under the term. A refusal by the fence is no fault: another leader goes on.
func publish(ctx context.Context, config *rest.Config, term *leader.Term) error {
	client, err := dynamic.NewForConfig(term.Wrap(config))
	if err != nil {
		return err
	}
	_, err = client.Resource(reports).Namespace("reports").
		Patch(ctx, "daily", types.MergePatchType, []byte(`{"spec":{"value":"42"}}`), metav1.PatchOptions{})
	if refusal, fenced := leader.Cause(err); fenced {
		return fmt.Errorf("stop the work of this term: %s: %w", refusal.Type, err)
	}
	return err
}

// A program that leads until it is told to end. In a pod, config comes from rest.InClusterConfig.
func Example() {
	config := &rest.Config{Host: "https://kubernetes.default.svc"}
	elector, err := leader.New(leader.Options{Config: config, Namespace: "reports", Name: "report-writer", Identity: "report-7f9c_3b1e"})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := func(ctx context.Context) error {
		return elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
			if err := publish(ctx, config, term); err != nil {
				return err
			}
			<-ctx.Done() // the term was lost, or the program is to end
			return nil
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	stop() // as if the program was told to end already
	fmt.Println(errors.Is(run(ctx), context.Canceled))
	// Output: true
}

func ExampleLostError() {
	var err error = &leader.LostError{
		Term:           leader.Info{Namespace: "reports", Name: "report-writer", Generation: 33, ID: "a1a1a1a1", Holder: "worker-a"},
		HolderIdentity: "worker-b",
		Generation:     34,
	}
	var lost *leader.LostError
	if errors.As(err, &lost) {
		fmt.Println("now leads:", lost.HolderIdentity)
	}
	// Output: now leads: worker-b
}
