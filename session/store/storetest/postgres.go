//go:build linux

package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	accounts "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// Postgres is a running PostgreSQL server: on loopback, on a free port, in a directory of its own, for as long as the
// test's process needs it.
type Postgres struct {
	// Dir has its data and its log.
	Dir  string
	Port int

	data    string
	bin     string
	account *syscall.SysProcAttr
	process *exec.Cmd
}

// binaries returns the directory with initdb and postgres: that of $PG_BIN, of Debian's newest version, or of $PATH.
func binaries() (string, error) {
	if dir := os.Getenv("PG_BIN"); dir != "" {
		return dir, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		path, err := exec.LookPath("postgres")
		if err != nil {
			return "", fmt.Errorf("PostgreSQL is not installed (apt-get install postgresql): %w", err)
		}
		return filepath.Dir(path), nil
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// StartPostgres starts a server with some lines of configuration. Where none is installed the test is skipped, except
// in CI, which installs one.
func StartPostgres(t testing.TB, config ...string) *Postgres {
	t.Helper()
	return StartPostgresIn(t, "", config...)
}

// StartPostgresIn is [StartPostgres] with the data, but not the log of what is written, in a directory of its own,
// such as a small file system.
func StartPostgresIn(t testing.TB, dir string, config ...string) *Postgres {
	t.Helper()
	bin, err := binaries()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	testscale.Must(t, err)
	s := newPostgres(t, bin)
	if dir != "" {
		s.data = dir
		s.own(t, dir)
	}
	s.execute(t, "initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-X",
		filepath.Join(s.Dir, "wal"), "-D", s.data)
	s.start(t, append([]string{"listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "max_connections = 200"},
		config...))
	return s
}

// newPostgres returns a server that has a directory and a port, and nothing in the directory.
func newPostgres(t testing.TB, bin string) *Postgres {
	t.Helper()
	s := &Postgres{bin: bin}
	var err error
	s.account, err = account()
	testscale.Must(t, err)
	s.Dir, err = os.MkdirTemp("", "agenttrace-postgres-")
	testscale.Must(t, err)
	s.data = filepath.Join(s.Dir, "data")
	s.own(t, s.Dir)
	s.Port, err = testscale.Port()
	testscale.Must(t, err)
	return s
}

// own gives a directory to whom the server runs as.
func (s *Postgres) own(t testing.TB, dir string) {
	t.Helper()
	if c := s.account.Credential; c != nil {
		testscale.Must(t, os.Chown(dir, int(c.Uid), int(c.Gid)))
	}
}

// execute runs a program of the server's to its end.
func (s *Postgres) execute(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// start runs the server, with lines added to its configuration, until the test ends.
func (s *Postgres) start(t testing.TB, config []string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	testscale.Must(t, err)
	_, err = fmt.Fprintf(f, "\n%s\nport = %d\n", strings.Join(config, "\n"), s.Port)
	testscale.Must(t, errors.Join(err, f.Close()))
	testscale.Must(t, s.Run())
	t.Cleanup(func() {
		if s.process.ProcessState == nil {
			testscale.Must(t, s.Signal(syscall.SIGINT))
		}
		testscale.Must(t, os.RemoveAll(s.Dir))
	})
}

// account is whom the server runs as: not root, whom it refuses.
func account() (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return a, nil
	}
	u, err := accounts.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return a, nil
}

func (s *Postgres) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir, c.SysProcAttr = s.Dir, s.account
	c.Env = append(os.Environ(), "TZ=UTC", "HOME="+s.Dir)
	return c
}

// Run starts the server, also again after [Postgres.Kill], and returns when it answers.
func (s *Postgres) Run() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = s.command("postgres", "-D", s.data)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Standby starts a server that follows s, which has to allow replication, with some lines of configuration. It can be
// read, and is promoted by [Postgres.Promote].
func (s *Postgres) Standby(t testing.TB, config ...string) *Postgres {
	t.Helper()
	standby := newPostgres(t, s.bin)
	standby.execute(t, "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-D", standby.data, "-d", s.DSN("postgres"))
	standby.start(t, config)
	return standby
}

// Promote makes a standby a server that can be written.
func (s *Postgres) Promote(t testing.TB) {
	t.Helper()
	s.execute(t, "pg_ctl", "-D", s.data, "-w", "promote")
}

// Signal sends the server's main process a signal: SIGINT ends it at once but in order, and waits until it has ended.
func (s *Postgres) Signal(signal syscall.Signal) error {
	if err := s.process.Process.Signal(signal); err != nil {
		return err
	}
	_ = s.process.Wait() // it ends with the signal
	return nil
}

// Kill ends the server without what it does to end in order, as a power failure does, and returns when it is gone.
func (s *Postgres) Kill() error { return s.Signal(syscall.SIGQUIT) }

// DSN is that of a database of the server.
func (s *Postgres) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.Port, database)
}

// Create creates an empty database and returns its DSN.
func (s *Postgres) Create(t testing.TB) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	testscale.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	name := "d" + strconv.FormatInt(databases.Add(1), 10)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	testscale.Must(t, err)
	return s.DSN(name)
}

// databases counts those that were created.
var databases atomic.Int64
