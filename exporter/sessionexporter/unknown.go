package sessionexporter

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
)

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
