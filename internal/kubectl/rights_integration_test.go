// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// rolesAreExact gives a worker the roles that rbac prints, and lets it do what they are for. Then it takes one rule away after
// the other, and something of that must fail.
func rolesAreExact(t *testing.T, i *installation) {
	for _, carrier := range []string{"request", "annotation", "credential"} {
		t.Run(carrier, func(t *testing.T) {
			lease := i.lease(t)
			n := "-n=" + lease.Namespace
			config, err := i.cluster.ServiceAccount(t.Context(), lease.Namespace, "worker")
			must(t, err)
			worker := with{config: config}
			roles := i.succeeds(t, "rbac", "report-writer", n, "--serviceaccount=worker", "--carrier="+carrier)
			_, err = i.cluster.KubectlAs(t.Context(), i.cluster.Config(), roles, "apply", "-f", "-")
			must(t, err)

			round := 0
			// work does with the worker's rights what they are for, and says what failed.
			work := func() error {
				round++
				name := fmt.Sprintf("report-%d", round)
				if carrier == "credential" {
					kubectl := i.cluster.Binary("kubectl") + " --cache-dir=" + i.cache
					a := i.as(t.Context(), t, worker, "run", "report-writer", n, "--carrier=credential", "--timeout=20s", "--", "sh", "-c", strings.Join([]string{
						"set -e",
						kubectl + " create -f - <<EOT\n" + manifest(t, lease, name, "by kubectl") + "EOT",
						kubectl + " patch report " + name + " --type=merge -p '{\"spec\":{\"value\":\"x\"}}'",
						kubectl + " patch report " + name + " --subresource=status --type=merge -p '{\"status\":{\"phase\":\"x\"}}'",
						kubectl + " scale report " + name + " --replicas=3",
						kubectl + " delete report " + name,
					}, "\n"))
					if a.code != 0 {
						return fmt.Errorf("run: %s%s", a.out, a.errOut)
					}
					return nil
				}
				got := i.as(t.Context(), t, worker, "acquire", "report-writer", n, "--identity=worker", "--yes")
				if got.code != 0 {
					return fmt.Errorf("acquire: %s", got.errOut)
				}
				token := "--token=report-writer=" + strings.TrimSpace(got.out)
				for _, args := range [][]string{
					{"apply", "-f=-"}, {"patch", "report/" + name, "-p={\"spec\":{\"value\":\"x\"}}"}, {"annotate", "report/" + name, "a=b"},
					{"patch", "report/" + name, "--subresource=status", "-p={\"status\":{\"phase\":\"x\"}}"},
					{"patch", "report/" + name, "--subresource=scale", "-p={\"spec\":{\"replicas\":2}}"},
					{"explain", "report/" + name, "--verb=update"},
					{"delete", "report/" + name},
				} {
					if carrier == "annotation" && strings.Contains(strings.Join(args, " "), "scale") {
						continue
					}
					a := i.as(t.Context(), t, with{config: config, stdin: manifest(t, lease, name, "x")}, append(args, n, token, "--carrier="+carrier)...)
					if a.code != 0 {
						return fmt.Errorf("%v: %s%s", args, a.out, a.errOut)
					}
				}
				return nil
			}
			must(t, work())

			for _, object := range rolesOf(t, i, lease) {
				rules := rulesOf(object)
				for r := range *rules {
					whole := *rules
					*rules = append(append([]rbacv1.PolicyRule{}, whole[:r]...), whole[r+1:]...)
					must(t, i.admin.Update(t.Context(), object))
					eventually(t, fmt.Sprintf("something fails without %+v", whole[r]), func() bool { return work() != nil })
					*rules = whole
					must(t, i.admin.Update(t.Context(), object))
					eventually(t, "everything works again", func() bool { return work() == nil })
				}
			}
		})
	}
}

// rolesOf returns the roles that were printed for a lease.
func rolesOf(t *testing.T, i *installation, lease *v1alpha1.FencedLease) []client.Object {
	t.Helper()
	roles, clusterRoles := &rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}
	must(t, i.admin.List(t.Context(), roles, client.InNamespace(lease.Namespace)))
	must(t, i.admin.List(t.Context(), clusterRoles))
	var all []client.Object
	for r := range roles.Items {
		all = append(all, &roles.Items[r])
	}
	for r := range clusterRoles.Items {
		if strings.HasPrefix(clusterRoles.Items[r].Name, "fencedlease-token-"+lease.Namespace+"-") {
			all = append(all, &clusterRoles.Items[r])
		}
	}
	return all
}

func rulesOf(object client.Object) *[]rbacv1.PolicyRule {
	switch o := object.(type) {
	case *rbacv1.Role:
		return &o.Rules
	case *rbacv1.ClusterRole:
		return &o.Rules
	default:
		panic(fmt.Sprintf("%T is no role", object))
	}
}

func missingRights(t *testing.T, i *installation) {
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	config, err := i.cluster.ServiceAccount(t.Context(), lease.Namespace, "stranger")
	must(t, err)
	call := func(args ...string) answer { return i.as(t.Context(), t, with{config: config}, append(args, n)...) }
	for _, args := range [][]string{
		{"get"}, {"get", "report-writer"}, {"describe", "report-writer"}, {"rbac", "report-writer", "--serviceaccount=x"},
		{"acquire", "report-writer", "--identity=me"}, {"release", "report-writer", "--yes"},
	} {
		call(args...).want(t, 1, "ask for a role on fencedleases; `kubectl fencedlease rbac` prints the one that a worker needs")
	}
	i.as(t.Context(), t, with{config: config}, "run", "report-writer", n, "--", "true").want(t, 1, "ask for a role on fencedleases")

	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=me")
	i.report(t, lease, "daily", token)
	_, err = i.cluster.KubectlAs(t.Context(), i.cluster.Config(), i.succeeds(t, "rbac", "report-writer", n, "--serviceaccount=stranger", "--carrier=annotation"), "apply", "-f", "-")
	must(t, err)
	eventually(t, "the stranger may write by annotation", func() bool {
		return call("annotate", "report/daily", "--carrier=annotation", "--token=report-writer="+token).code == 0
	})
	call("annotate", "report/daily", "--token=report-writer="+token).want(t, 1, "kubectl fencedlease rbac prints all rules that it needs")
	call("annotate", "report/daily", "--token=report-writer="+token).want(t, 1, "--carrier=annotation")
	call("annotate", "report/daily", "--token="+token).want(t, 1, "you may not list them; say which one the token is of: --token=LEASE=TOKEN")
	a := call("explain", "report/daily", "--verb=patch", "--token=report-writer="+token)
	if a.want(t, 2, ""); !strings.Contains(a.out, "authorization, before any fence") || !strings.Contains(a.out, "you may not list FencedLeases") {
		t.Errorf("explain: got\n%s", a.out)
	}
	run := func(args ...string) answer {
		return i.as(t.Context(), t, with{config: config}, append(append([]string{"run", "report-writer", n, "--identity=stranger"}, args...), "--", "sh", "-c", "echo $FENCEDLEASE_HOLDER")...)
	}
	run("--carrier=request").want(t, 1, "or use --carrier=none and let the command present FENCEDLEASE_TOKEN itself")
	run("--carrier=credential").want(t, 1, "you may not: the roles that are needed are printed by: kubectl fencedlease rbac report-writer --carrier=credential")
	i.succeeds(t, "release", "report-writer", n, "--token="+token)
	if out := run().want(t, 0, "Warning: you may not carry tokens with requests"); out != "stranger" {
		t.Errorf("run without a carrier: got %q", out)
	}
}
