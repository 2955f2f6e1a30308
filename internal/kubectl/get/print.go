// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package get

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

const (
	outputWide = "wide"
	outputName = "name"
)

// outputs are what --output takes.
var outputs = []string{"", "json", "yaml", outputWide, outputName}

// shownGuards is how many guarded kinds the table names; wide names all.
const shownGuards = 2

// printer prints leases in the chosen format, each call after the other.
type printer struct {
	options  *Options
	delegate printers.ResourcePrinter
	// columns aligns the rows of tables, also with those of earlier calls.
	columns *tabwriter.Writer
}

func newPrinter(o *Options) *printer {
	p := &printer{options: o}
	switch o.Output {
	case "", outputWide:
		p.columns = printers.GetNewTabWriter(o.Out)
		p.delegate = printers.NewTablePrinter(printers.PrintOptions{
			NoHeaders: o.NoHeaders, WithNamespace: o.AllNamespaces, Wide: o.Output == outputWide,
		})
	case outputName:
		p.delegate = &printers.NamePrinter{ShortOutput: true}
	default:
		flags := genericclioptions.NewJSONYamlPrintFlags()
		flags.ShowManagedFields = o.ShowManagedFields
		p.delegate, _ = flags.ToPrinter(o.Output) // Validate has refused what it does not know
	}
	return p
}

// human reports whether the output is for people, who are told that there is nothing.
func (p *printer) human() bool { return p.options.Output == "" || p.options.Output == outputWide }

// print prints the leases of a list, or the lease itself if it is a single one.
func (p *printer) print(list *v1alpha1.FencedLeaseList, single bool) error {
	var objects []runtime.Object
	switch {
	case p.human():
		objects = append(objects, tableOf(list.Items, p.options.Clock.Now(), p.options.Output == outputWide))
	case single || p.options.Output == outputName:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	default:
		if list.Items == nil {
			list.Items = []v1alpha1.FencedLease{}
		}
		objects = append(objects, list)
	}
	out := p.options.Out
	if p.columns != nil {
		out = p.columns
	}
	for _, o := range objects {
		if err := p.delegate.PrintObj(o, out); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if p.columns == nil {
		return nil
	}
	if err := p.columns.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// tableOf is what get prints for people. All names all guards.
func tableOf(leases []v1alpha1.FencedLease, now time.Time, all bool) *metav1.Table {
	const wide = 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name"},
		{Name: "Holder", Type: "string"},
		{Name: "Generation", Type: "string"},
		{Name: "Renewed", Type: "string"},
		{Name: "Sealed", Type: "string"},
		{Name: "Ready", Type: "string"},
		{Name: "Guards", Type: "string"},
		{Name: "Age", Type: "string"},
		{Name: "Token", Type: "string", Priority: wide},
		{Name: "Since", Type: "string", Priority: wide},
		{Name: "Floor", Type: "string", Priority: wide},
		{Name: "Duration", Type: "string", Priority: wide},
		{Name: "Handover", Type: "string", Priority: wide},
		{Name: "Enforcement", Type: "string", Priority: wide},
	}}
	for i := range leases {
		lease := &leases[i]
		status := &lease.Status
		renewed, since := cli.Age(now, status.RenewTime), cli.Age(now, status.AcquireTime)
		if ptr.Deref(status.HolderIdentity, "") == "" {
			renewed, since = cli.None, cli.None // they are those of a term that has ended
		}
		guards := guardsOf(lease)
		if !all && len(guards) > shownGuards {
			guards = append(guards[:shownGuards], "+"+strconv.Itoa(len(guards)-shownGuards))
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Object: runtime.RawExtension{Object: lease},
			Cells: []any{
				lease.Name, cli.Holder(lease), number(status.Generation), renewed,
				cli.ConditionStatus(lease, v1alpha1.ConditionSealed), cli.ConditionStatus(lease, v1alpha1.ConditionReady),
				cli.OrNone(strings.Join(guards, ",")), duration.HumanDuration(now.Sub(lease.CreationTimestamp.Time)),
				cli.OrNone(ptr.Deref(status.Token, "")), since, number(status.GenerationFloor),
				strconv.Itoa(int(lease.Spec.LeaseDurationSeconds)) + "s",
				string(lease.Spec.Handover), string(lease.Spec.Enforcement),
			},
		})
	}
	return table
}

func number(n *int64) string {
	if n == nil {
		return cli.None
	}
	return strconv.FormatInt(*n, 10)
}

func guardsOf(lease *v1alpha1.FencedLease) []string {
	var all []string
	for _, g := range lease.Spec.Guards {
		all = append(all, cli.GuardedResources(g)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
