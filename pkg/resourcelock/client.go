// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/internal/possession"
)

// NewClient returns a client of the API group version of FencedLease. Timeout and rate limits are those of config.
func NewClient(config *rest.Config) (rest.Interface, error) { return possession.NewClient(config) }
