package sessionexporter

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
)

// cases returns the configurations of testdata/config.yaml by name.
func cases(t *testing.T) map[string]*confmap.Conf {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	testscale.Must(t, err)
	byName := make(map[string]*confmap.Conf)
	for key := range all.ToStringMap() {
		sub, err := all.Sub(key)
		testscale.Must(t, err)
		var id component.ID
		testscale.Must(t, id.UnmarshalText([]byte(key)))
		byName[id.Name()] = sub
	}
	return byName
}

func load(conf *confmap.Conf) (*Config, error) {
	c := createDefaultConfig().(*Config)
	return c, conf.Unmarshal(c)
}

func TestLoadConfig(t *testing.T) {
	fileStorage := component.MustNewID("file_storage")
	defaults := func(change func(*Config)) *Config {
		c := createDefaultConfig().(*Config)
		c.Path = "sessions.db"
		change(c)
		return c
	}
	want := map[string]*Config{
		"": defaults(func(*Config) {}),
		"full": {
			Path: "/var/lib/agenttrace/sessions.db", Synchronous: "full", MaxSizeMiB: 2048,
			SessionKeys: []string{"session.id", "my.conversation"},
			Redaction: RedactionConfig{Enabled: true, Config: redact.Config{
				Keys: []string{"password", "my_secret"}, AllowKeys: []string{"password_hint"}, DisableRules: []string{"jwt"},
				Omit: redact.Omit{Prompts: true, Reasoning: true, ToolInputs: true, ToolOutputs: true},
			}},
			Truncation:    TruncationConfig{MaxBytes: 65536, MaxDepth: 32},
			TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: 7 * time.Second},
			JSONL: configoptional.Some(JSONLConfig{Directory: "/var/lib/agenttrace/sessions",
				QuietPeriod: 30 * time.Second}),
			Transcripts: TranscriptsConfig{Discover: true,
				Directories: []string{"/home/dev/.claude/projects", "/srv/transcripts"}},
			QueueConfig: configoptional.Some(exporterhelper.QueueBatchConfig{
				WaitForResult: true, BlockOnOverflow: true, Sizer: exporterhelper.RequestSizerTypeBytes,
				QueueSize:    1 << 20,
				NumConsumers: 4,
				Batch:        configoptional.Default(exporterhelper.NewDefaultBatchConfig()),
			}),
			Retention: configoptional.Default(RetentionConfig{Interval: 10 * time.Minute}),
			Spans:     SpansConfig{Settle: time.Minute, AllSessions: true, MaxSize: 1 << 20},
			RetryConfig: configretry.BackOffConfig{
				Enabled: true, InitialInterval: 2 * time.Second, RandomizationFactor: 0.25, Multiplier: 2,
				MaxInterval: time.Minute, MaxElapsedTime: 10 * time.Minute,
			},
		},
		"storage": defaults(func(c *Config) {
			c.QueueConfig.Get().StorageID = &fileStorage
			c.QueueConfig.Get().WaitForResult = false
			c.RetryConfig.MaxElapsedTime = 0
		}),
		"no_queue": defaults(func(c *Config) {
			c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
		}),
		"as_it_came": defaults(func(c *Config) { c.Redaction.Enabled, c.Truncation.MaxBytes = false, 0 }),
		"jsonl": defaults(func(c *Config) {
			c.JSONL = configoptional.Some(JSONLConfig{Directory: "out", QuietPeriod: 5 * time.Second})
		}),
		"retention": defaults(func(c *Config) {
			c.Retention = configoptional.Some(RetentionConfig{MaxAge: Age(30 * 24 * time.Hour), MaxSize: 10 << 30,
				KeepTagged: true, Interval: 10 * time.Minute})
		}),
		"retention_of_numbers": defaults(func(c *Config) {
			c.Retention = configoptional.Some(RetentionConfig{MaxAge: Age(12 * time.Hour), MaxSize: 500_000_000,
				Interval: time.Minute})
		}),
	}
	all := cases(t)
	for name, want := range want {
		t.Run("case "+name, func(t *testing.T) {
			got, err := load(all[name])
			testscale.Must(t, err)
			if err := confmap.Validate(got); err != nil {
				t.Errorf("Validate: %v", err)
			}
			everything := cmp.Exporter(func(reflect.Type) bool { return true })
			if diff := cmp.Diff(want, got, everything); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidConfig(t *testing.T) {
	// Each error names the key, the value and the remedy.
	want := map[string][]string{
		"invalid_no_path":                {"path is empty", "name the file"},
		"invalid_blank_path":             {"path is empty", "name the file"},
		"invalid_nul_path":               {`path "a\x00b"`, "name a file"},
		"invalid_synchronous":            {`synchronous is "off"`, `use "normal" or "full"`},
		"invalid_max_size":               {"max_size_mib is -1", "0 for no limit"},
		"invalid_timeout":                {"timeout is 5ns", "with a unit such as 30s"},
		"invalid_settle":                 {"spans::settle is 0s", "such as 10s"},
		"invalid_redaction_key":          {"redaction", `read key "pw"`, "fewer than 3 letters or digits"},
		"invalid_redaction_rule":         {"redaction", `disable rule "github"`, "no such rule"},
		"invalid_redaction_bytes":        {"redaction", "max_bytes", "truncation block"},
		"invalid_redaction_off":          {"redaction", "enabled is false", "remove the rest"},
		"invalid_truncation_bytes":       {"truncation", "max_bytes 10", "0 for no limit"},
		"invalid_truncation_depth":       {"truncation", "max_depth -1", "0 for no limit"},
		"invalid_jsonl_directory":        {"jsonl", "directory is empty", "name the directory"},
		"invalid_jsonl_quiet_period":     {"jsonl", "quiet_period is 0s", "such as 5s"},
		"invalid_retention_nothing":      {"retention", "neither max_age nor max_size", "remove the retention block"},
		"invalid_retention_values":       {"max_age is 10s", "max_size is 10000 bytes", "interval is 0s"},
		"invalid_retry_off_with_storage": {"retry_on_failure::enabled is false", "file_storage", "enable retries"},
		"invalid_wait_with_storage":      {"sending_queue", "wait_for_result"},
		"invalid_queue_size":             {"sending_queue", "queue_size"},
		"invalid_retry":                  {"retry_on_failure", "initial_interval"},
	}
	unreadable := map[string][]string{
		"unreadable_key":        {"pathh"},
		"unreadable_type":       {"jsonl", "quiet_period"},
		"unreadable_truncation": {"truncation", "max_bytes"},
		"unreadable_sizer":      {"sizer", "spans"},

		"unreadable_retention_age":  {"retention", "max_age", `"a month" is not an age`},
		"unreadable_retention_size": {"retention", "max_size", `"large" is not a size`},
	}
	for name, conf := range cases(t) {
		texts, invalid := want[name], strings.HasPrefix(name, "invalid_")
		if !invalid {
			if texts = unreadable[name]; texts == nil {
				if strings.HasPrefix(name, "unreadable_") {
					t.Errorf("%s is not tested", name)
				}
				continue
			}
		}
		t.Run(name, func(t *testing.T) {
			c, err := load(conf)
			if invalid {
				if err != nil {
					t.Fatalf("load: %v", err)
				}
				err = confmap.Validate(c)
			}
			if err == nil || len(texts) == 0 {
				t.Fatalf("error = %v, tested texts %q", err, texts)
			}
			for _, text := range texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not contain %q", err, text)
				}
			}
		})
	}
}
