// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

const markOne = "token.fencedlease.io/one"

var (
	reportKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Report"}
	noteKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Note"}
	podKind    = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

// recorder is a client that says what it was asked for, and with which marks.
type recorder struct {
	calls []string
	err   error
	// unmapped makes it know no resources.
	unmapped bool
}

var _ client.Client = &recorder{}

// note records a call with the marks of an object or of data, operations left out.
func (r *recorder) note(call string, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var marks []string
	for _, part := range strings.Split(string(data), `"`) {
		if strings.HasPrefix(part, "5.aaaaaaaa") || strings.HasPrefix(part, "9.bbbbbbbb") {
			token, operation, _ := strings.Cut(part, "/")
			if operation == "delete" {
				token += "/delete"
			}
			marks = append(marks, token)
		}
	}
	slices.Sort(marks)
	r.calls = append(r.calls, strings.TrimSpace(call+" "+strings.Join(marks, " ")))
	return r.err
}

func (r *recorder) data(call string, obj client.Object, patch client.Patch) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return r.note(call, json.RawMessage(data))
}

func (r *recorder) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return r.note("Get", obj)
}

func (r *recorder) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return r.note("List", list)
}

func (r *recorder) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return r.note("Create", obj)
}

func (r *recorder) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return r.note("Update", obj)
}

func (r *recorder) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return r.data("Patch", obj, patch)
}

func (r *recorder) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	return r.note("Apply", obj)
}

func (r *recorder) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	return r.note("Delete", obj)
}

func (r *recorder) DeleteAllOf(_ context.Context, obj client.Object, _ ...client.DeleteAllOfOption) error {
	return r.note("DeleteAllOf", obj)
}

func (r *recorder) Status() client.SubResourceWriter { return &subRecorder{r, "status"} }

func (r *recorder) SubResource(name string) client.SubResourceClient { return &subRecorder{r, name} }

func (r *recorder) Scheme() *runtime.Scheme { r.calls = append(r.calls, "Scheme"); return nil }

func (r *recorder) RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	if r.unmapped {
		return mapper
	}
	for _, kind := range []schema.GroupVersionKind{reportKind, noteKind, podKind} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Planet"}, meta.RESTScopeRoot)
	return mapper
}

func (r *recorder) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return obj.GetObjectKind().GroupVersionKind(), nil
}

func (r *recorder) IsObjectNamespaced(runtime.Object) (bool, error) {
	r.calls = append(r.calls, "IsObjectNamespaced")
	return true, nil
}

type subRecorder struct {
	*recorder
	name string
}

func (r *subRecorder) Get(_ context.Context, _, sub client.Object, _ ...client.SubResourceGetOption) error {
	return r.note(r.name+" Get", sub)
}

func (r *subRecorder) Create(_ context.Context, _, sub client.Object, _ ...client.SubResourceCreateOption) error {
	return r.note(r.name+" Create", sub)
}

func (r *subRecorder) Update(_ context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	options := client.SubResourceUpdateOptions{}
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		obj = options.SubResourceBody
	}
	return r.note(r.name+" Update", obj)
}

func (r *subRecorder) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return r.data(r.name+" Patch", obj, patch)
}

func (r *subRecorder) Apply(_ context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	options := client.SubResourceApplyOptions{}
	options.ApplyOpts(opts)
	if options.SubResourceBody != nil {
		obj = options.SubResourceBody
	}
	return r.note(r.name+" Apply", obj)
}

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func merge() client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"x"}}`))
}

func configuration(o *unstructured.Unstructured) runtime.ApplyConfiguration {
	return client.ApplyConfigurationFromUnstructured(o)
}

// method is one method of the interfaces, called for an object.
type method struct {
	call func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error
	// guarded are the calls below for an object that is guarded; nil if the method must be refused with a CannotStampError.
	guarded []string
	// open are the calls below for one that is not.
	open []string
	// reads says that the method writes nothing, and is never refused.
	reads bool
}

// subresourceMethods are the methods of one subresource.
func subresourceMethods(of func(client.Client) client.SubResourceWriter, name string, stamped bool) map[string]method {
	marked := func(call string) []string {
		if !stamped {
			return nil
		}
		return []string{name + " " + call + " 5.aaaaaaaa"}
	}
	open := func(call string) []string { return []string{name + " " + call} }
	return map[string]method{
		"Create": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return of(c).Create(ctx, o, object(reportKind, "", ""))
			},
			open: open("Create"),
		},
		"Update": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return of(c).Update(ctx, o)
			},
			guarded: marked("Update"), open: open("Update"),
		},
		"Patch": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return of(c).Patch(ctx, o, merge())
			},
			guarded: marked("Patch"), open: open("Patch"),
		},
		"Apply": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return of(c).Apply(ctx, configuration(o))
			},
			guarded: marked("Apply"), open: open("Apply"),
		},
		"Get": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.SubResource(name).Get(ctx, o, object(reportKind, "", ""))
			},
			guarded: open("Get"), open: open("Get"), reads: true,
		},
	}
}

// methods are all methods that a client of controller-runtime has, by interface and name.
func methods() map[string]method {
	read := func(call string, f func(context.Context, client.Client, *unstructured.Unstructured) error) method {
		return method{call: f, guarded: []string{call}, open: []string{call}, reads: true}
	}
	all := map[string]method{
		"Client.Get": read("Get", func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Get(ctx, client.ObjectKeyFromObject(o), o)
		}),
		"Client.List": read("List", func(ctx context.Context, c client.Client, _ *unstructured.Unstructured) error {
			return c.List(ctx, &unstructured.UnstructuredList{Object: map[string]any{"kind": "ReportList"}})
		}),
		"Client.Scheme": read("Scheme", func(_ context.Context, c client.Client, _ *unstructured.Unstructured) error {
			c.Scheme()
			return nil
		}),
		"Client.IsObjectNamespaced": read("IsObjectNamespaced", func(_ context.Context, c client.Client, o *unstructured.Unstructured) error {
			_, err := c.IsObjectNamespaced(o)
			return err
		}),
		"Client.RESTMapper": {reads: true, call: func(_ context.Context, c client.Client, _ *unstructured.Unstructured) error {
			_, err := c.RESTMapper().RESTMapping(reportKind.GroupKind(), reportKind.Version)
			return err
		}},
		"Client.GroupVersionKindFor": {reads: true, call: func(_ context.Context, c client.Client, o *unstructured.Unstructured) error {
			if gvk, err := c.GroupVersionKindFor(o); err != nil || gvk != o.GroupVersionKind() {
				return fmt.Errorf("kind is %s: %w", gvk, err)
			}
			return nil
		}},
		"Client.Create": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Create(ctx, o)
			},
			guarded: []string{"Create 5.aaaaaaaa"}, open: []string{"Create"},
		},
		"Client.Update": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Update(ctx, o)
			},
			guarded: []string{"Update 5.aaaaaaaa"}, open: []string{"Update"},
		},
		"Client.Patch": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Patch(ctx, o, merge())
			},
			guarded: []string{"Patch 5.aaaaaaaa"}, open: []string{"Patch"},
		},
		"Client.Apply": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Apply(ctx, configuration(o))
			},
			guarded: []string{"Apply 5.aaaaaaaa"}, open: []string{"Apply"},
		},
		"Client.Delete": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Delete(ctx, o)
			},
			guarded: []string{"Patch 5.aaaaaaaa/delete", "Delete"}, open: []string{"Delete"},
		},
		"Client.DeleteAllOf": {
			call: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.DeleteAllOf(ctx, o, client.InNamespace(o.GetNamespace()))
			},
			open: []string{"DeleteAllOf"},
		},
		// These only lead to the methods below.
		"Client.Status": {reads: true, call: func(_ context.Context, c client.Client, _ *unstructured.Unstructured) error {
			_ = c.Status()
			return nil
		}},
		"Client.SubResource": {reads: true, call: func(_ context.Context, c client.Client, _ *unstructured.Unstructured) error {
			_ = c.SubResource("status")
			return nil
		}},
	}
	for name, m := range subresourceMethods(client.Client.Status, "status", true) {
		all["Status."+name] = m
	}
	for _, sub := range []string{"status", "scale", "log"} {
		of := func(c client.Client) client.SubResourceWriter { return c.SubResource(sub) }
		for name, m := range subresourceMethods(of, sub, sub == "status") {
			all["SubResource."+sub+"."+name] = m
		}
	}
	return all
}

func TestEveryMethodOfTheInterfacesIsHandled(t *testing.T) {
	all := methods()
	missing := func(prefix string, of reflect.Type) {
		for i := range of.NumMethod() {
			if _, there := all[prefix+of.Method(i).Name]; !there {
				t.Errorf("%s.%s is not handled: say what it does with a token", of, of.Method(i).Name)
			}
		}
	}
	missing("Client.", reflect.TypeFor[client.Client]())
	missing("Status.", reflect.TypeFor[client.SubResourceWriter]())
	for _, sub := range []string{"status", "scale", "log"} {
		missing("SubResource."+sub+".", reflect.TypeFor[client.SubResourceClient]())
	}
	// What these lead to is one of the interfaces above.
	for name, want := range map[string]reflect.Type{"Status": reflect.TypeFor[client.SubResourceWriter](), "SubResource": reflect.TypeFor[client.SubResourceClient]()} {
		if m, _ := reflect.TypeFor[client.Client]().MethodByName(name); m.Type.Out(0) != want {
			t.Errorf("%s returns %s, not %s", name, m.Type.Out(0), want)
		}
	}
	for _, c := range []any{fenced.Client(&recorder{}, newTerm(t, "one", "5.aaaaaaaa")), fenced.Client(&recorder{}, newTerm(t, "one", "5.aaaaaaaa")).SubResource("x")} {
		of := reflect.TypeOf(c).Elem()
		for i := range of.NumField() {
			if of.Field(i).Anonymous {
				t.Errorf("%s embeds %s, whose methods would pass unseen", of, of.Field(i).Name)
			}
		}
	}
}

func TestMethods(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(methods())) {
		m := methods()[name]
		t.Run(name+" of a guarded object", func(t *testing.T) {
			below := &recorder{}
			err := m.call(t.Context(), fenced.Client(below, newTerm(t, "one", "5.aaaaaaaa")), object(reportKind, "reports", "weekly"))
			var cannot *fenced.CannotStampError
			if refused := errors.As(err, &cannot); refused != (m.guarded == nil && !m.reads) || err != nil && !refused {
				t.Fatalf("error is %v", err)
			}
			if cannot != nil && (!strings.Contains(err.Error(), "fenced.Wrap") || fenced.IsFenced(err) || cannot.Lease.Name != "one") {
				t.Errorf("error is %v", err)
			}
			if diff := cmp.Diff(m.guarded, below.calls); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
		t.Run(name+" of another object", func(t *testing.T) {
			below := &recorder{}
			for _, o := range []*unstructured.Unstructured{object(podKind, "reports", "x"), object(noteKind, "reports", "x"), object(reportKind, "elsewhere", "x")} {
				below.calls = nil
				if err := m.call(t.Context(), fenced.Client(below, newTerm(t, "one", "5.aaaaaaaa")), o); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(m.open, below.calls); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
		t.Run(name+" after the term ended", func(t *testing.T) {
			p := newTerm(t, "one", "5.aaaaaaaa")
			p.end()
			for _, kind := range []schema.GroupVersionKind{reportKind, podKind} {
				below := &recorder{}
				err := m.call(t.Context(), fenced.Client(below, p), object(kind, "reports", "weekly"))
				if m.reads {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if !errors.Is(err, fenced.ErrTermEnded) || !fenced.IsFenced(err) || len(below.calls) > 0 {
					t.Errorf("error is %v, calls are %v", err, below.calls)
				}
			}
		})
		t.Run(name+" below which something fails", func(t *testing.T) {
			below := &recorder{err: errors.New("no network")}
			o := object(reportKind, "reports", "weekly")
			o.SetAnnotations(map[string]string{"other": "x", markOne: "4.zzzzzzzz/7"})
			before := o.DeepCopy()
			err := m.call(t.Context(), fenced.Client(below, newTerm(t, "one", "5.aaaaaaaa")), o)
			if len(below.calls) > 0 && err == nil && !slices.Contains([]string{"Scheme", "IsObjectNamespaced"}, below.calls[0]) {
				t.Error("the error is lost")
			}
			if diff := cmp.Diff(before, o); diff != "" {
				t.Errorf("the caller's object has changed:\n%s", diff)
			}
		})
	}
}

func TestStampsOnlyWhatGuardsName(t *testing.T) {
	everywhere := &metav1.LabelSelector{}
	planet := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Planet"}
	guard := func(selector *metav1.LabelSelector, resources ...string) v1alpha1.Guard {
		return v1alpha1.Guard{APIGroups: []string{"other.example.com", "example.com"}, Resources: resources, NamespaceSelector: selector}
	}
	for name, test := range map[string]struct {
		guards               []v1alpha1.Guard
		object               *unstructured.Unstructured
		main, status, refuse bool
	}{
		"no guards": {object: object(reportKind, "reports", "x")},
		"the object only": {
			guards: []v1alpha1.Guard{guard(nil, "reports")}, object: object(reportKind, "reports", "x"), main: true,
		},
		"the status only": {
			guards: []v1alpha1.Guard{guard(nil, "reports/status")}, object: object(reportKind, "reports", "x"), status: true,
		},
		"the scale only": {
			guards: []v1alpha1.Guard{guard(nil, "reports/scale")}, object: object(reportKind, "reports", "x"), refuse: true,
		},
		"two guards together": {
			guards: []v1alpha1.Guard{guard(nil, "reports"), guard(nil, "reports/status", "reports/scale")}, object: object(reportKind, "reports", "x"),
			main: true, status: true, refuse: true,
		},
		"a namespace that is not the lease's": {guards: []v1alpha1.Guard{guard(nil, "reports/*")}, object: object(reportKind, "elsewhere", "x")},
		"a namespace that a selector may reach": {
			guards: []v1alpha1.Guard{guard(everywhere, "reports/*")}, object: object(reportKind, "elsewhere", "x"), main: true, status: true, refuse: true,
		},
		"a namespace that is filled in below": {
			guards: []v1alpha1.Guard{guard(nil, "reports/*")}, object: object(reportKind, "", "x"), main: true, status: true, refuse: true,
		},
		"a cluster-scoped object without a selector": {guards: []v1alpha1.Guard{guard(nil, "planets/*")}, object: object(planet, "", "x")},
		"a cluster-scoped object with a selector": {
			guards: []v1alpha1.Guard{guard(everywhere, "planets/*")}, object: object(planet, "", "x"), main: true, status: true, refuse: true,
		},
		"a resource whose name begins the same": {guards: []v1alpha1.Guard{guard(nil, "report", "reportss/*")}, object: object(reportKind, "reports", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTerm(t, "one", "5.aaaaaaaa")
			p.guards = test.guards
			below := &recorder{}
			c := fenced.Client(below, p)
			want := []string{"Update", "status Update"}
			if test.main {
				want[0] += " 5.aaaaaaaa"
			}
			if test.status {
				want[1] += " 5.aaaaaaaa"
			}
			if !test.refuse {
				want = append(want, "scale Update")
			}
			if err := errors.Join(c.Update(t.Context(), test.object.DeepCopy()), c.Status().Update(t.Context(), test.object.DeepCopy())); err != nil {
				t.Fatal(err)
			}
			err := c.SubResource("scale").Update(t.Context(), test.object.DeepCopy())
			var cannot *fenced.CannotStampError
			if errors.As(err, &cannot) != test.refuse {
				t.Errorf("scale: %v", err)
			}
			if diff := cmp.Diff(want, below.calls); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAKindThatIsNotServedYetIsAnError(t *testing.T) {
	c := fenced.Client(&recorder{unmapped: true}, newTerm(t, "one", "5.aaaaaaaa"))
	if err := c.Update(t.Context(), object(reportKind, "reports", "x")); !meta.IsNoMatchError(err) {
		t.Errorf("error is %v", err)
	}
	if err := c.Update(t.Context(), object(podKind, "reports", "x")); err != nil {
		t.Errorf("an unguarded group needs no resource: %v", err)
	}
}

func TestTwoLeasesStampTogether(t *testing.T) {
	below := &recorder{}
	c := fenced.Client(fenced.Client(below, newTerm(t, "one", "5.aaaaaaaa")), newTerm(t, "two", "9.bbbbbbbb"))
	o := object(reportKind, "reports", "weekly")
	err := errors.Join(c.Create(t.Context(), o.DeepCopy()), c.Patch(t.Context(), o, merge()), c.Status().Apply(t.Context(), configuration(o.DeepCopy())), c.Delete(t.Context(), o))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Create 5.aaaaaaaa 9.bbbbbbbb", "Patch 5.aaaaaaaa 9.bbbbbbbb", "status Apply 5.aaaaaaaa 9.bbbbbbbb",
		"Patch 5.aaaaaaaa/delete 9.bbbbbbbb/delete", "Delete",
	}
	if diff := cmp.Diff(want, below.calls); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEachWriteHasAnOperationOfItsOwn(t *testing.T) {
	p := newTerm(t, "one", "5.aaaaaaaa")
	seen := map[string]bool{}
	for range 3 {
		c := fenced.Client(&recorder{}, p)
		for range 100 {
			o := object(reportKind, "reports", "weekly")
			if err := c.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			seen[o.GetAnnotations()[markOne]] = true
		}
	}
	if len(seen) != 300 {
		t.Errorf("300 writes had %d operations", len(seen))
	}
}
