package price

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// Source is a list and where it is published.
type Source struct {
	// Name is what [Table.Format] returns for the list.
	Name string
	URL  string
	file string
}

// Sources returns the lists that [Update] fetches. In this order they are asked for a
func Sources() []Source {
	return []Source{
		{ModelsDev, "https://models.dev/api.json", "models.dev.json"},
		{LiteLLM,
			"https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
			"litellm.json"},
	}
}

// List is a list that is kept.
type List struct {
	Name string `json:"name"`
	Path string `json:"-"`
	// From is the URL or the file that the list is from.
	From string `json:"from"`
	// CheckedAt is when the list was fetched, or was found not to have changed since; of a
	// file it is when that was written.
	CheckedAt time.Time `json:"checked_at"`
	// ETag and LastModified are those of the server's answer.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	// Models is the number of models with a
	Models int `json:"models"`
	// Unchanged reports of a list that [Update] returns that the server has no newer one.
	Unchanged bool `json:"-"`
}

const index = "lists.json"

// Lists returns the lists that are kept in a directory, in the order of [Sources]. There are
// none in a directory that does not exist.
func Lists(dir string) ([]List, error) {
	b, err := os.ReadFile(filepath.Join(dir, index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []List
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, index), err)
	}
	var lists []List
	for _, s := range Sources() {
		for _, l := range all {
			if l.Path = filepath.Join(dir, s.file); l.Name == s.Name {
				lists = append(lists, l)
			}
		}
	}
	return lists, nil
}

// Prices are those of the lists that are kept. A list is read when a price is asked for that
// those before it do not have. It is safe for concurrent use.
type Prices struct {
	Lists []List

	mu     sync.Mutex
	tables []*Table // of the first lists
	err    error
}

// Open returns the prices of the lists in a directory, nil if there are none.
func Open(dir string) (*Prices, error) {
	lists, err := Lists(dir)
	if err != nil || len(lists) == 0 {
		return nil, err
	}
	return &Prices{Lists: lists}, nil
}

// Rate returns the price of a model in the first list that has one, or nil: see [Table.Rate].
func (p *Prices) Rate(m session.Model) *Rate {
	for i := range p.Lists {
		t := p.Table(i)
		if t == nil {
			continue
		}
		if r := t.Rate(m); r != nil {
			return r
		}
	}
	return nil
}

// Table returns the prices of list i, nil if it cannot be read: see [Prices.Err].
func (p *Prices) Table(i int) *Table {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.tables) <= i {
		t, err := readFile(p.Lists[len(p.tables)].Path)
		p.tables, p.err = append(p.tables, t), errors.Join(p.err, err)
	}
	return p.tables[i]
}

// Err returns why lists could not be read, nil if all could that were needed.
func (p *Prices) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Date is when the oldest list was current.
func (p *Prices) Date() time.Time {
	date := p.Lists[0].CheckedAt
	for _, l := range p.Lists {
		if l.CheckedAt.Before(date) {
			date = l.CheckedAt
		}
	}
	return date
}

func readFile(path string) (*Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read prices from %s: %w", path, err)
	}
	return t, nil
}

// UpdateOptions configure [Update]. The zero value is ready for use.
type UpdateOptions struct {
	// Client fetches; nil is one with a timeout, and the proxy that the environment names.
	Client *http.Client
	// Sources are fetched; nil means [Sources].
	Sources []Source
	// UserAgent is sent to servers.
	UserAgent string
	// Now is the time; nil means [time.Now].
	Now func() time.Time
}

// timeout is how long a server may take for a list.
const timeout = time.Minute

// Update fetches the lists into a directory, which it makes, and returns those that it has
// fetched or that have not changed. A list that cannot be fetched, or is not a list of
// prices, leaves the one that is kept; the error has the reasons.
func Update(ctx context.Context, dir string, o UpdateOptions) (updated []List, err error) {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: timeout} // its transport takes the proxy from the environment
	}
	if o.Sources == nil {
		o.Sources = Sources()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	kept, _ := Lists(dir) // what cannot be read is fetched again
	var failed error
	for _, s := range o.Sources {
		var before List
		for _, l := range kept {
			if l.Name == s.Name && l.From == s.URL {
				before = l
			}
		}
		l, body, err := fetch(ctx, s, before, &o)
		if err == nil {
			err = keep(dir, l, body)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("update prices of %s: %w", s.Name, err))
			continue
		}
		l.Path = filepath.Join(dir, s.file)
		updated = append(updated, l)
	}
	return updated, failed
}

// fetch gets a list from its server; the body is nil if the one before is current.
func fetch(ctx context.Context, s Source, before List, o *UpdateOptions) (l List, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return l, nil, err
	}
	r.Header.Set("Accept", "application/json")
	if o.UserAgent != "" {
		r.Header.Set("User-Agent", o.UserAgent)
	}
	if before.Path != "" {
		if info, err := os.Stat(before.Path); err == nil && info.Mode().IsRegular() {
			if before.ETag != "" {
				r.Header.Set("If-None-Match", before.ETag)
			}
			if before.LastModified != "" {
				r.Header.Set("If-Modified-Since", before.LastModified)
			}
		}
	}
	answer, err := o.Client.Do(r)
	if err != nil {
		return l, nil, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified && before.Path != "":
		before.CheckedAt, before.Unchanged = o.Now().UTC().Truncate(time.Second), true
		return before, nil, nil
	case answer.StatusCode != http.StatusOK:
		return l, nil, fmt.Errorf("get %s: the server answers %s", s.URL, answer.Status)
	}
	if body, err = io.ReadAll(io.LimitReader(answer.Body, MaxBytes+1)); err != nil {
		return l, nil, fmt.Errorf("get %s: %w", s.URL, err)
	}
	t, err := Read(bytes.NewReader(body))
	if err == nil && t.Format() != s.Name {
		err = fmt.Errorf("it is a list of %s", t.Format())
	}
	if err != nil {
		return l, nil, fmt.Errorf("what %s has is not its list of prices: %w", s.URL, err)
	}
	return List{
		Name: s.Name, From: s.URL, CheckedAt: o.Now().UTC().Truncate(time.Second),
		ETag: answer.Header.Get("ETag"), LastModified: answer.Header.Get("Last-Modified"), Models: t.Len(),
	}, body, nil
}

// Import keeps the list that a file has, for a machine without a network. Which list it is
// shows in its content.
func Import(dir, path string) (List, error) {
	info, err := os.Stat(path)
	if err != nil {
		return List{}, err
	}
	if info.Size() > MaxBytes {
		return List{}, fmt.Errorf("read prices from %s: it has more than %d MiB", path, MaxBytes>>20)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return List{}, err
	}
	t, err := Read(bytes.NewReader(body))
	if err != nil {
		return List{}, fmt.Errorf("read prices from %s: %w", path, err)
	}
	from, err := filepath.Abs(path)
	if err != nil {
		return List{}, err
	}
	l := List{Name: t.Format(), From: from, CheckedAt: info.ModTime().UTC().Truncate(time.Second), Models: t.Len()}
	if err := keep(dir, l, body); err != nil {
		return List{}, err
	}
	for _, s := range Sources() {
		if s.Name == l.Name {
			l.Path = filepath.Join(dir, s.file)
		}
	}
	return l, nil
}

// keep puts a list in its place, unless body is nil, and notes it.
func keep(dir string, l List, body []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lists, _ := Lists(dir) // a damaged one is replaced
	var all []List
	for _, s := range Sources() {
		if s.Name == l.Name {
			if body != nil {
				if err := replace(filepath.Join(dir, s.file), body); err != nil {
					return err
				}
			}
			all = append(all, l)
			continue
		}
		for _, other := range lists {
			if other.Name == s.Name {
				all = append(all, other)
			}
		}
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, index), append(b, '\n'))
}

// replace writes a file that is there whole, as it was or as it is now.
func replace(path string, body []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
