// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

const (
	// TokenPrefix is the prefix of the annotation that holds an object's mark, and of the key of userInfo.extra that
	// carries a token with a request. The lease's name follows. Writers set the annotation, or the stamping policy does;
	// the mark policy keeps it from falling.
	TokenPrefix = "token.fencedlease.io/"

	// OperationsPrefix is the prefix of the annotation that holds the business operations that were applied to a guarded
	// object, newest first, as package operation writes them. The lease's name follows. The stamping policy sets it in the
	// commit of the operation; the mark policy keeps it from any other change.
	OperationsPrefix = "operations.fencedlease.io/"

	// OverridePrefix is the prefix of the annotation, or of the key of userInfo.extra, with which a writer that may use
	// the verb bypass says why a write without a token must pass. The lease's name follows.
	OverridePrefix = "override.fencedlease.io/"

	// DeletionOverrideKey is the annotation on the CustomResourceDefinition of a guarded kind with which an administrator
	// says why it must be deleted, and with it all of its objects, although a FencedLease guards them.
	DeletionOverrideKey = OverridePrefix + "deletion"

	// CredentialKey is the key of userInfo.extra in which the API server tells the id of the credential that a request was
	// made with: JTI=<uuid> for a bound service-account token. A lease lists the ids of its terms in status.credentials.
	CredentialKey = "authentication.kubernetes.io/credential-id"

	// CredentialPrefix begins the id of a token, before its claim jti. Credentials of other kinds, such as certificates, have
	// other prefixes and are never those of a term.
	CredentialPrefix = "JTI="

	// VerbGuardCluster is the verb on fencedleases that a writer of a FencedLease needs for a guard that reaches beyond
	// the lease's own namespace.
	VerbGuardCluster = "guard-cluster"

	// VerbBypass is the verb on fencedleases/<name> that lets a write without a token pass, with a reason.
	VerbBypass = "bypass"

	// MaxNameLength is the largest length of a FencedLease's name: it is also the name part of an annotation key.
	MaxNameLength = 63

	// CauseOperationRecord is the type of a cause, beside that of the refusal, whose message is the record of the operation
	// that the write repeats, as package operation writes it.
	CauseOperationRecord = "OperationRecord"

	// StatusReasonFenced is the reason of the status with which a write is refused.
	StatusReasonFenced = "Fenced"
)

// TokenKey returns the key of the annotation, and of userInfo.extra, for a lease's name.
func TokenKey(leaseName string) string { return TokenPrefix + leaseName }

// OperationsKey returns the key of the annotation that records operations for a lease's name.
func OperationsKey(leaseName string) string { return OperationsPrefix + leaseName }

// OverrideKey returns the key of the override annotation, and of userInfo.extra, for a lease's name.
func OverrideKey(leaseName string) string { return OverridePrefix + leaseName }

// LeaseOfTokenKey returns the lease's name that a token key is for, and whether key is one.
func LeaseOfTokenKey(key string) (leaseName string, ok bool) {
	return strings.CutPrefix(key, TokenPrefix)
}
