// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package possess acquires and releases FencedLeases by hand.
package possess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/possession"
)

const (
	// pollInterval is how often a lease that is waited for is read.
	pollInterval = 500 * time.Millisecond
	// cleanupTimeout bounds the release of a term that nobody will hear of any more.
	cleanupTimeout = 5 * time.Second

	eventTakenOver = "TakenOverByHand"
	eventReleased  = "ReleasedByHand"
)

// AcquireOptions are those of acquire.
type AcquireOptions struct {
	*cli.Factory

	Name     string
	Identity string
	Wait     bool
	Timeout  time.Duration
	Yes      bool
	DryRun   string

	dryRun cli.DryRun
	leases possession.Client
}

// NewAcquireCommand returns the command acquire.
func NewAcquireCommand(f *cli.Factory) *cobra.Command {
	o := &AcquireOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "acquire NAME --identity=IDENTITY",
		Short: "Acquire a FencedLease and print the token of the new term",
		Long: "Acquire a FencedLease and print the token of the new term to standard output.\n\n" +
			"Nothing renews the term after the command has ended: others may take the lease over when its duration has passed, and\n" +
			"writes with the token are refused from then on. To hold a lease around a command, use run.\n\n" +
			"A lease that another holds is not taken: the exit code is 2. With --wait the command waits until it is released or has\n" +
			"not been renewed for its duration, as seen by this machine.",
		Example: "  # A token for the writes of a script\n" +
			"  TOKEN=$(kubectl fencedlease acquire report-writer --identity=$(hostname))\n" +
			"  kubectl fencedlease apply -f report.yaml --token=$TOKEN\n" +
			"  kubectl fencedlease release report-writer --token=$TOKEN\n\n" +
			"  # Wait for at most a minute\n" +
			"  kubectl fencedlease acquire report-writer --identity=$(hostname) --wait --timeout=1m",
		ValidArgsFunction: cli.CompleteLeases(f, 1),
		RunE:              cli.RunE(o),
	}
	cmd.Flags().StringVar(&o.Identity, "identity", "", "Who holds the lease, for instance a host's name. It should differ for each process.")
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "Wait until the lease is free.")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "How long to wait at most. 0 waits until interrupted.")
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "Take the lease also if it is held under the same identity, which ends that term and refuses its writes.")
	cli.AddDryRunFlag(cmd, &o.DryRun)
	return cmd
}

// Complete reads the arguments.
func (o *AcquireOptions) Complete(args []string) (err error) {
	if o.Name, err = cli.OneName(args, "FencedLease"); err != nil {
		return err
	}
	o.dryRun, err = cli.ParseDryRun(o.DryRun)
	return err
}

// Validate refuses what cannot work, before any request is sent.
func (o *AcquireOptions) Validate() error {
	switch {
	case o.Identity == "":
		return cli.Usagef("--identity is missing: say who will hold the lease, for instance --identity=$(hostname)")
	case len(o.Identity) > possession.MaxIdentityLength:
		return cli.Usagef("--identity has %d characters, at most %d are allowed: give a shorter one", len(o.Identity), possession.MaxIdentityLength)
	case o.Timeout < 0:
		return cli.Usagef("--timeout=%s is negative: give how long to wait at most", o.Timeout)
	case o.Timeout > 0 && !o.Wait:
		return cli.Usagef("--timeout bounds --wait: give both or neither")
	default:
		return nil
	}
}

// Run acquires the lease and prints the token.
func (o *AcquireOptions) Run(ctx context.Context) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.leases, err = o.Possession(namespace, o.Name); err != nil {
		return err
	}
	term, before, err := o.acquire(ctx)
	if err != nil {
		return err
	}
	if o.dryRun == cli.DryRunServer {
		o.Say("Would acquire FencedLease %s as %q under generation %d%s.", o.leases, o.Identity, term.Generation, o.dryRun.Suffix())
		return nil
	}
	if ended := ptr.Deref(before.Status.HolderIdentity, ""); ended == o.Identity {
		o.RecordEvent(ctx, before, eventTakenOver, "%s ended term %s of %q with kubectl fencedlease acquire and acquired the lease anew under generation %d",
			o.Me(ctx), ptr.Deref(before.Status.Token, ""), ended, term.Generation)
	}
	if err := o.awaitSeal(ctx, term, before.Spec.LeaseDurationSeconds); err != nil {
		return err
	}
	o.Say("Acquired FencedLease %s as %q under generation %d. Nothing renews it: others may take it over after %ds.",
		o.leases, o.Identity, term.Generation, before.Spec.LeaseDurationSeconds)
	if _, err := fmt.Fprintln(o.Out, term.Token()); err != nil {
		// Nobody will ever present the token.
		return errors.Join(fmt.Errorf("print token: %w", err), o.giveUp(ctx, term))
	}
	return nil
}

// acquire opens a term as soon as the lease is free. Before is the lease as it was then.
func (o *AcquireOptions) acquire(ctx context.Context) (term possession.Term, before *v1alpha1.FencedLease, err error) {
	w := watcher{options: o, began: o.Clock.Now()}
	for {
		lease, err := o.leases.Get(ctx)
		if err != nil {
			return term, nil, cli.NextStep(err, o.leases.Namespace)
		}
		free, err := w.free(lease)
		if err != nil {
			return term, nil, err
		}
		if free {
			patch, term, err := possession.Acquisition(lease, o.Identity, possession.NewTermID(), o.Clock.Now())
			if err != nil {
				return term, nil, err
			}
			_, err = cli.PatchStatus(ctx, o.leases, patch, o.dryRun)
			switch {
			case err == nil:
				return term, lease, nil
			case apierrors.IsConflict(err):
				// Somebody wrote the lease in between: it is judged anew.
				continue
			case ctx.Err() != nil:
				// The request may have been carried out although nobody waits for the answer.
				return term, nil, errors.Join(context.Cause(ctx), o.giveUp(ctx, term))
			default:
				return term, nil, cli.NextStep(fmt.Errorf("acquire FencedLease %s: %w", o.leases, err), o.leases.Namespace)
			}
		}
		if err := o.pause(ctx, pollInterval); err != nil {
			return term, nil, err
		}
	}
}

func (o *AcquireOptions) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.Clock.After(d):
		return nil
	}
}

// watcher judges whether a lease is free, by what it has seen itself: clocks of other machines are not compared with.
type watcher struct {
	options *AcquireOptions
	began   time.Time
	record  []byte
	since   time.Time
	told    bool
}

// free reports whether the lease can be acquired. An error says that it is not worth waiting.
func (w *watcher) free(lease *v1alpha1.FencedLease) (bool, error) {
	o, now := w.options, w.options.Clock.Now()
	held := fmt.Sprintf("FencedLease %s: %s", o.leases, cli.State(lease, now))
	if possession.HasStatus(lease) {
		holder := ptr.Deref(lease.Status.HolderIdentity, "")
		if holder == "" || holder == o.Identity && o.Yes {
			return true, nil
		}
		record, err := possession.Record(lease)
		if err != nil {
			return false, err
		}
		if !bytes.Equal(record, w.record) {
			w.record, w.since = record, now
		}
		// The holder has been silent for at least as long as this record has been seen. If it has renewed since this answer,
		// the acquisition is a conflict.
		if o.Wait && now.Sub(w.since) >= time.Duration(lease.Spec.LeaseDurationSeconds)*time.Second {
			return true, nil
		}
		if !o.Wait && holder == o.Identity {
			return false, cli.Refused(fmt.Errorf("%s: this is the identity that you gave; add --yes to end that term and acquire the lease anew, or --wait to wait for its end", held))
		}
	}
	switch {
	case !o.Wait && !possession.HasStatus(lease):
		return false, fmt.Errorf("%s; add --wait, and if this stays, see that the FencedLease manager runs", held)
	case !o.Wait:
		return false, cli.Refused(fmt.Errorf("%s; add --wait to wait until it is free", held))
	case o.Timeout > 0 && now.Sub(w.began) >= o.Timeout:
		return false, cli.Refused(fmt.Errorf("%s; it did not become free within %s: give a longer --timeout, or see the holder", held, o.Timeout))
	case !w.told:
		o.Say("Waiting. %s.", held)
		w.told = true
	}
	return false, nil
}

// awaitSeal keeps a term until every guarded object is stamped: before that its holder must not write.
func (o *AcquireOptions) awaitSeal(ctx context.Context, term possession.Term, leaseDurationSeconds int32) error {
	told := false
	for sealed := term.Seal == v1alpha1.SealNotRequired; !sealed; {
		lease, err := o.leases.PatchStatus(ctx, possession.Renewal(term, o.Clock.Now()))
		if err != nil {
			if lost, _ := o.leases.Ended(ctx, term, err); lost != nil {
				return lost
			}
			return errors.Join(fmt.Errorf("renew FencedLease %s while it is sealed: %w", o.leases, err), o.giveUp(ctx, term))
		}
		if sealed = possession.Sealed(lease, term); sealed {
			return nil
		}
		if !told {
			o.Say("Acquired FencedLease %s; waiting until every guarded object is stamped with generation %d.", o.leases, term.Generation)
			told = true
		}
		if err := o.pause(ctx, min(pollInterval, time.Duration(leaseDurationSeconds)*time.Second/3)); err != nil {
			return errors.Join(err, o.giveUp(ctx, term))
		}
	}
	return nil
}

// giveUp releases a term whose token nobody has got, also if the context has ended.
func (o *AcquireOptions) giveUp(ctx context.Context, term possession.Term) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_, err := o.leases.PatchStatus(ctx, possession.Release(term))
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("release FencedLease %s, which may have been acquired under generation %d: %w", o.leases, term.Generation, err)
	}
	return nil
}
