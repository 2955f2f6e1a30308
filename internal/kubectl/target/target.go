// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package target reads from files and arguments which objects a command is about.
package target

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// stdin is the file name that stands for standard input.
const stdin = "-"

// Target is one object.
type Target struct {
	// Mapping is its kind and resource.
	Mapping *meta.RESTMapping
	// Object is the object of a file, or kind, namespace and name of an argument.
	Object *unstructured.Unstructured
	// FromFile says that the object was read from a file or from standard input.
	FromFile bool
}

// String names the object as kubectl does: reports.example.com/daily.
func (t Target) String() string {
	return t.Mapping.Resource.GroupResource().String() + "/" + t.Object.GetName()
}

// AddFileFlags adds --filename, --kustomize and --recursive.
func AddFileFlags(flags *pflag.FlagSet, files *resource.FilenameOptions, usage string) {
	flags.StringSliceVarP(&files.Filenames, "filename", "f", nil, usage)
	flags.StringVarP(&files.Kustomize, "kustomize", "k", "", "Process a kustomization directory instead of files.")
	flags.BoolVarP(&files.Recursive, "recursive", "R", false, "Process the directories of --filename recursively.")
}

// HasFiles reports whether files were given.
func HasFiles(files resource.FilenameOptions) bool {
	return len(files.Filenames) > 0 || files.Kustomize != ""
}

// Read reads the objects of files, or names those of arguments: TYPE NAME... or TYPE/NAME.... Nothing but the kinds is asked
// of the API server.
func Read(f *cli.Factory, files resource.FilenameOptions, args []string) ([]Target, error) {
	if !HasFiles(files) && len(args) == 0 {
		return nil, cli.Usagef("the object is missing: give it as TYPE/NAME, or as a file with -f")
	}
	namespace, explicit, err := f.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	b := resource.NewBuilder(f.Flags).Unstructured().NamespaceParam(namespace).DefaultNamespace()
	if slices.Contains(files.Filenames, stdin) {
		files.Filenames = slices.DeleteFunc(slices.Clone(files.Filenames), func(name string) bool { return name == stdin })
		b = b.Stream(f.In, "standard input")
	}
	infos, err := b.FilenameParam(explicit, &files).ResourceTypeOrNameArgs(false, args...).RequireObject(false).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read which objects are meant: %w", err)
	}
	if len(infos) == 0 {
		return nil, cli.Usagef("no object was found in the files: give manifests with apiVersion, kind and metadata.name")
	}
	targets := make([]Target, 0, len(infos))
	for _, info := range infos {
		t, err := fromInfo(info, HasFiles(files) || len(args) == 0)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func fromInfo(info *resource.Info, fromFile bool) (Target, error) {
	t := Target{Mapping: info.Mapping, FromFile: fromFile}
	if info.Mapping.GroupVersionKind.GroupKind() == v1alpha1.Kind.GroupKind() {
		return t, cli.Usagef("%s is itself a FencedLease, which no token guards: write it with kubectl", info.Name)
	}
	object, ok := info.Object.(*unstructured.Unstructured)
	if ok {
		t.Object = object
		return t, nil
	}
	t.Object = &unstructured.Unstructured{}
	t.Object.SetGroupVersionKind(info.Mapping.GroupVersionKind)
	t.Object.SetNamespace(info.Namespace)
	t.Object.SetName(info.Name)
	return t, nil
}
