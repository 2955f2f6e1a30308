// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rulestest tests the alerts of config/prometheus with Prometheus' own engine: each is shown to fire and not to fire.
// It holds every query, those of the dashboards as well, against docs/metrics.md, and every runbook against docs/operations.md. It
// is a module of its own, so that nothing of Prometheus gets into that of the product.
package rulestest
