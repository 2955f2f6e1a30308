// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
)

// matchNotStamp is the name of the condition that keeps stamps away from the webhook.
const matchNotStamp = "not-a-stamp"

const (
	celFieldManager = "request.options.fieldManager"
	celStampKey     = celFieldManager + ".split('" + seal.Separator + "')[0]"
	celStampToken   = celFieldManager + ".split('" + seal.Separator + "')[1]"
)

// celStamp is true for a write by the manager's own user whose field manager names a mark, and never fails. The policy makes
// that mark of it. A write that changes anything else as well is no stamp to the webhook (celChangesMarkOnly), which judges
// it by the mark that it sets. The condition costs next to nothing for all others.
func celStamp(user string) string {
	if user == "" {
		return "false"
	}
	return strings.Join([]string{
		"request.userInfo.username == " + celString(user),
		"request.operation == 'UPDATE'",
		"has(request.options) && request.options != null && has(" + celFieldManager + ")",
		celFieldManager + ".matches('^" + strings.ReplaceAll(v1alpha1.TokenPrefix, ".", "[.]") + "[-.a-z0-9]{1,63}" + seal.Separator +
			strings.TrimPrefix(celToken, "^") + "')",
	}, " && ")
}

// celChangesMarkOnly is true if the object is the stored one, but for the mark that the field manager names. It is for the
// validating phase, where the API server has raised the generation of a custom resource that has changed in anything but
// its metadata; comparing that by CEL is what a seal would spend most of its time on.
func celChangesMarkOnly() string {
	annotations, stored := celAnnotations, celStored
	conditions := []string{"object.metadata.generation == oldObject.metadata.generation"}
	for _, field := range []string{"labels", "finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		conditions = append(conditions, "object.metadata.?"+field+" == oldObject.metadata.?"+field)
	}
	return strings.Join(append(conditions,
		annotations+".all(k, (k in "+stored+" && "+stored+"[k] == "+annotations+"[k]) || "+
			"(k == "+celStampKey+" && "+annotations+"[k] == "+celStampToken+"))",
		stored+".all(k, k in "+annotations+")",
	), " && ")
}

// celStamped is the list of the operations that turn a stamp into the mark. A mark of the same term is left as it is,
// whatever its operation: somebody has set it who knows the term.
func celStamped() string {
	mark, key, value := "variables.stored[variables.stamp[0]]", "variables.stamp[0]", "variables.stamp[1]"
	return "(variables.stamp.size() == 2 && !(" + key + " in variables.stored && (" + mark + " == " + value + " || " + mark + ".startsWith(" + value + " + '/'))) ? [" +
		celAddAnnotation(key, value) + "] : [])"
}

// stampExempt keeps stamps away from the webhook. The policies judge them: a mark never falls.
func stampExempt(user string) []admissionv1.MatchCondition {
	if user == "" {
		return nil
	}
	return []admissionv1.MatchCondition{{Name: matchNotStamp, Expression: "!(" + celStamp(user) + " && " + celChangesMarkOnly() + ")"}}
}
