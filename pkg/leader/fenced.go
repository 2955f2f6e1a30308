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
func (t *Term) Client(c client.Client) client.Client { return fenced.Client(c, t) }

// IsFenced reports whether a write was refused by the fence: by the webhook, by a policy, or before it left.
func IsFenced(err error) bool { return fenced.IsFenced(err) }

// Cause returns how the fence refused a write, and whether it did.
func Cause(err error) (fenced.Refusal, bool) { return fenced.Cause(err) }
