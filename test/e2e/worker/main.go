// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command worker is the careless leader of the end-to-end tests: it leads by pkg/leader, but writes with a token that it copied when
// it began to lead, and never asks again whether it still does. It goes on until it is refused. It tells what happens on
// standard output, an event a line. With the arguments `dial <address>` it only tells whether a connection can be made.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

const (
	namespace = "reports"
	lease     = "report-writer"
	account   = "system:serviceaccount:reports:report-worker"
	pause     = 100 * time.Millisecond
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

// event is what the worker tells.
type event struct {
	Event   string `json:"event"`
	Token   string `json:"token,omitempty"`
	Value   string `json:"value,omitempty"`
	Code    int32  `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 3 && os.Args[1] == "dial" {
		err = dial(ctx, os.Args[2])
	} else {
		err = lead(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dial(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func lead(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Options{Config: config, Namespace: namespace, Name: lease, Identity: os.Getenv("POD_NAME")})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(term context.Context, t *leader.Term) error {
		token := t.Token().String()
		tell(event{Event: "leading", Token: token})
		// Not bound to the term: that is what is careless.
		go write(ctx, config, token)
		<-term.Done()
		return nil
	})
}

// write writes until it is refused.
func write(ctx context.Context, config *rest.Config, token string) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Extra: map[string][]string{"token.fencedlease.io/" + lease: {token}}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tell(event{Event: "failed", Token: token, Message: err.Error()})
		return
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for n := 1; ; n++ {
		value := os.Getenv("POD_NAME") + " " + token + " " + strconv.Itoa(n)
		patch := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Report","metadata":{"name":"daily"},"spec":{"value":%q}}`, value)
		_, err := client.Resource(reports).Namespace(namespace).Patch(ctx, "daily", types.ApplyPatchType, patch,
			metav1.PatchOptions{FieldManager: "worker", Force: new(true)})
		var answer apierrors.APIStatus
		switch {
		case err == nil:
			tell(event{Event: "accepted", Token: token, Value: value})
		case errors.As(err, &answer) && answer.Status().Code == 403:
			status := answer.Status()
			tell(event{Event: "refused", Token: token, Value: value, Code: status.Code, Reason: string(status.Reason), Message: status.Message})
			return
		default:
			tell(event{Event: "failed", Token: token, Value: value, Message: err.Error()})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func tell(e event) {
	_ = json.NewEncoder(os.Stdout).Encode(e)
}
