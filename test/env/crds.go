// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// GuardedGroup is the API group of the kinds that tests guard.
const GuardedGroup = "example.com"

// ReportVersion and ReportOldVersion are the versions in which Reports are served; they are stored in the first.
const (
	ReportVersion    = "v1"
	ReportOldVersion = "v1beta1"
)

// ReportKind returns the kind of a Report in a version.
func ReportKind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: GuardedGroup, Version: version, Kind: "Report"}
}

// ReportResource returns the resource of Reports in a version.
func ReportResource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: GuardedGroup, Version: version, Resource: "reports"}
}

// NewReport returns a Report with spec.value, in ReportVersion.
func NewReport(namespace, name, value string) *unstructured.Unstructured {
	report := BareReport(namespace, name)
	report.Object["spec"] = map[string]any{"value": value, "replicas": int64(1)}
	return report
}

// BareReport returns what names a Report, in ReportVersion.
func BareReport(namespace, name string) *unstructured.Unstructured {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(ReportKind(ReportVersion))
	report.SetNamespace(namespace)
	report.SetName(name)
	return report
}

// ReportCRD returns the definition of reports.example.com: namespaced, two versions of one shape, subresources status and
// scale, no required field. Each mutation changes it, for instance to another name or scope.
func ReportCRD(mutations ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		text, number := apiextensionsv1.JSONSchemaProps{Type: "string"}, apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int32"}
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"value": text, "replicas": number}},
					"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": text, "result": text, "replicas": number, "selector": text}},
				},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale: &apiextensionsv1.CustomResourceSubresourceScale{
					SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: ptr.To(".status.selector"),
				},
			},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    GuardedGroup,
			Scope:    apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "reports", Singular: "report", Kind: "Report", ListKind: "ReportList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version(ReportVersion, true), version(ReportOldVersion, false)},
		},
	}
	for _, mutate := range mutations {
		mutate(crd)
	}
	crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Spec.Names.Plural + "." + crd.Spec.Group, Labels: crd.Labels, Annotations: crd.Annotations}
	return crd
}

// InstallCRDs installs the product's own definitions, config/crd/bases, and returns when they are served.
func (e *Environment) InstallCRDs(ctx context.Context) error {
	return e.installCRDs(ctx, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(e.root, "config", "crd", "bases")}, ErrorIfPathMissing: true,
	})
}

// InstallGuardedCRD installs ReportCRD with mutations, and returns when it is served.
func (e *Environment) InstallGuardedCRD(ctx context.Context, mutations ...func(*apiextensionsv1.CustomResourceDefinition)) error {
	return e.installCRDs(ctx, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{ReportCRD(mutations...)},
	})
}

// InstallCRDFiles installs the definitions in files or folders, and returns when they are served.
func (e *Environment) InstallCRDFiles(ctx context.Context, paths ...string) error {
	return e.installCRDs(ctx, envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true})
}

// installCRDs installs through API server 0 and waits for every API server.
func (e *Environment) installCRDs(ctx context.Context, options envtest.CRDInstallOptions) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("install definitions: %w", err)
	}
	options.MaxTime, options.PollInterval = startTimeout, pollInterval
	crds, err := envtest.InstallCRDs(e.Config(), options)
	if err != nil {
		return fmt.Errorf("install definitions: %w", err)
	}
	for i := 1; i < len(e.apiServers); i++ {
		if err := envtest.WaitForCRDs(e.Via(i, e.admin), crds, options); err != nil {
			return fmt.Errorf("wait for definitions on API server %d: %w", i, err)
		}
	}
	return nil
}
