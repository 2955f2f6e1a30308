// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// AnnotateOptions are those of annotate.
type AnnotateOptions struct {
	Options

	Overwrite bool

	// changes are the new values by key; nil removes the annotation.
	changes map[string]any
}

// NewAnnotateCommand returns the command annotate.
func NewAnnotateCommand(f *cli.Factory) *cobra.Command {
	o := &AnnotateOptions{Options: Options{Factory: f}}
	cmd := &cobra.Command{
		Use:   "annotate TYPE/NAME KEY=VALUE... KEY-... --token=TOKEN",
		Short: "Set and remove annotations of objects with a fencing token",
		Long: "Set and remove annotations of objects with a fencing token. Without any KEY only the mark is moved to the token: from then on no\n" +
			"older write lands on the object." + longCarriers,
		Example: "  kubectl fencedlease annotate report/daily reviewed=yes draft- --token=48215.k3v9x2ab\n\n" +
			"  # Take an object over without changing it\n" +
			"  kubectl fencedlease annotate report/daily --token=48215.k3v9x2ab",
		RunE: o.run(o),
	}
	target.AddFileFlags(cmd.Flags(), &o.Files, "The files that name the objects to annotate; - is standard input.")
	cmd.Flags().BoolVar(&o.Overwrite, "overwrite", false, "Change annotations that have another value.")
	o.addFlags(cmd)
	return cmd
}

func (o *AnnotateOptions) complete(args []string) error {
	o.Args, o.changes = nil, map[string]any{}
	for _, arg := range args {
		key, value, set := strings.Cut(arg, "=")
		removed, remove := strings.CutSuffix(arg, "-")
		switch {
		case set:
			o.changes[key] = value
		case remove:
			key = removed
			o.changes[key] = nil
		default:
			if len(o.changes) > 0 {
				return cli.Usagef("%q is neither KEY=VALUE nor KEY-: give the objects before the annotations", arg)
			}
			o.Args = append(o.Args, arg)
			continue
		}
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			return cli.Usagef("%q is no key of an annotation: %s", key, strings.Join(problems, "; "))
		}
		if _, mark := v1alpha1.LeaseOfTokenKey(key); mark {
			return cli.Usagef("%s is the mark, which moves with the token: leave it out, and give the token with --token", key)
		}
	}
	return nil
}

func (o *AnnotateOptions) write(ctx context.Context, t target.Target) (send.Write, error) {
	if !o.Overwrite && len(o.changes) > 0 {
		if err := o.checkStored(ctx, t); err != nil {
			return send.Write{}, err
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": o.changes}})
	if err != nil {
		return send.Write{}, fmt.Errorf("encode patch: %w", err)
	}
	return send.Write{Verb: send.Patch, Object: t.Object, Patch: patch, PatchType: types.MergePatchType, FieldManager: send.FieldManager}, nil
}

// checkStored refuses to change a value that is there, by the object as it is read from the API server now.
func (o *AnnotateOptions) checkStored(ctx context.Context, t target.Target) error {
	reader, err := client.New(o.config, client.Options{Mapper: o.mapper})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(t.Object.GroupVersionKind())
	if err := reader.Get(ctx, client.ObjectKeyFromObject(t.Object), stored); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(o.changes)) {
		before, there := stored.GetAnnotations()[key]
		if after := o.changes[key]; there && after != nil && after != before {
			return cli.Usagef("annotation %s of %s has the value %q already: add --overwrite to change it", key, t, before)
		}
	}
	return nil
}

func (o *AnnotateOptions) names() (verb, done string) { return "annotate", "annotated" }
