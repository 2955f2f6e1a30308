// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/test/env"
)

var errAnswerLost = errors.New("the answer is lost")

// loss loses answers to writes of Reports that the API server has committed.
type loss struct {
	mu     sync.Mutex
	method string
}

// next makes the answer to the next accepted write by a method, or by any if it is empty, be lost.
func (l *loss) next(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.method = method
	if method == "" {
		l.method = "any"
	}
}

func (l *loss) takes(method string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.method != method && l.method != "any" {
		return false
	}
	l.method = ""
	return true
}

// pending reports whether the answer is still to be lost.
func (l *loss) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.method != ""
}

func (l *loss) config() *rest.Config {
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if err != nil || req.Method == http.MethodGet || !strings.Contains(req.URL.Path, "/reports") ||
				response.StatusCode >= http.StatusMultipleChoices || !l.takes(req.Method) {
				return response, err
			}
			return nil, errors.Join(errAnswerLost, response.Body.Close())
		})
	})
	return config
}

// replaying returns the clients that answer replays with success, one for each carrier of tokens.
func replaying(t testing.TB, config *rest.Config, p fenced.Possession) map[string]client.Client {
	t.Helper()
	return map[string]client.Client{
		"annotation": fenced.Client(newClient(t, config), p),
		"request":    fenced.Replaying(newClient(t, fenced.Wrap(config, p)), p),
	}
}

// operatedVerb is a way to write an object that ends well if it is a replay.
type operatedVerb struct {
	creates bool
	// object returns what is to be written.
	object func(t testing.TB, s *story, name, value string) *unstructured.Unstructured
	write  func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error
}

func operatedVerbs() map[string]operatedVerb {
	whole := func(_ testing.TB, s *story, name, value string) *unstructured.Unstructured {
		return env.NewReport(s.namespace, name, value)
	}
	apply := func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), owner, client.ForceOwnership)
	}
	patch := func(kind types.PatchType, format string) func(context.Context, client.Client, *unstructured.Unstructured) error {
		return func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			value, _, err := unstructured.NestedString(o.Object, "spec", "value")
			if err != nil {
				return err
			}
			return c.Patch(ctx, o, client.RawPatch(kind, fmt.Appendf(nil, format, value)))
		}
	}
	return map[string]operatedVerb{
		"create": {true, whole, func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Create(ctx, o)
		}},
		"apply that creates": {true, whole, apply},
		"update": {
			object: func(t testing.TB, s *story, name, value string) *unstructured.Unstructured {
				t.Helper()
				o := s.get(t, name)
				if err := unstructured.SetNestedField(o.Object, value, "spec", "value"); err != nil {
					t.Fatal(err)
				}
				return o
			},
			write: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
				return c.Update(ctx, o)
			},
		},
		"merge patch": {false, whole, patch(types.MergePatchType, `{"spec":{"value":%q}}`)},
		"JSON patch":  {false, whole, patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/value","value":%q}]`)},
		"apply":       {false, whole, apply},
	}
}

// bare creates an object under a term, without an operation.
func (s *story) bare(t testing.TB, p fenced.Possession) string {
	t.Helper()
	return s.create(t, p, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{s.key(): p.Token().String() + "/_created"})
	})
}

// by writes a value under a term by annotation, with an operation.
func (s *story) by(t testing.TB, p fenced.Possession, name, id, value string) {
	t.Helper()
	text, err := p.Token().WithOperation(id)
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"value":%q}}`, s.key(), text, value)
	if err := admin.Patch(t.Context(), s.object(name), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// ids are the operations that an object records, newest first.
func (s *story) ids(t testing.TB, name string) []string {
	t.Helper()
	records, err := operation.Parse(s.get(t, name).GetAnnotations()[v1alpha1.OperationsKey(s.lease.Name)])
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.Operation)
	}
	return ids
}

func (s *story) value(t testing.TB, name string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(s.get(t, name).Object, "spec", "value")
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// wantReplay fails the test unless a write has ended as a replay of what a term has applied, and has left the object as it
// is stored.
func (s *story) wantReplay(t testing.TB, by fenced.Possession, op *fenced.Operation, err error, o, stored *unstructured.Unstructured) {
	t.Helper()
	record, replayed := op.Replayed()
	if err != nil || !replayed || record.Operation != op.ID() || record.Generation != by.Token().Generation {
		t.Errorf("the replay ends with %v; replayed: %v, %v", err, replayed, record)
	}
	if diff := cmp.Diff(stored.Object, o.Object); diff != "" {
		t.Errorf("the caller's object (-stored +got):\n%s", diff)
	}
	if diff := cmp.Diff(stored.Object, s.get(t, stored.GetName()).Object); diff != "" {
		t.Errorf("the replay has changed the object (-before +after):\n%s", diff)
	}
}

func TestAWriteWhoseAnswerWasLostIsReplayedWithSuccess(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	lost := &loss{}
	for carrier, c := range replaying(t, lost.config(), a) {
		for verb, v := range operatedVerbs() {
			for _, others := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s by %s, others write in between: %v", verb, carrier, others), func(t *testing.T) {
					name := newName()
					if !v.creates {
						name = s.bare(t, a)
					}
					o := v.object(t, s, name, "by the operation")
					ctx, op := withOperation(t, "import-17")
					lost.next("")
					if err := v.write(ctx, c, o); !errors.Is(err, errAnswerLost) {
						t.Fatalf("the first attempt ends with %v", err)
					}
					if _, replayed := op.Replayed(); replayed || s.value(t, name) != "by the operation" {
						t.Fatalf("replayed %v, the value is %s", replayed, s.value(t, name))
					}
					wantIDs := []string{"import-17"}
					if others {
						s.by(t, a, name, "_others", "by others")
						s.by(t, a, name, "import-18", "by others once more")
						wantIDs = []string{"import-18", "import-17"}
					}
					stored := s.get(t, name)
					again, opAgain := withOperation(t, "import-17")
					err := v.write(again, c, o)
					s.wantReplay(t, a, opAgain, err, o, stored)
					if diff := cmp.Diff(wantIDs, s.ids(t, name)); diff != "" {
						t.Errorf("records (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestWrapAloneTellsAReplayByTheError(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	lost := &loss{}
	config, err := dynamic.NewForConfig(fenced.Wrap(lost.config(), a))
	if err != nil {
		t.Fatal(err)
	}
	c := config.Resource(env.ReportResource(env.ReportVersion)).Namespace(s.namespace)
	ctx, op := withOperation(t, "import-17")
	name := newName()
	for verb, write := range map[string]func(name string) error{
		"patch": func(name string) error {
			_, err := c.Patch(ctx, name, types.MergePatchType, mergeValue, metav1.PatchOptions{})
			return err
		},
		"update": func(name string) error {
			_, err := c.Update(ctx, s.get(t, name), metav1.UpdateOptions{})
			return err
		},
		"apply": func(name string) error {
			o := env.NewReport(s.namespace, name, "by apply")
			_, err := c.Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: string(owner), Force: true})
			return err
		},
	} {
		t.Run(verb, func(t *testing.T) {
			name := s.bare(t, a)
			lost.next("")
			if err := write(name); !errors.Is(err, errAnswerLost) {
				t.Fatalf("the first attempt ends with %v", err)
			}
			stored := s.get(t, name)
			s.wantApplied(t, a, write(name))
			for what, err := range map[string]error{
				"status": patchOf(ctx, c, name, mergePhase, "status"),
				"scale":  patchOf(ctx, c, name, mergeScale, "scale"),
				"delete": c.Delete(ctx, name, metav1.DeleteOptions{}),
			} {
				t.Log(what)
				s.wantApplied(t, a, err)
			}
			if diff := cmp.Diff(stored.Object, s.get(t, name).Object); diff != "" {
				t.Errorf("a replay has changed the object (-before +after):\n%s", diff)
			}
			outcome := fenced.OutcomeOf(stored.GetAnnotations(), s.lease.Name, "import-17")
			if outcome.State != fenced.OperationApplied || outcome.Record.Generation != a.token.Generation {
				t.Errorf("the outcome is %+v", outcome)
			}
		})
	}
	t.Run("create", func(t *testing.T) {
		create := func() error {
			_, err := c.Create(ctx, env.NewReport(s.namespace, name, "created"), metav1.CreateOptions{})
			return err
		}
		lost.next("")
		if err := create(); !errors.Is(err, errAnswerLost) {
			t.Fatalf("the first attempt ends with %v", err)
		}
		// A create has no stored object that the fence could look at: the name decides.
		if err := create(); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the repetition ends with %v", err)
		}
		outcome, err := fenced.LookupOperation(ctx, admin, s.object(name), a.lease, "import-17")
		if err != nil || outcome.State != fenced.OperationApplied || outcome.Record.Generation != a.token.Generation {
			t.Errorf("the outcome is %+v, %v", outcome, err)
		}
	})
	if _, replayed := op.Replayed(); replayed {
		t.Error("the operation says that it was replayed, of which these clients do not tell")
	}
}

func patchOf(ctx context.Context, c dynamic.ResourceInterface, name string, data []byte, subresource string) error {
	_, err := c.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresource)
	return err
}

// wantApplied fails the test unless an error says that a term has applied import-17 before.
func (s *story) wantApplied(t testing.TB, by fenced.Possession, err error) {
	t.Helper()
	record, ok := fenced.AlreadyAppliedRecord(err)
	if !ok || record.Operation != "import-17" || record.Generation != by.Token().Generation {
		t.Errorf("want an error that says what was applied, got %v, %v", record, err)
	}
	refusal, ok := fenced.Cause(err)
	if !ok || refusal.Type != fenced.AlreadyApplied || refusal.Lease != client.ObjectKeyFromObject(s.lease) {
		t.Errorf("the cause is %+v", refusal)
	}
	if fenced.IsFenced(err) || !apierrors.IsForbidden(err) {
		t.Errorf("fenced %v, forbidden %v", fenced.IsFenced(err), apierrors.IsForbidden(err))
	}
}

func TestASuccessorReplaysWithItsOwnToken(t *testing.T) {
	s := begin(t)
	for verb, v := range operatedVerbs() {
		for _, carrier := range []string{"annotation", "request"} {
			t.Run(verb+" by "+carrier, func(t *testing.T) {
				a, lost := s.take(t, "a"), &loss{}
				byA := replaying(t, lost.config(), a)[carrier]
				name := newName()
				if !v.creates {
					name = s.bare(t, a)
				}
				ctx, _ := withOperation(t, "import-17")
				lost.next("")
				if err := v.write(ctx, byA, v.object(t, s, name, "by a")); !errors.Is(err, errAnswerLost) {
					t.Fatalf("the first attempt ends with %v", err)
				}
				b := s.take(t, "b")
				stored := s.get(t, name)
				o := v.object(t, s, name, "by b")
				ctx, op := withOperation(t, "import-17")
				err := v.write(ctx, replaying(t, cluster.Config(), b)[carrier], o)
				s.wantReplay(t, a, op, err, o, stored)
				if carrier == "annotation" && !v.creates {
					// Its mark is still the one of its own write, and presents nothing; it is told what became of that write.
					o := v.object(t, s, name, "late")
					ctx, op := withOperation(t, "import-17")
					s.wantReplay(t, a, op, v.write(ctx, byA, o), o, stored)
				}
				s.by(t, b, name, "_b", "by b")
				ctx, op = withOperation(t, "import-17")
				s.wantFenced(t, v.write(ctx, byA, v.object(t, s, name, "late")), fenced.StaleToken)
				if _, replayed := op.Replayed(); replayed || s.value(t, name) != "by b" {
					t.Errorf("replayed to an ended leader: %v, the value is %s", replayed, s.value(t, name))
				}
			})
		}
	}
}

func TestACreateWithAGeneratedNameMakesOneObject(t *testing.T) {
	s := begin(t)
	for _, carrier := range []string{"annotation", "request"} {
		t.Run(carrier, func(t *testing.T) {
			a, lost := s.take(t, "a"), &loss{}
			create := func(c client.Client) (*unstructured.Unstructured, *fenced.Operation, error) {
				o := env.NewReport(s.namespace, "", "generated")
				o.SetGenerateName(carrier + "-")
				o.SetLabels(map[string]string{"carrier": carrier})
				ctx, op := withOperation(t, "import-17")
				return o, op, c.Create(ctx, o)
			}
			byA := replaying(t, lost.config(), a)[carrier]
			lost.next(http.MethodPost)
			if o, _, err := create(byA); !errors.Is(err, errAnswerLost) || o.GetName() != "" {
				t.Fatalf("the first attempt ends with %v, the object is called %q", err, o.GetName())
			}
			made := func() []unstructured.Unstructured {
				t.Helper()
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
				if err := admin.List(t.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{"carrier": carrier}); err != nil {
					t.Fatal(err)
				}
				return list.Items
			}
			if len(made()) != 1 {
				t.Fatalf("there are %d objects", len(made()))
			}
			stored := s.get(t, made()[0].GetName())
			o, op, err := create(byA)
			s.wantReplay(t, a, op, err, o, stored)
			b := s.take(t, "b")
			o, op, err = create(replaying(t, cluster.Config(), b)[carrier])
			s.wantReplay(t, a, op, err, o, stored)
			if len(made()) != 1 {
				t.Errorf("there are %d objects", len(made()))
			}
		})
	}
}

func TestOneOfTwoThatSendAnOperationAtOnceIsApplied(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	processes := func(carriers ...string) []client.Client {
		var clients []client.Client
		for _, carrier := range carriers {
			clients = append(clients, replaying(t, cluster.Config(), a)[carrier])
		}
		return clients
	}
	for senders, clients := range map[string][]client.Client{
		"by annotation": processes("annotation", "annotation"),
		"by request":    processes("request", "request"),
		"by either":     processes("annotation", "request"),
	} {
		for verb, v := range operatedVerbs() {
			t.Run(verb+" "+senders, func(t *testing.T) {
				for i := range 10 {
					id, name := "import-"+strconv.Itoa(i), newName()
					if !v.creates {
						name = s.bare(t, a)
					}
					var (
						all       sync.WaitGroup
						start     = make(chan struct{})
						objects   [2]*unstructured.Unstructured
						replays   [2]bool
						errs      [2]error
						operation [2]*fenced.Operation
					)
					for k, c := range clients {
						objects[k] = v.object(t, s, name, "by "+strconv.Itoa(k))
						var ctx context.Context
						ctx, operation[k] = withOperation(t, id)
						all.Go(func() {
							<-start
							errs[k] = v.write(ctx, c, objects[k])
						})
					}
					close(start)
					all.Wait()
					for k := range clients {
						_, replays[k] = operation[k].Replayed()
					}
					if errors.Join(errs[:]...) != nil || replays[0] == replays[1] {
						t.Fatalf("replayed: %v; errors: %v", replays, errs)
					}
					stored := s.get(t, name)
					applied := 0
					if replays[0] {
						applied = 1
					}
					wantGeneration := int64(2)
					if v.creates {
						wantGeneration = 1
					}
					if s.value(t, name) != "by "+strconv.Itoa(applied) || stored.GetGeneration() != wantGeneration {
						t.Errorf("applied by %d, and the value is %s in generation %d", applied, s.value(t, name), stored.GetGeneration())
					}
					for k := range clients {
						if diff := cmp.Diff(stored.Object, objects[k].Object); diff != "" {
							t.Errorf("the object of sender %d (-stored +got):\n%s", k, diff)
						}
					}
					if diff := cmp.Diff([]string{id}, s.ids(t, name)); diff != "" {
						t.Errorf("records (-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}

func TestADeleteOfAnOperationDeletesOneObject(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	lost := &loss{}
	for carrier, c := range replaying(t, lost.config(), a) {
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			if carrier == "request" && method == http.MethodPatch {
				continue // nothing is patched
			}
			t.Run(carrier+", the answer to "+method+" is lost", func(t *testing.T) {
				name := s.bare(t, a)
				o := s.get(t, name)
				ctx, _ := withOperation(t, "retire-17")
				lost.next(method)
				if err := c.Delete(ctx, o); !errors.Is(err, errAnswerLost) {
					t.Fatalf("the first attempt ends with %v", err)
				}
				if err := c.Delete(ctx, o); method == http.MethodDelete && !apierrors.IsNotFound(err) || method == http.MethodPatch && err != nil {
					t.Errorf("the repetition ends with %v", err)
				}
				if !s.gone(t, name) {
					t.Fatal("the object is still there")
				}
				later := env.NewReport(s.namespace, name, "later")
				later.SetAnnotations(map[string]string{s.key(): a.token.String() + "/_later"})
				if err := admin.Create(t.Context(), later); err != nil {
					t.Fatal(err)
				}
				for what, options := range map[string][]client.DeleteOption{
					"by the object":       nil,
					"by its precondition": {client.Preconditions{UID: new(o.GetUID())}},
				} {
					if err := c.Delete(ctx, o, options...); !apierrors.IsNotFound(err) {
						t.Errorf("%s, of another object of the name: %v", what, err)
					}
				}
				if got := s.get(t, name).GetUID(); got != later.GetUID() {
					t.Errorf("want the later object %s, got %s", later.GetUID(), got)
				}
				if lost.pending() {
					t.Error("no answer was lost")
				}
			})
		}
	}
}

func TestOldOperationsAreFoundUntilTheyFallOut(t *testing.T) {
	const limit = 3
	s := begin(t, func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].OperationHistoryLimit = new(int32(limit)) })
	for _, carrier := range []string{"annotation", "request"} {
		t.Run(carrier, func(t *testing.T) {
			a := s.take(t, "a")
			name := s.bare(t, a)
			lookup := func(id string) fenced.OperationOutcome {
				t.Helper()
				outcome, err := fenced.LookupOperation(t.Context(), admin, s.object(name), a.lease, id)
				if err != nil || outcome.Problem != nil {
					t.Fatalf("look up %s: %+v, %v", id, outcome, err)
				}
				return outcome
			}
			if diff := cmp.Diff(fenced.OperationOutcome{State: fenced.OperationUnknown}, lookup("import-0")); diff != "" {
				t.Errorf("without any record (-want +got):\n%s", diff)
			}
			write := func(p fenced.Possession, id, value string) (*unstructured.Unstructured, *fenced.Operation, error) {
				v := operatedVerbs()["merge patch"]
				o := v.object(t, s, name, value)
				ctx, op := withOperation(t, id)
				return o, op, v.write(ctx, replaying(t, cluster.Config(), p)[carrier], o)
			}
			for i := range limit + 1 {
				if _, _, err := write(a, "import-"+strconv.Itoa(i), "value "+strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}
			b := s.take(t, "b")
			// The oldest of those that are recorded, behind newer ones and a handover.
			stored := s.get(t, name)
			o, op, err := write(b, "import-1", "once more")
			s.wantReplay(t, a, op, err, o, stored)

			if got := lookup("import-1"); got.State != fenced.OperationApplied || got.Record.Operation != "import-1" || got.Record.Generation != a.token.Generation {
				t.Errorf("of a recorded one: %+v", got)
			}
			for _, id := range []string{"import-0", "import-9"} {
				got := lookup(id)
				if got.State != fenced.OperationNotRecorded || got.Horizon.Operation != "import-1" || got.Horizon.Generation != a.token.Generation || !got.Record.Time.IsZero() {
					t.Errorf("of %s, which fell out or never was: %+v", id, got)
				}
			}
			// What fell out is applied again: nothing tells it from what never was.
			if _, op, err := write(b, "import-0", "once more"); err != nil || s.value(t, name) != "once more" {
				t.Errorf("the value is %s: %v", s.value(t, name), err)
			} else if _, replayed := op.Replayed(); replayed {
				t.Error("it counts as replayed")
			}
			if diff := cmp.Diff([]string{"import-0", "import-3", "import-2"}, s.ids(t, name)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := fenced.LookupOperation(t.Context(), admin, s.object(newName()), client.ObjectKeyFromObject(s.lease), "import-1"); !apierrors.IsNotFound(err) {
		t.Errorf("of an object that does not exist: %v", err)
	}
}
