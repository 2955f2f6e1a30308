// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fenced_test

import (
	"context"
	"encoding/json"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// verb is one way to write a Report.
type verb struct {
	name string
	// creates says that the object must not exist before, deletes that it does not exist afterwards.
	creates, deletes bool
	// byRequestOnly says that no annotation can carry a token.
	byRequestOnly bool
	do            func(ctx context.Context, s *story, name string) error
}

const owner = client.FieldOwner("worker")

var (
	mergeValue  = []byte(`{"spec":{"value":"second"}}`)
	mergePhase  = []byte(`{"status":{"phase":"Done"}}`)
	jsonValue   = []byte(`[{"op":"replace","path":"/spec/value","value":"second"}]`)
	jsonPhase   = []byte(`[{"op":"add","path":"/status","value":{"phase":"Done"}}]`)
	mergeScale  = []byte(`{"spec":{"replicas":3}}`)
	patchForced = client.PatchOptions{FieldManager: string(owner), Force: ptr.To(true)}
)

// reportConfiguration is an apply configuration of a Report, as generators make them.
type reportConfiguration struct {
	applymetav1.TypeMetaApplyConfiguration    `json:",inline"`
	*applymetav1.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec   *ReportSpec   `json:"spec,omitempty"`
	Status *ReportStatus `json:"status,omitempty"`
}

func (*reportConfiguration) IsApplyConfiguration() {}

func (r *reportConfiguration) GetName() *string       { return r.Name }
func (r *reportConfiguration) GetNamespace() *string  { return r.Namespace }
func (r *reportConfiguration) GetKind() *string       { return r.Kind }
func (r *reportConfiguration) GetAPIVersion() *string { return r.APIVersion }

var _ runtime.ApplyConfiguration = &reportConfiguration{}

func (s *story) configuration(name string) *reportConfiguration {
	return &reportConfiguration{
		TypeMetaApplyConfiguration:   *applymetav1.TypeMeta().WithKind("Report").WithAPIVersion(env.GuardedGroup + "/" + env.ReportVersion),
		ObjectMetaApplyConfiguration: applymetav1.ObjectMeta().WithName(name).WithNamespace(s.namespace),
	}
}

func (s *story) typed(name string) *Report {
	return &Report{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: ReportSpec{Value: "second"}}
}

// retryConflict repeats a read-modify-write that somebody else's write has crossed.
func retryConflict(write func() error) error {
	for {
		if err := write(); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// runtimeVerbs are all ways to write with a client of controller-runtime.
func runtimeVerbs(c client.Client) []verb {
	modify := func(ctx context.Context, s *story, name string, write func(*Report) error) error {
		return retryConflict(func() error {
			o := s.typed(name)
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			return write(o)
		})
	}
	return []verb{
		{name: "create", creates: true, do: func(ctx context.Context, s *story, name string) error { return c.Create(ctx, s.typed(name)) }},
		{name: "create unstructured", creates: true, do: func(ctx context.Context, s *story, name string) error {
			return c.Create(ctx, env.NewReport(s.namespace, name, "second"))
		}},
		{name: "apply that creates", creates: true, do: func(ctx context.Context, s *story, name string) error {
			configuration := s.configuration(name)
			configuration.Spec = &ReportSpec{Value: "second"}
			return c.Apply(ctx, configuration, owner)
		}},
		{name: "update", do: func(ctx context.Context, s *story, name string) error {
			return modify(ctx, s, name, func(o *Report) error {
				o.Spec.Value = "second"
				return c.Update(ctx, o)
			})
		}},
		{name: "update unstructured", do: func(ctx context.Context, s *story, name string) error {
			return retryConflict(func() error {
				o := s.object(name)
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				if err := unstructured.SetNestedField(o.Object, "second", "spec", "value"); err != nil {
					return err
				}
				return c.Update(ctx, o)
			})
		}},
		{name: "merge patch of a difference", do: func(ctx context.Context, s *story, name string) error {
			return modify(ctx, s, name, func(o *Report) error {
				from := client.MergeFromWithOptions(o.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
				o.Spec.Value = "by difference"
				return c.Patch(ctx, o, from)
			})
		}},
		{name: "merge patch of metadata", do: func(ctx context.Context, s *story, name string) error {
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
			o.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
			return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		}},
		{name: "JSON patch", do: func(ctx context.Context, s *story, name string) error {
			return c.Patch(ctx, s.typed(name), client.RawPatch(types.JSONPatchType, jsonValue))
		}},
		{name: "apply patch", do: func(ctx context.Context, s *story, name string) error {
			o := s.object(name)
			o.Object["spec"] = map[string]any{"value": "second"}
			data, err := json.Marshal(o)
			if err != nil {
				return err
			}
			return c.Patch(ctx, s.typed(name), client.RawPatch(types.ApplyYAMLPatchType, data), &patchForced)
		}},
		{name: "apply", do: func(ctx context.Context, s *story, name string) error {
			configuration := s.configuration(name)
			configuration.Spec = &ReportSpec{Value: "second"}
			return c.Apply(ctx, configuration, owner, client.ForceOwnership)
		}},
		{name: "apply unstructured", do: func(ctx context.Context, s *story, name string) error {
			o := s.object(name)
			o.Object["spec"] = map[string]any{"value": "second"}
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), owner, client.ForceOwnership)
		}},
		{name: "status update", do: func(ctx context.Context, s *story, name string) error {
			return modify(ctx, s, name, func(o *Report) error {
				o.Status.Phase = "Done"
				return c.Status().Update(ctx, o)
			})
		}},
		{name: "status update with a body", do: func(ctx context.Context, s *story, name string) error {
			return modify(ctx, s, name, func(o *Report) error {
				o.Status.Phase = "Done"
				return c.SubResource("status").Update(ctx, s.typed(name), client.WithSubResourceBody(o))
			})
		}},
		{name: "status merge patch", do: func(ctx context.Context, s *story, name string) error {
			return c.Status().Patch(ctx, s.typed(name), client.RawPatch(types.MergePatchType, mergePhase))
		}},
		{name: "status JSON patch", do: func(ctx context.Context, s *story, name string) error {
			return c.Status().Patch(ctx, s.typed(name), client.RawPatch(types.JSONPatchType, jsonPhase))
		}},
		{name: "status apply", do: func(ctx context.Context, s *story, name string) error {
			configuration := s.configuration(name)
			configuration.Status = &ReportStatus{Phase: "Done"}
			return c.Status().Apply(ctx, configuration, owner, client.ForceOwnership)
		}},
		{name: "status apply with a body", do: func(ctx context.Context, s *story, name string) error {
			body := s.configuration(name)
			body.Status = &ReportStatus{Phase: "Done"}
			return c.Status().Apply(ctx, s.configuration(name), &client.SubResourceApplyOptions{SubResourceBody: body}, owner, client.ForceOwnership)
		}},
		{name: "scale patch", byRequestOnly: true, do: func(ctx context.Context, s *story, name string) error {
			return c.SubResource("scale").Patch(ctx, s.typed(name), client.RawPatch(types.MergePatchType, mergeScale))
		}},
		{name: "scale update", byRequestOnly: true, do: func(ctx context.Context, s *story, name string) error {
			return retryConflict(func() error {
				scale := &autoscalingv1.Scale{}
				if err := c.SubResource("scale").Get(ctx, s.typed(name), scale); err != nil {
					return err
				}
				scale.Spec.Replicas++
				return c.SubResource("scale").Update(ctx, s.typed(name), client.WithSubResourceBody(scale))
			})
		}},
		{name: "delete", deletes: true, do: func(ctx context.Context, s *story, name string) error { return c.Delete(ctx, s.typed(name)) }},
		{name: "deletecollection", deletes: true, byRequestOnly: true, do: func(ctx context.Context, s *story, name string) error {
			return c.DeleteAllOf(ctx, &Report{}, client.InNamespace(s.namespace), client.MatchingLabels{"name": name})
		}},
	}
}

// dynamicVerbs are ways to write with client-go's dynamic client.
func dynamicVerbs(t testing.TB, config *rest.Config) []verb {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	in := func(s *story) dynamic.ResourceInterface {
		return c.Resource(env.ReportResource(env.ReportVersion)).Namespace(s.namespace)
	}
	patch := func(kind types.PatchType, data []byte, subresources ...string) func(context.Context, *story, string) error {
		return func(ctx context.Context, s *story, name string) error {
			_, err := in(s).Patch(ctx, name, kind, data, metav1.PatchOptions{}, subresources...)
			return err
		}
	}
	return []verb{
		{name: "dynamic create", creates: true, do: func(ctx context.Context, s *story, name string) error {
			_, err := in(s).Create(ctx, env.NewReport(s.namespace, name, "second"), metav1.CreateOptions{})
			return err
		}},
		{name: "dynamic update", do: func(ctx context.Context, s *story, name string) error {
			return retryConflict(func() error {
				o, err := in(s).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				o.SetLabels(map[string]string{"name": name, "a": "b"})
				_, err = in(s).Update(ctx, o, metav1.UpdateOptions{})
				return err
			})
		}},
		{name: "dynamic update of the status", do: func(ctx context.Context, s *story, name string) error {
			return retryConflict(func() error {
				o, err := in(s).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				o.Object["status"] = map[string]any{"phase": "Done"}
				_, err = in(s).UpdateStatus(ctx, o, metav1.UpdateOptions{})
				return err
			})
		}},
		{name: "dynamic merge patch", do: patch(types.MergePatchType, mergeValue)},
		{name: "dynamic JSON patch", do: patch(types.JSONPatchType, jsonValue)},
		{name: "dynamic merge patch of the status", do: patch(types.MergePatchType, mergePhase, "status")},
		{name: "dynamic merge patch of the scale", do: patch(types.MergePatchType, mergeScale, "scale")},
		{name: "dynamic apply", do: func(ctx context.Context, s *story, name string) error {
			o := s.object(name)
			o.Object["spec"] = map[string]any{"value": "second"}
			_, err := in(s).Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: string(owner), Force: true})
			return err
		}},
		{name: "dynamic apply of the status", do: func(ctx context.Context, s *story, name string) error {
			o := s.object(name)
			o.Object["status"] = map[string]any{"phase": "Done"}
			_, err := in(s).ApplyStatus(ctx, name, o, metav1.ApplyOptions{FieldManager: string(owner), Force: true})
			return err
		}},
		{name: "dynamic delete", deletes: true, do: func(ctx context.Context, s *story, name string) error {
			return in(s).Delete(ctx, name, metav1.DeleteOptions{})
		}},
		{name: "dynamic deletecollection", deletes: true, do: func(ctx context.Context, s *story, name string) error {
			return in(s).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "name=" + name})
		}},
	}
}

// restVerbs are ways to write with a typed client of client-go.
func restVerbs(t testing.TB, config *rest.Config) []verb {
	t.Helper()
	c := restClient(t, config)
	return []verb{
		{name: "POST", creates: true, do: func(ctx context.Context, s *story, name string) error {
			return c.Post().Namespace(s.namespace).Resource("reports").Body(s.typed(name)).Do(ctx).Error()
		}},
		{name: "PUT", do: func(ctx context.Context, s *story, name string) error {
			return retryConflict(func() error {
				o := &Report{}
				if err := c.Get().Namespace(s.namespace).Resource("reports").Name(name).Do(ctx).Into(o); err != nil {
					return err
				}
				o.Spec.Value = "put"
				return c.Put().Namespace(s.namespace).Resource("reports").Name(name).Body(o).Do(ctx).Error()
			})
		}},
		{name: "PATCH", do: func(ctx context.Context, s *story, name string) error {
			return c.Patch(types.MergePatchType).Namespace(s.namespace).Resource("reports").Name(name).Body(mergeValue).Do(ctx).Error()
		}},
		{name: "DELETE", deletes: true, do: func(ctx context.Context, s *story, name string) error {
			return c.Delete().Namespace(s.namespace).Resource("reports").Name(name).Do(ctx).Error()
		}},
	}
}

// named gives deletecollection something to choose by.
func named(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"name": o.GetName()}) }

// written checks what a verb that was accepted has left behind.
func (s *story) written(t testing.TB, v verb, name, wantMark string) {
	t.Helper()
	if v.deletes {
		if !s.gone(t, name) {
			t.Error("the object is still there")
		}
		return
	}
	if mark := s.get(t, name).GetAnnotations()[s.key()]; v.creates && !isOf(mark, wantMark) {
		t.Errorf("the mark is %q", mark)
	}
}

func isOf(mark, token string) bool {
	return mark == token || len(mark) > len(token) && mark[:len(token)+1] == token+"/"
}
