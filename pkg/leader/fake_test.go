// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// script plays the API server where only time matters: in the bubbles of testing/synctest, which no real server can enter.
// What a real server does to a FencedLease is the subject of the integration tests.
type script struct {
	mu       sync.Mutex
	lease    *v1alpha1.FencedLease
	revision int
	watchers map[*watcher]bool
	// requests counts by client and method; watches are "WATCH".
	requests map[string]int
	// sent has when each client last sent a write that was accepted.
	accepted map[string]time.Time
	// partitioned clients get no answers, and their requests do not arrive: they break when the channel is closed.
	partitioned map[string]chan struct{}
	// delay is how long a request takes to arrive, and as long its answer back.
	delay map[string]time.Duration
	// answer, if set, answers a request instead of the server.
	answer func(client string, r *http.Request) (*http.Response, error)
	// lossy, if set, says that the answer to a request gets lost.
	lossy func(client string, r *http.Request) bool
}

func newScript(mutations ...func(*v1alpha1.FencedLease)) *script {
	s := &script{
		watchers: map[*watcher]bool{}, requests: map[string]int{}, partitioned: map[string]chan struct{}{},
		delay: map[string]time.Duration{}, accepted: map[string]time.Time{}, revision: 100,
	}
	s.lease = freeLease(mutations...)
	return s
}

// freeLease returns a lease of 15 seconds that was never held.
func freeLease(mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	lease := &v1alpha1.FencedLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: "report-writer", UID: "u1", ResourceVersion: "100"},
		Spec: v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: 15, Enforcement: v1alpha1.EnforcementEnforce, Handover: v1alpha1.HandoverLazy, MinGeneration: ptr.To[int64](0),
		},
		Status: v1alpha1.FencedLeaseStatus{
			Generation: ptr.To[int64](0), Term: ptr.To(""), Token: ptr.To(""), HolderIdentity: ptr.To(""), GenerationFloor: ptr.To[int64](100),
			Handover: v1alpha1.HandoverLazy, Seal: v1alpha1.SealNotRequired, SealedGeneration: ptr.To[int64](0),
		},
	}
	for _, mutate := range mutations {
		mutate(lease)
	}
	return lease
}

// held makes a lease one that somebody holds under generation 101.
func held(holder string) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Status.Generation, l.Status.Term, l.Status.Token = ptr.To[int64](101), ptr.To("aaaaaaaa"), ptr.To("101.aaaaaaaa")
		l.Status.HolderIdentity = &holder
	}
}

// config is that of a client with a name.
func (s *script) config(client string) *rest.Config {
	return &rest.Config{Host: "https://script", Transport: transport(func(r *http.Request) (*http.Response, error) { return s.serve(client, r) })}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

var errNoConnection = errors.New("no connection")

func (s *script) serve(client string, r *http.Request) (*http.Response, error) {
	kind := r.Method
	if r.URL.Query().Get("watch") != "" {
		kind = "WATCH"
	}
	s.mu.Lock()
	s.requests[client+" "+kind]++
	delay, answer, lossy := s.delay[client], s.answer, s.lossy
	s.mu.Unlock()
	if err := travel(r.Context(), delay); err != nil {
		return nil, err
	}
	if err := s.hang(client, r); err != nil {
		return nil, err
	}
	var response *http.Response
	var err error
	if answer != nil {
		response, err = answer(client, r)
	}
	if response == nil && err == nil {
		response = s.act(client, r)
	}
	if err != nil {
		return nil, err
	}
	if lossy != nil && lossy(client, r) {
		return nil, errNoConnection
	}
	if err := travel(r.Context(), delay); err != nil {
		return nil, err
	}
	if kind != "WATCH" {
		err = s.hang(client, r)
	}
	return response, err
}

// hang keeps what a partitioned client sends or gets, until the partition ends and its connections break.
func (s *script) hang(client string, r *http.Request) error {
	s.mu.Lock()
	healed := s.partitioned[client]
	s.mu.Unlock()
	if healed == nil {
		return nil
	}
	select {
	case <-healed:
		return errNoConnection
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// partition cuts a client off, or connects it again.
func (s *script) partition(client string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch healed := s.partitioned[client]; {
	case is && healed == nil:
		s.partitioned[client] = make(chan struct{})
	case !is && healed != nil:
		close(healed)
		delete(s.partitioned, client)
		for w := range s.watchers {
			if w.client == client {
				w.end() // what it has missed, it must ask for
			}
		}
	}
}

func travel(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// act does what the server does.
func (s *script) act(client string, r *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Query().Get("watch") != "":
		return s.watch(client, r)
	case r.Method == http.MethodGet && s.lease == nil:
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		return success(s.lease)
	case r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status"):
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
		var patch possession.Patch
		if err := json.Unmarshal(body, &patch); err != nil {
			return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
		response := s.patch(patch, body)
		if response.StatusCode == http.StatusOK {
			s.accepted[client] = time.Now()
		}
		return response
	}
	return failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed)
}

// patch follows the rules of the FencedLease as far as electors meet them. It needs mu.
func (s *script) patch(patch possession.Patch, body []byte) *http.Response {
	if s.lease == nil {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	if patch.Metadata != nil && patch.Metadata.ResourceVersion != s.lease.ResourceVersion {
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	}
	status := s.lease.Status
	sameTerm := *status.Generation == patch.Status.Generation && *status.Term == patch.Status.Term
	heldOrReleased := *status.HolderIdentity == patch.Status.HolderIdentity || patch.Status.HolderIdentity == ""
	if patch.Status.Token == nil && (!sameTerm || !heldOrReleased) {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	next := s.lease.DeepCopy()
	if err := json.Unmarshal(body, next); err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	s.store(next)
	return success(s.lease)
}

// store needs mu.
func (s *script) store(lease *v1alpha1.FencedLease) {
	s.revision++
	kind := "MODIFIED"
	if lease == nil {
		kind, lease = "DELETED", s.lease
		lease.ResourceVersion = strconv.Itoa(s.revision)
		s.lease = nil
	} else {
		lease.ResourceVersion = strconv.Itoa(s.revision)
		s.lease = lease
	}
	for w := range s.watchers {
		if s.partitioned[w.client] == nil {
			w.send(kind, lease, s.delay[w.client])
		}
	}
}

// change changes the lease as somebody else does.
func (s *script) change(mutate func(*v1alpha1.FencedLease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease.DeepCopy()
	mutate(lease)
	s.store(lease)
}

func (s *script) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(nil)
}

func (s *script) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[key]
}

func (s *script) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.lease.Status.HolderIdentity
}

func (s *script) lastAccepted(client string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted[client]
}

// watcher is the body of a watch.
type watcher struct {
	client string
	events chan []byte
	closed chan struct{}
	once   sync.Once
	ctx    context.Context
	rest   []byte
}

// watch needs mu.
func (s *script) watch(client string, r *http.Request) *http.Response {
	w := &watcher{client: client, events: make(chan []byte, 10000), closed: make(chan struct{}), ctx: r.Context()}
	if s.lease != nil {
		w.send("ADDED", s.lease, 0)
	}
	bookmark := &v1alpha1.FencedLease{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
	w.send("BOOKMARK", bookmark, 0)
	s.watchers[w] = true
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: w}
	return response
}

func (w *watcher) send(kind string, lease *v1alpha1.FencedLease, delay time.Duration) {
	event, err := json.Marshal(map[string]any{"type": kind, "object": lease})
	if err != nil {
		panic(err)
	}
	if delay == 0 {
		w.events <- append(event, '\n')
		return
	}
	go func() {
		if travel(w.ctx, delay) == nil {
			w.events <- append(event, '\n')
		}
	}()
}

func (w *watcher) end() { w.once.Do(func() { close(w.closed) }) }

func (w *watcher) Close() error { w.end(); return nil }

func (w *watcher) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		select {
		case w.rest = <-w.events:
		case <-w.closed:
			return 0, io.EOF
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func success(lease *v1alpha1.FencedLease) *http.Response { return reply(http.StatusOK, lease) }

func failure(code int, reason metav1.StatusReason) *http.Response {
	return reply(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason),
	})
}

func reply(code int, body any) *http.Response {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(encoded)),
	}
}
