// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Values of an object that stand for template code. They are written into the object, which is then encoded, and replaced in the text:
// so only whole lines are ever replaced, wherever they stand.
const (
	begin = "<<"
	end   = ">>"
)

// inline stands for the value of an expression.
func inline(expression string) string { return begin + "inline " + expression + end }

// block stands for a value of more than one line, as YAML.
func block(expression string) string { return begin + "block " + expression + end }

// optional stands for a field that is left out if the expression is empty.
func optional(expression string) string { return begin + "optional " + expression + end }

// merge stands for more entries of the map that it is in, under the key last.
func merge(expression string) string { return begin + "merge " + expression + end }

// last is a key that comes after all others.
const last = "zz"

// code stands for a line of code in place of an item of a list.
func code(text string) string { return begin + "code " + text + end }

var (
	placeholder = regexp.MustCompile(`(?m)^( *)(- )?(?:([\w./-]+): )?['"]?<<(inline|block|optional|merge|code) (.*?)>>['"]?$`)
	braces      = regexp.MustCompile(`\{\{|\}\}`)
)

// service is where a webhook names its Service, and calledByURL what is there in the chart. The manager replaces the one by the other
// in the cluster; if the chart did not, too, upgrades would have both, which API servers refuse.
var service = regexp.MustCompile(`(?m)^( +)service:\n( +name: .*\n +namespace: .*\n +path: (\S+)\n)`)

const calledByURL = `${1}{{- if .Values.manager.webhookURL }}
${1}url: {{ printf "%s%s" (trimSuffix "/" .Values.manager.webhookURL) "${3}" }}
${1}{{- else }}
${1}service:
${2}${1}{{- end }}
`

// template returns the text of an object with the values of the chart in their places.
func template(o object) (string, error) {
	o = *o.DeepCopy()
	labels := o.GetLabels()
	if labels["app.kubernetes.io/managed-by"] != "kustomize" {
		return "", fmt.Errorf("%s %s is not labelled by kustomize", o.GetKind(), o.GetName())
	}
	labels["app.kubernetes.io/managed-by"] = inline(".Release.Service")
	o.SetLabels(labels)
	var err error
	switch o.GetKind() {
	case "CustomResourceDefinition":
		annotations := o.GetAnnotations()
		annotations["helm.sh/resource-policy"] = begin + "keep" + end
		o.SetAnnotations(annotations)
	case "PodDisruptionBudget":
		err = unstructured.SetNestedField(o.Object, inline(".Values.manager.podDisruptionBudget.minAvailable"), "spec", "minAvailable")
	case "ResourceQuota":
		err = setItem(o.Object, "spec", "scopeSelector", "matchExpressions")
	case "Certificate":
		err = alsoForURL(o)
	case "ServiceMonitor", "PrometheusRule":
		labels[last] = merge(".Values.prometheus.labels")
		o.SetLabels(labels)
	}
	if err != nil {
		return "", fmt.Errorf("set values in %s: %w", o.GetKind(), err)
	}
	encoded, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", o.GetKind(), err)
	}
	// Braces of the object itself, as in alerts, are no code.
	text := braces.ReplaceAllStringFunc(string(encoded), func(found string) string { return "{{ `" + found + "` }}" })
	text = strings.ReplaceAll(text, "helm.sh/resource-policy: <<keep>>\n", "{{- if .Values.crd.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n")
	text = placeholder.ReplaceAllStringFunc(text, expand)
	if o.GetKind() == "ValidatingWebhookConfiguration" {
		text = service.ReplaceAllString(text, calledByURL)
		if webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks"); strings.Count(text, ".Values.manager.webhookURL }}\n") != len(webhooks) {
			return "", fmt.Errorf("%s: not every webhook is called by a Service", o.GetName())
		}
	}
	// A list that would be empty without its condition is no field without it.
	text = regexp.MustCompile(`(?m)^( *[a-zA-Z]+:\n)( *\{\{- if [^}]*\}\}\n)( *- (?:mountPath|name): )`).ReplaceAllString(text, "$2$1$3")
	text = strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}")
	if o.GetKind() == "ServiceMonitor" {
		text = strings.ReplaceAll(text, "name: fencedlease-webhook-cert\n",
			`name: {{ if .Values.certManager.enable }}fencedlease-webhook-server-cert{{ else }}fencedlease-webhook-cert{{ end }}`+"\n")
	}
	if i := strings.Index(text, begin); i >= 0 {
		return "", fmt.Errorf("%s %s: a value was not put into its place: %s", o.GetKind(), o.GetName(), text[i:min(len(text), i+60)])
	}
	return text, nil
}

// expand replaces one placeholder by code.
func expand(line string) string {
	m := placeholder.FindStringSubmatch(line)
	indent, dash, key, kind, expression := m[1], m[2], m[3], m[4], m[5]
	if key != "" {
		key += ": "
	}
	inner := len(indent) + len(dash) + 2
	switch kind {
	case "inline":
		return indent + dash + key + "{{ " + expression + " }}"
	case "block":
		return fmt.Sprintf("%s%s%s\n%*s{{- toYaml %s | nindent %d }}", indent, dash, strings.TrimSuffix(key, " "), inner, "", expression, inner)
	case "optional":
		return fmt.Sprintf("%[1]s{{- with %[2]s }}\n%[1]s%[3]s\n%[4]*[5]s{{- toYaml . | nindent %[4]d }}\n%[1]s{{- end }}",
			indent, expression, strings.TrimSuffix(key, " "), inner, "")
	case "merge":
		return fmt.Sprintf("%[1]s{{- with %[2]s }}\n%[1]s{{- toYaml . | nindent %[3]d }}\n%[1]s{{- end }}", indent, expression, len(indent))
	default:
		return indent + "{{- " + expression + " }}"
	}
}

// alsoForURL makes a serving certificate good for the host by which API servers call.
func alsoForURL(o object) error {
	names, found, err := unstructured.NestedSlice(o.Object, "spec", "dnsNames")
	if err != nil || !found {
		return err
	}
	names = append(names, code(`with include "fencedlease.webhookName" .`), inline("."), code("end"))
	return errors.Join(
		unstructured.SetNestedSlice(o.Object, names, "spec", "dnsNames"),
		unstructured.SetNestedField(o.Object, optional(`include "fencedlease.webhookAddresses" . | fromYamlArray`), "spec", "ipAddresses"))
}

// setItem puts the priority class of the values into a quota.
func setItem(in map[string]any, path ...string) error {
	list, found, err := unstructured.NestedSlice(in, path...)
	if err != nil || !found || len(list) != 1 {
		return fmt.Errorf("there is not one %s: %w", strings.Join(path, "."), err)
	}
	list[0].(map[string]any)["values"] = []any{inline(".Values.manager.priorityClassName")} //nolint:forcetypeassert // objects of a known kind
	return unstructured.SetNestedSlice(in, list, path...)
}

// parametrize puts the values into the Deployment, and returns the image that was there.
func parametrize(o object) (image string, err error) {
	containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found || len(containers) != 1 {
		return "", fmt.Errorf("the Deployment has not one container: %w", err)
	}
	manager, ok := containers[0].(map[string]any)
	if !ok {
		return "", fmt.Errorf("the container is a %T", containers[0])
	}
	image, _ = manager["image"].(string)
	manager["image"] = inline(`include "fencedlease.image" .`)
	manager["imagePullPolicy"] = inline(".Values.manager.image.pullPolicy")
	manager["resources"] = block(".Values.manager.resources")
	if manager["args"], err = arguments(manager["args"]); err != nil {
		return "", err
	}
	if manager["env"], err = items(manager["env"], "with .Values.manager.env", "toYaml . | nindent 8", "end"); err != nil {
		return "", err
	}
	if manager["ports"], err = items(manager["ports"]); err != nil {
		return "", err
	}
	manager["volumeMounts"] = []any{
		code("if .Values.certManager.enable"),
		map[string]any{"mountPath": "/etc/fencedlease/webhook-server-cert", "name": "webhook-server-cert", "readOnly": true}, code("end"),
	}
	volumes := []any{
		code("if .Values.certManager.enable"),
		map[string]any{"name": "webhook-server-cert", "secret": map[string]any{"secretName": "fencedlease-webhook-server-cert"}}, code("end"),
	}
	for _, field := range []struct {
		value any
		path  []string
	}{
		{inline(".Values.manager.replicas"), []string{"spec", "replicas"}},
		{containers, []string{"spec", "template", "spec", "containers"}},
		{volumes, []string{"spec", "template", "spec", "volumes"}},
		{inline(".Values.manager.priorityClassName"), []string{"spec", "template", "spec", "priorityClassName"}},
		{inline(".Values.manager.terminationGracePeriodSeconds"), []string{"spec", "template", "spec", "terminationGracePeriodSeconds"}},
		{optional(".Values.manager.nodeSelector"), []string{"spec", "template", "spec", "nodeSelector"}},
		{optional(".Values.manager.tolerations"), []string{"spec", "template", "spec", "tolerations"}},
		{optional(".Values.manager.affinity"), []string{"spec", "template", "spec", "affinity"}},
		{optional(".Values.manager.imagePullSecrets"), []string{"spec", "template", "spec", "imagePullSecrets"}},
	} {
		if err := unstructured.SetNestedField(o.Object, field.value, field.path...); err != nil {
			return "", fmt.Errorf("set %s: %w", strings.Join(field.path, "."), err)
		}
	}
	annotations, _, err := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations")
	if err != nil {
		return "", fmt.Errorf("read annotations: %w", err)
	}
	annotations[last] = merge(".Values.manager.podAnnotations")
	return image, unstructured.SetNestedMap(o.Object, annotations, "spec", "template", "metadata", "annotations")
}

// arguments makes those of the manager depend on the values.
func arguments(list any) ([]any, error) {
	args, ok := list.([]any)
	if !ok {
		return nil, fmt.Errorf("the arguments are a %T", list)
	}
	i := slices.Index(args, any("--metrics-bind-address=:8443"))
	if i < 0 {
		return nil, fmt.Errorf("no argument turns metrics on: %v", args)
	}
	out := append(slices.Clone(args[:i]), code("if .Values.metrics.enable"), args[i], code("end"))
	out = append(out, args[i+1:]...)
	return append(out,
		code("if .Values.certManager.enable"), "--webhook-cert-path=/etc/fencedlease/webhook-server-cert", code("end"),
		code("with .Values.manager.webhookURL"), inline(`printf "--webhook-url=%s" . | quote`), code("end"),
		code("with .Values.manager.args"), code("toYaml . | nindent 8"), code("end")), nil
}

// items adds lines of code to a list.
func items(list any, lines ...string) ([]any, error) {
	out, ok := list.([]any)
	if !ok {
		return nil, fmt.Errorf("a list is a %T", list)
	}
	for _, line := range lines {
		out = append(out, code(line))
	}
	return out, nil
}
