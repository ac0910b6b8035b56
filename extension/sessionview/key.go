package sessionview

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

// StateDir is where agenttrace keeps what belongs to the user: ${XDG_STATE_HOME:-~/.local/state}/agenttrace.
func StateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the XDG specification has relative paths ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "agenttrace"), nil
}

// Key returns the key of the user for the store at a location, a path or an address. Every user of a machine reaches a
// port of loopback; the key, in a file that only its user reads, shows whose request it is. The file is beside the
// store, with the suffix .key. For a store that is not a file, for that of another server, "", and where the user
// cannot have one, it is key in [StateDir]. Key makes it if it is not there.
func Key(location string) (string, error) {
	if location != "" && stores.IsFile(location) {
		key, err := readKey(location + ".key")
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return key, err
		}
	}
	dir, err := StateDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the key of the pages: %w; set XDG_STATE_HOME", err)
	}
	return readKey(filepath.Join(dir, "key"))
}

// readKey returns the key in a file, which is made with a new one if it is not there.
func readKey(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = newKey(path); err == nil {
			info, err = os.Lstat(path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("key of the pages: %w", err)
	}
	if !info.Mode().IsRegular() || !owned(info) {
		return "", fmt.Errorf("key of the pages: %s is not a file of the user's: %w", path, fs.ErrPermission)
	}
	if !private(info) {
		return "", fmt.Errorf("key of the pages: others can read %s, or could; remove it, and a new one is made", path)
	}
	b, err := os.ReadFile(path)
	key := strings.TrimSpace(string(b))
	if err == nil && (len(key) < 16 || len(key) > maxToken || strings.ContainsFunc(key, notPrinted)) {
		err = fmt.Errorf("%s has no key; remove it, and a new one is made", path)
	}
	if err != nil {
		return "", fmt.Errorf("key of the pages: %w", err)
	}
	return key, nil
}

// newKey makes a file with a key. It gets its name when it has its content, and of two programs that make one at the
// same time the key of the first remains.
func newKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Address is that of a server's pages, with the key of the user.
func Address(scheme string, at net.Addr, key string) *url.URL {
	return &url.URL{Scheme: scheme, Host: at.String(), Path: "/", RawQuery: url.Values{keyParameter: {key}}.Encode()}
}

// keyed answers requests that have the key as their bearer token with next. Without a key nobody is answered.
func keyed(key func() string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer+" ")
		want := key()
		if want == "" {
			web.WriteProblem(w, errNone)
			return
		}
		if ok && subtle.ConstantTimeCompare([]byte(token), []byte(want)) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", bearer)
		web.WriteProblem(w, web.NewProblem("unauthorized", http.StatusUnauthorized, "Authorization",
			"send Authorization: Bearer KEY, with the key in the file beside the store that has the suffix .key",
			"the request has no key of the user whose sessions these are, or a wrong one"))
	})
}
