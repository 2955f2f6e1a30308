// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// actor is one process of the traffic.
type actor struct {
	config Config
	rest   *rest.Config
	log    *history.Log
	clock  *steppedClock
	memory memory
	ids    atomic.Int64
	terms  atomic.Int64
	// resign ends the present work when it can.
	resign  chan struct{}
	writers sync.WaitGroup
	// latest is the writer of the latest term, for what it is told to do.
	latest atomic.Pointer[writer]
	fail   func(error)
}

// Main is an actor's main function. It reads commands from in: "clock <duration>" steps its clock, "create <name>" creates an
// object under the latest term, "resign" gives the lease up. It ends with in.
func Main(ctx context.Context, text string, in io.Reader) error {
	var config Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("decode actor: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &actor{config: config, clock: &steppedClock{}, resign: make(chan struct{}, 1), fail: func(err error) { cancel(err) }}
	a.ids.Store(config.Number * idsPerProcess)
	var err error
	if a.rest, err = clientcmd.BuildConfigFromFlags("", config.Kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	a.rest.QPS = -1
	if a.log, err = history.Append(history.OpsFile(config.Dir, config.Name+"-"+strconv.FormatInt(config.Number, 10))); err != nil {
		return err
	}
	go func() {
		defer cancel(nil)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			a.command(ctx, lines.Text())
		}
	}()
	a.writers.Go(func() { a.steals(ctx) })
	a.writers.Go(func() { a.assist(ctx) })
	campaign := a.elect
	if config.Kind == Lock {
		campaign = a.lock
	}
	for ctx.Err() == nil {
		if err := campaign(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			history.Wait(ctx, config.Pace)
		}
	}
	a.writers.Wait()
	if err := context.Cause(ctx); err != nil && err != context.Canceled { //nolint:errorlint // the plain one
		return err
	}
	return a.log.Close()
}

func (a *actor) command(ctx context.Context, line string) {
	if step, ok := strings.CutPrefix(line, "clock "); ok {
		if d, err := time.ParseDuration(step); err == nil {
			a.clock.step(d)
		}
		return
	}
	if name, ok := strings.CutPrefix(line, "create "); ok {
		if latest := a.latest.Load(); latest != nil {
			own := *latest
			own.caller = a.caller(name)
			a.writers.Go(func() {
				own.operate(ctx, choice{verb: history.Create, carrier: history.Annotation, object: name, back: ordinary}, "")
			})
		}
		return
	}
	select {
	case a.resign <- struct{}{}:
	default:
	}
}

func (a *actor) nextID() int64 { return a.ids.Add(1) }

func (a *actor) record(op *history.Op) {
	if err := a.log.Write(op); err != nil {
		a.fail(err) // a history with gaps is of no use
	}
}

// holding is a term as the library hands it to work.
type holding struct {
	token      token.Token
	possession fenced.Possession
	ended      func() bool
	// credential is a configuration of a term credential, or nil.
	credential *rest.Config
}

// caller returns a caller, whose name tells it from all others of the process.
func (a *actor) caller(name string) caller {
	return caller{
		actor: a, client: fmt.Sprintf("%s-%d/%s", a.config.Name, a.config.Number, name), host: a.rest.Host,
		user: "system:serviceaccount:" + a.config.Lease.Namespace + ":" + a.config.ServiceAccount,
	}
}

// work starts the writers of a term and returns when it is time to give the term up. The writers go on.
func (a *actor) work(ctx, running context.Context, h holding) error {
	ordinal := int(a.terms.Add(1))
	plain, err := httpClient(a.rest)
	if err != nil {
		return err
	}
	wrapped, err := httpClient(fenced.Wrap(a.rest, h.possession))
	if err != nil {
		return err
	}
	w := writer{token: h.token, ended: h.ended, plain: plain, wrapped: wrapped}
	if h.credential != nil {
		if w.credential, err = httpClient(h.credential); err != nil {
			return err
		}
	}
	a.latest.Store(&w)
	for i := range a.config.Workers {
		own := w
		own.choices = newChooser(a.config, ordinal, i)
		own.caller = a.caller(fmt.Sprintf("%d/%d", ordinal, i))
		a.writers.Go(func() { own.run(running) })
	}
	length := time.Duration(newChooser(a.config, ordinal, a.config.Workers).random.Int64N(int64(6 * a.config.LeaseDuration)))
	timer := time.NewTimer(max(length, a.config.LeaseDuration))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.resign:
	case <-ctx.Done():
	}
	return nil
}

// elect campaigns by pkg/leader for one term.
func (a *actor) elect(ctx context.Context) error {
	elector, err := leader.New(leader.Options{
		Config: a.recorded(), Namespace: a.config.Lease.Namespace, Name: a.config.Lease.Name,
		Identity: a.config.Name + "-" + strconv.FormatInt(a.config.Number, 10), Clock: a.clock,
	})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(work context.Context, term *leader.Term) error {
		h := holding{token: term.Token(), possession: term, ended: func() bool { return term.Err() != nil }}
		credential, err := term.Credential(work, leader.CredentialOptions{Config: a.rest, ServiceAccount: types.NamespacedName{Name: a.config.ServiceAccount}})
		if err == nil {
			defer func() { _ = credential.Close() }()
			// Its holder keeps the token, and uses it without the library once the term is over.
			h.credential = rest.AnonymousClientConfig(a.rest)
			h.credential.BearerToken = credential.Token()
		}
		return a.work(work, ctx, h)
	})
}
