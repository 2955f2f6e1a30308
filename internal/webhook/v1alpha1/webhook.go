// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// +kubebuilder:webhookconfiguration:mutating=false,name=validation
// +kubebuilder:webhook:path=/validate-coordination-fencedlease-io-v1alpha1-fencedlease,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=coordination.fencedlease.io,resources=fencedleases,verbs=create;update,versions=v1alpha1,name=policy.fencedleases.coordination.fencedlease.io,admissionReviewVersions=v1
// +kubebuilder:webhook:path=/validate-coordination-fencedlease-io-v1alpha1-fencedlease,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=coordination.fencedlease.io,resources=fencedleases,verbs=delete,versions=v1alpha1,name=deletion.fencedleases.coordination.fencedlease.io,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.fencedlease.io,resources=fencedleases,verbs=list

const (
	// Path is where the webhook server answers reviews of FencedLeases.
	Path = "/validate-coordination-fencedlease-io-v1alpha1-fencedlease"

	// ConfigurationName is the name of the ValidatingWebhookConfiguration, with the prefix that kustomize adds.
	ConfigurationName = "fencedlease-validation"

	// PolicyWebhookName is the configuration's entry for creates and updates, which fails closed.
	PolicyWebhookName = "policy.fencedleases.coordination.fencedlease.io"

	// DeletionWebhookName is the configuration's entry for deletes, which only warns and fails open.
	DeletionWebhookName = "deletion.fencedleases.coordination.fencedlease.io"
)

// Classifier says what a guarded resource is. guardkind's classifier is one.
type Classifier interface {
	Classify(ctx context.Context, group, resource string) (guardkind.Kind, error)
}

// AccessReviewer asks the API server's authorizer. The client for subjectaccessreviews is one.
type AccessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Options are what the webhook needs of its surroundings.
type Options struct {
	// Namespace is the manager's own namespace. Required.
	Namespace string
	// Kinds classifies guarded resources. Required.
	Kinds Classifier
	// Access answers whether a requester has the verb guard-cluster. Defaults to the manager's API server.
	Access AccessReviewer
	// Leases lists FencedLeases by name, over all namespaces. Defaults to the manager's uncached reader: writes of guards
	// are rare, and of two leases that are created one after the other the second must see the first.
	Leases client.Reader
}

// SetupWithManager registers the webhook with the manager's webhook server.
func SetupWithManager(mgr manager.Manager, opts Options) error {
	if opts.Access == nil {
		c, err := authorizationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return fmt.Errorf("create client for subjectaccessreviews: %w", err)
		}
		opts.Access = c.SubjectAccessReviews()
	}
	if opts.Leases == nil {
		opts.Leases = mgr.GetAPIReader()
	}
	hook, err := newHook(mgr.GetScheme(), opts)
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(Path, hook)
	return nil
}

// newHook returns the webhook. A panic in it is recovered and refuses the request.
func newHook(scheme *runtime.Scheme, opts Options) (*admission.Webhook, error) {
	v, err := newValidator(opts)
	if err != nil {
		return nil, err
	}
	hook := admission.WithValidator(scheme, v).WithRecoverPanic(true)
	hook.Handler = deletionsPass{hook.Handler}
	return hook, nil
}

// validator answers reviews of FencedLeases.
type validator struct {
	Options
}

var _ admission.Validator[*api.FencedLease] = (*validator)(nil)

func newValidator(opts Options) (*validator, error) {
	switch {
	case opts.Namespace == "":
		return nil, errors.New("set up webhook for FencedLeases: the manager's namespace is not known: set --namespace or POD_NAMESPACE")
	case opts.Kinds == nil, opts.Access == nil, opts.Leases == nil:
		return nil, errors.New("set up webhook for FencedLeases: a classifier, an access reviewer and a reader of leases are required")
	}
	return &validator{opts}, nil
}

// ValidateCreate validates a new FencedLease.
func (v *validator) ValidateCreate(ctx context.Context, lease *api.FencedLease) (admission.Warnings, error) {
	return v.validate(ctx, nil, lease)
}

// ValidateUpdate validates a changed FencedLease.
func (v *validator) ValidateUpdate(ctx context.Context, old, lease *api.FencedLease) (admission.Warnings, error) {
	return v.validate(ctx, old, lease)
}

// ValidateDelete warns about a deletion that ends a term or a protection. The lease is the stored one that the commit is
// conditioned on.
func (v *validator) ValidateDelete(_ context.Context, lease *api.FencedLease) (admission.Warnings, error) {
	return deletionWarnings(lease), nil
}

func (v *validator) validate(ctx context.Context, old, lease *api.FencedLease) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, internalError(err)
	}
	if lease.Namespace == "" {
		// The API server has filled it in already; the request says the same.
		lease.Namespace = req.Namespace
	}
	found, err := v.ask(ctx, questionsOf(old, lease), lease, req.UserInfo)
	if err != nil {
		return nil, internalError(err)
	}
	errs, warnings := review{
		lease:            lease,
		old:              old,
		managerNamespace: v.Namespace,
		requester:        req.UserInfo.Username,
		answers:          found,
	}.check()
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(api.Kind.GroupKind(), lease.Name, errs)
	}
	return warnings, nil
}

// internalError is the answer where a question could not be answered: a 500-class error, never an admission and never a
// verdict. It asks for no retry, so that the client decides.
func internalError(err error) error {
	return apierrors.NewInternalError(fmt.Errorf("cannot judge this FencedLease, nothing was written: %w", err))
}

// deletionsPass turns every refusal of a deletion into a warning: a lease that cannot be read must still go.
type deletionsPass struct {
	admission.Handler
}

// Handle answers as the handler that it wraps, but lets deletions pass.
func (d deletionsPass) Handle(ctx context.Context, req admission.Request) admission.Response {
	resp := d.Handler.Handle(ctx, req)
	if req.Operation != admissionv1.Delete || resp.Allowed {
		return resp
	}
	return admission.Allowed("").WithWarnings(fmt.Sprintf("the stored FencedLease %s/%s cannot be read, so nothing is known of what its deletion ends", req.Namespace, req.Name))
}
