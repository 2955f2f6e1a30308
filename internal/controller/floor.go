// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	apply "github.com/fencedlease/fencedlease/pkg/client/applyconfiguration/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list
// +kubebuilder:rbac:groups=coordination.fencedlease.io,resources=fencedleases/status,verbs=patch

const (
	// FloorManager applies the first status of a FencedLease and nothing else, so that no later apply of the controller
	// drops a field that the holder has to set.
	FloorManager = client.FieldOwner("fencedlease-floor")
	// pageSize is the number of objects that one list of guarded objects returns.
	pageSize = 500
	// GuardedKindsLabel is the label of ClusterRoles by which the owner of a cluster lets the manager read guarded kinds.
	GuardedKindsLabel = "rbac.fencedlease.io/aggregate-to-guarded-kinds"
)

// markReader looks through the guarded objects of a lease.
type markReader struct {
	metadata metadata.Interface
	// live reads from the API server.
	live      client.Reader
	kinds     guardkind.Classifier
	namespace string
}

// seenMarks is what the guarded objects of a lease show.
type seenMarks struct {
	// highest is the highest plausible generation.
	highest int64
	// implausible is an object with an implausible mark, or empty.
	implausible string
	// denied are the resources that the manager may not list; missing says that some are not installed.
	denied  []schema.GroupResource
	missing bool
}

// complete says that every guarded object was seen.
func (s seenMarks) complete() bool { return len(s.denied) == 0 && !s.missing }

// read lists the metadata of every guarded object, page by page, from the API server. An object that is created after its
// page was read shows its mark to the webhook at its first write.
func (m *markReader) read(ctx context.Context, lease *v1alpha1.FencedLease) (seenMarks, error) {
	seen := seenMarks{}
	for i := range lease.Spec.Guards {
		guard := &lease.Spec.Guards[i]
		for _, gr := range guardedResources(guard) {
			kind, err := m.kinds.Classify(ctx, gr.Group, gr.Resource)
			if err != nil {
				return seenMarks{}, fmt.Errorf("classify %s: %w", gr, err)
			}
			if kind.Class == guardkind.Missing {
				seen.missing = true
			}
			if kind.Class != guardkind.CRD || len(kind.Versions) == 0 {
				continue
			}
			err = m.readResource(ctx, lease, guard, gr.WithVersion(kind.Versions[0]), kind.Scope, &seen)
			switch {
			case apierrors.IsForbidden(err):
				seen.denied = append(seen.denied, gr)
			case apierrors.IsNotFound(err):
				// The definition went away in between.
				seen.missing = true
			case err != nil:
				return seenMarks{}, fmt.Errorf("list %s: %w", gr, err)
			}
		}
	}
	return seen, nil
}

func (m *markReader) readResource(
	ctx context.Context, lease *v1alpha1.FencedLease, guard *v1alpha1.Guard, gvr schema.GroupVersionResource, scope guardkind.Scope, seen *seenMarks,
) error {
	within, err := m.reach(ctx, lease, guard, scope)
	if err != nil {
		return err
	}
	objects := metadata.ResourceInterface(m.metadata.Resource(gvr))
	if guard.NamespaceSelector == nil {
		objects = m.metadata.Resource(gvr).Namespace(lease.Namespace)
	}
	options := metav1.ListOptions{Limit: pageSize}
	// A selector that is not valid selects nothing in the webhook either.
	if guard.ObjectSelector != nil {
		options.LabelSelector = metav1.FormatLabelSelector(guard.ObjectSelector)
	}
	for {
		page, err := objects.List(ctx, options)
		if apierrors.IsResourceExpired(err) {
			// The list took longer than the server keeps versions: begin anew.
			options.Continue = ""
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			if object := &page.Items[i]; within(object.Namespace) {
				seen.look(lease.Name, gvr.GroupResource(), object)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// look takes the mark of one object into account. Text that is no token is no mark.
func (s *seenMarks) look(leaseName string, gr schema.GroupResource, object *metav1.PartialObjectMetadata) {
	mark, err := token.Parse(object.Annotations[v1alpha1.TokenKey(leaseName)])
	switch {
	case err != nil:
	case !mark.Plausible():
		if s.implausible == "" {
			s.implausible = gr.String() + " " + client.ObjectKeyFromObject(object).String()
		}
	default:
		s.highest = max(s.highest, mark.Generation)
	}
}

// reach returns which namespaces a guard reaches. A guard without a selector is listed in its namespace alone.
func (m *markReader) reach(
	ctx context.Context, lease *v1alpha1.FencedLease, guard *v1alpha1.Guard, scope guardkind.Scope,
) (func(namespace string) bool, error) {
	if guard.NamespaceSelector == nil {
		return func(namespace string) bool { return namespace == lease.Namespace }, nil
	}
	protected := protectedNamespaces(m.namespace)
	if scope == guardkind.ClusterScoped {
		return func(string) bool { return true }, nil
	}
	if isEverything(guard.NamespaceSelector) {
		return func(namespace string) bool { return !slices.Contains(protected, namespace) }, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(guard.NamespaceSelector)
	if err != nil {
		// Such a guard is not installed; Ready says so.
		return func(string) bool { return false }, nil //nolint:nilerr // see above
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
	// From the API server.
	if err := m.live.List(ctx, namespaces, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	names := map[string]bool{}
	for i := range namespaces.Items {
		names[namespaces.Items[i].Name] = !slices.Contains(protected, namespaces.Items[i].Name)
	}
	return func(namespace string) bool { return names[namespace] }, nil
}

// firstFloor returns the floor of a new lease: the larger of the resourceVersion that it was read at and what is
// remembered of an earlier lease of that name. A resourceVersion is an etcd revision, so it is above every generation
// that an earlier lease of that name handed out: each handover cost at least one revision.
func firstFloor(lease *v1alpha1.FencedLease, remembered ...int64) (int64, error) {
	version, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read resourceVersion of FencedLease: %w", err)
	}
	floor := version
	for _, generation := range remembered {
		floor = max(floor, generation)
	}
	return min(floor, token.MaxPlausibleGeneration), nil
}

// firstStatus returns the status with which a lease begins: a floor, and nothing held.
func firstStatus(lease *v1alpha1.FencedLease, floor int64) *apply.FencedLeaseApplyConfiguration {
	return apply.FencedLease(lease.Name, lease.Namespace).WithUID(lease.UID).WithStatus(apply.FencedLeaseStatus().
		WithGeneration(0).WithTerm("").WithToken("").WithHolderIdentity("").
		WithGenerationFloor(floor).WithSealedGeneration(0).
		WithHandover(lease.Spec.Handover).WithSeal(v1alpha1.SealNotRequired))
}
