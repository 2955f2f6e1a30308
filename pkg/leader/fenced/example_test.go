// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// held is a possession as an elector would give it.
type held struct{ err error }

func (*held) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: "reports", Name: "report-writer"}
}
func (*held) Token() token.Token         { return token.Token{Generation: 48215, Term: "k3v9x2ab"} }
func (h *held) Err() error               { return h.err }
func (*held) Guards() []v1alpha1.Guard   { return nil }
func (h *held) lose(reason string) *held { h.err = errors.New(reason); return h }

// Every client that is made from the wrapped configuration carries the token with its writes, and sends no more of them
// once the term has ended.
func ExampleWrap() {
	// What stands for the API server here prints the token that a request carries.
	server := transportFunc(func(req *http.Request) (*http.Response, error) {
		fmt.Fprintln(os.Stdout, req.Method, req.Header["Impersonate-Extra-Token.fencedlease.io%2freport-Writer"])
		return reply{code: http.StatusOK, body: `{"kind":"Report","apiVersion":"example.com/v1","metadata":{"name":"weekly"}}`}.response(), nil
	})
	config := &rest.Config{Host: "https://kubernetes.default.svc", Transport: server}
	term := &held{}

	reports := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}
	worker := rest.ImpersonationConfig{UserName: "system:serviceaccount:reports:worker"}
	client, err := dynamic.NewForConfig(fenced.Wrap(config, term, fenced.AsUser(worker)))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	publish := func(ctx context.Context) error {
		_, err := client.Resource(reports).Namespace("reports").
			Patch(ctx, "weekly", types.MergePatchType, []byte(`{"spec":{"value":"42"}}`), metav1.PatchOptions{})
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fmt.Fprintln(os.Stdout, publish(ctx))

	term.lose("another holder has taken over")
	refusal, ok := fenced.Cause(publish(ctx))
	fmt.Fprintln(os.Stdout, ok, refusal.Type, refusal.Lease)
	// Output:
	// PATCH [48215.k3v9x2ab]
	// <nil>
	// true TermEnded reports/report-writer
}
