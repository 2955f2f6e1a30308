// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/faults"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// admitted is how long a create that waits is given to be admitted by all others, and one that goes on to be committed.
	admitted = 300 * time.Millisecond
	// entering is how long a create may take until it waits.
	entering = 2 * time.Second
)

// lateCreate is a create that waits between its admission and its commit, while its term ends.
type lateCreate struct {
	world *World
	lease int
	gap   *env.AdmissionGap
	hold  *env.Hold
	// name is the object's, and token that of the holder when it was sent.
	name, token string
}

// LateCreate has the holder of a lease that hands over by seal create an object of a new name, keeps the request waiting until
// others lead, and lets it go on.
func (w *World) LateCreate() Choice {
	return func(context.Context) (faults.Fault, error) {
		for i, lease := range w.meta.Leases {
			if lease.Handover != string(v1alpha1.HandoverSeal) {
				continue
			}
			l := &lateCreate{world: w, lease: i}
			return faults.Fault{
				Kind: KindLateCreate, Target: lease.Name, Hold: seconds(2, 4),
				Begin: l.begin, Effect: l.effect, End: l.end,
			}, nil
		}
		return faults.Fault{}, errors.New("no lease hands over by seal")
	}
}

func (l *lateCreate) begin(ctx context.Context) error {
	var err error
	l.gap, err = l.world.cluster.StartAdmissionGap(ctx, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports"}},
	})
	if err != nil {
		return err
	}
	return l.world.eventually(ctx, "have a create wait", l.try)
}

// try has the present holder create an object, and give the lease up once the request waits.
func (l *lateCreate) try(ctx context.Context) error {
	lease := &l.world.meta.Leases[l.lease]
	stored, err := l.stored(ctx)
	if err != nil {
		return err
	}
	if ptr.Deref(stored.Status.SealedGeneration, 0) != ptr.Deref(stored.Status.Generation, 0) {
		return errors.New("the term is still to be sealed")
	}
	holder := l.world.holder(ctx, *lease)
	if ptr.Deref(stored.Status.HolderIdentity, "") != holder.identity() {
		return errors.New("nobody holds the lease")
	}
	name := "late-" + strconv.Itoa(len(lease.Objects))
	lease.Objects = append(lease.Objects, name)
	hold := l.gap.Hold(func(r *admissionv1.AdmissionRequest) bool {
		return r.Namespace == lease.ObjectNamespace() && r.Name == name
	})
	if err := holder.Say("create " + name); err != nil {
		hold.Release()
		return err
	}
	timer := time.NewTimer(entering)
	defer timer.Stop()
	select {
	case <-hold.Entered():
	case <-timer.C:
		hold.Release()
		return fmt.Errorf("the create of %s does not come", name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.hold, l.name, l.token = hold, name, ptr.Deref(stored.Status.Token, "")
	if err := history.Sleep(ctx, admitted); err != nil {
		return err
	}
	return holder.Say("resign")
}

func (l *lateCreate) stored(ctx context.Context) (*v1alpha1.FencedLease, error) {
	ref := l.world.meta.Leases[l.lease].LeaseRef
	stored := &v1alpha1.FencedLease{}
	err := l.world.admin.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, stored)
	return stored, err
}

// effect says whether others lead while the create waits. Whether it is committed then is for the checks to say.
func (l *lateCreate) effect(ctx context.Context) string {
	stored, err := l.stored(ctx)
	switch token := ptr.Deref(stored.Status.Token, ""); {
	case err != nil || l.hold == nil || token == l.token:
		return ""
	default:
		return fmt.Sprintf("%s waited under %s until %s", l.name, l.token, token)
	}
}

// end lets the create go on, and returns when the product has seen to the object, if there is one.
func (l *lateCreate) end(ctx context.Context) error {
	if l.gap == nil {
		return nil
	}
	if l.hold == nil {
		return l.gap.Close(ctx)
	}
	l.hold.Release()
	// It is committed in this time, if it is.
	if err := errors.Join(l.gap.Close(ctx), history.Sleep(ctx, admitted)); err != nil {
		return err
	}
	lease := l.world.meta.Leases[l.lease]
	return l.world.eventually(ctx, "wait for what becomes of "+l.name, func(ctx context.Context) error {
		object := env.BareReport(lease.ObjectNamespace(), l.name)
		if err := l.world.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
		if strings.HasPrefix(object.GetAnnotations()[v1alpha1.TokenKey(lease.Name)], l.token) {
			return errors.New("its mark is still that of the create")
		}
		return nil
	})
}
