package sessionexporter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

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

	_ struct{} // no unkeyed literals
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

// sizeUnits are the units of a Size, those that end in another before it.
var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0 && n*unit.bytes < 1<<62) {
			break
		}
		*s = Size(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: use one such as 10GiB or 500MB", text)
}

// Validate implements [confmap.Validator].
func (c *RetentionConfig) Validate() error {
	var errs []error
	if c.MaxAge == 0 && c.MaxSize == 0 {
		errs = append(errs, errors.New("neither max_age nor max_size is set: set one, or remove the retention block"))
	}
	if c.MaxAge < 0 || c.MaxAge > 0 && time.Duration(c.MaxAge) < time.Minute {
		errs = append(errs, fmt.Errorf("max_age is %v: use a minute or more, such as 30d", time.Duration(c.MaxAge)))
	}
	if c.MaxSize < 0 || c.MaxSize > 0 && c.MaxSize < 1<<20 {
		errs = append(errs, fmt.Errorf("max_size is %d bytes: use 1MiB or more", c.MaxSize))
	}
	if c.Interval < time.Second {
		errs = append(errs, fmt.Errorf("interval is %v: use a second or more, such as 10m", c.Interval))
	}
	return errors.Join(errs...)
}

// retention deletes sessions beside ingest. One goroutine looks at the store when it starts and then once per interval.
type retention struct {
	rules     store.Retention
	interval  time.Duration
	store     store.Retained
	logger    *zap.Logger
	telemetry *metrics
	now       func() time.Time

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newRetention(c *RetentionConfig, s store.Retained, logger *zap.Logger, t *metrics) *retention {
	return &retention{
		rules:    store.Retention{MaxAge: time.Duration(c.MaxAge), MaxSize: int64(c.MaxSize), KeepTagged: c.KeepTagged},
		interval: c.Interval, store: s, logger: logger, telemetry: t, now: time.Now,
	}
}

func (r *retention) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() {
		tick := time.NewTicker(r.interval)
		defer tick.Stop()
		for {
			r.apply(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// stop returns when the session that is being deleted is.
func (r *retention) stop() {
	r.cancel()
	r.done.Wait()
}

// apply deletes what is not kept. What fails is tried again after the interval.
func (r *retention) apply(ctx context.Context) {
	n := 0
	var oldest, newest int64
	err := r.rules.Apply(ctx, r.store, r.now(), func(s session.Session) {
		if n++; n == 1 {
			oldest = s.UpdatedAt
		}
		newest = max(newest, s.UpdatedAt)
		r.telemetry.retentionDeleted.Add(ctx, 1)
	})
	if n > 0 {
		r.logger.Info("deleted sessions that the configured retention does not keep", zap.Int("sessions", n),
			zap.Time("updated_from", time.UnixMilli(oldest)), zap.Time("updated_to", time.UnixMilli(newest)))
	}
	if err != nil && ctx.Err() == nil {
		r.telemetry.retentionFailures.Add(ctx, 1)
		r.logger.Warn("cannot apply the retention; it is tried again", zap.Duration("after", r.interval),
			zap.Error(err))
	}
}
