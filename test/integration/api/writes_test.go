//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// owner is the field manager of all of the tests' applies.
const owner = "test"

// Three holders and their terms.
const (
	termA = "aaaaaaaa"
	termB = "bbbbbbbb"
	termC = "cccccccc"
	termD = "dddddddd"
)

// fields are the fields of a spec or a status.
type fields = map[string]any

var fencedLease = v1alpha1.Kind

// first is the first status: a floor, and nothing held.
func first(floor int64) fields {
	return fields{
		"generation": int64(0), "generationFloor": floor, "sealedGeneration": int64(0),
		"term": "", "token": "", "holderIdentity": "", "handover": "Lazy", "seal": "NotRequired",
	}
}

// possess changes the status to a holder's possession under a generation and a term, with the token that goes with it.
func possess(holder string, generation int64, term string) func(fields) {
	return func(status fields) {
		status["holderIdentity"], status["generation"], status["term"] = holder, generation, term
		status["token"] = strconv.FormatInt(generation, 10) + "." + term
		status["acquireTime"], status["renewTime"] = "2026-11-01T00:00:00.000000Z", "2026-11-01T00:00:00.000000Z"
	}
}

// set changes single fields of the status.
func set(pairs ...any) func(fields) {
	return func(status fields) {
		for i := 0; i < len(pairs); i += 2 {
			if n, ok := pairs[i+1].(int); ok {
				pairs[i+1] = int64(n)
			}
			status[pairs[i].(string)] = pairs[i+1]
		}
	}
}

// drop removes fields of the status.
func drop(names ...string) func(fields) {
	return func(status fields) {
		for _, name := range names {
			delete(status, name)
		}
	}
}

// all makes several changes.
func all(changes ...func(fields)) func(fields) {
	return func(status fields) {
		for _, change := range changes {
			change(status)
		}
	}
}

// credentials changes the list to pairs of id and term.
func credentials(pairs ...string) func(fields) {
	return func(status fields) {
		list := []any{}
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, fields{"id": pairs[i], "term": pairs[i+1]})
		}
		status["credentials"] = list
	}
}

// step is a write that leads to a state: to spec, or to status.
type step struct {
	spec   fields
	status func(fields)
}

// state is how a lease came to be what it is.
type state []step

// The states of the cases. A held generation 101 in term a, B holds 102 in term b, the floor is 100.
var (
	noStatus    = state{}
	floorOnly   = state{{status: func(status fields) { maps.Copy(status, first(100)) }}}
	heldByA     = append(floorOnly[:1:1], step{status: possess("A", 101, termA)})
	heldByB     = append(heldByA[:2:2], step{status: possess("B", 102, termB)})
	releasedByB = append(heldByB[:3:3], step{status: set("holderIdentity", "")})
	credentialB = append(heldByA[:2:2],
		step{status: credentials("JTI=a", termA)},
		step{status: all(possess("B", 102, termB), credentials("JTI=b", termB, "JTI=a", termA))})
	// Terms under handover Seal.
	sealDue = state{
		{spec: fields{"handover": "Seal"}}, floorOnly[0],
		{status: all(possess("A", 101, termA), set("handover", "Seal", "seal", "Required"))},
	}
	sealDone = append(sealDue[:3:3], step{status: set("sealedGeneration", 101)})
	// Terms under handover Lazy that follow one under Seal.
	lazyDue = append(sealDone[:4:4], step{spec: fields{"handover": "Lazy"}},
		step{status: all(possess("B", 102, termB), set("handover", "Lazy", "seal", "Required"))})
	lazyDone = append(lazyDue[:6:6], step{status: set("sealedGeneration", 102)})
)

// lease makes a FencedLease, or an object of a kind of the same shape, and brings it to a state by applies of one owner.
func (s state) lease(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	GinkgoHelper()
	lease := &unstructured.Unstructured{Object: fields{"spec": fields{"leaseDurationSeconds": int64(15)}}}
	lease.SetGroupVersionKind(kind)
	lease.SetNamespace(namespace)
	lease.SetName(name)
	Expect(admin.Create(ctx, lease)).To(Succeed())
	for _, step := range s {
		if step.spec != nil {
			Expect(admin.Patch(ctx, lease, mergePatch(fields{"spec": step.spec}))).To(Succeed())
		}
		if step.status != nil {
			status := statusOf(lease)
			step.status(status)
			Expect(byApply.write(ctx, lease, status)).To(Succeed())
		}
	}
	return lease
}

// statusOf returns a copy of an object's status.
func statusOf(lease *unstructured.Unstructured) fields {
	status, _, err := unstructured.NestedMap(lease.Object, "status")
	Expect(err).NotTo(HaveOccurred())
	if status == nil {
		status = fields{}
	}
	return status
}

// verb is a way to write a status.
type verb struct {
	name string
	// write makes the stored object's status the given one. Lease is the stored object, and becomes the answer. A nil
	// status removes it.
	write func(ctx context.Context, lease *unstructured.Unstructured, status fields) error
}

var (
	byPut = verb{"PUT", func(ctx context.Context, lease *unstructured.Unstructured, status fields) error {
		lease = lease.DeepCopy()
		if status == nil {
			delete(lease.Object, "status")
		} else {
			lease.Object["status"] = status
		}
		return admin.Status().Update(ctx, lease)
	}}
	byMergePatch = verb{"merge patch", func(ctx context.Context, lease *unstructured.Unstructured, status fields) error {
		return admin.Status().Patch(ctx, lease.DeepCopy(), mergePatch(fields{"status": difference(statusOf(lease), status)}))
	}}
	byMergePatchWithVersion = verb{"merge patch with resourceVersion", func(ctx context.Context, lease *unstructured.Unstructured, status fields) error {
		return admin.Status().Patch(ctx, lease.DeepCopy(), mergePatch(fields{
			"metadata": fields{"resourceVersion": lease.GetResourceVersion()},
			"status":   difference(statusOf(lease), status),
		}))
	}}
	byApply = verb{"forced server-side apply", func(ctx context.Context, lease *unstructured.Unstructured, status fields) error {
		applied := &unstructured.Unstructured{Object: fields{}}
		applied.SetGroupVersionKind(lease.GroupVersionKind())
		applied.SetNamespace(lease.GetNamespace())
		applied.SetName(lease.GetName())
		if status != nil {
			applied.Object["status"] = status
		}
		data, err := json.Marshal(applied)
		if err != nil {
			return err
		}
		if err := admin.Status().Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(owner), client.ForceOwnership); err != nil {
			return err
		}
		lease.Object = applied.Object
		return nil
	}}
	verbs = []verb{byPut, byMergePatch, byMergePatchWithVersion, byApply}
)

// difference returns the merge patch from one status to another: changed fields, and null for those that are gone.
func difference(from, to fields) any {
	if to == nil {
		return nil
	}
	patch := fields{}
	for name, value := range to {
		if !reflect.DeepEqual(from[name], value) {
			patch[name] = value
		}
	}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	return patch
}

func mergePatch(patch fields) client.Patch {
	GinkgoHelper()
	data, err := json.Marshal(patch)
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, data)
}

// stored returns the object as the API server has it.
func stored(ctx context.Context, lease *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	read := &unstructured.Unstructured{}
	read.SetGroupVersionKind(lease.GroupVersionKind())
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(lease), read)).To(Succeed())
	return read
}

// causes returns the messages of a refusal by validation.
func causes(err error) []string {
	GinkgoHelper()
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) || !apierrors.IsInvalid(err) {
		Fail("want a refusal by validation, got: " + errorText(err))
	}
	var messages []string
	for _, cause := range refused.ErrStatus.Details.Causes {
		messages = append(messages, cause.Message)
	}
	return messages
}

// broken returns the names of the rules that a refusal names, and the messages that are no rule's.
func broken(messages []string) (names, others []string) {
	for _, message := range messages {
		found := slices.IndexFunc(rules, func(r rule) bool { return strings.HasSuffix(message, r.message) })
		if found < 0 {
			others = append(others, message)
			continue
		}
		names = append(names, rules[found].name)
	}
	slices.Sort(names)
	return names, others
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// asObject converts a typed object.
func asObject(lease *v1alpha1.FencedLease) *unstructured.Unstructured {
	GinkgoHelper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	Expect(err).NotTo(HaveOccurred())
	converted := &unstructured.Unstructured{Object: object}
	converted.SetGroupVersionKind(fencedLease)
	return converted
}
