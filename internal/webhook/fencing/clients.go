// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// clusterObjects reads guarded objects' metadata from the API server.
type clusterObjects struct{ client metadata.Interface }

// NewObjects returns Objects that read through a metadata client, past every cache.
func NewObjects(c metadata.Interface) Objects { return clusterObjects{c} }

func (o clusterObjects) Get(
	ctx context.Context, resource schema.GroupVersionResource, namespace, name string,
) (*metav1.PartialObjectMetadata, error) {
	// An empty resourceVersion makes it a linearizable read.
	return o.client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// clusterNamespaces reads namespaces' labels.
type clusterNamespaces struct{ cached, live client.Reader }

// NewNamespaces returns Namespaces over a reader with a watched copy of the namespaces' metadata, and one without.
func NewNamespaces(cached, live client.Reader) Namespaces { return clusterNamespaces{cached, live} }

func (n clusterNamespaces) Cached(ctx context.Context, name string) (labels.Set, bool) {
	set, err := namespaceLabels(ctx, n.cached, name)
	return set, err == nil
}

func (n clusterNamespaces) Live(ctx context.Context, name string) (labels.Set, error) {
	return namespaceLabels(ctx, n.live, name)
}

func namespaceLabels(ctx context.Context, reader client.Reader, name string) (labels.Set, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}

// clusterPermissions asks by SubjectAccessReview.
type clusterPermissions struct {
	reviews authorizationclient.SubjectAccessReviewInterface
}

// NewPermissions returns Permissions that ask the API server by SubjectAccessReview.
func NewPermissions(reviews authorizationclient.SubjectAccessReviewInterface) Permissions {
	return clusterPermissions{reviews}
}

func (p clusterPermissions) MayBypass(ctx context.Context, user authenticationv1.UserInfo, lease types.NamespacedName) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := p.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.GroupName, Version: v1alpha1.SchemeGroupVersion.Version, Resource: v1alpha1.Resource.Resource,
				Verb: v1alpha1.VerbBypass, Namespace: lease.Namespace, Name: lease.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
