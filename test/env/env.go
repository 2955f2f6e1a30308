// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// startTimeout bounds the start of one process, also on a busy machine.
	startTimeout = 2 * time.Minute
	// stopGrace is how long a process may take to end in order. Open watches make an API server take longer than a test
	// should wait; nothing is lost when it is killed.
	stopGrace = 5 * time.Second
	// pollInterval is how often readiness is asked for.
	pollInterval = 50 * time.Millisecond
)

// Options choose what an Environment consists of. The zero value is one API server with its etcd.
type Options struct {
	// APIServers is the number of API servers on etcd. Defaults to 1.
	APIServers int
	// EtcdMembers is the number of members of etcd. Defaults to 1.
	EtcdMembers int
	// EtcdProxies puts a Proxy between each API server and each member of etcd.
	EtcdProxies bool
	// ControllerManager runs the controller manager as well, each controller under its own service account: garbage
	// collection, deletion of namespaces, default service accounts.
	ControllerManager bool
	// APIServerArgs are further flags of every API server, each as --name=value.
	APIServerArgs []string
	// AuditLog makes every API server write the metadata of all requests, with annotations, to the file AuditLogPath.
	AuditLog bool
	// WithoutEndpoints leaves the EndpointSlices of the kubernetes Service out.
	WithoutEndpoints bool
}

// T is the part of testing.T, testing.B and ginkgo's GinkgoT() that the helpers need.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Environment is a running control plane. Its methods may be called by several goroutines, except those that start, stop
// or restore the same process.
type Environment struct {
	options Options
	assets  string
	root    string
	dir     string
	ca      *authority
	admin   *rest.Config
	ports   portLocks

	etcd              []*member
	etcdProxies       map[int][]*Proxy
	apiServers        []*process
	apiServerPorts    []int
	controllerManager *process
	managerPort       int

	restores    int
	proxies     []*Proxy
	programs    []*Program
	namespaces  atomic.Int64
	kubeconfigs atomic.Int64
	stopOnce    sync.Once
	stopErr     error
}

// Start starts a control plane. The context bounds the start only.
func Start(ctx context.Context, options Options) (*Environment, error) {
	options.APIServers, options.EtcdMembers = max(options.APIServers, 1), max(options.EtcdMembers, 1)
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	assets, err := findAssets(ctx, root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencedlease-env-")
	if err != nil {
		return nil, fmt.Errorf("make folder of the control plane: %w", err)
	}
	e := &Environment{options: options, assets: assets, root: root, dir: dir, etcdProxies: map[int][]*Proxy{}}
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), e.Stop())
	}
	return e, nil
}

// StartT starts a control plane and stops it at the end of the test.
func StartT(t T, options Options) *Environment {
	t.Helper()
	e, err := Start(t.Context(), options)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stop control plane: %v", err)
		}
	})
	return e
}

func (e *Environment) start(ctx context.Context) error {
	if err := e.writeCredentials(); err != nil {
		return err
	}
	if err := e.prepareEtcd(); err != nil {
		return err
	}
	if err := e.prepareAPIServers(ctx); err != nil {
		return err
	}
	if e.options.ControllerManager {
		if err := e.prepareControllerManager(); err != nil {
			return err
		}
	}
	if err := e.StartEtcd(ctx); err != nil {
		return err
	}
	if err := e.startAPIServers(ctx); err != nil {
		return err
	}
	if e.options.ControllerManager {
		if err := e.StartControllerManager(ctx); err != nil {
			return err
		}
	}
	if e.options.WithoutEndpoints {
		return nil
	}
	return e.writeEndpoints(ctx)
}

// Stop ends every process and removes their files. Further calls do nothing.
func (e *Environment) Stop() error {
	e.stopOnce.Do(func() {
		var errs []error
		// The store is of no use any more, so nothing needs to end in order.
		processes := []*process{e.controllerManager}
		for _, program := range e.programs {
			processes = append(processes, program.process)
		}
		for _, m := range e.etcd {
			processes = append(processes, m.process)
		}
		for _, p := range append(processes, e.apiServers...) {
			if p != nil {
				errs = append(errs, p.stop(0))
			}
		}
		e.closeProxies()
		e.ports.release()
		if os.Getenv("FENCEDLEASE_ENV_KEEP") == "" {
			errs = append(errs, os.RemoveAll(e.dir))
		}
		e.stopErr = errors.Join(errs...)
	})
	return e.stopErr
}

// Dir returns the folder of the control plane: logs of all processes, certificates, data. Tests may put files there.
func (e *Environment) Dir() string { return e.dir }

// ModuleRoot returns the folder of this module.
func (e *Environment) ModuleRoot() string { return e.root }

// Binary returns the path of a program that belongs to the control plane.
func (e *Environment) Binary(name string) string { return filepath.Join(e.assets, name) }

// Port returns a free port that no other environment takes until this one is stopped.
func (e *Environment) Port() (int, error) { return e.ports.take() }

// ServingCertificate signs a serving certificate for 127.0.0.1 and the names, and returns it with the authority's own,
// all PEM-encoded.
func (e *Environment) ServingCertificate(names ...string) (cert, key, ca []byte, err error) {
	pair, err := e.ca.server(append([]string{"localhost"}, names...), []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, nil, err
	}
	return pair.cert, pair.key, e.ca.pem, nil
}

// file returns the path of a file of the control plane.
func (e *Environment) file(name string) string { return filepath.Join(e.dir, name) }

// localURL returns a URL of this machine.
func localURL(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
