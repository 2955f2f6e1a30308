// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// write is one way to write a Report. annotation is the token to present by annotation, empty for none.
type write struct {
	name string
	// creates says that the object must not exist before.
	creates bool
	// byRequestOnly says that no annotation can carry a token.
	byRequestOnly bool
	do            func(ctx context.Context, c client.Client, s *story, name, annotation string) error
}

const owner = client.FieldOwner("test")

// writes are all ways to write a custom resource, as in the truth table.
func writes() []write {
	return []write{
		{name: "POST", creates: true, do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Create(ctx, s.report(name, annotation))
		}},
		{name: "apply that creates", creates: true, do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.report(name, annotation)), owner)
		}},
		{name: "PUT", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return retryConflict(func() error {
				report := env.BareReport(s.namespace, name)
				if err := c.Get(ctx, client.ObjectKeyFromObject(report), report); err != nil {
					return err
				}
				setValue(report)
				s.setAnnotation(report, annotation)
				return c.Update(ctx, report)
			})
		}},
		{name: "merge patch", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.MergePatchType, s.mergePatch(annotation, `"spec":{"value":"second"}`)))
		}},
		{name: "JSON patch", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			patch := `[{"op":"replace","path":"/spec/value","value":"second"}`
			if annotation != "" {
				patch += fmt.Sprintf(`,{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1%s","value":%q}`, s.lease.Name, annotation)
			}
			return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.JSONPatchType, []byte(patch+"]")))
		}},
		{name: "apply", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.report(name, annotation)), owner, client.ForceOwnership)
		}},
		{name: "status PUT", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return retryConflict(func() error {
				report := env.BareReport(s.namespace, name)
				if err := c.Get(ctx, client.ObjectKeyFromObject(report), report); err != nil {
					return err
				}
				setPhase(report)
				s.setAnnotation(report, annotation)
				return c.Status().Update(ctx, report)
			})
		}},
		{name: "status merge patch", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			return c.Status().Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.MergePatchType, s.mergePatch(annotation, `"status":{"phase":"Done"}`)))
		}},
		{name: "status apply", do: func(ctx context.Context, c client.Client, s *story, name, annotation string) error {
			report := env.BareReport(s.namespace, name)
			setPhase(report)
			s.setAnnotation(report, annotation)
			return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(report), owner, client.ForceOwnership)
		}},
		{name: "scale patch", byRequestOnly: true, do: func(ctx context.Context, c client.Client, s *story, name, _ string) error {
			return c.SubResource("scale").Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`)))
		}},
		{name: "scale PUT", byRequestOnly: true, do: func(ctx context.Context, c client.Client, s *story, name, _ string) error {
			return retryConflict(func() error {
				report := env.BareReport(s.namespace, name)
				scale := &unstructured.Unstructured{}
				scale.SetAPIVersion("autoscaling/v1")
				scale.SetKind("Scale")
				if err := c.SubResource("scale").Get(ctx, report, scale); err != nil {
					return err
				}
				if err := unstructured.SetNestedField(scale.Object, int64(4), "spec", "replicas"); err != nil {
					return err
				}
				return c.SubResource("scale").Update(ctx, report, client.WithSubResourceBody(scale))
			})
		}},
		{name: "DELETE", byRequestOnly: true, do: func(ctx context.Context, c client.Client, s *story, name, _ string) error {
			return c.Delete(ctx, env.BareReport(s.namespace, name))
		}},
		{name: "DELETE in the foreground", byRequestOnly: true, do: func(ctx context.Context, c client.Client, s *story, name, _ string) error {
			return c.Delete(ctx, env.BareReport(s.namespace, name), client.PropagationPolicy("Foreground"))
		}},
		{name: "deletecollection", byRequestOnly: true, do: func(ctx context.Context, c client.Client, s *story, name, _ string) error {
			return c.DeleteAllOf(ctx, env.BareReport(s.namespace, ""), client.InNamespace(s.namespace), client.MatchingLabels{"name": name})
		}},
	}
}

// retryConflict repeats a read-modify-write that somebody else's write has crossed.
func retryConflict(write func() error) error {
	for {
		if err := write(); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (s *story) report(name, annotation string) *unstructured.Unstructured {
	report := env.BareReport(s.namespace, name)
	setValue(report)
	s.setAnnotation(report, annotation)
	return report
}

func (s *story) setAnnotation(o *unstructured.Unstructured, value string) {
	if value == "" {
		return
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[s.key()] = value
	o.SetAnnotations(annotations)
}

func (s *story) mergePatch(annotation, rest string) []byte {
	if annotation == "" {
		return []byte("{" + rest + "}")
	}
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},%s}`, s.key(), annotation, rest)
}

func setValue(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"value": "second"} }

func setPhase(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "Done"} }

func oldVersion() schema.GroupVersionKind { return env.ReportKind(env.ReportOldVersion) }
