// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// namespace is that of the kustomization; in the chart it is the release's.
const namespace = "fencedlease-system"

// static are the parts of the chart that are written by hand.
//
//go:embed all:static
var static embed.FS

type object = unstructured.Unstructured

// inputs are what kustomize has built.
type inputs struct {
	install, prometheus, certManager []object
}

func decode(stream []byte) ([]object, error) {
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(stream)))
	buffer := make([]byte, len(stream)+1)
	var out []object
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("split documents: %w", err)
		}
		var o object
		if err := yaml.Unmarshal(buffer[:n], &o.Object); err != nil {
			return nil, fmt.Errorf("decode document: %w", err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// place is the file of an object, and the condition under which it is installed, empty for always.
type place struct{ file, condition string }

// placeOf says where an object of config/default belongs. An object that it does not know is an error, so that nothing is left out by
// accident.
func placeOf(o object) (place, error) {
	name := strings.TrimPrefix(o.GetName(), "fencedlease-")
	file := func(folder string) string { return folder + "/" + name + "." + strings.ToLower(o.GetKind()) + ".yaml" }
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return place{"crd/" + o.GetName() + ".yaml", ".Values.crd.enable"}, nil
	case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		switch {
		case strings.HasPrefix(name, "metrics-"):
			return place{file("metrics"), ".Values.metrics.enable"}, nil
		case o.GetKind() == "ClusterRole" && (name == "admin-role" || name == "editor-role" || name == "viewer-role"):
			return place{file("rbac"), ".Values.rbac.userRoles.enable"}, nil
		}
		return place{file("rbac"), ""}, nil
	case "Service":
		if strings.Contains(name, "metrics") {
			return place{file("metrics"), ".Values.metrics.enable"}, nil
		}
		return place{file("webhook"), ""}, nil
	case "Deployment":
		return place{"manager/manager.yaml", ""}, nil
	case "PodDisruptionBudget":
		return place{file("manager"), ".Values.manager.podDisruptionBudget.enable"}, nil
	case "ResourceQuota":
		return place{file("manager"), "and .Values.manager.resourceQuota.enable .Values.manager.priorityClassName"}, nil
	case "NetworkPolicy":
		condition := ".Values.networkPolicy.enable"
		if strings.Contains(name, "metrics") {
			condition = "and " + condition + " .Values.metrics.enable"
		}
		return place{file("network-policy"), condition}, nil
	case "FlowSchema", "PriorityLevelConfiguration":
		return place{file("flowcontrol"), ".Values.flowControl.enable"}, nil
	case "ValidatingWebhookConfiguration":
		return place{file("webhook"), ""}, nil
	default:
		return place{}, fmt.Errorf("the chart has no place for %s %s", o.GetKind(), o.GetName())
	}
}

// chart returns the files of the chart.
func chart(built inputs) (map[string]string, error) {
	files := map[string]string{}
	add := func(at place, o object) error {
		text, err := template(o)
		if err != nil {
			return err
		}
		if at.condition != "" {
			text = "{{- if " + at.condition + " }}\n" + text + "{{- end }}\n"
		}
		name := "templates/" + at.file
		if files[name] != "" {
			return fmt.Errorf("two objects have the file %s", name)
		}
		files[name] = text
		return nil
	}
	image := ""
	for _, o := range built.install {
		if o.GetKind() == "Namespace" {
			continue
		}
		at, err := placeOf(o)
		if err != nil {
			return nil, err
		}
		if o.GetKind() == "Deployment" {
			if image, err = parametrize(o); err != nil {
				return nil, err
			}
		}
		if err := add(at, o); err != nil {
			return nil, err
		}
	}
	for _, o := range built.certManager {
		if o.GroupVersionKind().Group != "cert-manager.io" {
			continue
		}
		name := strings.TrimPrefix(o.GetName(), "fencedlease-") + "." + strings.ToLower(o.GetKind())
		if err := add(place{"cert-manager/" + name + ".yaml", ".Values.certManager.enable"}, o); err != nil {
			return nil, err
		}
	}
	for _, o := range built.prometheus {
		if err := add(place{"prometheus/" + strings.ToLower(o.GetKind()) + ".yaml", "and .Values.prometheus.enable .Values.metrics.enable"}, o); err != nil {
			return nil, err
		}
	}
	repository, tag, err := splitImage(image)
	if err != nil {
		return nil, err
	}
	return files, addStatic(files, strings.NewReplacer("@@repository@@", repository, "@@tag@@", tag, "@@version@@", versionOf(tag)))
}

// splitImage takes the tag off an image, whose registry may have a port.
func splitImage(image string) (repository, tag string, err error) {
	i := strings.LastIndex(image, ":")
	if i < 0 || strings.Contains(image[i:], "/") {
		return "", "", fmt.Errorf("the image %q has no tag", image)
	}
	return image[:i], image[i+1:], nil
}

// versionOf returns the version of the chart: the tag, if it is a version, as one of a release is. Charts have no other versions than
// semantic ones, so any other tag becomes part of one.
func versionOf(tag string) string {
	if _, err := version.ParseSemantic(tag); err == nil {
		return strings.TrimPrefix(tag, "v")
	}
	return "0.0.0-image-" + regexp.MustCompile(`[^0-9A-Za-z-]`).ReplaceAllString(tag, "-")
}

func addStatic(files map[string]string, fill *strings.Replacer) error {
	return fs.WalkDir(static, "static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := static.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, "static/")
		switch name {
		case "helmignore":
			name = ".helmignore"
		case "templates/guarded_kinds.yaml":
			name = "templates/rbac/guarded-kinds-of-release.clusterrole.yaml"
		}
		files[name] = fill.Replace(string(text))
		return nil
	})
}
