// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/probe"
)

// surroundings answer a webhook's questions, and note them.
type surroundings struct {
	// may is whether the requester has the verb guard-cluster.
	may authorizationv1.SubjectAccessReviewStatus
	// accessErr, kindErr and listErr make a question fail.
	accessErr, kindErr, listErr error
	// panics makes the classification panic.
	panics bool
	others []api.FencedLease

	reviews []authorizationv1.SubjectAccessReviewSpec
	kinds   []string
	lists   int
}

func (s *surroundings) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	s.reviews = append(s.reviews, review.Spec)
	if s.accessErr != nil {
		return nil, s.accessErr
	}
	review = review.DeepCopy()
	review.Status = s.may
	return review, nil
}

func (s *surroundings) Classify(_ context.Context, group, resource string) (guardkind.Kind, error) {
	if s.panics {
		panic("classifier is broken")
	}
	gr := schema.GroupResource{Group: group, Resource: resource}
	s.kinds = append(s.kinds, gr.String())
	return world[gr], s.kindErr
}

func (s *surroundings) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("nobody may get")
}

func (s *surroundings) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	if s.listErr != nil {
		return s.listErr
	}
	list.(*api.FencedLeaseList).Items = s.others
	return nil
}

func (s *surroundings) hook(t *testing.T) *admission.Webhook {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hook, err := newHook(scheme, Options{Namespace: managerNamespace, Kinds: s, Access: s, Leases: s})
	if err != nil {
		t.Fatal(err)
	}
	return hook
}

func raw(t *testing.T, l *api.FencedLease) []byte {
	t.Helper()
	l = l.DeepCopy()
	l.SetGroupVersionKind(api.Kind)
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var alice = authenticationv1.UserInfo{
	Username: "alice", UID: "u-1", Groups: []string{"g", "h"},
	Extra: map[string]authenticationv1.ExtraValue{"example.com/k": {"v", "w"}},
}

// request returns a review of a request by alice. Empty text stands for an absent object.
func request(operation admissionv1.Operation, object, old []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, Namespace: ownNamespace, Name: "report-writer", UserInfo: alice,
		Resource: metav1.GroupVersionResource{Group: api.GroupName, Version: "v1alpha1", Resource: "fencedleases"},
		Object:   runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
	}}
}

// TestHandlerIsTotal has a row for each operation, with good, bad and missing objects, and for each question that fails.
// Each row is asked with and without dry-run, and must have the same answer.
func TestHandlerIsTotal(t *testing.T) {
	good := raw(t, lease(guards(guard("example.com", "reports"))))
	widened := raw(t, lease(guards(wide(guard("example.com", "reports")))))
	own := raw(t, lease(guards(guard("coordination.fencedlease.io", "fencedleases"))))
	held := raw(t, lease(func(l *api.FencedLease) { l.Status.HolderIdentity, l.Status.Generation = new("pod-a"), new(int64(33)) }))
	broken, number := []byte(`{"spec":`), []byte(`{"apiVersion":"coordination.fencedlease.io/v1alpha1","kind":"FencedLease","spec":{"guards":7}}`)
	const cannot = "cannot judge this FencedLease, nothing was written: "
	const unreadable = "the stored FencedLease reports/report-writer cannot be read, so nothing is known of what its deletion ends"
	status := func(req admission.Request) admission.Request {
		req.SubResource = "status"
		return req
	}

	for name, c := range map[string]struct {
		world    surroundings
		request  admission.Request
		allowed  bool
		code     int32
		reason   metav1.StatusReason
		message  string
		warnings []string
	}{
		"create of a good lease":   {request: request(admissionv1.Create, good, nil), allowed: true, code: 200},
		"create of a bad lease":    {request: request(admissionv1.Create, own, nil), code: 422, reason: metav1.StatusReasonInvalid, message: `FencedLease.coordination.fencedlease.io "report-writer" is invalid: spec.guards[0].apiGroups[0]: Invalid value`},
		"create without an object": {request: request(admissionv1.Create, nil, nil), code: 400},
		"create of no JSON":        {request: request(admissionv1.Create, broken, nil), code: 400},
		"create of no lease":       {request: request(admissionv1.Create, number, nil), code: 400},
		"create of a wide guard with the verb": {
			world:   surroundings{may: authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
			request: request(admissionv1.Create, widened, nil), allowed: true, code: 200,
		},
		"create of a wide guard without the verb": {
			world:   surroundings{may: authorizationv1.SubjectAccessReviewStatus{Reason: "no rule"}},
			request: request(admissionv1.Create, widened, nil), code: 422, reason: metav1.StatusReasonInvalid,
			message: `which user "alice" does not have (no rule): have an administrator grant the verb`,
		},
		"create of a wide guard that an authorizer denies although it allows": {
			world:   surroundings{may: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}},
			request: request(admissionv1.Create, widened, nil), code: 422, reason: metav1.StatusReasonInvalid,
			message: `which user "alice" does not have: have`,
		},
		"create of a wide guard whose authorizer fails": {
			world:   surroundings{may: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "role is gone"}},
			request: request(admissionv1.Create, widened, nil), code: 422, reason: metav1.StatusReasonInvalid,
			message: `which user "alice" does not have (role is gone): have`,
		},
		"create while nobody answers for the verb": {
			world:   surroundings{accessErr: errors.New("no quorum"), may: authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
			request: request(admissionv1.Create, widened, nil), code: 500, reason: metav1.StatusReasonInternalError,
			message: cannot + "create subjectaccessreview for the verb guard-cluster: no quorum",
		},
		"create while kinds are unknown": {
			world:   surroundings{kindErr: errors.New("no quorum")},
			request: request(admissionv1.Create, good, nil), code: 500, reason: metav1.StatusReasonInternalError,
			message: cannot + "classify reports.example.com: no quorum",
		},
		"create while other leases are unknown": {
			world:   surroundings{listErr: errors.New("no quorum")},
			request: request(admissionv1.Create, good, nil), code: 500, reason: metav1.StatusReasonInternalError,
			message: cannot + `list FencedLeases named "report-writer": no quorum`,
		},
		"create that panics": {
			world:   surroundings{panics: true},
			request: request(admissionv1.Create, good, nil), code: 500, message: "panic: classifier is broken [recovered]",
		},
		"create with an overlap, and with leases that a reader should have left out": {
			world: surroundings{others: []api.FencedLease{
				*lease(guards(wide(guard("example.com", "reports")))),
				*lease(in("a"), guards(wide(guard("example.com", "reports"))), func(l *api.FencedLease) { l.Name = "other" }),
				*lease(in("b"), guards(wide(guard("example.com", "reports")))),
			}},
			request: request(admissionv1.Create, good, nil), code: 422, reason: metav1.StatusReasonInvalid,
			message: `is invalid: spec.guards[0]: Forbidden: overlaps spec.guards[0] of the FencedLease "report-writer" in the namespace "b"`,
		},
		"create of a probe": {
			request: request(admissionv1.Create, raw(t, lease(in(managerNamespace), func(l *api.FencedLease) {
				l.Name = probe.Name(probe.Guards, "0123456789abcdef")
			})), nil),
			allowed: true, code: 200,
		},
		"create of a lease that names no namespace counts as one in the request's": {
			request: request(admissionv1.Create, raw(t, lease(in(""), guards(wide(guard("example.com", "reports"))))), nil), code: 422,
			reason: metav1.StatusReasonInvalid, message: `"report-writer" in the namespace "reports", which user "alice" does not have`,
		},

		"update of a good lease":         {request: request(admissionv1.Update, good, held), allowed: true, code: 200},
		"update to a bad lease":          {request: request(admissionv1.Update, own, good), code: 422, reason: metav1.StatusReasonInvalid, message: "spec.guards[0].apiGroups[0]: Invalid value"},
		"update without an object":       {request: request(admissionv1.Update, nil, good), code: 400},
		"update without an old object":   {request: request(admissionv1.Update, good, nil), code: 400},
		"update of no JSON":              {request: request(admissionv1.Update, broken, good), code: 400},
		"update of an old object broken": {request: request(admissionv1.Update, good, broken), code: 400},
		"update that asks nothing while nobody answers": {
			world:   surroundings{accessErr: errors.New("a"), kindErr: errors.New("b"), listErr: errors.New("c")},
			request: request(admissionv1.Update, widened, widened), allowed: true, code: 200,
		},
		"update of the status, which nobody registers": {
			world:   surroundings{accessErr: errors.New("a"), kindErr: errors.New("b"), listErr: errors.New("c")},
			request: status(request(admissionv1.Update, widened, widened)), allowed: true, code: 200,
		},

		"delete of a held lease": {
			request: request(admissionv1.Delete, nil, held), allowed: true, code: 200,
			warnings: []string{`FencedLease reports/report-writer is held by "pod-a" under generation 33: its deletion ends that term; stop its holder first`},
		},
		"delete of a bad lease that guards": {
			request: request(admissionv1.Delete, nil, own), allowed: true, code: 200,
			warnings: []string{"FencedLease reports/report-writer is not held, but its deletion ends the protection of fencedleases.coordination.fencedlease.io, stale writers are no longer refused"},
		},
		"delete without an old object": {request: request(admissionv1.Delete, nil, nil), allowed: true, code: 200, warnings: []string{unreadable}},
		"delete of no JSON":            {request: request(admissionv1.Delete, nil, broken), allowed: true, code: 200, warnings: []string{unreadable}},
		"delete of no lease":           {request: request(admissionv1.Delete, nil, number), allowed: true, code: 200, warnings: []string{unreadable}},

		"connect":                     {request: request(admissionv1.Connect, nil, nil), allowed: true, code: 200},
		"no operation":                {request: request("", good, nil), code: 400},
		"operation that nobody knows": {request: request("PATCH", good, good), code: 400},
	} {
		for _, dryRun := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", dry-run"}[dryRun], func(t *testing.T) {
				w := c.world
				req := c.request
				req.DryRun = &dryRun
				resp := w.hook(t).Handle(t.Context(), req)
				if resp.Allowed != c.allowed || resp.Result.Code != c.code || resp.Result.Reason != c.reason {
					t.Errorf("want allowed %t with code %d and reason %q, got %t: %+v", c.allowed, c.code, c.reason, resp.Allowed, resp.Result)
				}
				if !strings.Contains(resp.Result.Message, c.message) {
					t.Errorf("want a message with %q, got %q", c.message, resp.Result.Message)
				}
				if diff := cmp.Diff(c.warnings, resp.Warnings, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("warnings (-want +got):\n%s", diff)
				}
				if resp.Result.Details != nil && resp.Result.Details.RetryAfterSeconds != 0 || resp.Result.Code == http.StatusConflict {
					t.Errorf("clients would repeat the request by themselves: %+v", resp.Result)
				}
				if want, got := req.UID, resp.UID; want != got {
					t.Errorf("want the uid %q, got %q", want, got)
				}
			})
		}
	}
}

func TestPermissionIsAskedWithEverythingKnownOfTheUser(t *testing.T) {
	w := surroundings{may: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	resp := w.hook(t).Handle(t.Context(), request(admissionv1.Create,
		raw(t, lease(guards(wide(guard("example.com", "reports")), wide(guard("example.com", "regions"))))), nil))
	if !resp.Allowed {
		t.Fatalf("want it allowed, got %+v", resp.Result)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "alice", UID: "u-1", Groups: []string{"g", "h"},
		Extra: map[string]authorizationv1.ExtraValue{"example.com/k": {"v", "w"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "reports", Name: "report-writer", Verb: "guard-cluster",
			Group: "coordination.fencedlease.io", Version: "v1alpha1", Resource: "fencedleases",
		},
	}}
	if diff := cmp.Diff(want, w.reviews); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"regions.example.com", "reports.example.com"}, w.kinds); diff != "" {
		t.Errorf("classified kinds (-want +got):\n%s", diff)
	}
	if w.lists != 1 {
		t.Errorf("want one list, got %d", w.lists)
	}
}

func TestOptionsThatAreMissing(t *testing.T) {
	s := &surroundings{}
	for name, o := range map[string]Options{
		"namespace":  {Kinds: s, Access: s, Leases: s},
		"classifier": {Namespace: managerNamespace, Access: s, Leases: s},
		"access":     {Namespace: managerNamespace, Kinds: s, Leases: s},
		"leases":     {Namespace: managerNamespace, Kinds: s, Access: s},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newHook(runtime.NewScheme(), o); err == nil {
				t.Error("want an error, got none")
			}
		})
	}
}

// TestConstantsAreThoseOfTheMarkers compares what the manager uses with what the manifest is generated from.
func TestConstantsAreThoseOfTheMarkers(t *testing.T) {
	source, err := os.ReadFile("webhook.go")
	if err != nil {
		t.Fatal(err)
	}
	markers := 0
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "// +kubebuilder:webhookconfiguration:") && !strings.HasSuffix(line, ",name="+strings.TrimPrefix(ConfigurationName, "fencedlease-")) {
			t.Errorf("configuration is not %s without the prefix: %s", ConfigurationName, line)
		}
		if !strings.HasPrefix(line, "// +kubebuilder:webhook:") {
			continue
		}
		markers++
		name := PolicyWebhookName
		if strings.Contains(line, "verbs=delete") {
			name = DeletionWebhookName
		}
		for _, want := range []string{"path=" + Path + ",", ",name=" + name + ",", ",resources=fencedleases,", ",sideEffects=None,", ",matchPolicy=Equivalent,", ",timeoutSeconds=5,"} {
			if !strings.Contains(line, want) {
				t.Errorf("want %q in %s", want, line)
			}
		}
	}
	if markers != 2 {
		t.Errorf("want 2 webhook markers, got %d", markers)
	}
}
