// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
)

// ImpersonationError means that a request was not let carry a token, as its user may not impersonate itself or may not
// add the token. It is forbidden to the helpers of k8s.io/apimachinery/pkg/api/errors, and no refusal by the fence: the
// write was not judged.
type ImpersonationError struct {
	// Lease names the FencedLease whose token was to be carried.
	Lease types.NamespacedName
	// User is the caller.
	User string
	// Missing are the rights of which one was found missing: that one if the API server says which it is, else all. More
	// may be missing than that one: see ServiceAccountRules and UserRules.
	Missing Rules
	// Namespace is where a Role must have the rules of Missing.Role.
	Namespace string

	status metav1.Status
}

// Error says which right is missing and how to grant it.
func (e *ImpersonationError) Error() string {
	var grants []string
	for _, rule := range e.Missing.Role {
		grants = append(grants, "in a Role in namespace "+e.Namespace+" "+sayRule(rule))
	}
	for _, rule := range e.Missing.ClusterRole {
		grants = append(grants, "in a ClusterRole "+sayRule(rule))
	}
	return fmt.Sprintf("user %q may not carry the token of FencedLease %s with requests: grant it, %s; "+
		"kubectl fencedlease rbac prints all rules that it needs. The API server answers: %s",
		e.User, e.Lease, strings.Join(grants, " and "), e.status.Message)
}

// sayRule writes a rule as one would in a manifest.
func sayRule(rule rbacv1.PolicyRule) string {
	names := ""
	if len(rule.ResourceNames) > 0 {
		names = fmt.Sprintf(", resourceNames: %q", rule.ResourceNames)
	}
	return fmt.Sprintf("{apiGroups: %q, resources: %q%s, verbs: %q}", rule.APIGroups, rule.Resources, names, rule.Verbs)
}

// Status is the API server's answer.
func (e *ImpersonationError) Status() metav1.Status {
	status := e.status
	status.Message = e.Error()
	return status
}

// maxStatus bounds what is read of an answer that may be a Status.
const maxStatus = 64 << 10

// statuses decodes a Status as any client may have asked for it.
var statuses = newStatusDecoder()

func newStatusDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}

// explainForbidden turns an answer that refuses the impersonation into an error that says what is missing. Every other
// answer stays as it is.
func explainForbidden(response *http.Response, lease types.NamespacedName, identity transport.ImpersonationConfig) (*http.Response, error) {
	if response.StatusCode != http.StatusForbidden || response.Body == nil {
		return response, nil
	}
	head, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err == nil {
		status := metav1.Status{}
		if _, _, err := statuses.Decode(head, nil, &status); err == nil {
			if e := newImpersonationError(lease, identity, status); e != nil {
				_ = response.Body.Close()
				return nil, e
			}
		}
	}
	response.Body = &rereadBody{Reader: io.MultiReader(bytes.NewReader(head), response.Body), Closer: response.Body}
	return response, nil
}

// rereadBody is a body whose beginning was read.
type rereadBody struct {
	io.Reader
	io.Closer
}

// deniedImpersonation matches the answer of an API server that permits no impersonation. It captures the caller, the mode
// of constrained impersonation if it speaks of one, and the resource with its subresource.
var deniedImpersonation = regexp.MustCompile(`User "((?:[^"\\]|\\.)*)" cannot impersonate((?:-on)?:[-a-z:]+)? (?:resource|path) "([^"]+)"`)

// newImpersonationError returns nil if this is not what an answer says.
func newImpersonationError(lease types.NamespacedName, identity transport.ImpersonationConfig, status metav1.Status) *ImpersonationError {
	m := deniedImpersonation.FindStringSubmatch(status.Message)
	if m == nil || status.Details == nil {
		return nil
	}
	e := &ImpersonationError{Lease: lease, User: m[1], status: status}
	constrained, resource := m[2] != "", m[3]
	namespace, serviceAccount, isServiceAccount := parseServiceAccount(identity.UserName)
	switch main, _, _ := strings.Cut(resource, "/"); {
	case constrained && isServiceAccount:
		e.Missing, e.Namespace = ServiceAccountRules(serviceAccount, lease.Name), namespace
	case constrained:
		// The API server tells of the first mode that it has tried, and not of the one that the rules are for.
		e.Missing = UserRules(identity.UserName, identity.Groups, lease.Name)
	case main == resourceServiceAccounts && isServiceAccount:
		e.Missing.Role, e.Namespace = ServiceAccountRules(serviceAccount).Role, namespace
	case main == resourceUserExtras:
		e.Missing.ClusterRole = []rbacv1.PolicyRule{impersonate(authenticationv1.GroupName, resource)}
	default:
		e.Missing.ClusterRole = []rbacv1.PolicyRule{impersonate(status.Details.Group, resource, status.Details.Name)}
	}
	return e
}
