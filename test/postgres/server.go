// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	pollInterval = 20 * time.Millisecond
	startTimeout = time.Minute
	// socket is the name of the server's socket: its port, which is a part of a file name only.
	socket = ".s.PGSQL.5432"
)

// Server is a running PostgreSQL.
type Server struct {
	folder, bin string
	settings    []string
	credential  *syscall.Credential
	databases   atomic.Int64

	pid  int
	done chan struct{}
}

// Start makes a new server and starts it. The caller stops it. Settings are such as "wal_level=logical".
func Start(ctx context.Context, settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings}
	if s.folder, err = os.MkdirTemp("", "fencedlease-postgres-"); err != nil {
		return nil, fmt.Errorf("make the folder of PostgreSQL: %w", err)
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := s.dropPrivileges(); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata="+s.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr = sysProcAttr(s.credential)
	initdb.Dir = s.folder
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w\n%s", err, out)
	}
	return s.Run(ctx)
}

// dropPrivileges finds the user to run as: PostgreSQL does not run as root.
func (s *Server) dropPrivileges() error {
	if os.Getuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("find an unprivileged user to run PostgreSQL: %w", err)
	}
	uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return fmt.Errorf("read the ids of user %s: %w", account.Username, err)
	}
	s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(s.folder, int(uid), int(gid)); err != nil {
		return fmt.Errorf("hand the folder of PostgreSQL over: %w", err)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// errEnded means that the server has ended before it answered.
var errEnded = errors.New("it has ended")

// Run starts the server that was stopped or killed, and returns when it answers.
func (s *Server) Run(ctx context.Context) error { return s.run(ctx, s.folder) }

// Aside runs the server, which was stopped or killed, where none of its clients looks for it, and stops it when f returns.
// When f is called, processes of one that was killed have ended.
func (s *Server) Aside(ctx context.Context, f func(open func(database string) (*sql.DB, error)) error) error {
	sockets, err := os.MkdirTemp("", "fencedlease-postgres-aside-")
	if err != nil {
		return fmt.Errorf("make a folder for PostgreSQL's socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(sockets) }()
	if s.credential != nil {
		if err := os.Chown(sockets, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			return fmt.Errorf("hand the folder of PostgreSQL's socket over: %w", err)
		}
	}
	if err := s.run(ctx, sockets); err != nil {
		return err
	}
	err = f(func(database string) (*sql.DB, error) { return open(dsn(sockets, database)) })
	return errors.Join(err, s.end(syscall.SIGINT))
}

// Save copies all that the server has to a folder of a name. It must not be running.
func (s *Server) Save(ctx context.Context, name string) error {
	return s.copy(ctx, s.data(), filepath.Join(s.folder, name))
}

// Load puts back what was saved. The server must not be running.
func (s *Server) Load(ctx context.Context, name string) error {
	return s.copy(ctx, filepath.Join(s.folder, name), s.data())
}

func (s *Server) copy(ctx context.Context, from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("remove the data of PostgreSQL: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data of PostgreSQL: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) run(ctx context.Context, sockets string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		if last = s.launch(sockets); last != nil {
			return false, last
		}
		// Processes of one that was killed end a moment after it, and none can start before.
		last = s.awaitReady(ctx, sockets)
		return !errors.Is(last, errEnded), nil
	})
	return errors.Join(last, err)
}

func (s *Server) launch(sockets string) error {
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of PostgreSQL: %w", err)
	}
	args := []string{"-D", s.data(), "-c", "listen_addresses=", "-c", "unix_socket_directories=" + sockets,
		// The machine does not crash, only the server does.
		"-c", "fsync=off", "-c", "max_connections=60"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.folder, log, log, sysProcAttr(s.credential)
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = log.Close() }()
		// The kernel ends a child when the thread that started it ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.pid, s.done = cmd.Process.Pid, done
	return nil
}

func (s *Server) awaitReady(ctx context.Context, sockets string) error {
	db, err := open(dsn(sockets, "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.done:
			return false, errEnded
		default:
		}
		last = db.PingContext(ctx)
		return last == nil, nil
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
		return fmt.Errorf("wait for PostgreSQL: %w (last: %w)\n%s", err, last, log)
	}
	return nil
}

// Kill ends the server as a crash would. Processes of its sessions may live for a moment longer, and do what they are asked.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Stop ends the server and removes its folder.
func (s *Server) Stop() error {
	return errors.Join(s.end(syscall.SIGINT), os.RemoveAll(s.folder))
}

func (s *Server) end(signal syscall.Signal) error {
	if s.done == nil {
		return nil
	}
	select {
	case <-s.done:
	default:
		if err := syscall.Kill(s.pid, signal); err != nil {
			return fmt.Errorf("end PostgreSQL: %w", err)
		}
		<-s.done
	}
	return nil
}

// DSN is how a driver connects to a database.
func (s *Server) DSN(database string) string { return dsn(s.folder, database) }

func dsn(sockets, database string) string {
	return "host=" + sockets + " port=5432 user=postgres sslmode=disable dbname=" + database
}

// Open returns a pool of connections to a database.
func (s *Server) Open(database string) (*sql.DB, error) { return open(s.DSN(database)) }

func open(dsn string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// OpenT returns a pool of connections by a DSN, which is closed at the end of the test.
func OpenT(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// CreateDatabase makes an empty database, or a copy of another one that nobody is connected to, and returns its name.
func (s *Server) CreateDatabase(ctx context.Context, copyOf string) (string, error) {
	name := "test_" + strconv.FormatInt(s.databases.Add(1), 10)
	if copyOf == "" {
		copyOf = "template1"
	}
	return name, s.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+copyOf)
}

// RestoreDatabase puts a copy in the place of a database, whose sessions it ends.
func (s *Server) RestoreDatabase(ctx context.Context, name, from string) error {
	return errors.Join(
		s.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"),
		s.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+from),
	)
}

func (s *Server) admin(ctx context.Context, statement string) error {
	db, err := s.Open("postgres")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
