// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run holds a FencedLease around a command.
//
// The command is a process group of its own. It gets every signal that the plugin gets, it is told to end at the renew
// deadline, and it is gone before followers may take the lease over, counted from the last confirmed renewal. The lease is
// released when the whole group has gone, so two commands never run under it at once.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

// Options are those of run.
type Options struct {
	*cli.Factory

	Name     string
	Identity string
	Wait     bool
	Timeout  time.Duration
	Carrier  string
	Grace    time.Duration
	// ServiceAccount is whose tokens are requested, if not the caller's own.
	ServiceAccount string

	command []string
	config  *rest.Config
	lease   *v1alpha1.FencedLease
	carrier carrier
	account types.NamespacedName
}

// NewCommand returns the command run.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Hold a FencedLease around a command",
		Long: "Hold a FencedLease around a command.\n\n" +
			"The command runs once the lease is acquired. It finds its term in the environment:\n" +
			"  KUBECONFIG               a kubeconfig whose every request carries the token of the term, by --carrier\n" +
			"  FENCEDLEASE_TOKEN        the token, GENERATION.TERM\n" +
			"  FENCEDLEASE_GENERATION, FENCEDLEASE_TERM, FENCEDLEASE_HOLDER, FENCEDLEASE_NAMESPACE, FENCEDLEASE_NAME\n\n" +
			"By --carrier=credential it has a service-account token that was requested for the term; by request it impersonates you with the\n" +
			"token as an extra. kubectl, and any client that reads KUBECONFIG, is fenced without a change: once the term has ended its writes are refused.\n\n" +
			"The command is a process group of its own and gets every signal. If the lease is lost, or cannot be renewed until two thirds of\n" +
			"its duration have passed, the group gets SIGTERM, and SIGKILL in time to be gone before anybody else may acquire the lease.\n" +
			"Otherwise the lease is released as soon as the command has ended; what it leaves behind in its group is ended first.\n\n" +
			"The exit code is that of the command, or 128 and the number of the signal that ended it. It is 1 if the lease was lost and the\n" +
			"command ended with 0 all the same, 126 or 127 if the command cannot be run or is not found, and 2 if another holds the lease and\n" +
			"there was no waiting for it. A signal to end while the lease is waited for ends run at once.",
		Example: "  kubectl fencedlease run report-writer -- ./publish.sh\n\n" +
			"  # For a cron job: do nothing if another is at work\n" +
			"  kubectl fencedlease run report-writer --wait=false -- ./publish.sh\n\n" +
			"  # A python job, by the kubeconfig of its term\n" +
			"  kubectl fencedlease run report-writer --identity=$(hostname) -- python3 job.py",
		Annotations:       map[string]string{cli.OwnSignals: ""},
		ValidArgsFunction: cli.CompleteLeases(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.Identity, "identity", "", "Who holds the lease; it must differ for each process. Defaults to the host's name and a random suffix.")
	cmd.Flags().BoolVar(&o.Wait, "wait", true, "Wait while another holds the lease.")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "How long to wait at most. 0 waits until interrupted.")
	cmd.Flags().StringVar(&o.Carrier, "carrier", string(carrierAuto), "How KUBECONFIG carries the token: credential, request, none, or auto for the first of them that you have the right to.")
	cmd.Flags().StringVar(&o.ServiceAccount, "serviceaccount", "", "The service account whose tokens are requested with --carrier=credential: NAME in the lease's namespace, or NAMESPACE:NAME. Defaults to your own.")
	cmd.Flags().DurationVar(&o.Grace, "grace-period", defaultGrace, "How long what the command leaves behind in its group may take to end after SIGTERM.")
	cli.Complete(cmd, "carrier", carriers()...)
	return cmd
}

// defaultGrace is how long processes that outlive the command get.
const defaultGrace = 10 * time.Second

// Complete reads the arguments. Dash is the number of those before the --, or below 0 if there is none.
func (o *Options) Complete(args []string, dash int) (err error) {
	before := args
	if dash >= 0 {
		before, o.command = args[:dash], args[dash:]
	} else if len(args) > 1 {
		return cli.Usagef("the command must follow --: kubectl fencedlease run %s -- %s ...", args[0], args[1])
	}
	o.Name, err = cli.OneName(before, "FencedLease")
	return err
}

// Validate refuses what cannot work, before any request is sent.
func (o *Options) Validate() error {
	if err := cli.OneOf("--carrier", o.Carrier, carriers()...); err != nil {
		return err
	}
	switch {
	case len(o.command) == 0 || o.command[0] == "":
		return cli.Usagef("the command is missing: give it after --, as in: kubectl fencedlease run %s -- ./publish.sh", o.Name)
	case len(o.Identity) > possession.MaxIdentityLength:
		return cli.Usagef("--identity has %d characters, at most %d are allowed: give a shorter one", len(o.Identity), possession.MaxIdentityLength)
	case o.Timeout < 0:
		return cli.Usagef("--timeout=%s is negative: give how long to wait at most", o.Timeout)
	case o.ServiceAccount != "" && o.Carrier != string(carrierAuto) && o.Carrier != string(carrierCredential):
		return cli.Usagef("--serviceaccount goes with --carrier=credential: leave one of them out")
	case o.Grace < 0:
		return cli.Usagef("--grace-period=%s is negative: give how long processes may take to end", o.Grace)
	case o.Timeout > 0 && !o.Wait:
		return cli.Usagef("--timeout bounds --wait: leave --wait=false or --timeout out")
	default:
		return checkPlatform()
	}
}

// Run acquires the lease, runs the command and releases the lease.
func (o *Options) Run(ctx context.Context) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.config, err = o.Config(); err != nil {
		return err
	}
	c, err := o.Client()
	if err != nil {
		return err
	}
	// Read from the API server to answer at once where waiting is of no use.
	if o.lease, err = cli.GetLease(ctx, c, types.NamespacedName{Namespace: namespace, Name: o.Name}); err != nil {
		return err
	}
	if o.carrier, err = o.chooseCarrier(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := newGroup(o.Signals, cancel)
	defer g.close()
	w := newWaiter(o, cancel)
	defer w.close()

	renewals := &renewals{}
	elector, err := leader.New(leader.Options{
		Config: o.config, Namespace: namespace, Name: o.Name, Identity: o.Identity, Clock: o.Clock,
		ReleaseTimeout: -1, ExitOnLoss: true, Metrics: renewals, OnWaiting: w.told,
	})
	if err != nil {
		return fmt.Errorf("run on FencedLease %s/%s: %w", namespace, o.Name, err)
	}
	// What the elector logs is said here in other words.
	err = elector.Run(klog.NewContext(ctx, logr.Discard()), func(ctx context.Context, term *leader.Term) error {
		renewals.begin(term.Info().AcquireTime)
		if w.close(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return o.work(ctx, term, g, renewals)
	})
	return conclude(err)
}

// exitError is how the command has ended, also if it ended well.
type exitError struct {
	code int
	// err says why the command could not be run, or is nil.
	err error
}

// Error names the exit code.
func (e *exitError) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("the command has ended with exit code %d", e.code)
}

// conclude returns what the end of the command, and of the term, means for the exit code.
func conclude(err error) error {
	var exit *exitError
	var lost *leader.LostError
	switch {
	case !errors.As(err, &exit):
		return err // the command was never started
	case errors.As(err, &lost):
		// A command that took the loss for a good end has not done its work.
		return &cli.CodeError{Code: max(exit.code, cli.ExitError), Err: lost}
	case exit.code == cli.ExitOK:
		return nil
	default:
		return &cli.CodeError{Code: exit.code, Err: exit.err}
	}
}
