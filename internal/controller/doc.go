// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller writes what FencedLease needs in the cluster: the registration, by which API servers call the
// webhook and evaluate the policies, and the part of a FencedLease's status that is not the holder's. It runs on the
// elected replica only and never decides about a guarded write.
//
// The registration is six objects, built by Build from the list of FencedLeases alone, so that every replica that is ever
// elected builds the same ones:
//
//   - ValidatingWebhookConfiguration fencedlease-guards: guarded writes other than those to /status;
//   - MutatingWebhookConfiguration fencedlease-guards: guarded updates of /status, whose annotations only the mutating
//     phase sees;
//   - ValidatingAdmissionPolicy fencedlease-marks and its binding: no mark falls or vanishes, also with every manager down;
//   - MutatingAdmissionPolicy fencedlease-stamps and its binding: a token in the request's extra becomes the mark.
//
// Two more ValidatingAdmissionPolicies with their bindings, built by BuildProtection, keep the fence from being taken down by
// mistake and are no part of it, so that Ready does not wait for them: fencedlease-definitions refuses to delete the
// definition of a guarded kind, fencedlease-registration leaves both webhook configurations to the manager.
//
// Entries for leases in Audit fail open, all others fail closed.
//
// The objects are never removed while the product is installed: without guards they hold nothing but the entries for probes,
// so that their uid stays and nothing is unguarded during a roll-out. All belong to the CustomResourceDefinition of
// FencedLease, and go with it.
//
// # Limits
//
// An own-namespace guard costs one namespace name in the list of its resource's entry, so that any number of namespaces
// that guard the same resources share one entry. The API server sets no limit on the number of entries, rules or names;
// the limit is the size of one object, 1.5 MiB in etcd, which some 20,000 guarded namespaces reach. A registration that
// is too large is refused as a whole: the one in force stays, and the leases that wait for the new one say so in Ready.
//
// # Costs
//
// A new FencedLease, and every change of its guards, costs one paginated list of the metadata of its guarded objects, and
// every change of any guards rewrites the four objects (a new guarded kind a fifth) and probes every API server. Renewals cost nothing.
package controller
