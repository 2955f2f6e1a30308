// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

const (
	ownNamespace     = "reports"
	managerNamespace = "fencedlease-system"
)

// lease returns a FencedLease named report-writer, changed by the functions.
func lease(change ...func(*api.FencedLease)) *api.FencedLease {
	l := &api.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "report-writer"},
		Spec: api.FencedLeaseSpec{
			LeaseDurationSeconds: 15,
			Enforcement:          api.EnforcementEnforce,
			Handover:             api.HandoverLazy,
			MinGeneration:        new(int64(0)),
		},
	}
	for _, c := range change {
		c(l)
	}
	return l
}

func in(namespace string) func(*api.FencedLease) {
	return func(l *api.FencedLease) { l.Namespace = namespace }
}

func guards(guards ...api.Guard) func(*api.FencedLease) {
	return func(l *api.FencedLease) { l.Spec.Guards = guards }
}

func guard(group string, resources ...string) api.Guard {
	return api.Guard{APIGroups: []string{group}, Resources: resources}
}

// wide makes a guard reach the namespaces that the requirements select, all without any.
func wide(g api.Guard, requirements ...metav1.LabelSelectorRequirement) api.Guard {
	g.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: requirements}
	return g
}

func named(operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: operator, Values: values}
}

// world is a set of kinds as an API server would have them.
var world = map[schema.GroupResource]guardkind.Kind{
	{Group: "example.com", Resource: "reports"}:              {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped, Kind: "Report"},
	{Group: "example.com", Resource: "jobs"}:                 {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped, Kind: "Job", Subresources: []string{"scale", "status"}},
	{Group: "other.example.com", Resource: "jobs"}:           {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped, Kind: "Job"},
	{Group: "example.com", Resource: "regions"}:              {Class: guardkind.CRD, Scope: guardkind.ClusterScoped, Kind: "Region"},
	{Group: "example.com", Resource: "absent"}:               {Class: guardkind.Missing},
	{Group: "networking.k8s.io", Resource: "ingresses"}:      {Class: guardkind.Builtin},
	{Group: "metrics.k8s.io", Resource: "pods"}:              {Class: guardkind.Aggregated},
	{Group: "unheard.example.com", Resource: "unclassified"}: {Class: "Unheard"},
}

// answer answers the questions about a lease from the world.
func answer(old, l *api.FencedLease, mayGuardCluster bool, others ...*api.FencedLease) answers {
	q := questionsOf(old, l)
	a := answers{kinds: map[schema.GroupResource]guardkind.Kind{}}
	if len(q.wide) > 0 {
		a.access.allowed = mayGuardCluster
	}
	for _, gr := range q.kinds {
		a.kinds[gr] = world[gr]
	}
	if q.others {
		for _, other := range others {
			a.others = append(a.others, *other)
		}
	}
	return a
}

// TestCheck has, for each rule, a lease that it accepts and one that it refuses or warns about, with the text.
func TestCheck(t *testing.T) {
	reports := guard("example.com", "reports")
	for name, c := range map[string]struct {
		old, lease *api.FencedLease
		// refused says that the requester lacks the verb guard-cluster.
		refused  bool
		others   []*api.FencedLease
		errs     []string
		warnings []string
	}{
		"a lease without guards is accepted": {lease: lease()},
		"a lease without guards is accepted in the manager's namespace, as a probe is one": {
			lease: lease(in(managerNamespace)), refused: true,
		},
		"a guard of a custom resource is accepted": {lease: lease(guards(reports))},

		// Handover and the other fields of the policy.
		"sealing is accepted": {
			lease: lease(func(l *api.FencedLease) { l.Spec.Handover = api.HandoverSeal }),
		},
		"deleting late creates of sealed terms is accepted": {
			lease: lease(func(l *api.FencedLease) {
				l.Spec.Handover, l.Spec.LateCreates = api.HandoverSeal, api.LateCreatesDelete
			}),
		},
		"deleting late creates without a seal is warned about": {
			lease: lease(func(l *api.FencedLease) {
				l.Spec.Handover, l.Spec.LateCreates = api.HandoverLazy, api.LateCreatesDelete
			}),
			warnings: []string{"spec.lateCreates: Delete finds nothing in terms that need no seal: set handover to Seal"},
		},
		"the warning is not repeated": {
			old: lease(func(l *api.FencedLease) {
				l.Spec.Handover, l.Spec.LateCreates = api.HandoverLazy, api.LateCreatesDelete
			}),
			lease: lease(func(l *api.FencedLease) {
				l.Spec.Handover, l.Spec.LateCreates, l.Labels = api.HandoverLazy, api.LateCreatesDelete, map[string]string{"a": "b"}
			}),
		},
		"a duration of five seconds is accepted": {
			lease: lease(func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 5 }),
		},
		"a shorter duration is warned about": {
			lease: lease(func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 4 }),
			warnings: []string{
				"spec.leaseDurationSeconds: with 4 a pause of a few seconds costs a healthy holder the lease: use 5 or more unless you have measured the pauses",
			},
		},
		"a short duration that is stored already is not warned about again": {
			old:   lease(func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 4 }),
			lease: lease(func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 4 }),
		},
		"minGeneration below the current generation is accepted": {
			old:   lease(func(l *api.FencedLease) { l.Status.Generation = new(int64(100)) }),
			lease: lease(func(l *api.FencedLease) { l.Status.Generation = new(int64(100)); l.Spec.MinGeneration = new(int64(50)) }),
		},
		"lowering minGeneration is warned about": {
			old:   lease(func(l *api.FencedLease) { l.Spec.MinGeneration = new(int64(100)) }),
			lease: lease(func(l *api.FencedLease) { l.Spec.MinGeneration = new(int64(50)) }),
			warnings: []string{
				"spec.minGeneration: lowering it from 100 to 50 takes no generation back: generations that were handed out are never reused",
			},
		},
		"dropping minGeneration is lowering it": {
			old:   lease(func(l *api.FencedLease) { l.Spec.MinGeneration = new(int64(100)) }),
			lease: lease(func(l *api.FencedLease) { l.Spec.MinGeneration = nil }),
			warnings: []string{
				"spec.minGeneration: lowering it from 100 to 0 takes no generation back: generations that were handed out are never reused",
			},
		},

		// Permission.
		"a wide guard is accepted from who has the verb": {lease: lease(guards(wide(reports)))},
		"a wide guard is refused to who does not have the verb": {
			lease: lease(guards(reports, wide(reports))), refused: true,
			errs: []string{
				`spec.guards[1].namespaceSelector: Forbidden: a guard beyond the lease's own namespace needs the verb guard-cluster on fencedleases.coordination.fencedlease.io "report-writer" in the namespace "reports", which user "alice" does not have: have an administrator grant the verb or write this lease, or leave namespaceSelector out to guard the lease's own namespace`,
			},
		},
		"an update that leaves a wide guard alone needs no verb": {
			old:     lease(guards(wide(reports))),
			lease:   lease(guards(wide(reports)), func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 30 }),
			refused: true,
		},
		"a wide guard that goes away, or changes its place, needs no verb": {
			old:     lease(guards(wide(reports), wide(guard("example.com", "regions")), reports)),
			lease:   lease(guards(reports, wide(reports))),
			refused: true,
		},
		"a guard of the own namespace beside a wide one needs no verb": {
			old:     lease(guards(wide(reports))),
			lease:   lease(guards(wide(reports), reports)),
			refused: true,
		},
		"a wide guard that gets another resource needs the verb": {
			old:   lease(guards(wide(reports))),
			lease: lease(guards(wide(guard("example.com", "reports", "regions")))), refused: true,
			errs: []string{permissionError(0)},
		},
		"a wide guard that loses its subjects needs the verb": {
			old: lease(guards(func() api.Guard {
				g := wide(reports)
				g.Subjects = []api.Subject{{Kind: api.SubjectUser, Name: "bob"}}
				return g
			}())),
			lease: lease(guards(wide(reports))), refused: true,
			errs: []string{permissionError(0)},
		},
		"a guard that becomes wide needs the verb": {
			old:   lease(guards(reports)),
			lease: lease(guards(wide(reports))), refused: true,
			errs: []string{permissionError(0)},
		},
		"a lease with a wide guard that leaves Audit needs the verb": {
			old:   lease(guards(wide(reports)), func(l *api.FencedLease) { l.Spec.Enforcement = api.EnforcementAudit }),
			lease: lease(guards(wide(reports))), refused: true,
			errs: []string{permissionError(0)},
		},
		"a lease with a wide guard that goes to Audit needs no verb": {
			old:     lease(guards(wide(reports))),
			lease:   lease(guards(wide(reports)), func(l *api.FencedLease) { l.Spec.Enforcement = api.EnforcementAudit }),
			refused: true,
		},

		// Groups.
		"a built-in group is refused": {
			lease: lease(guards(guard("networking.k8s.io", "ingresses"))),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "networking.k8s.io": ingresses.networking.k8s.io is built into Kubernetes and cannot be guarded, so that no guard keeps a cluster from starting: name groups and resources of CustomResourceDefinitions only`,
			},
		},
		"an aggregated group is refused": {
			lease: lease(guards(guard("metrics.k8s.io", "pods"))),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "metrics.k8s.io": pods.metrics.k8s.io is served by an aggregated API server and cannot be guarded, as that server stores objects in its own way: name groups and resources of CustomResourceDefinitions only`,
			},
		},
		"a class that nobody knows is refused": {
			lease: lease(guards(guard("unheard.example.com", "unclassified"))),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "unheard.example.com": unclassified.unheard.example.com is no custom resource and cannot be guarded: name groups and resources of CustomResourceDefinitions only`,
			},
		},
		"this group is refused": {
			lease: lease(guards(guard("coordination.fencedlease.io", "fencedleases"))),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "coordination.fencedlease.io": FencedLeases cannot be guarded, as a holder must be able to renew while the webhook is down: remove this group`,
			},
		},
		"the core group and wildcards are refused even if the schema let them through": {
			lease: lease(guards(guard("", "pods"), guard("*", "*"))),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "": the core group is built into Kubernetes and cannot be guarded, so that no guard keeps a cluster from starting: name the groups of custom resources`,
				`spec.guards[1].apiGroups[0]: Invalid value: "*": a guard must name its groups, so that none keeps a cluster from starting: name the groups of custom resources`,
			},
		},
		"a refused group beside a good one is refused alone": {
			lease: lease(guards(api.Guard{APIGroups: []string{"example.com", "coordination.fencedlease.io"}, Resources: []string{"reports"}})),
			errs: []string{
				`spec.guards[0].apiGroups[1]: Invalid value: "coordination.fencedlease.io": FencedLeases cannot be guarded, as a holder must be able to renew while the webhook is down: remove this group`,
			},
		},

		// Kinds.
		"a kind that is not installed is warned about": {
			lease: lease(guards(guard("example.com", "reports", "absent", "absent/status"))),
			warnings: []string{
				"spec.guards[0]: absent.example.com is not installed: guarded from the moment the CustomResourceDefinition is there; check the spelling if it should be",
			},
		},
		"a cluster-scoped kind is accepted under a wide guard": {
			lease: lease(guards(wide(guard("example.com", "regions")))),
		},
		"a cluster-scoped kind without a namespaceSelector is refused": {
			lease: lease(guards(guard("example.com", "regions", "reports"))),
			errs: []string{
				"spec.guards[0].namespaceSelector: Required value: regions.example.com is cluster-scoped, and a guard without namespaceSelector reaches objects of its own namespace only: set `namespaceSelector: {}`, which needs the verb guard-cluster on fencedleases",
			},
		},

		// Namespaces that are never guarded.
		"a guard of kube-system is refused": {
			lease: lease(in("kube-system"), guards(reports)),
			errs: []string{
				`spec.guards[0]: Forbidden: objects in the namespace "kube-system" cannot be guarded: the control plane and its add-ons must be able to write there while the webhook is down: move the FencedLease to another namespace, or set namespaceSelector to guard others`,
			},
		},
		"a guard of the manager's namespace is refused": {
			lease: lease(in(managerNamespace), guards(reports)),
			errs: []string{
				`spec.guards[0]: Forbidden: objects in the namespace "fencedlease-system" cannot be guarded: the FencedLease manager itself must be able to write there while the webhook is down: move the FencedLease to another namespace, or set namespaceSelector to guard others`,
			},
		},
		"a wide guard of a lease in the manager's namespace is accepted": {
			lease: lease(in(managerNamespace), guards(wide(reports))),
		},
		"a selector of nothing but those namespaces is warned about": {
			lease: lease(guards(wide(reports, named(metav1.LabelSelectorOpIn, "kube-system", managerNamespace)))),
			warnings: []string{
				"spec.guards[0].namespaceSelector: selects no namespace that can be guarded (kube-system and the manager's namespace never are): select another one",
			},
		},
		"a selector of one of those namespaces and another is accepted": {
			lease: lease(guards(wide(reports, named(metav1.LabelSelectorOpIn, "kube-system", "a")))),
		},

		// Subresources.
		"all subresources by a star are accepted": {lease: lease(guards(guard("example.com", "jobs/*")))},
		"all subresources by their names are accepted": {
			lease: lease(guards(guard("example.com", "jobs", "jobs/status", "jobs/scale"))),
		},
		"subresources in another guard of the same reach are accepted": {
			lease: lease(guards(guard("example.com", "jobs"), guard("example.com", "jobs/status", "jobs/scale"))),
		},
		"served subresources left open are warned about": {
			lease: lease(guards(guard("example.com", "jobs"))),
			warnings: []string{
				"spec.guards[0].resources: jobs/scale of example.com is left open, stale writes to it are admitted: add jobs/scale, or jobs/* for all",
				"spec.guards[0].resources: jobs/status of example.com is left open, stale writes to it are admitted: add jobs/status, or jobs/* for all",
			},
		},
		"subresources in another guard of another reach are warned about": {
			lease: lease(guards(guard("example.com", "jobs", "jobs/scale"), wide(guard("example.com", "jobs/*")))),
			warnings: []string{
				"spec.guards[0].resources: jobs/status of example.com is left open, stale writes to it are admitted: add jobs/status, or jobs/* for all",
			},
		},
		"subresources of another group's resource of the same name are no help": {
			lease: lease(guards(guard("example.com", "jobs", "jobs/scale"), guard("other.example.com", "jobs/*"))),
			warnings: []string{
				"spec.guards[0].resources: jobs/status of example.com is left open, stale writes to it are admitted: add jobs/status, or jobs/* for all",
			},
		},
		"a subresource without its resource is warned about": {
			lease: lease(guards(guard("example.com", "jobs/status", "jobs/scale"))),
			warnings: []string{
				"spec.guards[0].resources: jobs.example.com itself is left open, only subresources of it are guarded: add jobs, or jobs/* for all",
			},
		},
		"a subresource that is not served is warned about": {
			lease: lease(guards(guard("example.com", "reports", "reports/scale"))),
			warnings: []string{
				"spec.guards[0].resources: reports/scale of example.com is not served: it is guarded from the moment it is",
			},
		},

		// Selectors.
		"good selectors are accepted": {
			lease: lease(guards(func() api.Guard {
				g := wide(reports, metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpExists})
				g.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
				return g
			}())),
		},
		"bad selectors are refused with their paths": {
			lease: lease(guards(func() api.Guard {
				g := wide(reports, metav1.LabelSelectorRequirement{Key: "team", Operator: "Near"})
				g.ObjectSelector = &metav1.LabelSelector{
					MatchLabels:      map[string]string{"a": "not a value"},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn}},
				}
				return g
			}())),
			errs: []string{
				"spec.guards[0].objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn': correct the selector, or write {} to select everything",
				`spec.guards[0].objectSelector.matchLabels: Invalid value: "not a value": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'): correct the selector, or write {} to select everything`,
				`spec.guards[0].namespaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator: correct the selector, or write {} to select everything`,
			},
		},

		// Subjects.
		"different subjects are accepted": {
			lease: lease(guards(subjects(
				api.Subject{Kind: api.SubjectUser, Name: "bob"},
				api.Subject{Kind: api.SubjectGroup, Name: "bob"},
				api.Subject{Kind: api.SubjectServiceAccount, Name: "writer"},
				api.Subject{Kind: api.SubjectServiceAccount, Name: "writer", Namespace: "other"},
			))),
		},
		"a subject that is listed twice is warned about": {
			lease: lease(guards(subjects(
				api.Subject{Kind: api.SubjectServiceAccount, Name: "writer"},
				api.Subject{Kind: api.SubjectGroup, Name: "g"},
				api.Subject{Kind: api.SubjectUser, Name: "system:serviceaccount:reports:writer"},
				api.Subject{Kind: api.SubjectGroup, Name: "g"},
			))),
			warnings: []string{
				"spec.guards[0].subjects[2]: names the same user system:serviceaccount:reports:writer as subjects[0]: remove one of them",
				"spec.guards[0].subjects[3]: names the same group g as subjects[1]: remove one of them",
			},
		},
		"a subject that names nobody is warned about": {
			lease: lease(guards(subjects(
				api.Subject{Kind: api.SubjectUser, Name: "system:serviceaccount:writer"},
				api.Subject{Kind: api.SubjectServiceAccount, Name: "Writer"},
				api.Subject{Kind: "Robot", Name: "r"},
				api.Subject{Kind: api.SubjectUser},
			))),
			warnings: []string{
				`spec.guards[0].subjects[0]: names nobody, its writes need no token: there can be no service account "" in a namespace "writer", correct the name`,
				`spec.guards[0].subjects[1]: names nobody, its writes need no token: there can be no service account "Writer" in a namespace "reports", correct the name`,
				`spec.guards[0].subjects[2]: names nobody, its writes need no token: the kind "Robot" is not User, Group or ServiceAccount`,
				`spec.guards[0].subjects[3]: names nobody, its writes need no token: give it a name`,
			},
		},

		// Overlaps.
		"leases of one name that guard their own namespaces are accepted": {
			lease:  lease(guards(reports)),
			others: []*api.FencedLease{lease(in("a"), guards(reports))},
		},
		"leases of one name with guards of different resources are accepted": {
			lease:  lease(guards(wide(reports))),
			others: []*api.FencedLease{lease(in("a"), guards(wide(guard("example.com", "jobs")), wide(guard("other.example.com", "reports"))))},
		},
		"a wide guard over another lease's namespace is refused": {
			lease:  lease(guards(wide(reports))),
			others: []*api.FencedLease{lease(in("a"), guards(guard("example.com", "jobs/*"), guard("example.com", "reports/status")))},
			errs:   []string{overlapError(0, 1, "a", "reports.example.com")},
		},
		"a guard of a namespace that another lease's guard reaches is refused": {
			lease:  lease(guards(reports)),
			others: []*api.FencedLease{lease(in("a"), guards(wide(reports)))},
			errs:   []string{overlapError(0, 0, "a", "reports.example.com")},
		},
		"a guard of a namespace that another lease's guard leaves out by its name is accepted": {
			lease:  lease(guards(reports)),
			others: []*api.FencedLease{lease(in("a"), guards(wide(reports, named(metav1.LabelSelectorOpNotIn, ownNamespace))))},
		},
		"wide guards that name different namespaces are accepted": {
			lease:  lease(guards(wide(reports, named(metav1.LabelSelectorOpIn, "b", "c")))),
			others: []*api.FencedLease{lease(in("a"), guards(wide(reports, named(metav1.LabelSelectorOpIn, "d"))))},
		},
		"wide guards of a cluster-scoped kind meet whatever namespaces they name": {
			lease:  lease(guards(wide(guard("example.com", "regions"), named(metav1.LabelSelectorOpIn, "b")))),
			others: []*api.FencedLease{lease(in("a"), guards(wide(guard("example.com", "regions"), named(metav1.LabelSelectorOpIn, "d"))))},
			errs:   []string{overlapError(0, 0, "a", "regions.example.com")},
		},
		"labels that can change prove no distance": {
			lease: lease(guards(func() api.Guard {
				g := wide(reports, metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"x"}})
				g.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
				return g
			}())),
			others: []*api.FencedLease{lease(in("a"), guards(func() api.Guard {
				g := wide(reports, metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"y"}})
				g.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "lead"}}
				return g
			}()))},
			errs: []string{overlapError(0, 0, "a", "reports.example.com")},
		},
		"many overlaps are named in part": {
			lease: lease(guards(wide(reports))),
			others: []*api.FencedLease{
				lease(in("a"), guards(reports)), lease(in("b"), guards(reports)), lease(in("c"), guards(reports)),
				lease(in("d"), guards(reports)), lease(in("e"), guards(reports)), lease(in("f"), guards(reports)),
			},
			errs: []string{
				overlapError(0, 0, "a", "reports.example.com"), overlapError(0, 0, "b", "reports.example.com"),
				overlapError(0, 0, "c", "reports.example.com"), overlapError(0, 0, "d", "reports.example.com"),
				overlapError(0, 0, "e", "reports.example.com"),
			},
		},

		// Guards that an update leaves alone.
		"stored guards that break every rule do not stop a change of something else": {
			old: lease(in("kube-system"), guards(guard("networking.k8s.io", "ingresses"), guard("example.com", "regions", "jobs"))),
			lease: lease(in("kube-system"), guards(guard("networking.k8s.io", "ingresses"), guard("example.com", "regions", "jobs")), func(l *api.FencedLease) {
				l.Finalizers = nil
				l.Labels = map[string]string{"a": "b"}
			}),
			refused: true,
			others:  []*api.FencedLease{lease(in("a"), guards(wide(guard("example.com", "regions", "jobs"))))},
		},
		"a change of guards is judged with all guards": {
			old:   lease(guards(guard("networking.k8s.io", "ingresses"))),
			lease: lease(guards(guard("networking.k8s.io", "ingresses"), reports)),
			errs: []string{
				`spec.guards[0].apiGroups[0]: Invalid value: "networking.k8s.io": ingresses.networking.k8s.io is built into Kubernetes and cannot be guarded, so that no guard keeps a cluster from starting: name groups and resources of CustomResourceDefinitions only`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs, warnings := review{
				lease: c.lease, old: c.old, managerNamespace: managerNamespace, requester: "alice",
				answers: answer(c.old, c.lease, !c.refused, c.others...),
			}.check()
			var texts []string
			for _, err := range errs {
				texts = append(texts, err.Error())
			}
			if diff := cmp.Diff(c.errs, texts, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.warnings, warnings, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func subjects(subjects ...api.Subject) api.Guard {
	g := guard("example.com", "reports")
	g.Subjects = subjects
	return g
}

func permissionError(guard int) string {
	return fmt.Sprintf(`spec.guards[%d].namespaceSelector: Forbidden: a guard beyond the lease's own namespace needs the verb guard-cluster on fencedleases.coordination.fencedlease.io "report-writer" in the namespace "reports", which user "alice" does not have: have an administrator grant the verb or write this lease, or leave namespaceSelector out to guard the lease's own namespace`, guard)
}

func overlapError(guard, otherGuard int, namespace, resource string) string {
	return fmt.Sprintf(`spec.guards[%d]: Forbidden: overlaps spec.guards[%d] of the FencedLease "report-writer" in the namespace %q: both may guard the same %s, and leases of one name share the annotation token.fencedlease.io/report-writer: rename one of the leases, or limit guards by a namespaceSelector on the label kubernetes.io/metadata.name`,
		guard, otherGuard, namespace, resource)
}

func TestWarningsAreBounded(t *testing.T) {
	var many []api.Subject
	for range 32 {
		many = append(many, api.Subject{Kind: api.SubjectUser, Name: "bob"})
	}
	l := lease(guards(subjects(many...)))
	errs, warnings := review{lease: l, managerNamespace: managerNamespace, answers: answer(nil, l, true)}.check()
	if len(errs) != 0 || len(warnings) != maxWarnings {
		t.Fatalf("want no error and %d warnings, got %v and %d", maxWarnings, errs, len(warnings))
	}
	if want, got := "16 more warnings are left out", warnings[maxWarnings-1]; want != got {
		t.Errorf("want %q, got %q", want, got)
	}
	if n := len(strings.Join(warnings, "")); n > 4096 {
		t.Errorf("API servers show 4096 characters, got %d", n)
	}
}

func TestQuestionsAreOnlyThoseThatAWriteMakesNecessary(t *testing.T) {
	all := guards(wide(guard("example.com", "reports", "reports/status")), guard("coordination.fencedlease.io", "fencedleases"))
	for name, c := range map[string]struct {
		old, lease *api.FencedLease
		want       questions
	}{
		"a new lease without guards asks nothing": {lease: lease()},
		"a new lease with guards asks everything": {
			lease: lease(all),
			want:  questions{wide: []int{0}, kinds: []schema.GroupResource{{Group: "example.com", Resource: "reports"}}, others: true},
		},
		"a guard of the own namespace asks for no permission": {
			lease: lease(guards(guard("example.com", "reports"))),
			want:  questions{kinds: []schema.GroupResource{{Group: "example.com", Resource: "reports"}}, others: true},
		},
		"an update of something else asks nothing": {
			old: lease(all), lease: lease(all, func(l *api.FencedLease) { l.Spec.LeaseDurationSeconds = 30; l.Finalizers = []string{"a"} }),
		},
		"an empty list of labels is no change": {
			old: lease(guards(wide(guard("example.com", "reports")))),
			lease: lease(guards(func() api.Guard {
				g := wide(guard("example.com", "reports"))
				g.NamespaceSelector.MatchLabels = map[string]string{}
				return g
			}())),
		},
		"the removal of all guards asks nothing": {old: lease(all), lease: lease()},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, questionsOf(c.old, c.lease), cmp.AllowUnexported(questions{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeletionWarnings(t *testing.T) {
	held := func(l *api.FencedLease) {
		l.Status.HolderIdentity, l.Status.Generation = new("pod-a"), new(int64(33))
	}
	guarded := guards(guard("example.com", "reports", "reports/status"), guard("example.com", "jobs/*"))
	for name, c := range map[string]struct {
		lease *api.FencedLease
		want  []string
	}{
		"a lease that guards nothing and was never held goes in silence": {lease: lease()},
		"a lease that guards nothing and was released goes in silence": {
			lease: lease(func(l *api.FencedLease) { l.Status.HolderIdentity = new("") }),
		},
		"a held lease that guards nothing": {
			lease: lease(held),
			want:  []string{`FencedLease reports/report-writer is held by "pod-a" under generation 33: its deletion ends that term; stop its holder first`},
		},
		"a held lease with guards": {
			lease: lease(held, guarded),
			want: []string{`FencedLease reports/report-writer is held by "pod-a" under generation 33: its deletion ends that term and the protection of ` +
				`jobs.example.com, reports.example.com, stale writers are no longer refused; stop its writers first`},
		},
		"a lease with guards that is not held": {
			lease: lease(guarded),
			want: []string{"FencedLease reports/report-writer is not held, but its deletion ends the protection of " +
				"jobs.example.com, reports.example.com, stale writers are no longer refused"},
		},
		"a lease in Audit": {
			lease: lease(guarded, func(l *api.FencedLease) { l.Spec.Enforcement = api.EnforcementAudit }),
			want: []string{"FencedLease reports/report-writer is not held, but its deletion ends the protection of " +
				"jobs.example.com, reports.example.com, stale writes are no longer reported"},
		},
		"many resources are named in part": {
			lease: lease(guards(guard("example.com", "a", "b", "c", "d", "e", "f", "g"))),
			want: []string{"FencedLease reports/report-writer is not held, but its deletion ends the protection of " +
				"a.example.com, b.example.com, c.example.com, d.example.com, e.example.com and 2 more, stale writers are no longer refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, deletionWarnings(c.lease)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
