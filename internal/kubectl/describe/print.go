// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// description is what describe prints.
type description struct {
	lease         *v1alpha1.FencedLease
	now           time.Time
	counts        []count
	withEvents    bool
	events        []corev1.Event
	eventsProblem error
}

func (d *description) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, section := range []func(io.Writer){d.head, d.possession, d.guards, d.objects, d.conditions, d.recent} {
		section(w)
		// Columns of one section say nothing of those of the next.
		if err := w.Flush(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

func (d *description) head(w io.Writer) {
	cli.Line(w, "Name:\t%s", d.lease.Name)
	cli.Line(w, "Namespace:\t%s", d.lease.Namespace)
	cli.Line(w, "Age:\t%s", duration.HumanDuration(d.now.Sub(d.lease.CreationTimestamp.Time)))
	cli.Line(w, "Lease duration:\t%ds", d.lease.Spec.LeaseDurationSeconds)
	cli.Line(w, "Handover:\t%s", d.lease.Spec.Handover)
	cli.Line(w, "Enforcement:\t%s", d.lease.Spec.Enforcement)
}

func (d *description) possession(w io.Writer) {
	status := &d.lease.Status
	cli.Line(w, "Possession:")
	if status.GenerationFloor == nil {
		cli.Line(w, "  %s", cli.State(d.lease, d.now))
		return
	}
	generation := ptr.Deref(status.Generation, 0)
	next := 1 + max(generation, *status.GenerationFloor, ptr.Deref(d.lease.Spec.MinGeneration, 0))
	cli.Line(w, "  Holder:\t%s", cli.Holder(d.lease))
	cli.Line(w, "  Generation:\t%d", generation)
	cli.Line(w, "  Term:\t%s", cli.OrNone(ptr.Deref(status.Term, "")))
	cli.Line(w, "  Token:\t%s", cli.OrNone(ptr.Deref(status.Token, "")))
	cli.Line(w, "  Since:\t%s", d.at(status.AcquireTime))
	cli.Line(w, "  Renewed:\t%s", d.renewed())
	cli.Line(w, "  Floor:\t%d (the next generation is %d)", *status.GenerationFloor, next)
	cli.Line(w, "  Seal:\t%s, sealed generation %d", status.Seal, ptr.Deref(status.SealedGeneration, 0))
	cli.Line(w, "  Credentials:\t%s", d.credentials())
}

func (d *description) at(t *metav1.MicroTime) string {
	if t == nil || t.IsZero() {
		return cli.None
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), cli.Age(d.now, t))
}

// renewed compares the holder's clock with this machine's, and says so: it is a hint, followers do not compare clocks.
func (d *description) renewed() string {
	status := &d.lease.Status
	text := d.at(status.RenewTime)
	if status.RenewTime == nil || ptr.Deref(status.HolderIdentity, "") == "" {
		return text
	}
	overdue := d.now.Sub(status.RenewTime.Time) - time.Duration(d.lease.Spec.LeaseDurationSeconds)*time.Second
	if overdue > 0 {
		text += fmt.Sprintf(", longer ago than the lease duration: the holder seems to be gone, if its clock and this one agree; "+
			"any candidate takes the lease over, or release it with: kubectl fencedlease release %s -n %s", d.lease.Name, d.lease.Namespace)
	}
	return text
}

func (d *description) credentials() string {
	var names []string
	for _, c := range d.lease.Status.Credentials {
		names = append(names, c.ID+" of term "+c.Term)
	}
	return cli.OrNone(strings.Join(names, ", "))
}

func (d *description) guards(w io.Writer) {
	if len(d.lease.Spec.Guards) == 0 {
		cli.Line(w, "Guards:\t%s", cli.None)
		return
	}
	cli.Line(w, "Guards:")
	for i, g := range d.lease.Spec.Guards {
		where := "namespace " + d.lease.Namespace
		if g.NamespaceSelector != nil {
			where = "namespaces with " + selector(g.NamespaceSelector) + ", and cluster-scoped objects"
		}
		if g.ObjectSelector != nil {
			where += ", objects with " + selector(g.ObjectSelector)
		}
		cli.Line(w, "  %d:\t%s\tin %s\ttokens from %s", i, strings.Join(cli.GuardedResources(g), ","), where, subjects(g.Subjects))
	}
}

func selector(s *metav1.LabelSelector) string {
	if text := metav1.FormatLabelSelector(s); text != cli.None {
		return "labels " + text
	}
	return "any labels"
}

func subjects(all []v1alpha1.Subject) string {
	if len(all) == 0 {
		return "everybody"
	}
	var names []string
	for _, s := range all {
		name := string(s.Kind) + " " + s.Name
		if s.Namespace != "" {
			name = string(s.Kind) + " " + s.Namespace + "/" + s.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func (d *description) objects(w io.Writer) {
	if len(d.counts) == 0 {
		return
	}
	cli.Line(w, "Guarded objects:")
	for _, c := range d.counts {
		cli.Line(w, "  %s:\t%s", c.kind, c)
	}
}

func (d *description) conditions(w io.Writer) {
	if len(d.lease.Status.Conditions) == 0 {
		cli.Line(w, "Conditions:\t%s", cli.None)
		return
	}
	cli.Line(w, "Conditions:")
	cli.Line(w, "  TYPE\tSTATUS\tREASON\tAGE\tMESSAGE")
	for _, c := range d.lease.Status.Conditions {
		cli.Line(w, "  %s\t%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, duration.HumanDuration(d.now.Sub(c.LastTransitionTime.Time)), c.Message)
	}
}

func (d *description) recent(w io.Writer) {
	switch {
	case !d.withEvents:
	case d.eventsProblem != nil:
		cli.Line(w, "Events:\tunknown: %s", d.eventsProblem)
	case len(d.events) == 0:
		cli.Line(w, "Events:\t%s", cli.None)
	default:
		cli.Line(w, "Events:")
		cli.Line(w, "  LAST SEEN\tTYPE\tREASON\tCOUNT\tMESSAGE")
		for i := range d.events {
			e := &d.events[i]
			cli.Line(w, "  %s\t%s\t%s\t%s\t%s", duration.HumanDuration(max(d.now.Sub(lastSeen(e)), 0)), e.Type, e.Reason, times(e), e.Message)
		}
	}
}

func times(e *corev1.Event) string {
	if e.Series != nil {
		return strconv.Itoa(int(e.Series.Count))
	}
	return strconv.Itoa(int(max(e.Count, 1)))
}

// lastSeen is when an event last occurred, in whichever of its fields its recorder has put that.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}
