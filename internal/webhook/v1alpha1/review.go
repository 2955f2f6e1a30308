// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
)

const (
	// maxWarnings bounds the warnings of one answer. API servers cut what is longer than 4096 characters together.
	maxWarnings = 16
	// shortDuration is the lease duration below which a write is warned about.
	shortDuration = 5
)

// review is everything that a verdict on a FencedLease follows from.
type review struct {
	// lease is the FencedLease to be stored.
	lease *api.FencedLease
	// old is the stored one that the commit is conditioned on; nil on create.
	old *api.FencedLease
	// managerNamespace is never guarded.
	managerNamespace string
	// requester is the name of the user who writes.
	requester string
	// answers are what questionsOf asked for.
	answers answers
}

// findings gathers what a review finds.
type findings struct {
	errs     field.ErrorList
	warnings []string
}

func (f *findings) refuse(err *field.Error) { f.errs = append(f.errs, err) }

func (f *findings) warnf(path *field.Path, format string, args ...any) {
	f.warnings = append(f.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// check judges a create or an update. Fields that an update leaves as they are stored are neither refused nor warned about.
func (r review) check() (field.ErrorList, []string) {
	var f findings
	spec := field.NewPath("spec")
	r.checkPolicy(&f, spec)
	r.checkPermission(&f, spec.Child("guards"))
	if !guardsUnchanged(r.old, r.lease) {
		for i := range r.lease.Spec.Guards {
			r.checkGuard(&f, spec.Child("guards").Index(i), i)
		}
		r.checkOverlaps(&f, spec.Child("guards"))
	}
	return f.errs, capWarnings(f.warnings)
}

// checkPolicy judges what a FencedLease says besides its guards.
func (r review) checkPolicy(f *findings, spec *field.Path) {
	now := r.lease.Spec
	var before api.FencedLeaseSpec
	if r.old != nil {
		before = r.old.Spec
	}
	if now.LateCreates == api.LateCreatesDelete && now.Handover != api.HandoverSeal &&
		(before.LateCreates != now.LateCreates || before.Handover != now.Handover) {
		f.warnf(spec.Child("lateCreates"), "Delete finds nothing in terms that need no seal: set handover to Seal")
	}
	if d := now.LeaseDurationSeconds; d > 0 && d < shortDuration && d != before.LeaseDurationSeconds {
		f.warnf(spec.Child("leaseDurationSeconds"),
			"with %d a pause of a few seconds costs a healthy holder the lease: use %d or more unless you have measured the pauses", d, shortDuration)
	}
	if floor, was := ptr.Deref(now.MinGeneration, 0), ptr.Deref(before.MinGeneration, 0); floor < was {
		f.warnf(spec.Child("minGeneration"), "lowering it from %d to %d takes no generation back: generations that were handed out are never reused", was, floor)
	}
}

// checkPermission judges whether the requester may guard beyond the lease's namespace.
func (r review) checkPermission(f *findings, guards *field.Path) {
	if r.answers.access.allowed {
		return
	}
	for _, i := range unapprovedGuards(r.old, r.lease) {
		detail := fmt.Sprintf("a guard beyond the lease's own namespace needs the verb %s on %s %q in the namespace %q, which user %q does not have",
			api.VerbGuardCluster, api.Resource.GroupResource(), r.lease.Name, r.lease.Namespace, r.requester)
		if r.answers.access.reason != "" {
			detail += " (" + r.answers.access.reason + ")"
		}
		detail += ": have an administrator grant the verb or write this lease, or leave namespaceSelector out to guard the lease's own namespace"
		f.refuse(field.Forbidden(guards.Index(i).Child("namespaceSelector"), detail))
	}
}

// capWarnings keeps the first warnings, and says how many it leaves out.
func capWarnings(warnings []string) []string {
	if len(warnings) <= maxWarnings {
		return warnings
	}
	left := len(warnings) - (maxWarnings - 1)
	return append(slices.Clone(warnings[:maxWarnings-1]), fmt.Sprintf("%d more warnings are left out", left))
}
