// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// noopCommand is the first argument that makes this program the no-op webhook.
	noopCommand = "noop"

	noopReviews = "bench_reviews_total"
)

// runNoop serves a webhook that admits everything: of a review it reads the uid only, which every answer must repeat. It
// speaks HTTP/1.1 as the manager does.
func runNoop(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(noopCommand, flag.ContinueOnError)
	address := flags.String("address", "", "Address to listen on.")
	cert := flags.String("cert", "", "File of the certificate.")
	key := flags.String("key", "", "File of the certificate's key.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	reviews := prometheus.NewCounter(prometheus.CounterOpts{Name: noopReviews, Help: "Reviews answered."})
	if err := prometheus.Register(reviews); err != nil {
		return fmt.Errorf("register metric: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.HandleFunc("/noop", func(w http.ResponseWriter, r *http.Request) {
		reviews.Inc()
		answerNoop(w, r)
	})
	server := &http.Server{
		Addr: *address, Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServeTLS(*cert, *key) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve no-op webhook: %w", err)
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil {
		return fmt.Errorf("close no-op webhook: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve no-op webhook: %w", err)
	}
	return nil
}

func answerNoop(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID types.UID `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The caller is gone if this fails; nothing is left to tell it.
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	})
}
