// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math/rand/v2"
	"slices"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// choice is an operation before it has met the world. It depends on the seed only.
type choice struct {
	verb    history.Verb
	carrier history.Carrier
	object  string
	// back, if it is not negative, says that the operation is a business operation: that many ones before the present one.
	back int
	// lost, if it is not 0, says in milliseconds when the client stops to wait for the answer.
	lost int
	// which chooses among what the process remembers, and whether an assistant asks at the moment at which all others do.
	which int
	// again says that it repeats one that got no answer.
	again bool
	// pause is the pause before it, in thousandths of the mean.
	pause int
}

type weighted[T any] struct {
	what   T
	weight int
}

var verbs = []weighted[history.Verb]{
	{history.Create, 12},
	{history.Update, 14},
	{history.JSONPatch, 8},
	{history.MergePatch, 16},
	{history.Apply, 12},
	{history.UpdateStatus, 6},
	{history.PatchStatus, 8},
	{history.Scale, 7},
	{history.Delete, 4},
	{history.DeleteCollection, 2},
	{history.Get, 7},
	{history.List, 4},
}

// ordinary is the choice of an operation that is no business operation.
const ordinary = -1

// jobs says which business operations come how often. The present one is the same for all processes, so that several send it
// at once; older ones come after newer ones; the oldest are mostly forgotten.
var jobs = []weighted[int]{
	{ordinary, 60}, {0, 14}, {1, 8}, {2, 5}, {3, 4}, {5, 3}, {8, 2}, {20, 2}, {60, 2},
}

// losses says in milliseconds when clients of business operations stop to wait.
var losses = []weighted[int]{{0, 88}, {2, 2}, {5, 2}, {10, 2}, {20, 2}, {40, 2}, {1000, 2}}

// carriersOf are the carriers of an actor's terms: a lock of client-go has no term that mints credentials.
func carriersOf(kind Kind) []weighted[history.Carrier] {
	carriers := []weighted[history.Carrier]{
		{history.Annotation, 40}, {history.Extra, 30}, {history.Wrap, 15}, {history.None, 3},
	}
	switch kind {
	case Lock:
	case Assistant:
		return carriers[:2]
	case Elector:
		carriers = append(carriers, weighted[history.Carrier]{history.Credential, 20})
	}
	return carriers
}

func pick[T any](random *rand.Rand, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	n := random.IntN(sum)
	i := slices.IndexFunc(from, func(w weighted[T]) bool {
		n -= w.weight
		return n < 0
	})
	return from[i].what
}

// chooser makes the choices of one writer.
type chooser struct {
	random   *rand.Rand
	carriers []weighted[history.Carrier]
	jobs     []weighted[int]
	objects  []string
}

func newChooser(c Config, term, worker int) *chooser {
	from := jobs
	if c.Kind == Assistant {
		from = jobs[1:] // business operations only
	}
	return &chooser{
		//nolint:gosec // no secret; the number of a process, a term and a worker are small
		random:   rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<32|uint64(term)<<8|uint64(worker))),
		carriers: carriersOf(c.Kind), jobs: from, objects: c.Lease.Objects,
	}
}

// next returns the next choice. It always draws the same number of times, so that no choice depends on what became of
// another one.
func (c *chooser) next() choice {
	what := choice{
		verb: pick(c.random, verbs), carrier: pick(c.random, c.carriers),
		object: c.objects[c.random.IntN(len(c.objects))], pause: c.random.IntN(2000),
		back: pick(c.random, c.jobs), lost: pick(c.random, losses), which: c.random.IntN(1 << 16),
	}
	if what.verb.Deletes() && what.object == c.objects[0] {
		what.object = c.objects[len(c.objects)-1] // the first one stays, so that its operations can be repeated after a restore
	}
	if what.verb.Reads() || what.carrier == history.None {
		what.back = ordinary
	}
	if what.back == ordinary {
		what.lost = 0
	}
	return what
}
