package sessionexporter

import (
	"cmp"
	"context"
	_ "embed" // of the counters
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

// Limits of what usage metrics distinguish. Their values come from telemetry, and each combination is a time series.
const (
	maxUsageValues = 100  // of each attribute
	maxUsageSeries = 1000 // combinations of values
	otherUsage     = "other"
)

// usageTimeout is how long a collection of metrics waits for the store.
const usageTimeout = 5 * time.Second

// usageKey is an attribute set of usage metrics: agent, model and project.
type usageKey [3]string

// usageKeys are the names of the attributes, and what figures are grouped by, after the day.
var usageKeys = usageKey{string(store.StatsByAgent), string(store.StatsByModel), string(store.StatsByProject)}

// usageCounters are what is counted of a group.
var usageCounters = [...]struct {
	name, unit, description string
	of                      func(g *store.StatsGroup) float64
}{
	{"tokens", "{token}", "Number of tokens that turns and compactions took.",
		func(g *store.StatsGroup) float64 { return float64(g.TotalTokens) }},
	{"turns", "{turn}", "Number of turns.", func(g *store.StatsGroup) float64 { return float64(g.Turns) }},
	{"errors", "{error}", "Number of failed tool calls, model calls and turns.",
		func(g *store.StatsGroup) float64 { return float64(g.Errors) }},
	{"denials", "{call}", "Number of tool calls that were denied.",
		func(g *store.StatsGroup) float64 { return float64(g.DeniedCalls) }},
	{"cost", "{USD}", "Cost that the sources state, in US dollars.",
		func(g *store.StatsGroup) float64 { return g.CostUSD }},
}

// usageFigures are the values of usageCounters.
type usageFigures [len(usageCounters)]float64

// dayKey is a group of a day.
type dayKey struct {
	day string
	usageKey
}

// usage reports what agents used, as counters. It does not count what requests deliver, because they may deliver it
// again: whenever metrics are collected, it compares the figures of the store with the greatest that it has seen.
type usage struct {
	store  store.Reader
	logger *zap.Logger

	mu sync.Mutex // guards the fields below
	// seen are the greatest figures of today's and yesterday's groups.
	seen map[dayKey]usageFigures
	// values are those that each attribute has had.
	values [len(usageKey{})]map[string]bool
	total  map[usageKey]*usageFigures
	failed bool
}

// reportUsage reports what agents use from now on, until the registration ends.
func reportUsage(ctx context.Context, set component.TelemetrySettings, s store.Reader) (metric.Registration, error) {
	u := &usage{store: s, logger: set.Logger, total: make(map[usageKey]*usageFigures)}
	for i := range u.values {
		u.values[i] = make(map[string]bool)
	}
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/exporter/sessionexporter")
	var counters []metric.Observable
	for _, c := range usageCounters {
		counter, err := meter.Float64ObservableCounter("otelcol_exporter_session_usage_"+c.name, metric.WithUnit(c.unit),
			metric.WithDescription(c.description))
		if err != nil {
			return nil, err
		}
		if _, unread := counter.(noop.Float64ObservableCounter); unread {
			return noop.Registration{}, nil // metrics are off, and counting all that there is takes time
		}
		counters = append(counters, counter)
	}
	u.refresh(ctx, false)
	return meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		u.mu.Lock()
		defer u.mu.Unlock()
		u.refresh(ctx, true)
		for key, figures := range u.total {
			set := make([]attribute.KeyValue, len(key))
			for i, value := range key {
				set[i] = attribute.String(usageKeys[i], value)
			}
			with := metric.WithAttributeSet(attribute.NewSet(set...))
			for i, n := range figures {
				o.ObserveFloat64(counters[i].(metric.Float64Observable), n, with)
			}
		}
		return nil
	}, counters...)
}

// refresh adds to the counters what the figures of the store have grown by; without add they only begin there. A figure
// that fell, because sessions were deleted, counts again when it is greater than it ever was.
func (u *usage) refresh(ctx context.Context, add bool) {
	since := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	stats, err := u.store.Stats(ctx, store.StatsQuery{Since: since, Sessions: store.SessionFilter{Since: since},
		By: []store.StatsBy{store.StatsByDay, store.StatsByAgent, store.StatsByModel, store.StatsByProject}})
	if err != nil {
		if !u.failed && !errors.Is(err, store.ErrClosed) {
			u.logger.Warn("usage metrics stay as they are until the store can be read", zap.Error(err))
		}
		u.failed = true
		return
	}
	// After a failed first look nothing is known to compare with.
	add = add && u.seen != nil
	u.failed = false
	seen := make(map[dayKey]usageFigures)
	for key, was := range u.seen {
		if key.day >= since.Format(time.DateOnly) {
			seen[key] = was // also if its sessions were deleted: they may be delivered again
		}
	}
	for _, g := range stats.Groups {
		key := dayKey{day: g.Keys[store.StatsByDay]}
		for i, name := range usageKeys {
			key.usageKey[i] = g.Keys[store.StatsBy(name)]
		}
		was, now := seen[key], usageFigures{}
		for i, c := range usageCounters {
			now[i] = max(was[i], c.of(&g))
		}
		if seen[key] = now; add && now != was {
			total := u.of(key.usageKey)
			for i := range now {
				total[i] += now[i] - was[i]
			}
		}
	}
	u.seen = seen
}

// of returns the counters of a group. Beyond the limits, values are [otherUsage].
func (u *usage) of(key usageKey) *usageFigures {
	for i, value := range key {
		if !u.values[i][value] && len(u.values[i]) >= maxUsageValues {
			key[i] = otherUsage
		} else {
			u.values[i][value] = true
		}
	}
	if u.total[key] == nil && len(u.total) >= maxUsageSeries {
		key = usageKey{otherUsage, otherUsage, otherUsage}
	}
	if u.total[key] == nil {
		u.total[key] = new(usageFigures)
	}
	return u.total[key]
}

// counters has a line for each counter: its name, its unit and what it counts.
//
//go:embed metrics.txt
var counters string

// metrics are what the exporter reports of itself. The README lists them.
type metrics struct {
	counters      map[string]metric.Int64Counter
	writeDuration metric.Float64Histogram
}

func newMetrics(set component.TelemetrySettings) (*metrics, error) {
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/exporter/sessionexporter")
	m := metrics{counters: make(map[string]metric.Int64Counter)}
	var err error
	m.writeDuration, err = meter.Float64Histogram("otelcol_exporter_session_write_duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the arrival of a request to the commit of its rows, or to the store's error."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10))
	errs := []error{err}
	for line := range strings.Lines(counters) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit, description, _ := strings.Cut(text, " ")
		m.counters[name], err = meter.Int64Counter("otelcol_exporter_session_"+name, metric.WithUnit(unit),
			metric.WithDescription(description))
		errs = append(errs, err)
	}
	return &m, errors.Join(errs...)
}

// count adds to the counter of a name.
func (m *metrics) count(ctx context.Context, name string, n int64) { m.counters[name].Add(ctx, n) }

// add counts what a request did.
func (m *metrics) add(ctx context.Context, r *ingest.Report) {
	m.count(ctx, "items_accepted", int64(r.Accepted))
	m.count(ctx, "items_ignored", int64(r.Ignored))
	m.count(ctx, "items_malformed", int64(r.Malformed))
	m.count(ctx, "values_omitted", int64(r.Omitted))
	m.count(ctx, "values_redacted", int64(r.Redacted))
	m.count(ctx, "values_truncated", int64(r.Truncated))
	m.count(ctx, "rows_written", r.Rows)
	m.count(ctx, "rows_refused", r.Refused)
}

// maxScopes bounds how many scopes are counted apart: a program may make up names.
const maxScopes = 1000

// unknownScopes are the instrumentation scopes that no dialect knows, and what they sent.
type unknownScopes struct {
	logger *zap.Logger
	// redact takes secrets out of names, which are anybody's text; nil keeps them.
	redact *redact.Redactor

	mu  sync.Mutex
	all map[ingest.Scope]ingest.ScopeCounts
}

// add adds the counts of a request, and logs each scope when it is seen first. One that is only read generically is a
// client whose sessions may be wrong. Of those that nothing is read of most are no agents: they are logged as such.
func (u *unknownScopes) add(counts map[ingest.Scope]ingest.ScopeCounts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for scope, c := range counts {
		before, known := u.all[scope]
		if !known && len(u.all) >= maxScopes {
			continue
		}
		now := before.Add(c)
		u.all[scope] = now
		switch {
		case before.Read == 0 && now.Read > 0:
			u.log(scope, now, "No dialect knows this instrumentation scope. Its telemetry is read by the names of its "+
				"attributes; sessions may be incomplete.")
		case !known:
			u.log(scope, now, "No dialect knows this instrumentation scope, and nothing in it looks like a conversation.")
		}
	}
}

// logAll logs what each scope sent in all.
func (u *unknownScopes) logAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, scope := range slices.SortedFunc(maps.Keys(u.all), func(a, b ingest.Scope) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	}) {
		u.log(scope, u.all[scope], "Telemetry of an instrumentation scope that no dialect knows.")
	}
}

func (u *unknownScopes) log(scope ingest.Scope, c ingest.ScopeCounts, message string) {
	level := zap.InfoLevel
	if c.Read > 0 {
		level = zap.WarnLevel
	}
	if u.redact != nil {
		scope.Name, scope.Version = u.redact.Text(scope.Name), u.redact.Text(scope.Version)
	}
	u.logger.Log(level, message, zap.String("scope", scope.Name), zap.String("version", scope.Version),
		zap.Int("spans", c.Spans), zap.Int("log_records", c.Records), zap.Int("read", c.Read))
}
