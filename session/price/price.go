// Package price estimates the cost of tokens, with prices from a list. The code contains no prices. [Read] accepts the
// two maintained public lists, models.dev's api.json and LiteLLM's model_prices_and_context_window.json.
//
// An estimate is based on the list's price for a model of that name. It is not the billed amount: it does not include
// discounts, subscriptions, batch or priority prices, or charges for anything but tokens. If it is ambiguous which
// model is meant, there is no estimate.
//
// The lists are kept in a directory. [Update] fetches them, and nothing else in this module does: everything that
// estimates reads what is kept.
//
//	models.dev.json  https://models.dev/api.json
//	litellm.json     LiteLLM's model_prices_and_context_window.json
//	lists.json       where the others are from, and when that was
package price

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// Table has prices of models. It is immutable, and safe for concurrent use.
type Table struct {
	format string
	// offers are the prices by canonical provider and lower-case model id. Nil is an id
	// that the list has twice with different prices.
	offers map[string]map[string]*Rate
	// undated has the ids of a provider's dated models, by their id without the date.
	undated map[string]map[string][]string
	// models has the providers of a model, by its id.
	models map[string][]string
	found  sync.Map // session.Model -> *Rate, nil if there is none
}

// Rate is the price of a model at one provider. It is immutable.
type Rate struct {
	// Base are the rates, in USD per token, by kind: input, output, reasoning, cache reads, cache writes.
	Base [kinds]float64 `json:"base"`
	// Tiers are the rates for requests with more input, the smallest first.
	Tiers []Tier `json:"tiers,omitempty"`
}

// Kinds of tokens.
const (
	input = iota
	output
	reasoning
	cacheRead
	cacheWrite
	kinds
)

// Tier has the rates for requests whose whole input, cached or not, exceeds a number of tokens.
type Tier struct {
	Above int64          `json:"above"`
	Rates [kinds]float64 `json:"rates"`
}

// What [Table.Format] returns.
const (
	ModelsDev = "models.dev"
	LiteLLM   = "LiteLLM"
)

// Format returns which of the lists it was.
func (t *Table) Format() string { return t.format }

// Model is a model of a list with its price. Prices are in USD for a million tokens.
type Model struct {
	Provider   string  `json:"provider"`
	ID         string  `json:"model"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	Reasoning  float64 `json:"reasoning"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
}

// Models returns the models with a price, in order of providers and ids. The price is that of short requests.
func (t *Table) Models() []Model {
	all := make([]Model, 0, t.Len())
	for provider, models := range t.offers {
		for id, o := range models {
			if o == nil {
				continue
			}
			per := func(kind int) float64 { return math.Round(o.Base[kind]*perMillion*1e6) / 1e6 }
			all = append(all, Model{
				provider, id, per(input), per(output), per(reasoning), per(cacheRead), per(cacheWrite),
			})
		}
	}
	return session.SortedRows(all, func(a, b *Model) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.ID, b.ID))
	})
}

// Len returns the number of models with a price, over all providers.
func (t *Table) Len() int {
	n := 0
	for _, models := range t.offers {
		for _, o := range models {
			if o != nil {
				n++
			}
		}
	}
	return n
}

// Cost returns the estimated cost in USD of a number of requests that used u together; 0 means an unknown number.
//
// The five buckets are disjoint, and each is charged once: reasoning at its own price or
// else as output; cache reads and writes at their own price or else as input, because a
// list omits these prices if a provider makes no difference. A price of 0 is a price.
//
// If the list has a tier for long inputs, its price applies to the whole request. Only the sum of several requests is
// known: they are assumed to be of equal size, and short if their number is unknown. The estimate of several requests
// is therefore too low if one of them was long and the others were not.
func (r *Rate) Cost(u session.Usage, requests int64) (usd float64) {
	rates := &r.Base
	if requests > 0 {
		size := (u.Input + u.CacheRead + u.CacheWrite) / requests
		for i := range r.Tiers {
			if size > r.Tiers[i].Above {
				rates = &r.Tiers[i].Rates
			}
		}
	}
	for kind, n := range [kinds]int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite} {
		usd += float64(n) * rates[kind]
	}
	return usd
}

// Rate returns the price of a model. It is nil if the list has none, or an ambiguous one.
func (t *Table) Rate(m session.Model) *Rate {
	m.Variant = "" // an effort or a mode has no price of its own
	if known, ok := t.found.Load(m); ok {
		return known.(*Rate)
	}
	o := t.match(m.ProviderID, m.ModelID)
	t.found.Store(m, o)
	return o
}

// Source is a list and where it is published.
type Source struct {
	// Name is what [Table.Format] returns for the list.
	Name string
	URL  string
	file string
}

// Sources returns the lists that [Update] fetches. They are asked for a price in this order.
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
	// CheckedAt is when the list was fetched; of a file it is when that was written.
	CheckedAt time.Time `json:"checked_at"`
	// Models is the number of models with a price.
	Models int `json:"models"`
}

const index = "lists.json"

// Lists returns the lists that are kept in a directory, in the order of [Sources]. There are
// none in a directory that does not exist.
func Lists(dir string) ([]List, error) {
	b, err := os.ReadFile(filepath.Join(dir, index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []List
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, index), err)
	}
	var lists []List
	for _, s := range Sources() {
		if i := slices.IndexFunc(all, func(l List) bool { return l.Name == s.Name }); i >= 0 {
			all[i].Path = filepath.Join(dir, s.file)
			lists = append(lists, all[i])
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
		if t := p.Table(i); t != nil {
			if r := t.Rate(m); r != nil {
				return r
			}
		}
	}
	return nil
}

// Table returns the prices of list i, nil if it cannot be read: see [Prices.Err].
func (p *Prices) Table(i int) *Table {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.tables) <= i {
		t, _, err := readFile(p.Lists[len(p.tables)].Path)
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

// Kept are the prices of the lists in a directory as they are now, for a program that runs while the lists change. It is
// safe for concurrent use.
type Kept struct {
	dir     string
	options UpdateOptions

	mu     sync.Mutex
	index  time.Time // when the lists changed
	prices *Prices   // nil if there are none
}

// NewKept returns the prices in a directory, and fetches them as the options say.
func NewKept(dir string, o UpdateOptions) *Kept { return &Kept{dir: dir, options: o} }

// Rate is that of [Prices.Rate]; nil while there are no lists.
func (k *Kept) Rate(m session.Model) *Rate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if info, err := os.Stat(filepath.Join(k.dir, index)); err == nil && !info.ModTime().Equal(k.index) {
		if prices, err := Open(k.dir); err == nil {
			k.prices, k.index = prices, info.ModTime()
		}
	}
	if k.prices == nil {
		return nil
	}
	return k.prices.Rate(m)
}

// Update fetches the lists. It fails if none of them can be fetched.
func (k *Kept) Update(ctx context.Context) error {
	updated, err := Update(ctx, k.dir, k.options)
	if len(updated) > 0 {
		err = nil
	}
	return err
}

// Date is when the oldest list was current.
func (p *Prices) Date() time.Time {
	return slices.MinFunc(p.Lists, func(a, b List) int { return a.CheckedAt.Compare(b.CheckedAt) }).CheckedAt
}

func readFile(path string) (*Table, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	t, body, err := read(f)
	if err != nil {
		return nil, nil, fmt.Errorf("read prices from %s: %w", path, err)
	}
	return t, body, nil
}

// UpdateOptions configure [Update]. The zero value is ready for use.
type UpdateOptions struct {
	// Client fetches; nil is one with a timeout of a minute, and the proxy that the environment names.
	Client *http.Client
	// Sources are fetched; nil means [Sources].
	Sources []Source
	// UserAgent is sent to servers.
	UserAgent string
	// Now is the time; nil means [time.Now].
	Now func() time.Time
}

// Update fetches the lists into a directory, which it makes, and returns those that it has fetched. A list that cannot be fetched, or is not a list of
// prices, leaves the one that is kept; the error has the reasons.
func Update(ctx context.Context, dir string, o UpdateOptions) (updated []List, failed error) {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: time.Minute} // its transport takes the proxy from the environment
	}
	if o.Sources == nil {
		o.Sources = Sources()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for _, s := range o.Sources {
		l, body, err := fetch(ctx, s, &o)
		if err == nil {
			l, err = keep(dir, l, body)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("update prices of %s: %w", s.Name, err))
			continue
		}
		updated = append(updated, l)
	}
	return updated, failed
}

// fetch gets a list from its server.
func fetch(ctx context.Context, s Source, o *UpdateOptions) (l List, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return l, nil, err
	}
	r.Header.Set("Accept", "application/json")
	if o.UserAgent != "" {
		r.Header.Set("User-Agent", o.UserAgent)
	}
	answer, err := o.Client.Do(r)
	if err != nil {
		return l, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return l, nil, fmt.Errorf("get %s: the server answers %s", s.URL, answer.Status)
	}
	t, body, err := read(answer.Body)
	if err == nil && t.Format() != s.Name {
		err = fmt.Errorf("it is a list of %s", t.Format())
	}
	if err != nil {
		return l, nil, fmt.Errorf("what %s has is not its list of prices: %w", s.URL, err)
	}
	return List{Name: s.Name, From: s.URL, CheckedAt: o.Now().UTC().Truncate(time.Second), Models: t.Len()}, body, nil
}

// Import keeps the list that a file has, for a machine without a network. Which list it is shows in its content.
func Import(dir, path string) (List, error) {
	t, body, err := readFile(path)
	info, statErr := os.Stat(path)
	from, absErr := filepath.Abs(path)
	if err := cmp.Or(err, statErr, absErr); err != nil {
		return List{}, err
	}
	return keep(dir, List{
		Name: t.Format(), From: from, CheckedAt: info.ModTime().UTC().Truncate(time.Second), Models: t.Len(),
	}, body)
}

// keep puts a list in its place, and notes it.
func keep(dir string, l List, body []byte) (List, error) {
	err := os.MkdirAll(dir, 0o700)
	for _, s := range Sources() {
		if s.Name == l.Name {
			if l.Path = filepath.Join(dir, s.file); err == nil {
				err = session.ReplaceFiles(session.NewFile{Path: l.Path, Text: body})
			}
		}
	}
	lists, _ := Lists(dir) // a damaged one is replaced
	lists = append(slices.DeleteFunc(lists, func(o List) bool { return o.Name == l.Name }), l)
	b, encodeErr := json.MarshalIndent(lists, "", "  ")
	if err = errors.Join(err, encodeErr); err == nil {
		err = session.ReplaceFiles(session.NewFile{Path: filepath.Join(dir, index), Text: append(b, '\n')})
	}
	return l, err
}
