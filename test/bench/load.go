// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// cellResult is what was measured under one kind of admission.
type cellResult struct {
	// p50 is the median latency, perSecond the writes in a second, after the warm-up.
	p50       time.Duration
	perSecond float64
	// writes are all writes, also those of the warm-up. reviews, reads and processor time belong to them.
	writes, reviews, reads float64
	processor              time.Duration
}

// cell lets writers write, each its own object without a pause. A writer's first write and those that it begins in the
// warm-up are not measured; at least one is.
func (c *cluster) cell(ctx context.Context, k kind, writers int, warmUp, duration time.Duration) (cellResult, error) {
	before, err := c.counts(ctx, k)
	if err != nil {
		return cellResult{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := time.Now().Add(warmUp)
	until := from.Add(duration)
	latencies := make([][]time.Duration, writers)
	var all atomic.Int64
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			name := k.prefix() + strconv.Itoa(i)
			sent := time.Now()
			for first := true; sent.Before(until) || len(latencies[i]) == 0; first = false {
				if err := c.write(ctx, k, name, c.tokenOf(k)); err != nil {
					cancel(err)
					return
				}
				all.Add(1)
				answered := time.Now()
				if !first && !sent.Before(from) {
					latencies[i] = append(latencies[i], answered.Sub(sent))
				}
				sent = answered
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return cellResult{}, err
	}
	measured := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	result := cellResult{p50: measured[len(measured)/2], writes: float64(all.Load())}
	for _, own := range latencies {
		// A writer writes without a pause, so its rate is one over its mean latency.
		var busy time.Duration
		for _, latency := range own {
			busy += latency
		}
		result.perSecond += float64(len(own)) / busy.Seconds()
	}
	after, err := c.counts(ctx, k)
	if err != nil {
		return cellResult{}, err
	}
	result.reviews, result.reads = after.reviews-before.reviews, after.reads-before.reads
	result.processor = time.Duration((after.processor - before.processor) * float64(time.Second))
	if (k.isFenced() || k == noop) && result.reviews < result.writes {
		return cellResult{}, fmt.Errorf("%v writes were reviewed %v times", result.writes, result.reviews)
	}
	return result, nil
}

// write changes a report by a merge patch, under a token with an operation of its own. The patch carries the token in an
// annotation wherever it is not carried by the request, so that all objects have the same size.
func (c *cluster) write(ctx context.Context, k kind, name, token string) error {
	operation := strconv.FormatInt(c.written.Add(1), 10)
	patch := `{"metadata":{"annotations":{"` + v1alpha1.TokenKey(leaseName) + `":"` + token + "/" + operation + `"}},"spec":{"value":"` + operation + `"}}`
	sender := c.writer
	if k == request {
		patch, sender = `{"spec":{"value":"`+operation+`"}}`, c.carrier
	}
	return c.patch(ctx, sender, k.namespace(), name, patch)
}

// patch sends a merge patch of a report.
func (c *cluster) patch(ctx context.Context, sender *http.Client, namespace, name, patch string) error {
	url := c.host + "/apis/" + env.GuardedGroup + "/" + env.ReportVersion + "/namespaces/" + namespace + "/reports/" + name
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, strings.NewReader(patch))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", string(types.MergePatchType))
	response, err := sender.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &refusedError{response.StatusCode, string(body)}
	}
	return nil
}

// refusedError is an answer other than 200.
type refusedError struct {
	code int
	body string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.body)
}

// check proves that each kind of admission is in force: a token of generation 1 is refused by the policy and by the
// manager, and by nobody else.
func (c *cluster) check(ctx context.Context) error {
	for _, k := range []kind{plain, policy, noop, fenced, sealed} {
		name := k.prefix() + "0"
		err := c.await(ctx, string(k)+" to be in force", func(ctx context.Context) error {
			if err := c.write(ctx, k, name, c.tokenOf(k)); err != nil {
				return err
			}
			var refused *refusedError
			isRefused := errors.As(c.write(ctx, k, name, "1.aaaaaaaa"), &refused) && refused.code != http.StatusInternalServerError
			if wanted := k == policy || k.isFenced(); isRefused != wanted {
				return fmt.Errorf("a stale write is refused: %t, wanted %t", isRefused, wanted)
			}
			if counted, err := c.counts(ctx, k); err != nil || k == noop && counted.reviews == 0 {
				return errors.Join(err, errors.New("the no-op webhook is not called yet"))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counted is what the webhook's process has counted.
type counted struct{ reviews, reads, processor float64 }

// counts reads the metrics of the webhook that reviews a kind's writes.
func (c *cluster) counts(ctx context.Context, k kind) (counted, error) {
	url, reviews := c.managerMetrics, "fencedlease_reviews_total"
	switch {
	case k == noop:
		url, reviews = c.noopMetrics, noopReviews
	case !k.isFenced():
		return counted{}, nil
	}
	body, err := get(ctx, url)
	if err != nil {
		return counted{}, fmt.Errorf("read metrics: %w", err)
	}
	return counted{
		reviews: sum(body, reviews), reads: sum(body, "fencedlease_lease_reads_total"), processor: sum(body, "process_cpu_seconds_total"),
	}, nil
}

// sum adds up all series of a metric in the text format.
func sum(body []byte, metric string) float64 {
	var total float64
	for line := range bytes.Lines(body) {
		series, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if i := bytes.IndexByte(line, '}'); i >= 0 {
			series, value, found = line[:i+1], bytes.TrimSpace(line[i+1:]), true
		}
		name, _, _ := bytes.Cut(series, []byte("{"))
		if !found || string(name) != metric {
			continue
		}
		if number, err := strconv.ParseFloat(string(value), 64); err == nil {
			total += number
		}
	}
	return total
}
