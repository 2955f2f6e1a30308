// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// prepareEtcd decides on ports and flags.
func (e *Environment) prepareEtcd() error {
	var err error
	if e.etcdPort, err = e.ports.take(); err != nil {
		return err
	}
	if e.etcdPeerPort, err = e.ports.take(); err != nil {
		return err
	}
	e.etcd = &process{name: "etcd", path: e.Binary("etcd"), dir: e.dir, logPath: e.file("etcd.log")}
	e.useEtcdData("etcd")
	return nil
}

// useEtcdData makes etcd's next start serve the data in a folder.
func (e *Environment) useEtcdData(name string) {
	e.etcdData = e.file(name)
	client, peer := localURL("http", e.etcdPort), localURL("http", e.etcdPeerPort)
	e.etcd.args = []string{
		"--name=default",
		"--data-dir=" + e.etcdData,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		// The data does not outlive the test, so nothing waits for the disk.
		"--unsafe-no-fsync",
	}
}

// StartEtcd starts etcd on its data, and returns when it serves.
func (e *Environment) StartEtcd(ctx context.Context) error {
	if err := e.etcd.start(); err != nil {
		return err
	}
	return e.awaitHealth(ctx, e.etcd, localURL("http", e.etcdPort)+"/health", nil)
}

// StopEtcd ends etcd. API servers keep running without their store.
func (e *Environment) StopEtcd() error { return e.etcd.stop(stopGrace) }

// RestartEtcd stops etcd and starts it on the same data and address.
func (e *Environment) RestartEtcd(ctx context.Context) error {
	if err := e.StopEtcd(); err != nil {
		return err
	}
	return e.StartEtcd(ctx)
}

// PauseEtcd stops etcd in its tracks: connections stay open, nothing is answered.
func (e *Environment) PauseEtcd() error { return e.etcd.signal(syscall.SIGSTOP) }

// ContinueEtcd lets etcd go on.
func (e *Environment) ContinueEtcd() error { return e.etcd.signal(syscall.SIGCONT) }

// EtcdURL returns the address of etcd, which needs no credentials.
func (e *Environment) EtcdURL() string { return localURL("http", e.etcdPort) }

// EtcdSnapshot writes a snapshot of the store to a new file, as etcdctl snapshot save does.
func (e *Environment) EtcdSnapshot(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.EtcdURL()+"/v3/maintenance/snapshot", strings.NewReader("{}"))
	if err != nil {
		return fmt.Errorf("make snapshot request: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: startTimeout}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("request snapshot: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("request snapshot: %s", response.Status)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create snapshot file: %w", err)
	}
	return errors.Join(copySnapshot(file, response.Body), file.Close())
}

// copySnapshot copies the chunks of etcd's JSON stream.
func copySnapshot(to io.Writer, from io.Reader) error {
	decoder := json.NewDecoder(bufio.NewReader(from))
	for {
		var chunk struct {
			Result struct {
				Blob           []byte `json:"blob"`
				RemainingBytes uint64 `json:"remaining_bytes,string"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		if err := decoder.Decode(&chunk); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read snapshot: %w", err)
		}
		if len(chunk.Error) > 0 {
			return fmt.Errorf("read snapshot: etcd answers %s", chunk.Error)
		}
		if _, err := to.Write(chunk.Result.Blob); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
}

// RestoreSnapshot stops the whole control plane, turns the store back to a snapshot and starts everything again at the
// same addresses. With a bumpRevision above 0 revisions go on from that far above the snapshot's, and watches from before
// are told that their history is gone; with 0 revisions are handed out a second time.
func (e *Environment) RestoreSnapshot(ctx context.Context, path string, bumpRevision uint64) error {
	if err := e.stopAll(); err != nil {
		return err
	}
	e.restores++
	data := "etcd-restored-" + strconv.Itoa(e.restores)
	args := []string{
		"snapshot", "restore", path,
		"--data-dir=" + e.file(data),
		"--name=default",
		"--initial-cluster=default=" + localURL("http", e.etcdPeerPort),
		"--initial-advertise-peer-urls=" + localURL("http", e.etcdPeerPort),
	}
	if bumpRevision > 0 {
		args = append(args, "--bump-revision="+strconv.FormatUint(bumpRevision, 10), "--mark-compacted")
	}
	if out, err := exec.CommandContext(ctx, e.Binary("etcdutl"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("restore snapshot: %w\n%s", err, out)
	}
	e.useEtcdData(data)
	if err := e.StartEtcd(ctx); err != nil {
		return err
	}
	if err := e.startAPIServers(ctx); err != nil {
		return err
	}
	if e.controllerManager == nil {
		return nil
	}
	return e.StartControllerManager(ctx)
}

// stopAll ends every process, those that need others first.
func (e *Environment) stopAll() error {
	if e.controllerManager != nil {
		if err := e.controllerManager.stop(time.Second); err != nil {
			return err
		}
	}
	for i := range e.apiServers {
		if err := e.KillAPIServer(i); err != nil {
			return err
		}
	}
	return e.StopEtcd()
}
