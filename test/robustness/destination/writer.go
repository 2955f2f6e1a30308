// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/postgres"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// pace is the mean pause between the calls of a writer, and slower by how much a zombie's is longer in its second half.
	pace   = 30 * time.Millisecond
	slower = 5
	// zombie is how many calls a writer makes after the end of its term.
	zombie = 20
	// jobLength is how long an operation is the present one of all writers.
	jobLength = 100 * time.Millisecond
	// firstJob keeps numbers of operations positive.
	firstJob = 100
	// callTime bounds a call.
	callTime = 5 * time.Second
	// attempts is how often an operation is asked for until somebody says what became of it.
	attempts = 3
)

// possession is a term whose process does not notice its end.
type possession struct{ of token.Token }

func (possession) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: "report-writer"}
}
func (p possession) Token() token.Token { return p.of }
func (possession) Err() error           { return nil }

// writer is a process that writes under one term, also when it has ended.
type writer struct {
	world  *World
	name   string
	token  token.Token
	random *rand.Rand
	proxy  *postgres.Proxy
	db     *sql.DB
	fences map[string]*sqlfence.Fence
	// faults are those that are under way.
	faults sync.WaitGroup
}

func (w *World) newWriter(t token.Token, term, worker int) (*writer, error) {
	proxy, err := w.options.Server.StartProxy(w.inFull)
	if err != nil {
		return nil, err
	}
	if w.options.Rewrite != nil {
		proxy.Rewrite(w.options.Rewrite)
	}
	db, err := sql.Open("pgx", proxy.DSN(w.database))
	if err != nil {
		return nil, errors.Join(err, proxy.Close())
	}
	db.SetMaxOpenConns(3)
	one := &writer{
		world: w, name: fmt.Sprintf("%s-%d", t, worker), token: t, proxy: proxy, db: db, fences: map[string]*sqlfence.Fence{},
		random: rand.New(rand.NewPCG(w.options.Seed, uint64(term)<<8|uint64(worker)|1<<32)), //nolint:gosec // no secret; both are small
	}
	for name, retain := range w.run.Retain {
		if one.fences[name], err = sqlfence.New(db, possession{t}, sqlfence.Options{Name: name, MaxPause: maxPause, Retain: int64(retain)}); err != nil {
			return nil, errors.Join(err, db.Close(), proxy.Close())
		}
	}
	return one, nil
}

// run makes calls until ctx ends or the term has been over for long enough.
func (o *writer) run(ctx context.Context) error {
	for left := zombie; left > 0; {
		what := o.choose()
		pause := what.pause
		if *o.world.current.Load() != o.token {
			if left--; left < zombie/2 {
				pause *= slower
			}
		}
		if !history.Wait(ctx, pause) {
			break
		}
		about := o.about(what)
		for n := 1; o.call(ctx, what, about) == Unknown && n < attempts; n++ {
			what.fault = ""
			if what.verb == Do && n == attempts-1 {
				what.verb = Lookup
			}
			if !history.Wait(ctx, pace) {
				break
			}
		}
	}
	o.faults.Wait()
	return errors.Join(o.db.Close(), o.proxy.Close())
}

// choice is a call before it has met the world. It depends on the seed only.
type choice struct {
	verb  Verb
	row   string
	fault string
	// back is how many operations before the present one it asks for. Doubtful asks for one that somebody did not know of, or,
	// after a restore, for one that was applied shortly before or after the backup. Which chooses among them.
	back     int
	doubtful bool
	which    int
	// message is the one at which a transaction pauses, hold for how long, pause the pause before the call.
	message     int
	hold, pause time.Duration
}

type weighted[T any] struct {
	what   T
	weight int
}

var (
	verbs = []weighted[Verb]{{Do, 80}, {Lookup, 9}, {Find, 7}, {Take, 4}}
	rows  = []weighted[string]{{wide, 50}, {narrow, 50}}
	// backs says how often which operation comes. The present one is the same for all, so that several ask for it at once.
	backs = []weighted[int]{{0, 30}, {1, 14}, {2, 10}, {4, 8}, {8, 8}, {15, 8}, {25, 8}, {40, 8}, {80, 6}}
	ills  = []weighted[string]{{"", 70}, {LostAnswer, 6}, {LateCommit, 7}, {GivesUp, 5}, {Pause, 9}, {Hurry, 3}}
)

func pick[T any](random *rand.Rand, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	n := random.IntN(sum)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.what
		}
	}
	return from[0].what
}

// choose draws the same number of times, whatever became of the calls before.
func (o *writer) choose() choice {
	r := o.random
	what := choice{
		verb: pick(r, verbs), row: pick(r, rows), fault: pick(r, ills), back: pick(r, backs),
		doubtful: r.IntN(3) == 0, which: r.IntN(1 << 16), message: r.IntN(14),
		hold: time.Duration(r.Int64N(int64(2 * maxPause))), pause: time.Duration(r.Int64N(int64(2 * pace))),
	}
	if what.verb != Do && what.fault != Hurry {
		what.fault = ""
	}
	return what
}

// about returns the operation that is chosen. It follows from the time, so that all writers choose among the same ones.
func (o *writer) about(what choice) key {
	w := o.world
	if what.doubtful {
		if around := w.restored.Load(); around != nil && len(*around) > 0 && what.which%2 == 0 {
			return (*around)[what.which/2%len(*around)]
		}
		if doubt, ok := w.doubt(what.which / 2); ok {
			return doubt
		}
	}
	return key{what.row, job(w.present() - int64(what.back))}
}

func job(number int64) string { return "job-" + strconv.FormatInt(number+firstJob, 10) }

// call makes one call, with its fault, and records it.
func (o *writer) call(ctx context.Context, what choice, about key) Outcome {
	w := o.world
	c := &Call{ID: w.number.Add(1), Writer: o.name, Row: about.row, Verb: what.verb, Token: o.token}
	if c.Verb != Take {
		c.Operation = about.operation
	}
	limit := callTime
	if what.fault == Hurry {
		limit = what.hold / 20
		c.Fault = Hurry
	}
	calling, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	hit := o.inflict(ctx, what, cancel)
	c.First, c.Invoke = int(w.epoch.Load()), history.Now()
	err := o.ask(calling, c)
	c.Return, c.Last = history.Now(), int(w.epoch.Load())
	if hit() {
		c.Fault = what.fault
	}
	if err != nil {
		c.failed(err)
	}
	w.record(c)
	return c.Outcome
}

// ask makes the call, and fills in the answer unless it is an error.
func (o *writer) ask(ctx context.Context, c *Call) error {
	fence := o.fences[c.Row]
	switch c.Verb {
	case Do:
		outcome, err := fence.Do(ctx, c.Operation, func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, insert, c.ID, c.Row, c.Operation, c.Token.Generation, c.Token.Term)
			return strconv.AppendInt(nil, c.ID, 10), err
		})
		if err != nil {
			return err
		}
		c.Outcome = Applied
		if outcome.AlreadyApplied {
			c.Outcome = Recorded
		}
		return c.tell(outcome.Record)
	case Lookup:
		return c.found(fence.Lookup(ctx, c.Operation))
	case Find:
		c.Token = token.Token{}
		return c.found(sqlfence.Find(ctx, o.db, c.Row, c.Operation))
	case Take:
		c.Outcome = Taken
		return fence.Take(ctx)
	}
	return fmt.Errorf("no verb %q", c.Verb)
}

func (c *Call) found(finding sqlfence.Finding, err error) error {
	if err != nil {
		return err
	}
	c.Outcome = NotRecorded
	c.HorizonGeneration, c.HorizonTime = finding.Horizon.Generation, finding.Horizon.AppliedAt
	if !finding.Recorded {
		return nil
	}
	c.Outcome = Recorded
	return c.tell(finding.Record)
}

func (c *Call) tell(r sqlfence.Record) error {
	by, err := strconv.ParseInt(string(r.Result), 10, 64)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	c.Record = Record{Operation: r.Operation, Token: token.Token{Generation: r.Generation, Term: r.Term}, Call: by, AppliedAt: r.AppliedAt}
	return nil
}

// failed records an error as the documentation says what it means. Only a Do can leave something unknown.
func (c *Call) failed(err error) {
	c.Error = err.Error()
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		c.State = state.SQLState()
	}
	var refused *sqlfence.RefusedError
	switch {
	case errors.As(err, &refused):
		c.Outcome, c.Cause, c.Stored = Refused, string(refused.Type), refused.Stored
	case errors.Is(err, sqlfence.ErrUnknown):
		c.Outcome = Unknown
	default:
		c.Outcome = Failed
	}
}
