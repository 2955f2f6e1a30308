// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// explanation is what explain prints.
type explanation struct {
	target  target.Target
	verb    string
	carrier send.Carrier
	now     time.Time

	user   authenticationv1.UserInfo
	tokens map[types.NamespacedName]token.Token
	stored *unstructured.Unstructured

	leases []*leaseView
	// incomplete says that leases of other namespaces could not be read, leasesProblem that none could.
	incomplete    bool
	leasesProblem string

	verdict verdict
}

// leaseView is a lease that guards the object.
type leaseView struct {
	lease *v1alpha1.FencedLease
	// guards are the indexes of the guards that the object is under, by subresource.
	guards map[string][]int
	// verdict is that of package fence on the write that is asked about, or nil if the API server has refused it.
	verdict *fence.Verdict
	// rows are the verdicts on what can be done to the object, where no write is asked about.
	rows []row
}

type row struct {
	write   write
	verdict fence.Verdict
}

func (e *explanation) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	e.head(w)
	for _, view := range e.leases {
		cli.Line(w, "")
		e.lease(w, view)
	}
	cli.Line(w, "")
	e.end(w)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (e *explanation) head(w io.Writer) {
	object := e.target.String()
	if namespace := e.target.Object.GetNamespace(); namespace != "" {
		object += " in namespace " + namespace
	}
	if e.verb == verbNone {
		cli.Line(w, "Object:\t%s", object)
	} else {
		cli.Line(w, "Write:\t%s of %s (server dry run)", e.verb, object)
	}
	cli.Line(w, "Writer:\t%s", e.user.Username)
	cli.Line(w, "Token:\t%s", e.tokenText())
	if e.stored == nil {
		cli.Line(w, "Stored:\tno, there is no such object")
	}
	switch {
	case e.leasesProblem != "":
		cli.Line(w, "Guarded by:\tunknown, %s", e.leasesProblem)
	case len(e.leases) == 0 && e.incomplete:
		cli.Line(w, "Guarded by:\tno FencedLease of its namespace; you may not list those of others")
	case len(e.leases) == 0:
		cli.Line(w, "Guarded by:\tno FencedLease")
	case e.incomplete:
		cli.Line(w, "Guarded by:\tat least what follows; you may not list FencedLeases of other namespaces")
	}
}

func (e *explanation) tokenText() string {
	var parts []string
	for _, lease := range slices.SortedFunc(maps.Keys(e.tokens), func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }) {
		parts = append(parts, fmt.Sprintf("%s of %s, carried by the %s", e.tokens[lease], lease.Name, e.carrier))
	}
	for _, key := range slices.Sorted(maps.Keys(e.user.Extra)) {
		if name, ok := v1alpha1.LeaseOfTokenKey(key); ok {
			parts = append(parts, fmt.Sprintf("%s of %s, carried by the user", strings.Join(e.user.Extra[key], " and "), name))
		}
	}
	return cli.OrNone(strings.Join(parts, "; "))
}

func (e *explanation) lease(w io.Writer, view *leaseView) {
	lease := view.lease
	cli.Line(w, "FencedLease %s/%s", lease.Namespace, lease.Name)
	cli.Line(w, "  State:\t%s", cli.State(lease, e.now))
	cli.Line(w, "  Guards:\t%s", view.guardText())
	cli.Line(w, "  In force:\t%s", inForce(lease))
	cli.Line(w, "  Mark:\t%s", e.mark(lease))
	if len(view.rows) > 0 {
		for _, r := range view.rows {
			cli.Line(w, "  %s:\t%s", operationText(r.write), verdictText(r.verdict))
		}
		return
	}
	if view.verdict != nil {
		cli.Line(w, "  Rule:\t%s", verdictText(*view.verdict))
		if !view.verdict.Admits() && view.verdict.Outcome == fence.Deny {
			cli.Line(w, "  Note:\tthe API server admits what this lease should refuse: its guards are not in force there, or it has changed just now")
		}
	}
}

func (view *leaseView) guardText() string {
	var parts []string
	seen := map[int]bool{}
	for _, subresource := range subresources {
		for _, i := range view.guards[subresource] {
			if !seen[i] {
				seen[i] = true
				parts = append(parts, strconv.Itoa(i)+": "+strings.Join(cli.GuardedResources(view.lease.Spec.Guards[i]), ","))
			}
		}
	}
	return strings.Join(parts, "; ")
}

func inForce(lease *v1alpha1.FencedLease) string {
	c := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionReady)
	mode := ""
	if lease.Spec.Enforcement == v1alpha1.EnforcementAudit {
		mode = ", in Audit: what would be refused is admitted and counted"
	}
	switch {
	case c == nil:
		return "unknown, the controller has not said so yet" + mode
	case c.Status != metav1.ConditionTrue:
		return "no, " + c.Reason + ": " + c.Message + mode
	case c.ObservedGeneration != lease.Generation:
		return "for an earlier spec, the present one is being installed" + mode
	default:
		return "yes" + mode
	}
}

// mark tells the mark of the stored object and how it compares with the lease.
func (e *explanation) mark(lease *v1alpha1.FencedLease) string {
	if e.stored == nil {
		return cli.None
	}
	text, has := e.stored.GetAnnotations()[v1alpha1.TokenKey(lease.Name)]
	if !has {
		return cli.None
	}
	mark, err := token.Parse(text)
	generation := ptr.Deref(lease.Status.Generation, 0)
	switch {
	case err != nil:
		return "not a token, so no mark"
	case mark.Generation > generation:
		return text + ", above the lease's generation"
	case mark.Generation < generation:
		return text + ", of an earlier generation: the lease's holder has not written the object yet"
	default:
		return text
	}
}

func operationText(w write) string {
	switch {
	case w.operation == fence.Create:
		return "Create"
	case w.operation == fence.Delete:
		return "Delete"
	case w.subresource == send.SubresourceStatus:
		return "Status"
	case w.subresource == send.SubresourceScale:
		return "Scale"
	default:
		return "Update"
	}
}

func verdictText(v fence.Verdict) string {
	outcome := "would pass"
	switch {
	case v.Outcome == fence.Deny && v.Audited:
		outcome = "would pass in Audit only, else be refused"
	case v.Outcome == fence.Deny:
		outcome = "would be refused"
	case v.Outcome != fence.Allow:
		outcome = "no telling"
	}
	return fmt.Sprintf("%s (%s: %s)", outcome, v.Reason, meaning(v.Reason))
}

func (e *explanation) end(w io.Writer) {
	v := e.verdict
	if !v.refused {
		text := "would pass"
		if e.verb == verbNone {
			text += ", as far as fences go: add --verb to let the API server judge a write"
		}
		cli.Line(w, "Verdict:\t%s", text)
		return
	}
	cli.Line(w, "Verdict:\twould be refused by %s", v.by)
	cli.Line(w, "Rule:\t%s", ruleText(v))
	cli.Line(w, "Message:\t%s", v.message)
	if next := e.next(); next != "" {
		cli.Line(w, "Next step:\t%s", next)
	}
}

func ruleText(v verdict) string {
	if !v.fenced {
		return v.reason
	}
	return v.reason + ": " + meaning(fence.Reason(v.reason))
}

// next says what to do about a refusal, as a command where there is one.
func (e *explanation) next() string {
	v := e.verdict
	if !v.fenced {
		return v.next
	}
	lease := e.refusing()
	acquire := "kubectl fencedlease acquire LEASE --identity=IDENTITY --wait"
	if lease != nil {
		acquire = fmt.Sprintf("kubectl fencedlease acquire %s -n %s --identity=IDENTITY --wait", lease.Name, lease.Namespace)
	}
	switch fence.Reason(v.reason) {
	case fence.MissingToken, fence.FinalDelete:
		if lease != nil && ptr.Deref(lease.Status.HolderIdentity, "") != "" {
			return fmt.Sprintf("if you are the holder, %q, add --token=%s; else wait for the lease: %s", *lease.Status.HolderIdentity, ptr.Deref(lease.Status.Token, ""), acquire)
		}
		return "acquire the lease and add the token that is printed: " + acquire
	case fence.StaleToken, fence.Released, fence.ForkedTerm, fence.FutureToken:
		return "drop the result, acquire the lease and compute anew: " + acquire
	case fence.MalformedToken:
		return "give one token for the lease, GENERATION.TERM, in one place"
	case fence.MarkTampered, fence.Reason(fenced.RecordTampered):
		return "keep the annotation: write by patch or apply, or send the object as it was read"
	case fence.AlreadyApplied:
		return "take the operation for done, or give a write that is to be applied an operation of its own"
	default:
		return ""
	}
}

// refusing is the lease that refuses, or nil if it is not known.
func (e *explanation) refusing() *v1alpha1.FencedLease {
	for _, view := range e.leases {
		if strings.HasSuffix(e.verdict.by, " "+view.lease.Namespace+"/"+view.lease.Name) || len(e.leases) == 1 {
			return view.lease
		}
	}
	return nil
}
