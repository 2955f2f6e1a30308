// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package send sends one write with fencing tokens, or lets the API server try it.
package send

import (
	"context"
	"fmt"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// FieldManager owns what the plugin writes, unless another name is given.
const FieldManager = "kubectl-fencedlease"

// Carrier is how a token travels with a write.
type Carrier string

// The carriers.
const (
	// CarrierRequest: as an extra of the user, who impersonates himself.
	CarrierRequest Carrier = "request"
	// CarrierAnnotation: as a changed annotation of the object.
	CarrierAnnotation Carrier = "annotation"
)

// Carriers are what --carrier takes.
func Carriers() []string { return []string{string(CarrierRequest), string(CarrierAnnotation)} }

// Verb is what a write does.
type Verb string

// The verbs. Writes of subresources are patches, updates or applies with a subresource.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Apply  Verb = "apply"
	Delete Verb = "delete"
)

// Write is one write of one object.
type Write struct {
	Verb        Verb
	Subresource string
	// Object is what is written; of patches and deletes its kind, namespace and name are enough.
	Object *unstructured.Unstructured
	// Patch is the body of a patch, and PatchType its type.
	Patch     []byte
	PatchType types.PatchType
	// FieldManager and Force are those of server-side apply.
	FieldManager string
	Force        bool
	// Propagation says what becomes of the dependents of a deleted object. Empty is the API server's choice.
	Propagation metav1.DeletionPropagation
	// UID is that of the object that is to be deleted, or empty.
	UID types.UID
	// DryRun lets the API server do everything but store.
	DryRun cli.DryRun
}

// NewClient returns a client whose writes of one resource present tokens of leases.
func NewClient(config *rest.Config, mapper meta.RESTMapper, resource schema.GroupResource, carrier Carrier, tokens map[types.NamespacedName]token.Token) (client.Client, error) {
	leases := slices.SortedFunc(maps.Keys(tokens), func(a, b types.NamespacedName) int {
		return slices.Compare([]string{a.Name, a.Namespace}, []string{b.Name, b.Namespace})
	})
	possessions := make([]fenced.Possession, 0, len(leases))
	for _, lease := range leases {
		t := tokens[lease]
		if carrier == CarrierAnnotation && t.Operation != "" {
			return nil, cli.Usagef("--token=%s: with --carrier=annotation every write gets an operation of its own: leave out the /%s", t, t.Operation)
		}
		possessions = append(possessions, &presented{lease: lease, token: t, resource: resource})
	}
	if carrier == CarrierRequest {
		for _, p := range possessions {
			config = fenced.Wrap(config, p)
		}
	}
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	for _, p := range possessions {
		if carrier == CarrierAnnotation {
			c = fenced.Client(c, p)
		} else {
			c = fenced.Replaying(c, p)
		}
	}
	return c, nil
}

// presented is a token that a person presents. Whether its term has ended is for the API server to say.
type presented struct {
	lease types.NamespacedName
	token token.Token
	// resource is what is written.
	resource schema.GroupResource
}

var _ fenced.Possession = &presented{}

func (p *presented) Lease() types.NamespacedName { return p.lease }
func (p *presented) Token() token.Token          { return p.token }
func (p *presented) Err() error                  { return nil }

// Guards name the kind that is written, wherever it is: the token is presented whether the lease guards the object or not.
func (p *presented) Guards() []v1alpha1.Guard {
	return []v1alpha1.Guard{{
		APIGroups: []string{p.resource.Group}, Resources: []string{p.resource.Resource + "/*"}, NamespaceSelector: &metav1.LabelSelector{},
	}}
}

// Send sends the write and returns the object, or the Scale, as the API server answers it; nil after a delete.
func (w Write) Send(ctx context.Context, c client.Client) (*unstructured.Unstructured, error) {
	object := w.Object.DeepCopy()
	if w.Subresource != "" {
		return w.sendSubresource(ctx, c.SubResource(w.Subresource), object)
	}
	owner := client.FieldOwner(w.FieldManager)
	dryRun := w.DryRun.Options()
	switch w.Verb {
	case Create:
		return object, c.Create(ctx, object, &client.CreateOptions{DryRun: dryRun}, owner)
	case Update:
		return object, c.Update(ctx, object, &client.UpdateOptions{DryRun: dryRun}, owner)
	case Patch:
		return object, c.Patch(ctx, object, client.RawPatch(w.PatchType, w.Patch), &client.PatchOptions{DryRun: dryRun}, owner)
	case Apply:
		options := []client.ApplyOption{&client.ApplyOptions{DryRun: dryRun}, owner}
		if w.Force {
			options = append(options, client.ForceOwnership)
		}
		return object, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...)
	case Delete:
		options := &client.DeleteOptions{DryRun: dryRun}
		if w.Propagation != "" {
			options.PropagationPolicy = &w.Propagation
		}
		if w.UID != "" {
			options.Preconditions = &metav1.Preconditions{UID: &w.UID}
		}
		return nil, c.Delete(ctx, object, options)
	default:
		return nil, fmt.Errorf("write with verb %q", w.Verb)
	}
}

func (w Write) sendSubresource(ctx context.Context, c client.SubResourceClient, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	owner := client.FieldOwner(w.FieldManager)
	answer := object
	var body client.Object
	if w.Subresource == SubresourceScale {
		answer = &unstructured.Unstructured{}
		answer.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
		body = answer
	}
	switch w.Verb {
	case Update:
		return object, c.Update(ctx, object, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: w.DryRun.Options()}}, owner)
	case Patch:
		options := &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: w.DryRun.Options()}, SubResourceBody: body}
		return answer, c.Patch(ctx, object, client.RawPatch(w.PatchType, w.Patch), options, owner)
	case Apply:
		options := []client.SubResourceApplyOption{&client.SubResourceApplyOptions{ApplyOptions: client.ApplyOptions{DryRun: w.DryRun.Options()}}, owner}
		if w.Force {
			options = append(options, client.ForceOwnership)
		}
		return object, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...)
	case Create, Delete:
		return nil, cli.Usagef("a %s cannot be sent to the subresource %s: use patch, update or apply", w.Verb, w.Subresource)
	default:
		return nil, fmt.Errorf("write with verb %q", w.Verb)
	}
}

// The subresources that guards know.
const (
	SubresourceStatus = "status"
	SubresourceScale  = "scale"
)
