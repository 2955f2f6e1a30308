// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events.
const (
	// ReasonCACreated: there was no CA, and one was created.
	ReasonCACreated = "CertificateAuthorityCreated"
	// ReasonCARotationStarted: the next CA was created and is being distributed.
	ReasonCARotationStarted = "CertificateAuthorityRotationStarted"
	// ReasonCASwitched: the next CA signs from now on.
	ReasonCASwitched = "CertificateAuthoritySwitched"
	// ReasonCADropped: a CA that no longer signs is no longer trusted either.
	ReasonCADropped = "CertificateAuthorityDropped"
	// ReasonCAAdopted: the webhook configurations trusted a CA that the Secret did not name; it stays trusted for a while.
	ReasonCAAdopted = "CertificateAuthorityAdopted"
	// ReasonStateRestored: the Secret was deleted, damaged or replaced, and was written anew from memory.
	ReasonStateRestored = "CertificateStateRestored"
	// ReasonStateNotRestored: the Secret was deleted, damaged or replaced, and cannot be written.
	ReasonStateNotRestored = "CertificateStateNotRestored"
)

// event is what is recorded when a step was stored. Its zero value stands for no step.
type event struct{ eventType, reason, message string }

func normal(reason, format string, args ...any) event {
	return event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) event {
	return event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// advance takes a rotation one step further, if one is due. Otherwise it returns s itself. Settled says that the webhook
// configurations carry the bundle of s since longer than the settle margin.
func (o Options) advance(s *state, now time.Time, settled bool) (*state, event, error) {
	kept := slices.DeleteFunc(slices.Clone(s.retired), func(r retiredCA) bool {
		return !now.Before(r.until) || !now.Before(r.cert.NotAfter)
	})
	switch {
	case len(kept) < len(s.retired):
		out := s.successor()
		out.retired = kept
		return out, normal(ReasonCADropped, "No valid certificate of %d former CA(s) is left: no longer trusted", len(s.retired)-len(kept)), nil

	case s.next == nil && !now.Before(s.signing.renewAt(o.CARenewFraction, o.ClockSkew)):
		next, err := newCA(now, o.CALife, o.ClockSkew)
		if err != nil {
			return nil, event{}, err
		}
		out := s.successor()
		out.next = next
		return out, normal(ReasonCARotationStarted, "Next CA created, it will sign when all webhook configurations trust it: %s",
			next.cert.Subject.CommonName), nil

	// Once the CA that signs has ended, no leaf of it is valid: there is nothing left that waiting could protect.
	case s.next != nil && (settled || s.signing.expired(now)):
		out := s.successor()
		out.signing, out.next = s.next, nil
		out = out.retain([]*x509.Certificate{s.signing.cert}, now.Add(o.retention()))
		return out, normal(ReasonCASwitched, "CA that signs serving certificates from now on: %s", out.signing.cert.Subject.CommonName), nil
	}
	return s, event{}, nil
}

// finding is how the state in the Secret relates to the one that a replica remembers.
type finding int

const (
	// foundNothing: neither is there.
	foundNothing finding = iota
	// foundSame: they are equal.
	foundSame
	// foundNewer: the stored state continues the remembered one, or nothing is remembered.
	foundNewer
	// foundContested: the stored state is another one and does not continue the remembered one.
	foundContested
	// foundLost: there is a remembered state and no stored one.
	foundLost
)

// compare says how found, the state in the Secret or nil, relates to known, the remembered state or nil.
func compare(known, found *state) finding {
	switch {
	case known == nil && found == nil:
		return foundNothing
	case found == nil:
		return foundLost
	case known == nil:
		return foundNewer
	case known.equal(found):
		return foundSame
	case found.revision > known.revision && slices.ContainsFunc(found.trusted(), known.trusts):
		return foundNewer
	default:
		return foundContested
	}
}

// restored returns the state that takes the place of what was found in the Secret, nil if that was unreadable. It is the
// remembered state with a revision above both, and everything that is trusted now stays trusted.
func (o Options) restored(known, found *state, installed trust, now time.Time) *state {
	out := known.retain(installed.authorities(now), now.Add(o.retention()))
	// At the bound it is no revision that any history led to, and one above it could not be stored.
	if found != nil && found.revision < maxRevision {
		out.revision = max(out.revision, found.revision)
	}
	out.revision++
	return out
}
