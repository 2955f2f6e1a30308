// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

func TestTheSchemaIsStatementsOfOneKind(t *testing.T) {
	t.Parallel()
	statements := statementsOf(Schema)
	if len(statements) != 2 {
		t.Errorf("want 2 statements, got %d", len(statements))
	}
	for _, statement := range statements {
		if !strings.HasPrefix(statement, "CREATE TABLE IF NOT EXISTS fencedlease_") || !strings.HasSuffix(statement, ")") {
			t.Errorf("this cannot be run again:\n%s", statement)
		}
	}
	// What the schema has as numbers is what the code has.
	for _, want := range []string{fmt.Sprint(token.MaxPlausibleGeneration), fmt.Sprint(maxResult), fmt.Sprint(token.MaxOperationLength), fmt.Sprintf("{%d}", token.TermLength)} {
		if !strings.Contains(Schema, want) {
			t.Errorf("the schema does not have %s", want)
		}
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	lease := types.NamespacedName{Namespace: "reports", Name: "report-writer"}
	presented := token.Token{Generation: 33, Term: "a1a1a1a1", Operation: "job"}
	stored := token.Token{Generation: 34, Term: "b2b2b2b2"}
	reason := errors.New("another holder has taken over")
	for cause, want := range map[fenced.CauseType]string{
		fenced.StaleToken: "FencedLease reports/report-writer: the database refuses token 33.a1a1a1a1/job: it was written under the newer 34.b2b2b2b2; " +
			"drop the result, acquire the lease again and compute anew; if the lease was restored, raise its spec.minGeneration to 34",
		fenced.ForkedTerm: "FencedLease reports/report-writer: the database refuses token 33.a1a1a1a1/job: it was written under 34.b2b2b2b2, " +
			"which is another term of the same generation: the lease was restored; acquire it again",
		fenced.FutureToken: "FencedLease reports/report-writer: the database refuses token 33.a1a1a1a1/job: generations above 1000000000000000 come from no real history",
		fenced.TermEnded: "FencedLease reports/report-writer: operation not applied: term 33.a1a1a1a1 has ended (another holder has taken over); " +
			"drop the result, acquire the lease again and compute anew",
		fenced.Released: "FencedLease reports/report-writer: the database refuses token 33.a1a1a1a1/job: Released",
	} {
		err := fmt.Errorf("work: %w", &RefusedError{Type: cause, Lease: lease, Token: presented, Stored: stored, reason: reason})
		refusal, ok := fenced.Cause(err)
		if diff := cmp.Diff(fenced.Refusal{Type: cause, Lease: lease, Message: want}, refusal); !ok || diff != "" {
			t.Errorf("%s (-want +got):\n%s", cause, diff)
		}
		if !errors.Is(err, reason) || errors.Is(err, fenced.ErrTermEnded) != (cause == fenced.TermEnded) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s is taken for something else", cause)
		}
		// Nothing that repeats conflicts repeats it.
		if apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
			t.Errorf("%s looks as if it was worth another try", cause)
		}
	}
}

func TestFindingsAreNamedStates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 12, 0, 0, 5_000_000, time.UTC)
	for want, finding := range map[string]Finding{
		"operation job: applied under 33.a1a1a1a1 at 2026-11-01T12:00:00.005Z": {
			Operation: "job", Recorded: true, Record: Record{Operation: "job", Generation: 33, Term: "a1a1a1a1", AppliedAt: at},
		},
		"operation job: not recorded; nothing was forgotten": {Operation: "job"},
		"operation job: not recorded; horizon starts at 2026-11-01T12:00:00.005Z, after generation 33": {
			Operation: "job", Horizon: Horizon{Generation: 33, AppliedAt: at},
		},
	} {
		if got := finding.String(); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestAnUnknownOutcomeIsNoRefusal(t *testing.T) {
	t.Parallel()
	reason := errors.New("connection lost")
	err := fmt.Errorf("work: %w", &UnknownError{Operation: "job", err: reason})
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, reason) || fenced.IsFenced(err) {
		t.Errorf("taken for something else: %v", err)
	}
}
