// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"os"
	"strconv"
)

// prepareControllerManager decides on port and flags.
func (e *Environment) prepareControllerManager() error {
	port, err := e.ports.take()
	if err != nil {
		return err
	}
	config, err := e.AddUser("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig, err := e.WriteKubeconfig("kube-controller-manager", config)
	if err != nil {
		return err
	}
	e.managerPort = port
	e.controllerManager = &process{
		name: "kube-controller-manager", path: e.Binary("kube-controller-manager"), dir: e.dir,
		logPath: e.file("kube-controller-manager.log"),
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			"--cert-dir=" + e.file("kube-controller-manager"),
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + e.file("sa.key"),
			"--root-ca-file=" + e.file("ca.crt"),
		},
	}
	_, err = os.Stat(e.controllerManager.path)
	return err
}

var errNoControllerManager = errors.New("the environment was started without Options.ControllerManager")

// StartControllerManager starts the controller manager, and returns when it is healthy.
func (e *Environment) StartControllerManager(ctx context.Context) error {
	if e.controllerManager == nil {
		return errNoControllerManager
	}
	if err := e.controllerManager.start(); err != nil {
		return err
	}
	return e.awaitHealth(ctx, e.controllerManager, localURL("https", e.managerPort)+"/healthz", nil)
}

// StopControllerManager ends the controller manager.
func (e *Environment) StopControllerManager() error {
	if e.controllerManager == nil {
		return errNoControllerManager
	}
	return e.controllerManager.stop(stopGrace)
}
