// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rulestest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// documented is a metric of docs/metrics.md.
type documented struct {
	kind string
	// labels have their values, nil where the page lists none; open says that the page lists no labels at all.
	labels map[string][]string
	open   bool
}

var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|(.*)\\|$")

// metrics reads docs/metrics.md.
func metrics(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]documented{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		cells := strings.Split(m[2], " | ")
		d := documented{labels: map[string][]string{}}
		switch len(cells) {
		case 1:
			d.open = true
		case 2:
			for label := range strings.SplitSeq(strings.TrimSpace(cells[0]), ", ") {
				d.labels[label] = nil
			}
		case 3:
			d.kind = strings.TrimSpace(cells[0])
			for part := range strings.SplitSeq(strings.TrimSpace(cells[1]), "<br>") {
				if label, values, has := strings.Cut(part, ": "); has {
					d.labels[strings.Trim(label, "`")] = strings.Split(values, ", ")
				}
			}
		default:
			t.Fatalf("cannot read the row of %s", m[1])
		}
		found[m[1]] = d
	}
	if len(found) < 30 {
		t.Fatalf("only %d metrics were found", len(found))
	}
	return found
}

// ofScrapes are the labels that Prometheus adds to everything that it scrapes from pods.
var ofScrapes = []string{"job", "instance", "namespace", "pod", "service", "container", "endpoint"}

// check complains of everything in a query that does not exist.
func check(t *testing.T, known map[string]documented, where, query string) {
	t.Helper()
	expr, err := language().ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	selectors := 0
	allowed := slices.Clone(ofScrapes)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		m, name, exists := find(known, selector.Name)
		if !exists {
			t.Errorf("%s: %s is not in docs/metrics.md", where, selector.Name)
			return nil
		}
		for label := range m.labels {
			allowed = append(allowed, label)
		}
		if name != selector.Name {
			allowed = append(allowed, "le")
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName {
				checkMatcher(t, where, name, m, matcher, name != selector.Name)
			}
		}
		return nil
	})
	if selectors == 0 {
		t.Errorf("%s: %s selects nothing", where, query)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if aggregation, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range aggregation.Grouping {
				if !slices.Contains(allowed, label) {
					t.Errorf("%s: %s groups by %s, which no metric in it has", where, query, label)
				}
			}
		}
		return nil
	})
}

// find returns the metric that a series belongs to: histograms have several for each.
func find(known map[string]documented, series string) (documented, string, bool) {
	if m, ok := known[series]; ok && m.kind != "histogram" {
		return m, series, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name, is := strings.CutSuffix(series, suffix)
		if m, ok := known[name]; is && ok && (m.kind == "histogram" || m.kind == "") {
			return m, name, true
		}
	}
	return documented{}, series, false
}

func checkMatcher(t *testing.T, where, name string, m documented, matcher *labels.Matcher, histogram bool) {
	t.Helper()
	if m.open || slices.Contains(ofScrapes, matcher.Name) || histogram && matcher.Name == "le" {
		return
	}
	values, has := m.labels[matcher.Name]
	if !has {
		t.Errorf("%s: %s has no label %s", where, name, matcher.Name)
		return
	}
	if values == nil {
		return
	}
	wanted := []string{matcher.Value}
	if matcher.Type == labels.MatchRegexp || matcher.Type == labels.MatchNotRegexp {
		wanted = strings.Split(matcher.Value, "|")
	}
	for _, value := range wanted {
		if !slices.Contains(values, value) {
			t.Errorf("%s: %s of %s is never %q", where, matcher.Name, name, value)
		}
	}
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	known := metrics(t)
	for name, rule := range rules(t) {
		check(t, known, name, rule.Expr)
	}
}

func TestWhatDoesNotExistIsNoticed(t *testing.T) {
	known := metrics(t)
	for _, query := range []string{
		`rate(fencedlease_review_total[5m])`, `fencedlease_reviews_total{verdict="deny"}`, `fencedlease_reviews_total{outcome="refuse"}`,
		`sum by (lease) (fencedlease_leases)`, `fencedlease_reviews_total_count`, `fencedlease_review_duration_seconds`, `1 +`, `vector(1)`,
		`fencedlease_leases{state=~"Held|Lost"}`,
	} {
		inner := &testing.T{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			check(inner, known, "query", query)
		}()
		<-done
		if !inner.Failed() {
			t.Errorf("%s: no complaint", query)
		}
	}
}

const runbooks = "https://github.com/fencedlease/fencedlease/blob/main/docs/operations.md#"

// TestEveryAlertHasARunbook and every runbook an alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Runbooks\n")
	if !found {
		t.Fatal("docs/operations.md has no section Runbooks")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	written := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)\n\n(.{40,})`).FindAllStringSubmatch(section, -1) {
		written[m[1]] = true
	}
	all := rules(t)
	for name, rule := range all {
		if !strings.HasPrefix(name, "FencedLease") || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: lacks a summary, a description, a severity or the prefix", name)
		}
		if rule.Annotations["runbook_url"] != runbooks+strings.ToLower(name) || !written[name] {
			t.Errorf("%s: runbook %s: no section of that name", name, rule.Annotations["runbook_url"])
		}
	}
	for name := range written {
		if _, ok := all[name]; !ok {
			t.Errorf("docs/operations.md: there is no alert %s", name)
		}
	}
}

// TestDashboardsAskForMetricsThatExist reads every query of every panel and variable.
func TestDashboardsAskForMetricsThatExist(t *testing.T) {
	files, err := filepath.Glob("../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	known := metrics(t)
	asked := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard any
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		queries := 0
		walk(dashboard, func(key, value string) {
			switch key {
			case "expr":
				queries++
				query := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", `"$job"`, `".*"`).Replace(value)
				if strings.Contains(query, "$") {
					t.Errorf("%s: %s: a variable that is not known here", file, value)
				}
				check(t, known, file, query)
				for name := range known {
					if strings.Contains(query, name) {
						asked[name] = true
					}
				}
			case "definition":
				query, _, _ := strings.Cut(strings.TrimPrefix(value, "label_values("), ",")
				check(t, known, file, query)
			}
		})
		if queries < 10 {
			t.Errorf("%s: only %d queries were found", file, queries)
		}
	}
	for name, m := range known {
		if m.kind != "" && !asked[name] {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}

// walk calls visit for each text in a JSON value, with its key.
func walk(value any, visit func(key, value string)) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if text, ok := inner.(string); ok {
				visit(key, text)
			} else {
				walk(inner, visit)
			}
		}
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}
