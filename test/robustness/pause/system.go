// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"

	"k8s.io/client-go/rest"
)

// System is what the table runs against: something that hands out leases and fences writes, or does not.
type System interface {
	// Begin makes a lease for the Reports of a namespace and lets A hold it.
	Begin(ctx context.Context, namespace string, strategy Strategy) (Story, error)
}

// Story is one lease that A holds and B takes over.
type Story interface {
	// Key is the annotation of the mark.
	Key() string
	// Fresh returns what a holder writes into the annotation, each time another value where that matters. An intent
	// asks for the object's deletion, where there is such a thing.
	Fresh(holder Holder, intent bool) string
	// OwnerOf tells whose mark a value of the annotation is.
	OwnerOf(value string) Holder
	// Config returns the configuration of a holder's clients, by which writes carry its token. By Annotation they carry
	// nothing themselves.
	Config(holder Holder, carrier Carrier) (*rest.Config, error)
	// TakeOver lets B acquire the lease.
	TakeOver(ctx context.Context) error
	// Seal returns when B's term is sealed.
	Seal(ctx context.Context) error
	// Admissions counts the writes to an object that the fence has admitted so far. It is -1 where nothing is checked.
	Admissions(name string) int
	// Close ends what runs for the story.
	Close()
}
