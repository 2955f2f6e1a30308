// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

var _ fenced.Possession = (*Term)(nil)

// Wrap returns a copy of a configuration whose clients carry the term's token with every write, whatever the verb, and send
// none after the term has ended. See fenced.Wrap for the permissions that it needs.
func (t *Term) Wrap(config *rest.Config, options ...fenced.Option) *rest.Config {
	return fenced.Wrap(config, t, options...)
}

// Client returns a client that writes the term's token into an annotation of the objects that the lease guards, and sends no
// write after the term has ended. See fenced.Client for what it refuses as it cannot carry the token that way.
//
// Give it fenced.ReadingBy a reader that asks the API server if c reads from a cache and writes have operations.
func (t *Term) Client(c client.Client, options ...fenced.ClientOption) client.Client {
	return fenced.Client(c, t, options...)
}

// Replaying returns a client that answers replays of operations with success, for one that was made from the configuration of
// Wrap. See fenced.Replaying.
func (t *Term) Replaying(c client.Client, options ...fenced.ClientOption) client.Client {
	return fenced.Replaying(c, t, options...)
}

// IsFenced reports whether a write was refused by the fence: by the webhook, by a policy, or before it left.
func IsFenced(err error) bool { return fenced.IsFenced(err) }

// Cause returns how the fence refused a write, and whether it did.
func Cause(err error) (fenced.Refusal, bool) { return fenced.Cause(err) }
