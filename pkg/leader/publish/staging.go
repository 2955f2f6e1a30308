// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// switchAttempts bounds how often a switch begins anew because others write the reference or answers are lost.
const switchAttempts = 10

// Staging is a set of objects that are published together. Its methods may be called by several goroutines; Publish comes
// after every Create has returned.
type Staging struct {
	publisher *Publisher
	id        string

	mu     sync.Mutex
	staged []client.Object
	// failed has the names of objects that could not be created, and why.
	failed map[client.ObjectKey]error
	done   bool
}

// Begin begins a staging. A process that ends before it has published leaves it to the collection of the next term.
func (p *Publisher) Begin() *Staging {
	// Text of lower-case letters and digits, which fits into names. It is unique within the term.
	return &Staging{publisher: p, failed: map[client.ObjectKey]error{}, id: p.possessed.Term + "-" + strings.ToLower(rand.Text()[:8])}
}

// ID returns the id of the staging, which is in the labels of its objects.
func (s *Staging) ID() string { return s.id }

// Name returns a name for an object of the staging that no other one uses: base, and 18 characters.
func (s *Staging) Name(base string) string { return base + "-" + s.id }

// Create stages an object, with labels that say where it comes from. Its name must be unique to the staging, see Name. If the
// answer is lost it can be called again with the same object. A staging with an object that could not be created cannot be
// published.
func (s *Staging) Create(ctx context.Context, obj client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return fmt.Errorf("stage %s: %w", obj.GetName(), ErrFinished)
	}
	if obj.GetName() == "" {
		return errors.New("stage an object: it has no name")
	}
	obj.SetLabels(s.label(obj.GetLabels()))
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationReference] = s.publisher.String()
	obj.SetAnnotations(annotations)

	key := client.ObjectKeyFromObject(obj)
	if err := s.create(ctx, obj); err != nil {
		s.failed[key] = err
		return fmt.Errorf("stage %s: %w", key, err)
	}
	delete(s.failed, key)
	s.staged = append(s.staged, obj)
	return nil
}

func (s *Staging) create(ctx context.Context, obj client.Object) error {
	c := s.publisher.options.Client
	err := c.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// By an earlier attempt, if it is of this staging: nobody else knows its id.
	if errGet := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); errGet != nil {
		return errors.Join(err, errGet)
	}
	if from, ok := originOf(obj); !ok || from.staging != s.id || obj.GetLabels()[LabelReference] != s.publisher.reference {
		return err
	}
	return nil
}

// Publish switches the reference to what is staged: it reads the reference, lets refer change it, and updates it under the
// term's token on condition that nobody has written it in between. Refer may be called several times, each time with the
// reference as it is stored. It must not refer to other staged objects than those of this staging and those that are referred
// to already: the others may be gone.
//
// If an answer is lost the reference is read: it tells whether the switch has happened. The error is a refusal to
// leader.IsFenced if the fence has refused the switch. After any error the reference did not refer to the staging when it was
// last read. It may come to, until a newer term has written it, if an attempt whose answer was lost is still on its way:
// call Publish again, or Abandon and Collect, after which it cannot.
func (s *Staging) Publish(ctx context.Context, refer func(reference client.Object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return fmt.Errorf("publish staging %s: %w", s.id, ErrFinished)
	case len(s.failed) > 0:
		return fmt.Errorf("publish staging %s, of which objects are missing: %w", s.id, errors.Join(slices.Collect(maps.Values(s.failed))...))
	}
	p := s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	err := s.publish(ctx, refer)
	if err == nil {
		s.done, p.finished[s.id] = true, true
	}
	return err
}

func (s *Staging) publish(ctx context.Context, refer func(reference client.Object) error) error {
	var last error
	for range switchAttempts {
		reference, err := s.publisher.read(ctx)
		switch {
		case err != nil:
			return errors.Join(err, last)
		case s.referred(reference):
			return s.checkMark(reference)
		case last != nil && !retriable(last):
			return last
		}
		if last = s.switchOnce(ctx, reference, refer); last == nil {
			return s.checkMark(reference)
		}
		if errors.Is(last, errGivenUp) || ctx.Err() != nil {
			return last
		}
	}
	return fmt.Errorf("publish staging %s to %s, which others keep writing: %w", s.id, s.publisher, last)
}

// checkMark returns an error if the reference, which refers to the staging, was not fenced when it was switched. A newer term
// may have written it since.
func (s *Staging) checkMark(reference client.Object) error {
	mark, err := s.publisher.mark(reference)
	if err == nil && token.Compare(mark, s.publisher.possessed) < 0 {
		err = s.publisher.notGuarded(mark.String())
	}
	return err
}

// errGivenUp marks errors before anything was sent.
var errGivenUp = errors.New("not sent")

// switchOnce updates the reference as it was read.
func (s *Staging) switchOnce(ctx context.Context, reference client.Object, refer func(client.Object) error) error {
	version, uid := reference.GetResourceVersion(), reference.GetUID()
	if err := refer(reference); err != nil {
		return fmt.Errorf("refer to staging %s: %w: %w", s.id, errGivenUp, err)
	}
	reference.SetResourceVersion(version)
	reference.SetUID(uid)
	if !s.referred(reference) {
		return fmt.Errorf("publish staging %s: %w (%w)", s.id, ErrDoesNotRefer, errGivenUp)
	}
	if err := s.publisher.options.Client.Update(ctx, reference); err != nil {
		return fmt.Errorf("switch the reference %s to staging %s: %w", s.publisher, s.id, err)
	}
	return nil
}

// retriable reports whether a switch may be tried again: the reference was written meanwhile, or it is not known whether it
// has happened. An update that is still under way is conditioned on the version that the next attempt is conditioned on, too.
func retriable(err error) bool {
	return !fenced.IsFenced(err) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err)
}

// referred reports whether the reference refers to an object of the staging.
func (s *Staging) referred(reference client.Object) bool {
	for _, staged := range s.staged {
		if s.publisher.options.Refers(reference, staged) {
			return true
		}
	}
	return false
}

// Abandon gives the staging up, so that the next Collect deletes its objects, unless the reference refers to it. It sends
// nothing.
func (s *Staging) Abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	s.publisher.mu.Lock()
	defer s.publisher.mu.Unlock()
	s.publisher.finished[s.id] = true
}
