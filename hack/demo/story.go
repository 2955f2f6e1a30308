// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/hack/demo/protocol"
)

// handover is the part that both stories share: A leads and is paused with its result in memory, B takes over and writes.
type handover struct {
	a, b       *worker
	termA      protocol.Event
	termB      protocol.Event
	resultA    string
	resultB    string
	generation string // what the story calls the number
}

func (c *cluster) handOver(ctx context.Context, say *timeline, election, namespace string) (*handover, error) {
	h := &handover{generation: "leaseTransitions"}
	if election == protocol.ElectionFenced {
		h.generation = "generation"
	}
	var err error
	if h.a, h.termA, h.resultA, err = c.lead(ctx, say, h.generation, election, namespace, workerA); err != nil {
		return nil, err
	}
	if err := h.a.pause(ctx); err != nil {
		return nil, err
	}
	say.step("A is stopped (SIGSTOP), about to write; it has just checked that it leads")
	if h.b, h.termB, h.resultB, err = c.lead(ctx, say, h.generation, election, namespace, workerB); err != nil {
		return nil, err
	}
	if err := expect("B's "+h.generation, h.termA.Generation+1, h.termB.Generation); err != nil {
		return nil, err
	}
	if err := h.b.order(daily); err != nil {
		return nil, err
	}
	written, err := h.b.await(ctx, protocol.Accepted, protocol.Refused, protocol.Failed)
	if err != nil {
		return nil, err
	}
	if err := expect("B's write "+written.Message, protocol.Accepted, written.Name); err != nil {
		return nil, err
	}
	say.step("B writes report %s: accepted", daily)
	return h, nil
}

// lead starts a worker and returns when it leads and has its result.
func (c *cluster) lead(ctx context.Context, say *timeline, generation, election, namespace, identity string) (*worker, protocol.Event, string, error) {
	w, err := c.startWorker(ctx, election, namespace, identity)
	if err != nil {
		return nil, protocol.Event{}, "", err
	}
	leading, err := w.await(ctx, protocol.Leading)
	if err != nil {
		return nil, leading, "", err
	}
	say.step("%s (pid %d) leads under %s %d, and has computed its result", letter(identity), w.cmd.Process.Pid, generation, leading.Generation)
	computed, err := w.await(ctx, protocol.Computed)
	return w, leading, computed.Value, err
}

// lateWrite lets A go on and returns the answer to its write of a report.
func (h *handover) lateWrite(ctx context.Context, report string) (protocol.Event, error) {
	if err := h.a.order(report); err != nil {
		return protocol.Event{}, err
	}
	if err := h.a.resume(); err != nil {
		return protocol.Event{}, err
	}
	return h.a.await(ctx, protocol.Accepted, protocol.Refused, protocol.Failed)
}

// end lets both workers stop in order: B gives its lease up.
func (h *handover) end() error {
	return errors.Join(h.a.stop(workerGrace), h.b.stop(workerGrace))
}

func letter(identity string) string {
	if identity == workerA {
		return "A"
	}
	return "B"
}

// playPlain shows the stale write land.
func (c *cluster) playPlain(ctx context.Context, say *timeline) error {
	say.title("Story 1: leader election with client-go on a Lease")
	if err := c.stage(ctx, plainNamespace, protocol.ElectionLease); err != nil {
		return err
	}
	h, err := c.handOver(ctx, say, protocol.ElectionLease, plainNamespace)
	if err != nil {
		return err
	}
	answer, err := h.lateWrite(ctx, daily)
	if err != nil {
		return err
	}
	if err := expect("A's late write "+answer.Message, protocol.Accepted, answer.Name); err != nil {
		return err
	}
	say.step("A goes on (SIGCONT) and writes report %s: accepted", daily)
	if err := h.end(); err != nil {
		return err
	}
	report, err := c.report(ctx, plainNamespace, daily)
	if err != nil {
		return err
	}
	if err := expect("report "+daily, h.resultA, report.value); err != nil {
		return err
	}
	say.step("report %s holds %q: the stale write landed, B's result is gone", daily, report.value)
	return nil
}

// playFenced shows the stale write refused.
func (c *cluster) playFenced(ctx context.Context, say *timeline) error {
	say.title("Story 2: the same workers with pkg/resourcelock on a FencedLease")
	if err := c.stage(ctx, fencedNamespace, protocol.ElectionFenced); err != nil {
		return err
	}
	if err := c.guard(ctx, say); err != nil {
		return err
	}
	h, err := c.handOver(ctx, say, protocol.ElectionFenced, fencedNamespace)
	if err != nil {
		return err
	}
	// B has marked daily, so the mark on the object refuses A; on weekly, which B has not touched, the lease does.
	for _, report := range []string{daily, weekly} {
		answer, err := h.lateWrite(ctx, report)
		if err != nil {
			return err
		}
		if err := expect("A's late write of "+report, protocol.Refused, answer.Name); err != nil {
			return err
		}
		if err := expect("code of the refusal ("+answer.Message+")", int32(http.StatusForbidden), answer.Code); err != nil {
			return err
		}
		what := "A goes on (SIGCONT) and writes report " + daily
		if report == weekly {
			what = "A writes report " + weekly + " too, which B has not touched,"
		}
		say.step("%s with its token %s: %d %s", what, h.termA.Token, answer.Code, answer.Reason)
		say.quote(answer.Message)
	}
	if err := c.checkFenced(ctx, h); err != nil {
		return err
	}
	say.step("report %s holds %q, mark of generation %d; report %s is untouched", daily, h.resultB, h.termB.Generation, weekly)
	if err := c.show(ctx, say); err != nil {
		return err
	}
	if err := h.end(); err != nil {
		return err
	}
	say.title("Verdict: without fencing the late write of the paused leader landed; with the fence the API server refused it, and B's result stays.")
	return nil
}

// guard creates the FencedLease and waits until its guards are in force.
func (c *cluster) guard(ctx context.Context, say *timeline) error {
	lease := fencedLease()
	if err := c.create(ctx, lease); err != nil {
		return err
	}
	err := c.await(ctx, "the guards to be in force", func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil:
			return errors.New("the condition Ready is not set")
		case ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != lease.Generation:
			return fmt.Errorf("the condition Ready is %s: %s: %s", ready.Status, ready.Reason, ready.Message)
		default:
			return nil
		}
	})
	if err != nil {
		return err
	}
	say.step("FencedLease %s/%s is Ready: reports/* accept writes of its holder only", lease.Namespace, lease.Name)
	return nil
}

// checkFenced compares what the API server stores with the story.
func (c *cluster) checkFenced(ctx context.Context, h *handover) error {
	report, err := c.report(ctx, fencedNamespace, daily)
	if err != nil {
		return err
	}
	if err := expect("report "+daily, h.resultB, report.value); err != nil {
		return err
	}
	if err := expectPrefix("mark of report "+daily, h.termB.Token, report.mark); err != nil {
		return err
	}
	if report, err = c.report(ctx, fencedNamespace, weekly); err != nil {
		return err
	}
	return expect("report "+weekly, firstValue, report.value)
}

// show prints the lease as kubectl does.
func (c *cluster) show(ctx context.Context, say *timeline) error {
	table, err := c.runKubectl(ctx, "get", "fencedleases", "-n", fencedNamespace)
	if err != nil {
		return err
	}
	say.block(table)
	return nil
}
