// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
)

// serviceAccountPrefix begins the user name of a service account: prefix, namespace, colon, name.
const serviceAccountPrefix = "system:serviceaccount:"

// checkSubjects warns about subjects that can name nobody, whose writes would then need no token, and about those that are
// listed twice. Whether a user or a service account exists is not asked: it may come later, as in RBAC.
func checkSubjects(f *findings, path *field.Path, subjects []api.Subject, leaseNamespace string) {
	first := make(map[string]int, len(subjects))
	for i, subject := range subjects {
		who, problem := identity(subject, leaseNamespace)
		if problem != "" {
			f.warnf(path.Index(i), "names nobody, its writes need no token: %s", problem)
			continue
		}
		if j, seen := first[who]; seen {
			f.warnf(path.Index(i), "names the same %s as subjects[%d]: remove one of them", who, j)
			continue
		}
		first[who] = i
	}
}

// identity returns what a subject stands for in a request, so that two spellings of one user are equal, or why it stands
// for nobody.
func identity(subject api.Subject, leaseNamespace string) (who, problem string) {
	switch {
	case subject.Name == "":
		return "", "give it a name"
	case subject.Kind == api.SubjectGroup:
		return "group " + subject.Name, ""
	case subject.Kind == api.SubjectUser:
		if account, is := strings.CutPrefix(subject.Name, serviceAccountPrefix); is {
			namespace, name, _ := strings.Cut(account, ":")
			return serviceAccount(namespace, name)
		}
		return "user " + subject.Name, ""
	case subject.Kind == api.SubjectServiceAccount:
		namespace := subject.Namespace
		if namespace == "" {
			namespace = leaseNamespace
		}
		return serviceAccount(namespace, subject.Name)
	default:
		return "", fmt.Sprintf("the kind %q is not User, Group or ServiceAccount", subject.Kind)
	}
}

func serviceAccount(namespace, name string) (who, problem string) {
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Sprintf("there can be no service account %q in a namespace %q, correct the name", name, namespace)
	}
	return "user " + serviceAccountPrefix + namespace + ":" + name, ""
}
