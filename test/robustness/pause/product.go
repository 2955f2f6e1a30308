// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	leaseName = "report-writer"
	account   = "worker"

	patience     = 20 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Product is FencedLease, whose manager runs and logs into Judged.
type Product struct {
	Cluster *env.Environment
	Admin   client.Client
	Judged  *Judgements

	operations atomic.Int64
}

// NewProduct returns the product with what its writers need in the cluster.
func NewProduct(ctx context.Context, cluster *env.Environment, judged *Judgements) (*Product, error) {
	admin, err := env.Client(cluster.Config())
	if err != nil {
		return nil, err
	}
	// Workers may write everything, as operators often may. The fence must hold all the same.
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
	}
	if err := admin.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create ClusterRoleBinding: %w", err)
	}
	return &Product{Cluster: cluster, Admin: admin, Judged: judged}, nil
}

// DebugLog returns a log that Judgements understands.
func DebugLog(judged *Judgements) logr.Logger {
	// One level below debugging, where nothing is left out however much is logged.
	return zap.New(zap.WriteTo(judged), zap.JSONEncoder(), zap.Level(zapcore.DebugLevel-1), zap.StacktraceLevel(zapcore.PanicLevel))
}

// ProductStory is one FencedLease.
type ProductStory struct {
	product    *Product
	Lease      *v1alpha1.FencedLease
	tokens     map[Holder]string
	credential *rest.Config
}

var _ Story = &ProductStory{}

// Begin implements System.
func (p *Product) Begin(ctx context.Context, namespace string, strategy Strategy) (Story, error) {
	return p.BeginLease(ctx, namespace, func(l *v1alpha1.FencedLease) {
		if strategy.seals() {
			l.Spec.Handover = v1alpha1.HandoverSeal
		}
		if strategy == SealedDeleting {
			l.Spec.LateCreates = v1alpha1.LateCreatesDelete
		}
	})
}

// BeginLease makes the lease, lets A hold it and gives A a credential of its term.
func (p *Product) BeginLease(ctx context.Context, namespace string, mutations ...func(*v1alpha1.FencedLease)) (*ProductStory, error) {
	s := &ProductStory{product: p, Lease: env.NewLease(namespace, leaseName, mutations...), tokens: map[Holder]string{}}
	if err := product.CreateLease(ctx, p.Admin, s.Lease); err != nil {
		return nil, err
	}
	if err := s.Acquire(ctx, A); err != nil {
		return nil, err
	}
	if s.Lease.Status.Seal == v1alpha1.SealRequired {
		if err := s.Seal(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.mint(ctx)
}

// Acquire lets a holder acquire the lease.
func (s *ProductStory) Acquire(ctx context.Context, holder Holder) error {
	err := untilDone(ctx, func(ctx context.Context) error {
		// The controller may write the status in between.
		return env.Acquire(ctx, s.product.Admin, s.Lease, string(holder))
	})
	if err != nil {
		return err
	}
	s.tokens[holder] = *s.Lease.Status.Token
	return nil
}

// mint requests a credential and records it for the term that the lease shows.
func (s *ProductStory) mint(ctx context.Context) error {
	var err error
	if s.credential, err = s.product.Cluster.ServiceAccount(ctx, s.Lease.Namespace, account); err != nil {
		return err
	}
	id, err := credentialID(s.credential.BearerToken)
	if err != nil {
		return err
	}
	status := &s.Lease.Status
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"generation": status.Generation, "term": status.Term, "holderIdentity": status.HolderIdentity,
		"credentials": []v1alpha1.Credential{{ID: id, Term: *status.Term}},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := s.product.Admin.Status().Patch(ctx, s.Lease.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("record credential: %w", err)
	}
	c, err := env.Client(s.credential)
	if err != nil {
		return err
	}
	// API servers learn of the binding a moment late.
	return untilDone(ctx, func(ctx context.Context) error {
		return c.Patch(ctx, env.BareReport(s.Lease.Namespace, "none"), client.RawPatch(types.MergePatchType, []byte("{}")))
	}, apierrors.IsNotFound)
}

// credentialID returns the id by which the API server knows a token.
func credentialID(text string) (string, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return "", errors.New("read token: it does not have three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	claims := struct {
		ID string `json:"jti"`
	}{}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return v1alpha1.CredentialPrefix + claims.ID, nil
}

// Key implements Story.
func (s *ProductStory) Key() string { return v1alpha1.TokenKey(s.Lease.Name) }

// Token returns the token of a holder's term.
func (s *ProductStory) Token(holder Holder) string { return s.tokens[holder] }

// Fresh implements Story.
func (s *ProductStory) Fresh(holder Holder, intent bool) string {
	if intent {
		return s.tokens[holder] + "/" + token.OperationDelete
	}
	return fmt.Sprintf("%s/%d", s.tokens[holder], s.product.operations.Add(1))
}

// OwnerOf implements Story.
func (s *ProductStory) OwnerOf(value string) Holder {
	value, _, _ = strings.Cut(value, "/")
	for holder, token := range s.tokens {
		if value == token {
			return holder
		}
	}
	return Holder(value)
}

// Config implements Story.
func (s *ProductStory) Config(holder Holder, carrier Carrier) (*rest.Config, error) {
	config := s.product.Cluster.Config()
	switch carrier {
	case Annotation, None:
	case Extra:
		config.Impersonate = rest.ImpersonationConfig{
			UserName: account, Groups: []string{"system:masters"}, Extra: map[string][]string{s.Key(): {s.tokens[holder]}},
		}
	case Credential:
		if holder != A {
			return nil, errors.New("only A has a credential")
		}
		return rest.CopyConfig(s.credential), nil
	}
	return config, nil
}

// TakeOver implements Story.
func (s *ProductStory) TakeOver(ctx context.Context) error { return s.Acquire(ctx, B) }

// Seal implements Story.
func (s *ProductStory) Seal(ctx context.Context) error {
	err := untilDone(ctx, func(ctx context.Context) error {
		if err := s.product.Admin.Get(ctx, client.ObjectKeyFromObject(s.Lease), s.Lease); err != nil {
			return err
		}
		if status := s.Lease.Status; ptr.Deref(status.SealedGeneration, 0) != ptr.Deref(status.Generation, 0) {
			return fmt.Errorf("the term is not sealed; conditions: %+v", status.Conditions)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the seal: %w", err)
	}
	return nil
}

// Admissions implements Story.
func (s *ProductStory) Admissions(name string) int {
	return s.product.Judged.Admissions(s.Lease.Namespace, name)
}

// Close implements Story.
func (s *ProductStory) Close() {}

// untilDone repeats an action until it succeeds, or until its error is an accepted one.
func untilDone(ctx context.Context, action func(context.Context) error, accepted ...func(error) bool) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		last = action(ctx)
		for _, accept := range accepted {
			if accept(last) {
				return true, nil
			}
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
