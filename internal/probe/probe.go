// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe names the objects by which the controller finds out whether an API server has a registration in force.
//
// A probe is a dry-run create of a FencedLease whose name embeds the hash of the registration's content. Each
// registration object has an entry for exactly this name, and whoever answers for it refuses the create with a sentence
// that holds the hash. The refusal therefore proves that the API server works with this version of the whole object.
package probe

import "strings"

// Kind says which registration objects a probe is for.
type Kind string

const (
	// Guards is the probe of the validating webhook configuration; the webhook refuses it.
	Guards Kind = "guards"
	// Status is the probe of the mutating webhook configuration; the webhook refuses it.
	Status Kind = "status"
	// Policies is the probe of both policies: the mark policy refuses it with a sentence that repeats what the stamping
	// policy has stamped.
	Policies Kind = "policies"
)

const (
	prefix = "fencedlease-probe-"

	// StampAnnotation is the annotation that the stamping policy puts on the probe of the policies, with the hash.
	StampAnnotation = "probe.fencedlease.io/stamped"

	// HashLength is the number of characters of a hash: hexadecimal digits in lower case.
	HashLength = 16
)

// Kinds returns all kinds, in a fixed order.
func Kinds() []Kind { return []Kind{Guards, Status, Policies} }

// Name returns the name of the probe object of a kind for a registration's hash.
func Name(kind Kind, hash string) string { return prefix + string(kind) + "-" + hash }

// Parse reads the name of a probe object. ok is false for every other name.
func Parse(name string) (kind Kind, hash string, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", "", false
	}
	text, hash, ok := strings.Cut(rest, "-")
	if !ok || len(hash) != HashLength || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", "", false
	}
	for _, kind := range Kinds() {
		if text == string(kind) {
			return kind, hash, true
		}
	}
	return "", "", false
}

// Refusal is the sentence with which a probe is refused by what has the registration of this hash in force.
func Refusal(hash string) string { return "probe refused: registration " + hash + " is in force" }

// Stamped is the sentence that follows Refusal for the probe of the policies, if the stamping policy has worked too.
func Stamped(hash string) string { return "stamped " + hash }
