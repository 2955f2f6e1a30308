// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// writer writes under one term, also when it has ended.
type writer struct {
	caller
	choices *chooser
	token   token.Token
	// ended tells whether the term has ended, as far as the library knows.
	ended func() bool
	// plain is a client of the service account, wrapped is one of the library, credential one of a term credential. The last
	// may be nil.
	plain, wrapped, credential *http.Client
}

const (
	// zombiePace is by how much a writer of an ended term is slower, failurePace the same for one that got no answer.
	zombiePace  = 6
	failurePace = 8
	// attempts is how often a business operation is sent until there is an answer.
	attempts = 4
	// jobLength is how long a business operation is the present one.
	jobLength = int64(500 * time.Millisecond)
)

// job returns the id of the business operation that is chosen, or nothing. It follows from the time, so that all processes
// choose among the same ones, and so do the leaders after this one.
func (c choice) job() string {
	if c.back == ordinary {
		return ""
	}
	return "job-" + strconv.FormatInt(history.Now()/jobLength-int64(c.back), 10)
}

// run makes operations until ctx ends or the term has been over for long enough.
func (w *writer) run(ctx context.Context) {
	slower := 1
	for zombie := w.actor.config.Zombie; zombie > 0; {
		what := w.choices.next()
		pause := time.Duration(int64(w.actor.config.Pace) * int64(what.pause*slower) / 1000)
		if !history.Wait(ctx, pause) {
			return
		}
		slower = 1
		if w.ended() {
			// Fast at first, as one that has not noticed, then slowly, to be still there when others lead.
			if zombie--; zombie < w.actor.config.Zombie/2 {
				slower = zombiePace
			}
		}
		if w.repeat(ctx, what) == history.Unknown {
			slower = failurePace
		}
	}
}

// repeat makes an operation, and makes a business operation again for as long as nobody says what became of it.
func (w *writer) repeat(ctx context.Context, what choice) history.Outcome {
	job := what.job()
	if remembered := w.actor.memory.again(what.which); job != "" && remembered != "" {
		job, what.object = remembered, w.actor.config.Lease.Objects[0]
		if what.verb.Deletes() {
			what.verb = history.MergePatch
		}
	}
	outcome := w.operate(ctx, what, job)
	for attempt := 1; attempt < attempts && job != "" && outcome == history.Unknown; attempt++ {
		what.lost, what.again = 0, attempt%2 == 1
		if !history.Wait(ctx, w.actor.config.Pace) {
			break
		}
		outcome = w.operate(ctx, what, job)
	}
	return outcome
}

// operate makes one operation, of one or two calls, and returns how the last one ended.
func (w *writer) operate(ctx context.Context, what choice, job string) history.Outcome {
	client := w.plain
	switch {
	case what.verb.Reads():
	case what.carrier == history.Wrap:
		client = w.wrapped
	case what.carrier == history.Credential && w.credential != nil:
		client = w.credential
	case what.carrier == history.Credential:
		what.carrier = history.Annotation
	}
	c := w.build(ctx, client, what, job)
	if c == nil {
		return history.OK // what it needs is not there
	}
	if c.op.Operation == job && job != "" {
		c.lost = time.Duration(what.lost) * time.Millisecond
		c.op.Dropped = c.lost > 0
		if what.carrier == history.Wrap {
			var err error
			if ctx, _, err = fenced.WithOperation(ctx, job); err != nil {
				w.actor.fail(err)
			}
		}
	}
	w.send(ctx, client, *c)
	w.actor.memory.told(c.op, w.actor.config.Lease.Objects[0])
	return c.op.Outcome
}

// prepare fills in what all calls of the writer have in common. The caller sends it at once.
func (w *writer) prepare(c *call) {
	op := c.op
	op.ID, op.Client, op.Lease = w.actor.nextID(), w.client, w.actor.config.Lease.LeaseRef
	op.Ended = w.ended()
	if op.Verb.Reads() {
		op.Carrier = ""
	} else if op.Carrier != history.None {
		op.Generation, op.Term = w.token.Generation, w.token.Term
	}
}

// presented is the token as a call presents it.
func (w *writer) presented(op *history.Op) string {
	presented := w.token
	if presented.Operation = op.Operation; op.Bare {
		presented.Term = ""
	}
	return presented.String()
}

// presenting returns the operation that a call presents: the job, where it can be presented, or else a nonce where one is
// needed.
func presenting(op *history.Op, job string) string {
	noAnnotation := op.Verb == history.Scale || op.Verb.Deletes()
	switch op.Carrier {
	case history.Annotation, history.Credential:
		if noAnnotation || op.Carrier == history.Credential && job == "" {
			return ""
		}
	case history.Wrap:
		return job // the library has its own nonces
	case history.Extra:
	case history.None:
		return ""
	}
	if job == "" {
		return token.NoncePrefix + strconv.FormatInt(op.ID, 10)
	}
	return job
}

// build returns the call, nil if it cannot be made. What must be read before it is read.
func (w *writer) build(ctx context.Context, client *http.Client, what choice, job string) *call {
	c := &call{
		op:          &history.Op{Object: what.object, Verb: what.verb, Carrier: what.carrier},
		path:        w.path(what.object),
		contentType: jsonType,
		query:       url.Values{},
	}
	var stored map[string]any
	switch {
	case what.verb == history.Update || what.verb == history.UpdateStatus:
		if stored = w.read(ctx, what.object); stored == nil {
			return nil
		}
	case what.verb == history.Delete && what.carrier == history.Annotation:
		intent := w.intend(ctx, client, what.object)
		if intent == nil {
			return nil
		}
		c.body = intent
	}
	w.prepare(c)
	if !what.verb.Reads() {
		c.op.Operation = presenting(c.op, job)
		// With a credential an annotation that is as it is stored says nothing, so the repetition writes it in another form.
		c.op.Bare = what.again && what.carrier == history.Credential && c.op.Operation != ""
	}
	if what.carrier == history.Extra {
		c.extra = w.presented(c.op)
	}
	w.fill(c, stored)
	c.op.Invoke = history.Now()
	return c
}

// fill gives a call its method and its body.
func (w *writer) fill(c *call, stored map[string]any) {
	id := strconv.FormatInt(c.op.ID, 10)
	metadata := map[string]any{}
	if w.annotates(c.op) {
		metadata["annotations"] = map[string]any{v1alpha1.TokenKey(w.actor.config.Lease.Name): w.presented(c.op)}
	}
	spec, status := map[string]any{"value": id}, map[string]any{"result": id}
	switch c.op.Verb {
	case history.Get:
		c.method, c.contentType = http.MethodGet, ""
	case history.List:
		c.method, c.contentType, c.path = http.MethodGet, "", w.path()
		c.op.Object = ""
	case history.Create:
		metadata["name"], metadata["labels"] = c.op.Object, w.actor.config.Labels
		c.method, c.path, c.body = http.MethodPost, w.path(), report(metadata, "spec", spec)
	case history.Update:
		change(stored, "spec", "value", id)
		w.annotate(stored, metadata)
		c.method, c.body = http.MethodPut, stored
	case history.UpdateStatus:
		change(stored, "status", "result", id)
		w.annotate(stored, metadata)
		c.method, c.path, c.body = http.MethodPut, w.path(c.op.Object, "status"), stored
	case history.MergePatch:
		c.method, c.contentType, c.body = http.MethodPatch, mergeType, map[string]any{"metadata": metadata, "spec": spec}
	case history.JSONPatch:
		c.method, c.contentType, c.body = http.MethodPatch, patchType, w.jsonPatch(c.op, id)
	case history.Apply:
		metadata["name"], metadata["labels"] = c.op.Object, w.actor.config.Labels
		c.method, c.contentType, c.body = http.MethodPatch, applyType, report(metadata, "spec", spec)
		c.query = url.Values{"fieldManager": {fieldManager}, "force": {"true"}}
	case history.PatchStatus:
		c.method, c.contentType, c.path = http.MethodPatch, mergeType, w.path(c.op.Object, "status")
		c.body = map[string]any{"metadata": metadata, "status": status}
	case history.Scale:
		c.method, c.contentType, c.path = http.MethodPatch, mergeType, w.path(c.op.Object, "scale")
		c.body = map[string]any{"spec": map[string]any{"replicas": c.op.ID}}
	case history.Delete:
		c.method = http.MethodDelete
	case history.DeleteCollection:
		c.method, c.path = http.MethodDelete, w.path()
		c.query = url.Values{"fieldSelector": {"metadata.name=" + c.op.Object}}
	case history.Acquire, history.Renew, history.Release:
		// The library's.
	}
}

func report(metadata map[string]any, part string, content map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": env.GuardedGroup + "/" + env.ReportVersion, "kind": "Report", "metadata": metadata, part: content,
	}
}

func change(stored map[string]any, part, field, value string) {
	content, ok := stored[part].(map[string]any)
	if !ok {
		content = map[string]any{}
		stored[part] = content
	}
	content[field] = value
}

// annotate puts the annotation of a call over those that are stored.
func (w *writer) annotate(stored, metadata map[string]any) {
	own, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return
	}
	for key, value := range own {
		old, ok := stored["metadata"].(map[string]any)
		if !ok {
			return
		}
		annotations, ok := old["annotations"].(map[string]any)
		if !ok {
			annotations = map[string]any{}
			old["annotations"] = annotations
		}
		annotations[key] = value
	}
}

// annotates tells whether a call presents its operation by an annotation.
func (w *writer) annotates(op *history.Op) bool {
	return op.Operation != "" && (op.Carrier == history.Annotation || op.Carrier == history.Credential)
}

func (w *writer) jsonPatch(op *history.Op, id string) []map[string]any {
	patch := []map[string]any{{"op": "add", "path": "/spec/value", "value": id}}
	if w.annotates(op) {
		key := strings.ReplaceAll(v1alpha1.TokenKey(w.actor.config.Lease.Name), "/", "~1")
		patch = append(patch, map[string]any{"op": "add", "path": "/metadata/annotations/" + key, "value": w.presented(op)})
	}
	return patch
}

// read reads an object, nil if it is not there.
func (w *writer) read(ctx context.Context, name string) map[string]any {
	c := &call{op: &history.Op{Object: name, Verb: history.Get}, method: http.MethodGet, path: w.path(name)}
	w.prepare(c)
	c.op.Invoke = history.Now()
	answer := w.send(ctx, w.plain, *c)
	if answer == nil || c.op.Code == http.StatusNotFound {
		return nil
	}
	stored := map[string]any{}
	if err := json.Unmarshal(answer, &stored); err != nil {
		return nil
	}
	return stored
}

// intend writes the intent to delete an object into it, and returns the body of the delete.
func (w *writer) intend(ctx context.Context, client *http.Client, name string) map[string]any {
	c := &call{op: &history.Op{Object: name, Verb: history.MergePatch, Carrier: history.Annotation, Intent: true}, method: http.MethodPatch, contentType: mergeType, path: w.path(name)}
	w.prepare(c)
	c.op.Operation = token.OperationDelete
	key := v1alpha1.TokenKey(w.actor.config.Lease.Name)
	c.body = map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{key: w.presented(c.op)}},
		"spec":     map[string]any{"value": strconv.FormatInt(c.op.ID, 10)},
	}
	c.op.Invoke = history.Now()
	if w.send(ctx, client, *c) == nil || len(c.op.Seen) != 1 {
		return nil
	}
	stored := c.op.Seen[0]
	return map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": stored.UID, "resourceVersion": strconv.FormatInt(stored.Revision, 10)},
	}
}
