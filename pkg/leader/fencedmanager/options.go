// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// Carrier is how the manager's client presents the token.
type Carrier string

const (
	// CarrierRequest carries the token with the request, by impersonating the manager's own user with one extra key. It
	// covers every verb and subresource, and needs the rules of fenced.ServiceAccountRules.
	CarrierRequest Carrier = "Request"
	// CarrierAnnotation writes the token into an annotation of guarded objects. It needs no further rights. Deletions need
	// the right to patch, and what cannot carry an annotation is refused: see fenced.Client.
	CarrierAnnotation Carrier = "Annotation"
)

// Options say on which lease the manager elects its leader. Namespace and Name are required.
type Options struct {
	// Namespace and Name are those of the FencedLease.
	Namespace, Name string

	// Identity is what the manager writes as holder. It must differ for each process. Defaults to the host's name and a
	// random part.
	Identity string

	// Carrier is how the token is presented. Defaults to CarrierRequest.
	Carrier Carrier

	// Carry are options of fenced.Wrap, for CarrierRequest.
	Carry []fenced.Option

	// CreateWith is the spec with which a missing FencedLease is created. Nil waits for its operator to create it.
	CreateWith *v1alpha1.FencedLeaseSpec

	// WithoutBarrier lets reconcilers begin on a cache that may be older than the acquisition.
	WithoutBarrier bool
}

func (o *Options) complete(managed *manager.Options) error {
	switch {
	case o.Namespace == "" || o.Name == "":
		return errors.New("the FencedLease needs a namespace and a name")
	case managed.LeaderElectionResourceLockInterface != nil:
		return errors.New("LeaderElectionResourceLockInterface is set: the lock is the FencedLease")
	}
	if o.Carrier == "" {
		o.Carrier = CarrierRequest
	}
	if o.Carrier != CarrierRequest && o.Carrier != CarrierAnnotation {
		return fmt.Errorf("Carrier %q is unknown: use %s or %s", o.Carrier, CarrierRequest, CarrierAnnotation)
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name the holder by the host, or set Identity: %w", err)
		}
		o.Identity = host + "_" + string(uuid.NewUUID())
	}
	return nil
}
