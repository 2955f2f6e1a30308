// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rulestest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two samples, and between two evaluations of a rule.
const interval = time.Minute

// language is the dialect of queries without any extension.
func language() parser.Parser { return parser.NewParser(parser.Options{}) }

// series are time series in memory, which the engine queries as it does a database.
type series []*storage.SeriesEntry

var _ storage.Queryable = series{}

// load reads series in the notation of Prometheus' own tests, such as `metric{label="x"} 0+1x30`, the first sample at time 0.
func load(t *testing.T, lines ...string) series {
	t.Helper()
	var out series
	for _, line := range lines {
		name, values, err := language().ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("read series %s: %v", line, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{(time.Duration(i) * interval).Milliseconds(), v.Value})
			}
		}
		out = append(out, storage.NewListSeries(name, samples))
	}
	return out
}

func (s series) Querier(_, _ int64) (storage.Querier, error) { return querier(s), nil }

// querier selects among series. The engine itself cuts them to the time that it needs.
type querier series

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &selection{next: -1}
	for _, s := range q {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Lset.Get(m.Name)) }) {
			set.series = append(set.series, s)
		}
	}
	return set
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type selection struct {
	series []storage.Series
	next   int
}

func (s *selection) Next() bool {
	s.next++
	return s.next < len(s.series)
}
func (s *selection) At() storage.Series              { return s.series[s.next] }
func (*selection) Err() error                        { return nil }
func (*selection) Warnings() annotations.Annotations { return nil }

// alert is one that fires.
type alert struct {
	labels       map[string]string
	summary, why string
}

// firing evaluates a rule at every interval up to the given time, as Prometheus does, and returns the alerts that fire then.
func firing(t *testing.T, rule rulefmt.Rule, data series, at time.Duration) []alert {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language(),
	})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	// since is when each alert has become active.
	since := map[string]time.Duration{}
	var fire []alert
	for now := time.Duration(0); now <= at; now += interval {
		query, err := engine.NewInstantQuery(t.Context(), data, nil, rule.Expr, time.UnixMilli(now.Milliseconds()))
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		result := query.Exec(t.Context())
		if result.Err != nil {
			t.Fatalf("%s: %v", rule.Alert, result.Err)
		}
		if len(result.Warnings) > 0 {
			t.Fatalf("%s: the engine warns: %v", rule.Alert, result.Warnings)
		}
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		active := map[string]time.Duration{}
		fire = nil
		for _, s := range vector {
			key := s.Metric.String()
			active[key] = now
			if begin, ok := since[key]; ok {
				active[key] = begin
			}
			if now-active[key] >= time.Duration(rule.For) {
				fire = append(fire, describe(t, rule, s))
			}
		}
		since = active
		query.Close()
	}
	return fire
}

// describe returns an alert with its labels and annotations as people see them.
func describe(t *testing.T, rule rulefmt.Rule, s promql.Sample) alert {
	t.Helper()
	all := s.Metric.Map()
	delete(all, labels.MetricName)
	data := template.AlertTemplateData(all, nil, "", s)
	expand := func(text string) string {
		expander := template.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}{{$value := .Value}}"+text, rule.Alert, data,
			model.Time(s.T), nil, nil, []string{"missingkey=error"})
		out, err := expander.Expand()
		if err != nil {
			t.Fatalf("%s: expand %q: %v", rule.Alert, text, err)
		}
		return out
	}
	a := alert{labels: maps.Clone(all), summary: expand(rule.Annotations["summary"]), why: expand(rule.Annotations["description"])}
	maps.Copy(a.labels, rule.Labels)
	if strings.Contains(a.why, "<no value>") {
		t.Errorf("%s: the description shows a label that is not there: %s", rule.Alert, a.why)
	}
	return a
}

// sample is a number at a time in milliseconds.
type sample struct {
	t int64
	f float64
}

var _ chunks.Sample = sample{}

func (s sample) T() int64                    { return s.t }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.f }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
