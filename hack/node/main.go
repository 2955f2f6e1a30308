// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

const usage = `Usage: node <command>

  up [-install] [-logs folder] [-while pid] [archive...]
                       start the cluster, load image archives, print the path of a kubeconfig
  down                 end the cluster and remove everything that it or an earlier run has left
  check [-install]     tell whether this machine can hold the cluster, and what it lacks; exits 1 if it cannot
  status               tell whether it is up, and what of it is there; exits 3 if nothing is
  load archive...      load image archives
  exec command...      run a command in the cluster's network, where the addresses of the kubeconfig are
  ctr argument...      run ctr against the cluster's containerd
  kill name [signal]   send a signal (KILL) to a part of the control plane or of the node; it is started again at once
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	stop()
	var code exitError
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// exitError ends the program without a message.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitError(2)
	}
	p, err := thePlace()
	if err != nil {
		return err
	}
	command, args := args[0], args[1:]
	switch command {
	case "up":
		return upCommand(ctx, p, args)
	case "keep":
		return keep(p)
	case "init":
		return initialize(p)
	case "foundations":
		return take(p, foundations)
	case "check":
		return check(ctx, p, slices.Contains(args, "-install"))
	case "down":
		return down(p)
	case "status":
		return status(p)
	case "load":
		return p.load(ctx, args)
	case "exec":
		return p.exec(ctx, args)
	case "ctr":
		return p.enter(ctx, append([]string{"ctr", "--address", p.socket(), "-n", "k8s.io"}, args...))
	case "kill":
		return p.kill(ctx, args)
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return nil
	}
	return fmt.Errorf("no command %q\n%s", command, usage)
}

func upCommand(ctx context.Context, p place, args []string) error {
	var o upOptions
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.BoolVar(&o.install, "install", false, "Install missing Debian packages.")
	flags.StringVar(&o.logs, "logs", "", "Folder that gets a copy of all logs at the end.")
	flags.IntVar(&o.while, "while", 0, "End the cluster when the process of this id ends, however it ends.")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "Time for the start.")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return exitError(2)
	}
	o.archives = flags.Args()
	return up(ctx, p, o)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "node: "+format+"\n", args...)
}
