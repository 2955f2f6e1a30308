// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rulestest

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// rules returns all alerts by name.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(root + "/config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	groups, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	// It also checks names, expressions and templates.
	parsed, errs := rulefmt.Parse(groups, false, model.UTF8Validation, language(), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		t.FailNow()
	}
	found := map[string]rulefmt.Rule{}
	for _, group := range parsed.Groups {
		for _, rule := range group.Rules {
			if _, twice := found[rule.Alert]; twice || rule.Alert == "" {
				t.Errorf("%q: no alert, or one of that name is there already", rule.Alert)
			}
			found[rule.Alert] = rule
		}
	}
	return found
}

// reviews is a counter of reviews.
func reviews(outcome, reason, values string) string {
	return `fencedlease_reviews_total{outcome="` + outcome + `",reason="` + reason + `",operation="update",subresource="main",dry_run="false",pod="a"} ` + values
}

// condition is the gauge of leases by condition, on the elected replica and on another one.
func condition(name, status, values string) []string {
	labels := `{condition="` + name + `",status="` + status + `",pod="`
	return []string{"fencedlease_lease_conditions" + labels + `a"} ` + values, "fencedlease_lease_conditions" + labels + `b"} 0x120`}
}

func concat(lists ...[]string) []string { return slices.Concat(lists...) }

// story is what replicas show from time 0 on, a value a minute, and whether an alert fires at a time.
type story struct {
	alert string
	data  []string
	at    time.Duration
	// fires are the labels of the alerts that fire, without severity; nil if none does.
	fires []map[string]string
	// why is a part of the description.
	why string
}

var once = []map[string]string{{}}

func TestAlerts(t *testing.T) {
	all := rules(t)
	fired, quiet := map[string]bool{}, map[string]bool{}
	for name, s := range stories() {
		rule, known := all[s.alert]
		if !known {
			t.Errorf("%s: there is no alert %s", name, s.alert)
			continue
		}
		if s.fires != nil {
			fired[s.alert] = true
		} else {
			quiet[s.alert] = true
		}
		t.Run(name, func(t *testing.T) {
			got := firing(t, rule, load(t, s.data...), s.at)
			var labels []map[string]string
			for _, a := range got {
				own := maps.Clone(a.labels)
				delete(own, "severity")
				labels = append(labels, own)
				if !strings.Contains(a.why, s.why) {
					t.Errorf("description: want %q in it, got %s", s.why, a.why)
				}
			}
			if diff := cmp.Diff(s.fires, labels); diff != "" {
				t.Errorf("%s at %v (-want +got):\n%s", s.alert, s.at, diff)
			}
		})
	}
	for name := range all {
		if !fired[name] || !quiet[name] {
			t.Errorf("%s: want a story in which it fires (there is one: %v) and one in which it does not (%v)", name, fired[name], quiet[name])
		}
	}
}

func stories() map[string]story {
	const m = time.Minute
	quietLeases := []string{
		`fencedlease_leases{state="Held",pod="a"} 4x120`, `fencedlease_leases{state="Held",pod="b"} 0x120`,
		`fencedlease_leases{state="Released",pod="a"} 0x120`, `fencedlease_leases{state="Released",pod="b"} 0x120`,
		`fencedlease_leases{state="NeverHeld",pod="a"} 0x120`, `fencedlease_leases{state="NeverHeld",pod="b"} 0x120`,
		`fencedlease_leases_overdue{pod="a"} 0x120`, `fencedlease_leases_overdue{pod="b"} 0x120`,
	}
	apiCalls := func(name, kind, values string) string {
		return `apiserver_admission_webhook_rejection_count{name="` + name + `",type="validating",operation="UPDATE",error_type="` + kind +
			`",rejection_code="500"} ` + values
	}
	return map[string]story{
		"nothing is scraped": {"FencedLeaseManagerDown", []string{`up{job="other"} 1x120`}, 6 * m, once, "leaders keep renewing"},
		"one of two replicas is scraped": {
			"FencedLeaseManagerDown", []string{reviews("allow", "CurrentToken", "0x3 _x10"), strings.Replace(reviews("allow", "CurrentToken", "0x120"), `"a"`, `"b"`, 1)},
			20 * m, nil, "",
		},
		"all replicas end": {"FencedLeaseManagerDown", []string{reviews("allow", "CurrentToken", "0x10 _x110")}, 30 * m, once, ""},

		"neither replica is elected": {
			"FencedLeaseNoElectedManager",
			[]string{
				`leader_election_master_status{name="fencedlease-manager.fencedlease.io",pod="a"} 0x120`,
				`leader_election_master_status{name="fencedlease-manager.fencedlease.io",pod="b"} 0x120`,
			}, 5 * m, once, "floors and seals",
		},
		"one replica is elected": {
			"FencedLeaseNoElectedManager",
			[]string{
				`leader_election_master_status{name="fencedlease-manager.fencedlease.io",pod="a"} 0x120`,
				`leader_election_master_status{name="fencedlease-manager.fencedlease.io",pod="b"} 1x120`,
				`leader_election_master_status{name="other",pod="c"} 0x120`,
			}, 20 * m, nil, "",
		},

		"calls of the guards' webhook fail": {
			"FencedLeaseCallsFail", []string{apiCalls("reports.guards.fencedlease.io", "calling_webhook_error", "0+60x30")}, 10 * m, once, "refuse 1.00 guarded writes a second",
		},
		"calls succeed, and another webhook's fail": {
			"FencedLeaseCallsFail",
			[]string{apiCalls("reports.guards.fencedlease.io", "no_error", "0+60x30"), apiCalls("x.example.com", "calling_webhook_error", "0+60x30")}, 20 * m, nil, "",
		},

		"leases cannot be read": {
			"FencedLeaseReviewsUnavailable", []string{reviews("unavailable", "CannotTell", "0+6x30"), reviews("allow", "CurrentToken", "0+600x30")}, 10 * m, once, "0.10 reviews a second",
		},
		"reviews are answered": {
			"FencedLeaseReviewsUnavailable", []string{reviews("unavailable", "CannotTell", "3x30"), reviews("deny", "StaleToken", "0+600x30")}, 20 * m, nil, "",
		},
		"writers come before their term is sealed": {
			"FencedLeaseReviewsUnavailable", []string{reviews("unavailable", "SealPending", "0+6x30")}, 20 * m, nil, "",
		},
		"one review fails at a restart": {
			"FencedLeaseReviewsUnavailable", []string{reviews("unavailable", "CannotTell", "0x9 1x30")}, 12 * m, nil, "",
		},

		"reviews take two seconds":                    {"FencedLeaseReviewsSlow", durations(0, 0, 100), 15 * m, once, "longer than 2"},
		"reviews are fast, one in a thousand is slow": {"FencedLeaseReviewsSlow", durations(995, 1000, 1001), 30 * m, nil, ""},

		"the level of the reads is full": {
			"FencedLeaseReadsRejected",
			[]string{`apiserver_flowcontrol_rejected_requests_total{priority_level="fencedlease-reads",flow_schema="fencedlease-reads",reason="queue-full"} 0+60x30`}, 10 * m, once, "1.00 reads a second",
		},
		"another level is full": {
			"FencedLeaseReadsRejected",
			[]string{`apiserver_flowcontrol_rejected_requests_total{priority_level="workload-low",flow_schema="x",reason="queue-full"} 0+60x30`}, 20 * m, nil, "",
		},

		"guards are not in force for long":  {"FencedLeaseNotReady", condition("Ready", "false", "2x60"), 15 * m, once, "2 FencedLeases"},
		"guards come in force after a time": {"FencedLeaseNotReady", condition("Ready", "false", "1x10 0x60"), 30 * m, nil, ""},
		"all guards are in force": {
			"FencedLeaseNotReady", concat(condition("Ready", "true", "5x60"), condition("Ready", "false", "0x60"), condition("Sealed", "false", "5x60")), 30 * m, nil, "",
		},

		"the store went back":         {"FencedLeaseGenerationBehind", condition("GenerationBehind", "true", "1x60"), 5 * m, once, "1 FencedLeases"},
		"generations are as expected": {"FencedLeaseGenerationBehind", condition("GenerationBehind", "false", "5x60"), 30 * m, nil, ""},
		"a forged mark":               {"FencedLeaseImplausibleMark", condition("ImplausibleMark", "true", "1x60"), 5 * m, once, "created anew"},
		"plausible marks":             {"FencedLeaseImplausibleMark", condition("ImplausibleMark", "false", "5x60"), 30 * m, nil, ""},

		"every lease is held and renewed": {"FencedLeaseWithoutHolder", quietLeases, 60 * m, nil, ""},
		"a lease is released, and nobody acquires it": {
			"FencedLeaseWithoutHolder", append(slices.Clone(quietLeases), `fencedlease_leases{state="Released",pod="c"} 0x10 1x60`), 30 * m, once, "1 FencedLeases",
		},
		"a holder dies without a successor": {
			"FencedLeaseWithoutHolder", replace(quietLeases, "fencedlease_leases_overdue", "0x120", "0x10 2x110"), 30 * m, once, "2 FencedLeases",
		},
		"one replica alone sees no renewals": {
			"FencedLeaseWithoutHolder", replace(quietLeases, `fencedlease_leases_overdue{pod="a"}`, "0x120", "0x10 2x110"), 60 * m, nil, "",
		},
		"a holder is replaced within minutes": {
			"FencedLeaseWithoutHolder", replace(quietLeases, "fencedlease_leases_overdue", "0x120", "0x10 1x3 0x90"), 60 * m, nil, "",
		},

		"a lease changes hands every minute": {
			"FencedLeaseFlapping", append(slices.Clone(quietLeases), `fencedlease_handovers_total{pod="a"} 0+1x120`, `fencedlease_handovers_total{pod="b"} 0x120`), 60 * m, once, "15 handovers",
		},
		"a rolling update": {
			"FencedLeaseFlapping", append(slices.Clone(quietLeases), `fencedlease_handovers_total{pod="a"} 0x10 1+1x6 8x90`), 60 * m, nil, "",
		},

		"pauses reach nine tenths of the duration": {"FencedLeaseRenewalGaps", gaps("0+1x120"), 90 * m, once, "longer than 0.8"},
		"pauses are a third of the duration":       {"FencedLeaseRenewalGaps", gaps("0x120"), 90 * m, nil, ""},

		"a seal does not come to an end": {"FencedLeaseSealPending", condition("Sealed", "false", "1x60"), 10 * m, once, "1 FencedLeases"},
		"seals take some minutes":        {"FencedLeaseSealPending", condition("Sealed", "false", "1x8 0x60"), 30 * m, nil, ""},

		"seals fail again and again": {"FencedLeaseSealsFail", []string{`fencedlease_seals_total{result="Failed",pod="a"} 0+1x60`}, 30 * m, once, "10 attempts"},
		"one attempt fails": {
			"FencedLeaseSealsFail", []string{`fencedlease_seals_total{result="Failed",pod="a"} 0x10 1x60`, `fencedlease_seals_total{result="Sealed",pod="a"} 0+9x60`}, 15 * m, nil, "",
		},
		"a late create is reported": {
			"FencedLeaseLateCreates", []string{`fencedlease_late_creates_total{action="Reported",pod="a"} 0x10 1x60`, `fencedlease_late_creates_total{action="Deleted",pod="a"} 0x60`},
			12 * m, []map[string]string{{"action": "Reported"}}, "carry the current term's mark",
		},
		"a late create is deleted": {
			"FencedLeaseLateCreates", []string{`fencedlease_late_creates_total{action="Deleted",pod="a"} 0x10 1x60`}, 12 * m, []map[string]string{{"action": "Deleted"}}, "have been deleted",
		},
		"no late create": {"FencedLeaseLateCreates", []string{`fencedlease_late_creates_total{action="Deleted",pod="a"} 1x60`}, 40 * m, nil, ""},

		"an ended holder goes on writing": {
			"FencedLeaseStaleWrites", []string{reviews("deny", "StaleToken", "0+3x120")}, 40 * m, once, "45 writes",
		},
		"a resumed holder notices": {
			"FencedLeaseStaleWrites", []string{reviews("deny", "StaleToken", "0x10 25x120"), reviews("deny", "MissingToken", "0+30x120")}, 40 * m, nil, "",
		},

		"somebody removes marks": {"FencedLeaseMarkTampering", []string{reviews("deny", "MarkTampered", "0x10 2x60")}, 12 * m, once, "were refused"},
		"other denials":          {"FencedLeaseMarkTampering", []string{reviews("deny", "StaleToken", "0+9x60"), reviews("deny", "MarkTampered", "7x60")}, 30 * m, nil, ""},
		"a made-up token":        {"FencedLeaseFutureTokens", []string{reviews("deny", "FutureToken", "0x10 1x60")}, 12 * m, once, "floor was raised"},
		"no made-up token":       {"FencedLeaseFutureTokens", []string{reviews("deny", "FutureToken", "1x60")}, 30 * m, nil, ""},
		"the break-glass":        {"FencedLeaseBypassUsed", []string{reviews("allow", "Overridden", "0x10 1x60")}, 12 * m, once, "audit log"},
		"the break-glass of yesterday, and a dry run today": {
			"FencedLeaseBypassUsed",
			[]string{reviews("allow", "Overridden", "4x60"), strings.Replace(reviews("allow", "Overridden", "0+1x60"), `dry_run="false"`, `dry_run="true"`, 1)}, 30 * m, nil, "",
		},

		"shadow mode finds something": {
			"FencedLeaseAuditRefusals",
			[]string{`fencedlease_audit_refusals_total{reason="MissingToken",pod="a"} 0+1x120`, `fencedlease_audit_refusals_total{reason="StaleToken",pod="a"} 0x120`},
			90 * m, []map[string]string{{"reason": "MissingToken"}}, "refused as MissingToken",
		},
		"shadow mode finds nothing": {"FencedLeaseAuditRefusals", []string{`fencedlease_audit_refusals_total{reason="MissingToken",pod="a"} 5x120`}, 90 * m, nil, ""},

		"one replica does not renew its certificate": {
			"FencedLeaseCertificateExpiresSoon", concat(expiry("leaf", "a", "15000-60x60"), expiry("leaf", "b", "80000x60"), expiry("ca", "a", "20000000x60")),
			40 * m, []map[string]string{{"kind": "leaf"}}, "of kind leaf expires in 3h",
		},
		"the CA is not rotated": {
			"FencedLeaseCertificateExpiresSoon", concat(expiry("leaf", "a", "80000x60"), expiry("ca", "a", "1000000x60")), 40 * m, []map[string]string{{"kind": "ca"}}, "11d",
		},
		"certificates are renewed": {
			"FencedLeaseCertificateExpiresSoon", concat(expiry("leaf", "a", "30000-60x10 86400-60x50"), expiry("ca", "a", "20000000x60")), 40 * m, nil, "",
		},
		"a certificate ends":        {"FencedLeaseCertificateExpired", expiry("leaf", "a", "4000-60x60"), 10 * m, []map[string]string{{"kind": "leaf"}}, "56m"},
		"no certificate ends":       {"FencedLeaseCertificateExpired", expiry("leaf", "a", "30000x60"), 10 * m, nil, ""},
		"the Secret is deleted":     {"FencedLeaseCertificateRestored", []string{`fencedlease_certificate_restores_total{cause="deleted",pod="a"} 0x10 1x60`}, 12 * m, []map[string]string{{"cause": "deleted"}}, "was deleted"},
		"nobody touches the Secret": {"FencedLeaseCertificateRestored", []string{`fencedlease_certificate_restores_total{cause="deleted",pod="a"} 1x60`}, 30 * m, nil, ""},
	}
}

func expiry(kind, pod, values string) []string {
	return []string{`fencedlease_certificate_expiry_seconds{kind="` + kind + `",pod="` + pod + `"} ` + values}
}

// gaps are pauses between renewals, with so many above 0.8 of the duration.
func gaps(late string) []string {
	return []string{
		`fencedlease_renewal_gap_ratio_bucket{le="0.4",pod="a"} 0+12x120`, `fencedlease_renewal_gap_ratio_bucket{le="0.8",pod="a"} 0+12x120`,
		`fencedlease_renewal_gap_ratio_count{pod="a"} 0+12x120`,
		`fencedlease_renewal_gap_ratio_bucket{le="0.8",pod="b"} 0x120`, `fencedlease_renewal_gap_ratio_count{pod="b"} ` + late,
	}
}

// durations are durations of reviews: so many more a minute below 8 ms, 1 s and 2 s.
func durations(fast, second, all int) []string {
	line := func(le string, n int) string {
		return `fencedlease_review_duration_seconds_bucket{outcome="allow",pod="a",le="` + le + `"} 0+` + strconv.Itoa(n) + `x60`
	}
	return []string{line("0.008", fast), line("1.024", second), line("2.048", all), line("4.096", all), line("+Inf", all)}
}

// replace changes the values of the series that begin with a text.
func replace(lines []string, begin, before, after string) []string {
	out := slices.Clone(lines)
	for i, line := range out {
		if strings.HasPrefix(line, begin) {
			out[i] = strings.Replace(line, before, after, 1)
		}
	}
	return out
}
