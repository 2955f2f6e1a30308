// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possess

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// maxReason bounds what --reason adds to an event.
const maxReason = 256

// ReleaseOptions are those of release.
type ReleaseOptions struct {
	*cli.Factory

	Name   string
	Token  []string
	Yes    bool
	Reason string
	DryRun string

	token  token.Token
	dryRun cli.DryRun
	leases possession.Client
}

// NewReleaseCommand returns the command release.
func NewReleaseCommand(f *cli.Factory) *cobra.Command {
	o := &ReleaseOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "release NAME (--token=TOKEN | --yes)",
		Short: "Release a FencedLease: your own term by its token, or whoever holds it with --yes",
		Long: "Release a FencedLease: your own term by its token, or the term of whoever holds it with --yes.\n\n" +
			"A release by token ends that term only, never a successor's. A release with --yes ends the current holder's term: it\n" +
			"may be at work, its writes are refused from then on, and others acquire the lease at once. It leaves an event.",
		Example: "  # The end of a term of your own\n  kubectl fencedlease release report-writer --token=48215.k3v9x2ab\n\n" +
			"  # What ending the term of a holder that hangs would do, and doing it\n" +
			"  kubectl fencedlease release report-writer --dry-run=server\n" +
			"  kubectl fencedlease release report-writer --yes --reason='host is being repaired'",
		ValidArgsFunction: cli.CompleteLeases(f, 1),
		RunE:              cli.RunE(o),
	}
	cli.AddTokenFlag(cmd.Flags(), &o.Token)
	cmd.Flags().Lookup("token").Usage = "Token of the term to release, as acquire printed it: GENERATION.TERM."
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "End the term of whoever holds the lease.")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "Why, for the event that a release with --yes leaves.")
	cli.AddDryRunFlag(cmd, &o.DryRun)
	return cmd
}

// Complete reads the arguments.
func (o *ReleaseOptions) Complete(args []string) (err error) {
	if o.Name, err = cli.OneName(args, "FencedLease"); err != nil {
		return err
	}
	if o.dryRun, err = cli.ParseDryRun(o.DryRun); err != nil {
		return err
	}
	if len(o.Token) == 0 {
		return nil // the token in the environment is for writes: nobody releases by accident what run holds
	}
	tokens, err := cli.ParseTokens(o.Token, o.Getenv)
	if err != nil {
		return err
	}
	o.token = tokens.Sole
	if named, ok := tokens.Named[o.Name]; ok && len(tokens.Named) == 1 {
		o.token = named
	}
	if o.token.IsZero() {
		return cli.Usagef("--token is of another FencedLease than %s: give the one that was printed when it was acquired", o.Name)
	}
	return nil
}

// Validate refuses what cannot work, before any request is sent.
func (o *ReleaseOptions) Validate() error {
	switch {
	case !o.token.IsZero() && o.Yes:
		return cli.Usagef("--token releases your own term, --yes that of whoever holds the lease: give one of them")
	case !o.token.IsZero() && o.token.Term == "":
		return cli.Usagef("--token has no term: give GENERATION.TERM as it was printed when the lease was acquired")
	case len(o.Reason) > maxReason:
		return cli.Usagef("--reason has %d bytes, at most %d are allowed: give a shorter one", len(o.Reason), maxReason)
	default:
		return nil
	}
}

// Run releases the lease.
func (o *ReleaseOptions) Run(ctx context.Context) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.leases, err = o.Possession(namespace, o.Name); err != nil {
		return err
	}
	lease, err := o.leases.Get(ctx)
	if err != nil {
		return cli.NextStep(err, namespace)
	}
	state := cli.State(lease, o.Clock.Now())
	current := token.Token{Generation: ptr.Deref(lease.Status.Generation, 0), Term: ptr.Deref(lease.Status.Term, "")}
	holder := ptr.Deref(lease.Status.HolderIdentity, "")
	switch {
	case !o.token.IsZero() && o.token.Possession() != current:
		return cli.Refused(fmt.Errorf("term %s of FencedLease %s has ended already: %s; nothing was released", o.token.Possession(), o.leases, state))
	case holder == "":
		o.Say("FencedLease %s: %s; there is nothing to release.", o.leases, state)
		return nil
	case o.token.IsZero() && !o.Yes && o.dryRun == cli.DryRunNone:
		return cli.Usagef("FencedLease %s: %s. Releasing it ends that term: writes of the holder are refused from then on, and others may acquire the lease at once. "+
			"Add --yes to do it, or --token=TOKEN if the term is yours", o.leases, state)
	}
	term := possession.Term{
		Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, Generation: current.Generation, ID: current.Term, Holder: holder,
	}
	if _, err := cli.PatchStatus(ctx, o.leases, possession.Release(term), o.dryRun); err != nil {
		return o.failed(ctx, term, err)
	}
	o.Say("Released FencedLease %s: generation %d of %q has ended%s.", o.leases, term.Generation, holder, o.dryRun.Suffix())
	if o.token.IsZero() && o.dryRun == cli.DryRunNone {
		o.recordRelease(ctx, lease, term)
	}
	return nil
}

func (o *ReleaseOptions) recordRelease(ctx context.Context, lease *v1alpha1.FencedLease, term possession.Term) {
	why := ""
	if o.Reason != "" {
		why = ": " + o.Reason
	}
	o.RecordEvent(ctx, lease, eventReleased, "%s ended term %s of %q with kubectl fencedlease release%s", o.Me(ctx), term.Token(), term.Holder, why)
}

// failed explains a release that was not carried out.
func (o *ReleaseOptions) failed(ctx context.Context, term possession.Term, err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		if lease, readErr := o.leases.Get(ctx); readErr == nil && !possession.Shows(lease, term) {
			return cli.Refused(fmt.Errorf("term %s of FencedLease %s has ended in between: %s; nothing was released", term.Token(), o.leases, cli.State(lease, o.Clock.Now())))
		}
	}
	return cli.NextStep(fmt.Errorf("release FencedLease %s: %w", o.leases, err), o.leases.Namespace)
}
