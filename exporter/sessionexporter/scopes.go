package sessionexporter

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// maxScopes bounds how many scopes are built apart: a program may make up names.
const maxScopes = 1000

// scopes are the instrumentation scopes that no dialect knows, and what they sent. It
// is safe for concurrent use.
type scopes struct {
	logger *zap.Logger
	// redact takes secrets out of names, which are anybody's text; nil keeps them.
	redact *redact.Redactor

	mu  sync.Mutex
	all map[ingest.Scope]ingest.ScopeCounts
}

// seen adds the counts of a request, and logs each scope when it is seen first. One
// that is only read generically is a client whose sessions may be wrong. Of one that
// nothing is read of most are no agents, so that is said only to who asks for it.
func (s *scopes) seen(counts map[ingest.Scope]ingest.ScopeCounts) {
	if len(counts) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[ingest.Scope]ingest.ScopeCounts)
	}
	for scope, c := range counts {
		before, known := s.all[scope]
		if !known && len(s.all) >= maxScopes {
			continue
		}
		now := before.Add(c)
		s.all[scope] = now
		switch {
		case before.Read == 0 && now.Read > 0:
			s.logger.Warn(
				"No dialect knows this instrumentation scope. Its telemetry is read by the names of its attributes; "+
					"sessions may be incomplete.", s.fields(scope, now)...)
		case !known:
			s.logger.Info("No dialect knows this instrumentation scope, and nothing in it looks like a conversation.",
				s.fields(scope, now)...)
		}
	}
}

// stop logs what each scope sent in all.
func (s *scopes) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, scope := range slices.SortedFunc(maps.Keys(s.all), func(a, b ingest.Scope) int {
		return strings.Compare(a.Name+"\x00"+a.Version, b.Name+"\x00"+b.Version)
	}) {
		log := s.logger.Info
		if s.all[scope].Read > 0 {
			log = s.logger.Warn
		}
		log("Telemetry of an instrumentation scope that no dialect knows.", s.fields(scope, s.all[scope])...)
	}
	s.all = nil
}

func (s *scopes) fields(scope ingest.Scope, c ingest.ScopeCounts) []zap.Field {
	if s.redact != nil {
		scope.Name, scope.Version = s.redact.Text(scope.Name), s.redact.Text(scope.Version)
	}
	return []zap.Field{
		zap.String("scope", scope.Name), zap.String("version", scope.Version),
		zap.Int("spans", c.Spans), zap.Int("log_records", c.Records), zap.Int("read", c.Read),
	}
}
