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
	for i := range e.options.EtcdMembers {
		client, err := e.ports.take()
		if err != nil {
			return err
		}
		peer, err := e.ports.take()
		if err != nil {
			return err
		}
		name := "etcd"
		if i > 0 {
			name += "-" + strconv.Itoa(i)
		}
		e.etcd = append(e.etcd, &member{port: client, peerPort: peer, process: &process{
			name: name, path: e.Binary("etcd"), dir: e.dir, logPath: e.file(name + ".log"),
		}})
	}
	for i, m := range e.etcd {
		e.useEtcdData(i, m.name)
	}
	return nil
}

// member is one member of etcd.
type member struct {
	*process
	port, peerPort int
	data           string
}

// etcdCluster names all members with their peer addresses, as etcd and etcdutl want it.
func (e *Environment) etcdCluster() string {
	members := make([]string, 0, len(e.etcd))
	for _, m := range e.etcd {
		members = append(members, m.name+"="+localURL("http", m.peerPort))
	}
	return strings.Join(members, ",")
}

// useEtcdData makes the next start of a member serve the data in a folder.
func (e *Environment) useEtcdData(i int, data string) {
	m := e.etcd[i]
	m.data = e.file(data)
	client, peer := localURL("http", m.port), localURL("http", m.peerPort)
	m.args = []string{
		"--name=" + m.name,
		"--data-dir=" + m.data,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + e.etcdCluster(),
		// The data does not outlive the test, so nothing waits for the disk.
		"--unsafe-no-fsync",
	}
}

// StartEtcd starts every member of etcd on its data, and returns when all serve.
func (e *Environment) StartEtcd(ctx context.Context) error {
	for _, m := range e.etcd {
		if err := m.start(); err != nil {
			return err
		}
	}
	for i := range e.etcd {
		if err := e.awaitEtcd(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (e *Environment) awaitEtcd(ctx context.Context, i int) error {
	return e.awaitHealth(ctx, e.etcd[i].process, e.EtcdMemberURL(i)+"/health", nil)
}

// StopEtcd ends every member of etcd. API servers keep running without their store.
func (e *Environment) StopEtcd() error {
	var errs []error
	for _, m := range e.etcd {
		errs = append(errs, m.stop(stopGrace))
	}
	return errors.Join(errs...)
}

// RestartEtcd stops etcd and starts it on the same data and addresses.
func (e *Environment) RestartEtcd(ctx context.Context) error {
	if err := e.StopEtcd(); err != nil {
		return err
	}
	return e.StartEtcd(ctx)
}

// PauseEtcd stops every member in its tracks: connections stay open, nothing is answered.
func (e *Environment) PauseEtcd() error { return e.signalEtcd(syscall.SIGSTOP) }

// ContinueEtcd lets every member go on.
func (e *Environment) ContinueEtcd() error { return e.signalEtcd(syscall.SIGCONT) }

func (e *Environment) signalEtcd(s syscall.Signal) error {
	var errs []error
	for _, m := range e.etcd {
		errs = append(errs, m.signal(s))
	}
	return errors.Join(errs...)
}

// EtcdMembers returns how many members etcd has.
func (e *Environment) EtcdMembers() int { return len(e.etcd) }

// KillEtcdMember ends member i at once.
func (e *Environment) KillEtcdMember(i int) error { return e.etcd[i].stop(0) }

// StartEtcdMember starts member i on its data again, and returns when it serves.
func (e *Environment) StartEtcdMember(ctx context.Context, i int) error {
	if err := e.etcd[i].start(); err != nil {
		return err
	}
	return e.awaitEtcd(ctx, i)
}

// PauseEtcdMember stops member i in its tracks.
func (e *Environment) PauseEtcdMember(i int) error { return e.etcd[i].signal(syscall.SIGSTOP) }

// ContinueEtcdMember lets member i go on.
func (e *Environment) ContinueEtcdMember(i int) error { return e.etcd[i].signal(syscall.SIGCONT) }

// EtcdMemberURL returns the address of member i, which needs no credentials.
func (e *Environment) EtcdMemberURL(i int) string { return localURL("http", e.etcd[i].port) }

// EtcdProxy returns the proxy between an API server and a member, with Options.EtcdProxies.
func (e *Environment) EtcdProxy(apiServer, member int) *Proxy {
	return e.etcdProxies[apiServer][member]
}

// etcdServers returns where API server i reaches the members of etcd: by proxies of its own, if there are any.
func (e *Environment) etcdServers(ctx context.Context, i int) (string, error) {
	var urls []string
	var proxies []*Proxy
	for _, m := range e.etcd {
		port := m.port
		if e.options.EtcdProxies {
			proxy, err := e.StartProxy(ctx, m.port)
			if err != nil {
				return "", err
			}
			proxies, port = append(proxies, proxy), proxy.Port
		}
		urls = append(urls, localURL("http", port))
	}
	if proxies != nil {
		e.etcdProxies[i] = proxies
	}
	return strings.Join(urls, ","), nil
}

// EtcdURL returns the address of the first member of etcd, which needs no credentials.
func (e *Environment) EtcdURL() string { return e.EtcdMemberURL(0) }

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
	for i, m := range e.etcd {
		data := m.name + "-restored-" + strconv.Itoa(e.restores)
		args := []string{
			"snapshot", "restore", path,
			"--data-dir=" + e.file(data),
			"--name=" + m.name,
			"--initial-cluster=" + e.etcdCluster(),
			"--initial-advertise-peer-urls=" + localURL("http", m.peerPort),
		}
		if bumpRevision > 0 {
			args = append(args, "--bump-revision="+strconv.FormatUint(bumpRevision, 10), "--mark-compacted")
		}
		if out, err := exec.CommandContext(ctx, e.Binary("etcdutl"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("restore snapshot: %w\n%s", err, out)
		}
		e.useEtcdData(i, data)
	}
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
