// Package sessionexporter is an OpenTelemetry Collector exporter that turns traces and logs of agents into sessions in
// a SQLite file. See the README for its options and guarantees.
//
// The exporter only connects the collector to what knows sessions: package
// ingest reads telemetry, package sqlite keeps the rows.
package sessionexporter

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

const (
	defaultTimeout     = 30 * time.Second
	defaultQueueSize   = 256 << 20 // bytes; larger than the largest message a receiver accepts
	defaultQuietPeriod = 5 * time.Second
)

// Config configures the exporter. Its zero value is not valid: Path or DSN must be set.
type Config struct {
	// TimeoutConfig bounds one attempt to write a request. 0 means no bound.
	TimeoutConfig exporterhelper.TimeoutConfig `mapstructure:",squash"`
	// QueueConfig is on by default, with WaitForResult: the sender's acknowledgement waits for the commit.
	QueueConfig configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// RetryConfig is on by default. It gives up after a moment where the sender waits, who is asked to try
	// again, and otherwise never.
	RetryConfig configretry.BackOffConfig `mapstructure:"retry_on_failure"`

	// Path is the SQLite file. It and its directory are created when missing.
	Path string `mapstructure:"path"`
	// DSN is the URL of a PostgreSQL database, in place of Path. What it leaves out is
	// taken from PGHOST, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE, …
	DSN configopaque.String `mapstructure:"dsn"`
	// Synchronous is "normal" or "full": whether commits survive only the death of the process or a power failure too.
	Synchronous string `mapstructure:"synchronous"`
	// MaxSizeMiB limits the file in MiB: beyond it requests are refused, to be
	// sent again, as on a full disk. 0 means no limit.
	MaxSizeMiB int64 `mapstructure:"max_size_mib"`
	// SessionKeys are the attribute keys under which the session of a span is looked up when the SDK did not make it,
	// the first that is set winning. Empty means dialect.SessionKeys.
	SessionKeys []string `mapstructure:"session_keys"`
	// Redaction is on by default.
	Redaction RedactionConfig `mapstructure:"redaction"`
	// Truncation limits single values.
	Truncation TruncationConfig `mapstructure:"truncation"`
	// JSONL is off unless its key is present.
	JSONL configoptional.Optional[JSONLConfig] `mapstructure:"jsonl"`
	// Retention is off unless its key is present.
	Retention configoptional.Optional[RetentionConfig] `mapstructure:"retention"`
	// Transcripts are imported into the store, beside the telemetry. None are by default.
	Transcripts TranscriptsConfig `mapstructure:"transcripts"`
	// Watch evaluates rules on the sessions that change. None are by default.
	Watch WatchConfig `mapstructure:"watch"`
	// Spans are what a connector sends.
	Spans SpansConfig `mapstructure:"spans"`
	// next is what a connector sends them to, nil for an exporter.
	next consumer.Traces
}

// JSONLConfig configures the writing of one JSONL file per session.
type JSONLConfig struct {
	// Directory holds the files. It is created when missing.
	Directory string `mapstructure:"directory"`
	// QuietPeriod is how long a session must be unchanged before its file is written.
	QuietPeriod time.Duration `mapstructure:"quiet_period"`
}

// RedactionConfig states what is taken out before anything is stored.
type RedactionConfig struct {
	// Enabled is true by default. Without it nothing below has an effect.
	Enabled bool `mapstructure:"enabled"`
	// Config must not truncate: see [TruncationConfig].
	redact.Config `mapstructure:",squash"`
}

// TruncationConfig limits what is stored of one value: a text, a tool's input or
// output, a prompt, a value of metadata. It is independent of redaction.
type TruncationConfig struct {
	// MaxBytes is the most bytes that a value keeps; 0 is no limit.
	MaxBytes int `mapstructure:"max_bytes"`
	// MaxDepth is how deep JSON may nest; 0 is no limit.
	MaxDepth int `mapstructure:"max_depth"`
}

var _ confmap.Unmarshaler = (*Config)(nil)

func createDefaultConfig() component.Config {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.WaitForResult = true
	queue.Sizer = exporterhelper.RequestSizerTypeBytes
	queue.QueueSize = defaultQueueSize
	retry := configretry.NewDefaultBackOffConfig()
	// An attempt on a store that is away costs next to nothing. A sender that waits in vain gives up by
	// itself, and holds its connection and its memory until then.
	retry.InitialInterval = 200 * time.Millisecond
	retry.MaxInterval = time.Second
	retry.MaxElapsedTime = 2 * time.Second
	return &Config{
		TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: defaultTimeout},
		QueueConfig:   configoptional.Some(queue),
		RetryConfig:   retry,
		Synchronous:   sqlite.SynchronousNormal,
		Redaction:     RedactionConfig{Enabled: true},
		Truncation:    TruncationConfig{MaxBytes: ingest.DefaultMaxBytes},
		JSONL:         configoptional.Default(JSONLConfig{QuietPeriod: defaultQuietPeriod}),
		Retention:     configoptional.Default(RetentionConfig{Interval: defaultRetentionInterval}),
		Spans:         defaultSpans,
	}
}

// Unmarshal implements [confmap.Unmarshaler]. A queue on disk acknowledges when
// it holds the request, so waiting for the commit is off with it unless asked
// for, which the queue then refuses. What was acknowledged is retried until it is stored.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	if err := conf.Unmarshal(c); err != nil {
		return err
	}
	if q := c.QueueConfig.Get(); q != nil && q.StorageID != nil && !conf.IsSet("sending_queue::wait_for_result") {
		q.WaitForResult = false
	}
	if q := c.QueueConfig.Get(); q != nil && !q.WaitForResult && !conf.IsSet("retry_on_failure::max_elapsed_time") {
		c.RetryConfig.MaxElapsedTime = 0
	}
	return nil
}

// problems are what is wrong with a configuration.
type problems []error

// when adds a problem where there is one.
func (p *problems) when(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate implements [confmap.Validator].
func (c *Config) Validate() error {
	p := problems{c.validateLocation()}
	p.when(strings.ContainsRune(c.Path, 0), "path %q holds a NUL byte: name a file", c.Path)
	p.when(c.Synchronous != sqlite.SynchronousNormal && c.Synchronous != sqlite.SynchronousFull,
		"synchronous is %q: use %q or %q", c.Synchronous, sqlite.SynchronousNormal, sqlite.SynchronousFull)
	p.when(c.MaxSizeMiB < 0 || c.MaxSizeMiB > 1<<40,
		"max_size_mib is %d: use a number of MiB, or 0 for no limit", c.MaxSizeMiB)
	p.when(c.TimeoutConfig.Timeout < 0,
		"timeout is %v: use a positive duration, or 0s for no limit", c.TimeoutConfig.Timeout)
	p.when(c.Spans.Settle <= 0, "spans::settle is %v: use a positive duration such as 10s", c.Spans.Settle)
	p.when(c.Spans.MaxSize <= 0, "spans::max_size is %d: use a positive number of bytes such as 2097152", c.Spans.MaxSize)
	if q := c.QueueConfig.Get(); q != nil && q.StorageID != nil {
		p.when(!c.RetryConfig.Enabled, "retry_on_failure::enabled is false with sending_queue::storage %q: the queue "+
			"forgets on shutdown what was not retried; enable retries or remove the storage", q.StorageID)
	}
	p.when(c.Watch.Rules != "" && c.Watch.State == "" && c.Path == "",
		"watch::state is not set beside dsn: name a file that remembers what the rules found")
	return errors.Join(p...)
}

func (c *Config) validateLocation() error {
	path := strings.TrimSpace(c.Path) != ""
	switch scheme, _, _ := strings.Cut(string(c.DSN), "://"); {
	case c.DSN == "" && !path:
		return errors.New("path is empty: name the file of the session store, such as " +
			"/var/lib/agenttrace/sessions.db," +
			" or set dsn to a PostgreSQL database")
	case c.DSN == "":
		return nil
	case path:
		return errors.New("path and dsn are both set: a session store is a file or a database; remove one")
	case !stores.HasEngine(string(c.DSN)):
		// The rest may be a password.
		return fmt.Errorf("dsn begins with %.12q: use postgres://user@host:5432/database", scheme)
	case c.MaxSizeMiB != 0:
		return errors.New("max_size_mib limits a file: remove it, and limit the database on its server")
	}
	return nil
}

// location is where the store is.
func (c *Config) location() string { return cmp.Or(string(c.DSN), c.Path) }

// redactor returns what does what both sections say; nil when that is nothing.
func (c *Config) redactor() (*redact.Redactor, error) {
	if !c.Redaction.Enabled && c.Truncation.MaxBytes == 0 && c.Truncation.MaxDepth == 0 {
		return nil, nil
	}
	rc := redact.Config{DisableKeys: true, DisablePatterns: true}
	if c.Redaction.Enabled {
		rc = c.Redaction.Config
	}
	rc.MaxBytes, rc.MaxDepth = c.Truncation.MaxBytes, c.Truncation.MaxDepth
	return redact.New(rc)
}

// Validate implements [confmap.Validator].
func (c *RedactionConfig) Validate() error {
	if c.MaxBytes != 0 || c.MaxDepth != 0 {
		return errors.New("max_bytes and max_depth are set: set them in the truncation block")
	}
	if !c.Enabled && (len(c.Keys) > 0 || len(c.AllowKeys) > 0 || len(c.DisableRules) > 0 || c.Omit != redact.Omit{}) {
		return errors.New("enabled is false, and what else is set has no effect: set it to true, or remove the rest")
	}
	_, err := redact.New(c.Config)
	return err
}

// Validate implements [confmap.Validator].
func (c *TruncationConfig) Validate() error {
	_, err := redact.New(redact.Config{MaxBytes: c.MaxBytes, MaxDepth: c.MaxDepth})
	return err
}

// Validate implements [confmap.Validator].
func (c *JSONLConfig) Validate() error {
	var p problems
	p.when(strings.TrimSpace(c.Directory) == "",
		"directory is empty: name the directory for the session files, or remove the jsonl block")
	p.when(c.QuietPeriod <= 0, "quiet_period is %v: use a positive duration such as 5s", c.QuietPeriod)
	return errors.Join(p...)
}

// RetentionConfig configures which sessions are deleted.
type RetentionConfig struct {
	// MaxAge is how long after its last update a session is kept; 0 is no limit.
	MaxAge Age `mapstructure:"max_age"`
	// MaxSize is how much room sessions may take in the file or the tables of the database; 0 is no limit.
	MaxSize Size `mapstructure:"max_size"`
	// KeepTagged keeps sessions with a tag.
	KeepTagged bool `mapstructure:"keep_tagged"`
	// Interval is how often sessions are looked at.
	Interval time.Duration `mapstructure:"interval"`
}

const defaultRetentionInterval = 10 * time.Minute

// Age is a duration that may be written as an age, such as 30d or 6mo: see [store.ParseAge].
type Age time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler]. Months are as long as the last ones.
func (a *Age) UnmarshalText(text []byte) error {
	now := time.Now()
	at, err := store.ParseAge(string(text), now)
	if err := errors.Join(store.AmbiguousAge(string(text)), err); err != nil {
		return err
	}
	*a = Age(now.Sub(at))
	return nil
}

// Size is a number of bytes that may be written with a unit, such as 10GiB.
type Size int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n >= 1<<62 {
		return fmt.Errorf("%q is not a size: use one such as 10GiB or 500MB", text)
	}
	*s = Size(n)
	return nil
}

// Validate implements [confmap.Validator].
func (c *RetentionConfig) Validate() error {
	var p problems
	p.when(c.MaxAge == 0 && c.MaxSize == 0,
		"neither max_age nor max_size is set: set one, or remove the retention block")
	p.when(c.MaxAge < 0 || c.MaxAge > 0 && time.Duration(c.MaxAge) < time.Minute,
		"max_age is %v: use a minute or more, such as 30d", time.Duration(c.MaxAge))
	p.when(c.MaxSize < 0 || c.MaxSize > 0 && c.MaxSize < 1<<20, "max_size is %d bytes: use 1MiB or more", c.MaxSize)
	p.when(c.Interval < time.Second, "interval is %v: use a second or more, such as 10m", c.Interval)
	return errors.Join(p...)
}

// TranscriptsConfig configures the import of the files that agents keep of their own sessions. The zero value
// imports none.
type TranscriptsConfig struct {
	// Discover follows the usual places of known agents, of the user that the collector runs as.
	Discover bool `mapstructure:"discover"`
	// Directories are followed, too, with all that is below them.
	Directories []string `mapstructure:"directories"`
}

func (c *TranscriptsConfig) enabled() bool { return c.Discover || len(c.Directories) > 0 }

// WatchConfig configures rules on sessions. Rules is their file; State remembers what they found, and is
// needed beside a DSN.
type WatchConfig struct {
	Rules string `mapstructure:"rules"`
	State string `mapstructure:"state"`
}
