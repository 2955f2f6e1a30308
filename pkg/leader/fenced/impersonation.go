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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// ImpersonationError means that a request was not let carry a token, as its user may not impersonate itself or may not
// add the token. It is forbidden to the helpers of k8s.io/apimachinery/pkg/api/errors, and no refusal by the fence: the
// write was not judged.
type ImpersonationError struct {
	// Lease names the FencedLease whose token was to be carried.
	Lease types.NamespacedName
	// User is the caller.
	User string
	// Missing is a rule that grants the right that was found missing. There may be more: see ServiceAccountRules and
	// UserRules.
	Missing rbacv1.PolicyRule
	// Namespace is where a Role must have the rule, or empty if a ClusterRole must.
	Namespace string

	status metav1.Status
}

// Error says which right is missing and how to grant it.
func (e *ImpersonationError) Error() string {
	where := "in a ClusterRole"
	if e.Namespace != "" {
		where = "in a Role in namespace " + e.Namespace
	}
	names := ""
	if len(e.Missing.ResourceNames) > 0 {
		names = fmt.Sprintf(", resourceNames %q", e.Missing.ResourceNames)
	}
	return fmt.Sprintf("user %q may not carry the token of FencedLease %s with requests: grant it, %s, apiGroups %q, resources %q%s, verbs %q; "+
		"kubectl fencedlease rbac prints all rules that it needs. The API server answers: %s",
		e.User, e.Lease, where, e.Missing.APIGroups, e.Missing.Resources, names, e.Missing.Verbs, e.status.Message)
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
func explainForbidden(response *http.Response, lease types.NamespacedName, user string) (*http.Response, error) {
	if response.StatusCode != http.StatusForbidden || response.Body == nil {
		return response, nil
	}
	head, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err == nil {
		status := metav1.Status{}
		if _, _, err := statuses.Decode(head, nil, &status); err == nil {
			if missing, ok := missingRight(status); ok {
				_ = response.Body.Close()
				return nil, newImpersonationError(lease, user, missing, status)
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

// deniedImpersonation matches the API server's answer and captures the resource, with its subresource.
var deniedImpersonation = regexp.MustCompile(` cannot impersonate(?::[-a-z]+)? resource "([^"]+)"`)

// missingRight returns the resource that a user may not impersonate, if this is what an answer says.
func missingRight(status metav1.Status) (resource string, is bool) {
	m := deniedImpersonation.FindStringSubmatch(status.Message)
	if m == nil || status.Details == nil {
		return "", false
	}
	main, _, _ := strings.Cut(m[1], "/")
	return m[1], status.Details.Kind == main
}

func newImpersonationError(lease types.NamespacedName, user, resource string, status metav1.Status) *ImpersonationError {
	e := &ImpersonationError{Lease: lease, User: user, status: status}
	namespace, serviceAccount, isServiceAccount := parseServiceAccount(user)
	switch main, _, _ := strings.Cut(resource, "/"); {
	case main == resourceUserExtras:
		e.Missing = impersonate(authenticationv1.GroupName, resource)
	case main == resourceServiceAccounts && isServiceAccount:
		e.Missing, e.Namespace = impersonate(corev1.GroupName, resourceServiceAccounts, serviceAccount), namespace
	default:
		e.Missing = impersonate(status.Details.Group, resource, status.Details.Name)
	}
	return e
}
