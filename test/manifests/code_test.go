// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/manager"
	v1alpha1webhook "github.com/fencedlease/fencedlease/internal/webhook/v1alpha1"
)

// TestDeploymentStartsTheManager: the flags exist, and agree with the ports, the Service and the time that a pod has to
// end.
func TestDeploymentStartsTheManager(t *testing.T) {
	c := container(t)
	for _, env := range c.Env {
		if env.Name == "POD_NAMESPACE" && env.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
			t.Setenv("POD_NAMESPACE", namespace)
		}
	}
	var output strings.Builder
	options, err := manager.Parse(c.Args, &output)
	if err != nil {
		t.Fatalf("parse %q: %v\n%s", c.Args, err, output.String())
	}
	if err := options.Validate(); err != nil {
		t.Errorf("check the options: %v", err)
	}
	if !options.LeaderElect {
		t.Error("two replicas need --leader-elect")
	}
	if options.Namespace != namespace {
		t.Errorf("namespace: want %s, got %q", namespace, options.Namespace)
	}

	want := map[string]string{}
	for _, p := range c.Ports {
		want[p.Name] = ":" + strconv.Itoa(int(p.ContainerPort))
	}
	got := map[string]string{
		"webhook-server": ":" + strconv.Itoa(options.WebhookPort),
		"metrics":        options.MetricsAddr,
		"health":         options.ProbeAddr,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-container +flags):\n%s", diff)
	}
	if !options.MetricsSecure {
		t.Error("metrics are served without authorization")
	}

	found := false
	for _, o := range install(t) {
		found = found || o.GetKind() == "Service" && o.GetName() == options.WebhookService
	}
	if !found {
		t.Errorf("no Service %s, which the manager registers", options.WebhookService)
	}

	grace := time.Duration(*deployment(t).Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if least := options.DrainDelay + 25*time.Second; grace < least {
		t.Errorf("time to end: want at least %v, the drain and the shutdown, got %v", least, grace)
	}
}

// TestNamesAgreeWithTheCode: the role's resourceNames are literals in markers, as are names in manifests.
func TestNamesAgreeWithTheCode(t *testing.T) {
	want := map[string][]string{
		"validatingwebhookconfigurations":   {controller.GuardsName, v1alpha1webhook.ConfigurationName},
		"mutatingwebhookconfigurations":     {controller.GuardsName},
		"validatingadmissionpolicies":       {controller.DefinitionsName, controller.MarksName, controller.RegistrationName},
		"validatingadmissionpolicybindings": {controller.DefinitionsName, controller.MarksName, controller.RegistrationName},
		"mutatingadmissionpolicies":         {controller.StampsName},
		"mutatingadmissionpolicybindings":   {controller.StampsName},
	}
	got := map[string][]string{}
	for _, rules := range rules(t) {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				if _, ok := want[resource]; ok {
					got[resource] = append(got[resource], rule.ResourceNames...)
				}
			}
		}
	}
	for resource := range got {
		slices.Sort(got[resource])
		got[resource] = slices.Compact(got[resource])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resource names (-code +role):\n%s", diff)
	}
	if controller.ValidationName != v1alpha1webhook.ConfigurationName {
		t.Errorf("static webhook: the controller says %s, the webhook %s", controller.ValidationName, v1alpha1webhook.ConfigurationName)
	}
}
