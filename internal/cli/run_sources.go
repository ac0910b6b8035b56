package cli

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// runSources are the accounts of one run: what the proxy saw, telemetry, and what the client keeps itself. Accounts of
// one conversation become one session. What identifies it are the ids that the model's server gave, which the client
// repeats wherever it reports a call; where none is known, its id, and the user's words.
type runSources struct {
	*recording
	// seen are the sessions of the proxy, and known what identifies each.
	seen  []*codec.Session
	known []identity
	// reported are the sessions that telemetry names, imported those that were read of the client's files.
	reported []string
	imported map[string]bool
}

// identity is what identifies a conversation in each of its accounts, and what that counts if another account has it,
// too: ids of tool calls and of responses, the user's words and, of no weight alone, what the model said.
type identity map[string]int

// sharedID is what an id counts: more than any number of words.
const sharedID = 1000

func identityOf(t *session.Transcript, refs []store.SpanRef) identity {
	x := make(identity)
	note := func(id string) {
		if len(id) >= 8 { // some servers number them
			x["id "+id] = sharedID
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
		note(trace.ResponseID)
		for k := range trace.Steps {
			note(trace.Steps[k].ResponseID)
		}
		for k := range m.Parts {
			p, err := session.ParseUIPart(m.Parts[k].DataJSON)
			text := strings.Join(strings.Fields(session.Deref(p.Text)), " ")
			switch {
			case err != nil:
			case session.IsToolType(p.Type):
				note(p.ToolCallID)
			case p.Type != "text" || text == "":
			case m.Message.Role == session.RoleUser:
				x["asked "+text] = 1
			case m.Message.Role == session.RoleAssistant:
				x["said "+text] = 0
			}
		}
	}
	for i := range refs {
		if refs[i].TurnStats != nil {
			note(refs[i].TurnStats.Trace.ResponseID)
		}
	}
	return x
}

// shared counts what two have in common, and reports whether the model said something in both.
func (x identity) shared(y identity) (n int, said bool) {
	for what, counts := range x {
		if _, both := y[what]; both {
			n += counts
			said = said || counts == 0
		}
	}
	return n, said
}

// isPartOf reports whether one is of the conversation of the other: an id says so or, of clients that give ids of their
// own, what was asked and answered. What was asked does not by itself: a request for a title has it, too.
func (x identity) isPartOf(y identity) bool {
	n, said := x.shared(y)
	return n >= sharedID || n > 0 && said
}

// merge reads what the client keeps of the run, and makes one session of all that is known of a conversation. It
// returns the ids of the run's sessions.
func (s *runSources) merge(ctx context.Context) ([]string, error) {
	s.reported, s.imported = s.telemetry.Sessions(), make(map[string]bool)
	if err := s.readCalls(ctx); err != nil {
		return nil, err
	}
	if err := s.importFiles(ctx); err != nil {
		s.problem(err)
	}
	w, err := patientOpener(s.cmd)(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	found := make(map[string]bool)
	others := make(map[string]identity) // the sessions of other sources
	for _, id := range slices.Concat(slices.Collect(maps.Keys(s.imported)), s.reported) {
		if slices.ContainsFunc(s.seen, func(in *codec.Session) bool { return in.Session.ID == id }) {
			continue
		}
		t, err := w.Transcript(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // it has become part of another
		} else if err != nil {
			return nil, err
		}
		about := identityOf(t, nil)
		if own, trace := s.unnamed(id, about); own != "" {
			if _, err := ingest.New(w, ingest.Options{}).OfTrace(ctx, own, trace, t.Session.CreatedAt); err != nil {
				return nil, err
			}
			continue
		}
		others[id] = about
	}
	for i, in := range s.seen {
		id, err := s.join(ctx, w, in, s.known[i], others)
		if err != nil {
			return nil, err
		}
		if id != "" {
			found[id] = true
		}
	}
	for id := range others {
		found[id] = true
	}
	if err := s.findChildren(ctx, w, found); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// unnamed returns the client's one session if another has only what came of a trace before the client ended: the span
// with the session's name did not. It is "" for other sessions, and where the client has none or several.
func (s *runSources) unnamed(id string, about identity) (own, traceID string) {
	if traceID = traceOf(id); traceID == "" || len(s.imported) != 1 || len(about) > 0 {
		return "", ""
	}
	for own = range s.imported {
	}
	return own, traceID
}

// traceOf returns the trace whose session has the id because nothing in it names one, "" for other sessions.
func traceOf(id string) string {
	traceID := strings.TrimPrefix(id, spans.PrefixSession)
	if _, err := trace.TraceIDFromHex(traceID); err != nil {
		return ""
	}
	return traceID
}

// findChildren makes the sessions of other programs children of the one that the run's own program had: an agent that
// it started has the same environment. Where that program had no session, or several, nobody knows who started them.
func (s *runSources) findChildren(ctx context.Context, w store.Service, found map[string]bool) error {
	var outer, others []session.Session
	for id := range found {
		row, err := w.Session(ctx, id)
		switch {
		case err != nil:
			return err
		case row.ParentID != nil:
		case s.isAgent(row.Agent):
			outer = append(outer, row)
		default:
			others = append(others, row)
		}
	}
	if len(outer) != 1 {
		return nil
	}
	for _, row := range others {
		if _, err := ingest.New(w, ingest.Options{}).StartedBy(ctx, row.ID, outer[0].ID, row.CreatedAt); err != nil {
			return err
		}
	}
	return nil
}

// isAgent reports whether sessions of the run's own program have the name for their agent, as "copilot-cli" for the
// GitHub Copilot CLI.
func (s *runSources) isAgent(name string) bool {
	words := strings.ToLower(strings.ReplaceAll(s.Agent, " ", "-"))
	return name != "" && (words == name || strings.HasSuffix(words, "-"+name))
}

// join adds what the proxy saw to the session that others report, or stores it as the session that it is.
func (s *runSources) join(ctx context.Context, w store.Service, in *codec.Session, of identity,
	others map[string]identity) (id string, err error) {
	most := 0
	for other, about := range others {
		if n, _ := of.shared(about); n > most || n == most && n > 0 && other < id {
			id, most = other, n
		}
	}
	own := s.calls != s.telemetry
	if id == "" {
		if !own {
			return in.Session.ID, nil
		}
		if len(others) > 0 {
			id = slices.Min(slices.Collect(maps.Keys(others)))
		}
	}
	if id == "" {
		_, err := w.Import(ctx, in)
		return in.Session.ID, err
	}
	// A client that names no session may have a trace for each turn.
	for other, about := range others {
		row, err := w.Session(ctx, other)
		if err != nil {
			return "", err
		}
		if traceID := traceOf(other); traceID != "" && other != id && of.isPartOf(about) {
			if _, err := ingest.New(w, ingest.Options{}).OfTrace(ctx, id, traceID, row.CreatedAt); err != nil {
				return "", err
			}
			delete(others, other)
		}
	}
	// Calls of which the client reports nothing are beside the conversation, such as those for its title.
	known := slices.Contains(slices.Collect(maps.Values(others[id])), sharedID)
	beside := known && !of.isPartOf(others[id])
	within, subagent := id, ""
	for row, err := w.Session(ctx, id); err == nil && row.ParentID != nil; row, err = w.Session(ctx, *row.ParentID) {
		if sub, ok := strings.CutPrefix(id, fact.SubagentSession(*row.ParentID, "")); ok {
			within, subagent = *row.ParentID, sub
		}
	}
	if _, err := ingest.New(w, ingest.Options{}).Seen(ctx, within, subagent, in, beside); err != nil {
		return "", err
	}
	if !own {
		err = w.Delete(ctx, in.Session.ID)
	}
	return id, err
}

// readCalls reads what the proxy saw.
func (s *runSources) readCalls(ctx context.Context) error {
	ids := s.calls.Sessions()
	if len(ids) == 0 {
		return nil
	}
	var r store.Reader
	if s.calls == s.telemetry {
		w, err := patientOpener(s.cmd)(ctx)
		if err != nil {
			return err
		}
		defer w.Close()
		r = w
	} else {
		r = s.calls.Reader()
	}
	for _, id := range ids {
		in, err := formats.ReadStored(ctx, r, id, nil)
		if errors.Is(err, store.ErrNotFound) || err == nil && store.FromTelemetry(&in.Session) {
			continue
		} else if err != nil {
			return err
		}
		s.seen, s.known = append(s.seen, in), append(s.known, identityOf(in.Transcript, in.SpanRefs))
	}
	return nil
}

// importFiles imports the sessions that known agents have kept of the run.
func (s *runSources) importFiles(ctx context.Context) error {
	began := time.UnixMilli(s.Began).Add(-time.Second) // some file systems count seconds
	inputs, err := changedIn("", began)
	if err != nil || len(inputs) == 0 {
		return err
	}
	sum, _, err := importInto(ctx, "", importer.Options{Open: patientOpener(s.cmd), Wanted: s.isOfRun}, inputs)
	for id := range sum.Total.Sessions {
		s.imported[id] = true
	}
	return err
}

// isOfRun reports whether a session in a file of a known agent is of the run: other agents may be at work on this
// machine. It is if the proxy saw its calls, or telemetry named it. Otherwise it must have been written since the agent
// began, in the agent's working directory or below.
func (s *runSources) isOfRun(in *codec.Session) bool {
	if slices.Contains(s.reported, in.Session.ID) {
		return true
	}
	last, untimed := in.Session.UpdatedAt, len(in.Messages) > 1 // as in Continue: all has the time at which it began
	for i := range in.Messages {
		at := in.Messages[i].Message.CreatedAt
		last, untimed = max(last, at), untimed && at == in.Session.CreatedAt
	}
	written := last >= s.Began || untimed // its file was
	about := identityOf(in.Transcript, in.SpanRefs)
	for _, of := range s.known {
		if n, _ := of.shared(about); n >= sharedID || written && of.isPartOf(about) {
			return true
		}
	}
	root := session.Deref(in.Session.WorkspaceRoot)
	inside, err := filepath.Rel(real(s.Working), real(root))
	return written && root != "" && err == nil && !strings.HasPrefix(inside, "..")
}

// real is a path without symbolic links.
func real(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}
