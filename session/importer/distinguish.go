package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Two files may have different sessions of one id, in directories of different projects. The one that is imported
// first has the id, the other one has it with "~" and 8 digits that follow from how it begins. Copies of a session are
// one session, and so is what goes on in another file.

// otherID is an id of the second session: the first group is the one that its file has.
var otherID = lazy.Regexp(`^(.+)~[0-9a-f]{8}$`)

// alias is the id that a session has because another one has that of its file. It is also for its sub-agents, the
// files of which are below the directory.
type alias struct{ dir, from, to string }

// distinguish gives a transcript another id if the store has another session of that id.
func (im *Importer) distinguish(ctx context.Context, s *store.Imported, t *Tally) error {
	path, id := "", s.Session.ID
	if t.input.path != "" {
		path, _ = filepath.Abs(t.input.path) // without a working directory nothing is known of it
	}
	was := im.sources[path]
	above := cmp.Or(session.TranscriptTraceOf(s.Session.MetadataJSON).SubagentOf, session.Deref(s.Session.ParentID))
	if above != "" {
		to, err := im.aliasAbove(ctx, path, above)
		if err != nil || to != "" {
			rename(s, above, to)
			return err
		}
	}
	if to := im.alias(was, path, id); to != "" {
		rename(s, id, to)
		return nil
	}
	if s.Grown != nil || was != nil && slices.Contains(was.Sessions, id) {
		return nil
	}
	if other, ok := im.puts[id]; ok && other != t {
		if err := im.flush(ctx); err != nil {
			return err
		}
	}
	row, err := found(im.store.Session(ctx, id))
	if err != nil || row.ID == "" || store.FromTelemetry(&row) {
		return err // what telemetry reports has other messages
	}
	stored, err := found(im.store.Transcript(ctx, id))
	if err != nil || stored == nil || sameSession(stored, s.Transcript) {
		return err
	}
	to := id + "~" + beginning(s.Transcript)
	im.aliases = append(im.aliases, alias{filepath.Dir(path), id, to})
	rename(s, id, to)
	im.warnf("%s: its session %s is another one than that of %s: it is stored as %s", t.File, id,
		im.fileOf(ctx, id), to)
	return nil
}

// alias returns the other id of a session in a file that was imported before, or is beside one that is being imported;
// "" if it has its own.
func (im *Importer) alias(was *store.ImportSource, path, id string) string {
	if was != nil {
		for _, known := range was.Sessions {
			if m := otherID().FindStringSubmatch(known); m != nil && m[1] == id {
				return known
			}
		}
	}
	for _, a := range im.aliases {
		if a.from == id && path != "" && strings.HasPrefix(path, a.dir+string(filepath.Separator)) {
			return a.to
		}
	}
	return ""
}

// aliasAbove returns the other id of the session that started the sub-agent of a file.
func (im *Importer) aliasAbove(ctx context.Context, path, id string) (string, error) {
	to := im.alias(im.sources[path], path, id)
	dir := path
	for i := 0; i < 3 && to == "" && path != ""; i++ { // its file is beside that of the sub-agent, or above the directory
		dir = filepath.Dir(dir)
		main, err := found(im.store.ImportSource(ctx, filepath.Join(dir, id+filepath.Ext(path))))
		if err != nil || main.Path != "" {
			return im.alias(&main, "", id), err
		}
	}
	return to, nil
}

// fileOf names the file of a session for a sentence.
func (im *Importer) fileOf(ctx context.Context, id string) string {
	if t := im.puts[id]; t != nil && t.input.path != "" {
		return t.input.path
	}
	sources, _ := im.store.ImportSources(ctx, "") // what cannot be read names no file
	for i := range sources {
		if slices.Contains(sources[i].Sessions, id) {
			return sources[i].Path
		}
	}
	return "the store"
}

// sameSession reports whether two transcripts are of one session: they have a message of the user in common, or one
// goes on with what the other one does not have, or they are of one project and of different times.
func sameSession(a, b *session.Transcript) bool {
	asked := make(map[string]string)
	for m, text := range questions(a) {
		asked[m.ID] = text
	}
	differ, none := false, true
	for m, text := range questions(b) {
		first, known := asked[m.ID]
		if known && first == text {
			return true
		}
		differ, none = differ || known, false
	}
	root := session.Deref(b.Session.WorkspaceRoot)
	return !differ && (none || len(asked) == 0 || goesOn(a) || goesOn(b) ||
		root != "" && root == session.Deref(a.Session.WorkspaceRoot))
}

// questions are the messages of the user with their texts.
func questions(t *session.Transcript) iter.Seq2[*session.Message, string] {
	return func(yield func(*session.Message, string) bool) {
		for i := range t.Messages {
			m := &t.Messages[i]
			if m.Message.Role == session.RoleUser && !yield(&m.Message, textOf(m)) {
				return
			}
		}
	}
}

func textOf(m *session.MessageAndParts) string {
	var b strings.Builder
	for i := range m.Parts {
		var part struct{ Text string }
		_ = json.Unmarshal([]byte(m.Parts[i].DataJSON), &part) // a part of another kind has none
		b.WriteString(part.Text + "\n")
	}
	return b.String()
}

// goesOn reports whether a transcript begins in the midst of a conversation.
func goesOn(s *session.Transcript) bool {
	return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
		return strings.Contains(m.Message.MetadataJSON, `"history"`)
	})
}

// beginning returns 8 digits that follow from the project of a session and its first message.
func beginning(s *session.Transcript) string {
	h := sha256.New()
	if s.Session.WorkspaceRoot != nil {
		h.Write([]byte(*s.Session.WorkspaceRoot))
	}
	if len(s.Messages) > 0 {
		m := &s.Messages[0]
		fmt.Fprintf(h, "\x00%d %s", m.Message.CreatedAt, textOf(m))
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// rename gives a session another id, or one of a sub-agent another parent, and its rows the ids that follow from it.
func rename(s *store.Imported, from, to string) {
	if to == "" {
		return
	}
	renamed := func(id string) string {
		if rest, found := strings.CutPrefix(id, from); found && (rest == "" || rest[0] == '-') {
			return to + rest
		}
		return id
	}
	was := s.Session.ID
	own := renamed(was)
	all := []*session.Transcript{s.Transcript}
	if s.Grown != nil {
		all = append(all, s.Grown.Before)
	}
	// ofRow is the id of a row. It keeps its prefix and its time, which order the rows.
	ofRow := func(id string) string {
		begin := strings.Index(id, "_") + 1
		if own == was || len(id) < begin+12 {
			return id
		}
		return id[:begin+12] + spans.DeriveID("", 0, own, id)[12:]
	}
	for _, t := range all {
		row := &t.Session
		if row.ID = own; row.ParentID != nil {
			row.ParentID = new(renamed(*row.ParentID))
		}
		row.MetadataJSON = strings.ReplaceAll(row.MetadataJSON, `"subagent_of":"`+from+`"`, `"subagent_of":"`+to+`"`)
		var ids []string
		for i := range t.Messages {
			ids = append(ids, t.Messages[i].Message.ID, ofRow(t.Messages[i].Message.ID))
		}
		refer := strings.NewReplacer(ids...)
		for i := range t.Messages {
			m := &t.Messages[i]
			m.Message.ID, m.Message.SessionID = ofRow(m.Message.ID), own
			m.Message.MetadataJSON = refer.Replace(m.Message.MetadataJSON)
			for k := range m.Parts {
				p := &m.Parts[k]
				p.ID, p.MessageID, p.SessionID = ofRow(p.ID), m.Message.ID, own
				if p.Type == session.TypeCompaction { // which names the message that the context begins with
					p.DataJSON = refer.Replace(p.DataJSON)
				}
			}
		}
	}
	for i := range s.Decisions {
		d := &s.Decisions[i]
		d.ID, d.SessionID, d.MessageID, d.PartID = ofRow(d.ID), own, ofRow(d.MessageID), ofRow(d.PartID)
	}
}

// A fork names the message of its parent where it left: the last of the user's that it copied. A transcript does not
// have the id of that message, so it is looked up when both are stored, whichever is imported first.

// linkForks sets where the forks among the transcripts that were stored left their parents, and where the stored forks
// of these transcripts did.
func (im *Importer) linkForks(ctx context.Context) error {
	var forks []session.Session
	for _, id := range im.forks {
		if row, err := im.store.Session(ctx, id); err == nil && isFork(&row) {
			forks = append(forks, row)
		}
	}
	for _, id := range im.unlinked {
		q := store.SessionQuery{ParentID: id, Children: true, Archived: true, Limit: -1}
		for row, err := range im.store.Sessions(ctx, q) {
			if err != nil {
				return storeError{err}
			}
			if isFork(&row) && row.ParentMessageID == nil {
				forks = append(forks, row)
			}
		}
	}
	im.forks, im.unlinked = nil, nil
	var linked []*store.Imported
	for i := range forks {
		was := &forks[i]
		parent, err := found(im.store.Transcript(ctx, *was.ParentID))
		fork, failed := found(im.store.Transcript(ctx, was.ID))
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
		if at := whereForked(parent, fork); at != nil && *at != session.Deref(was.ParentMessageID) {
			fork.Session.ParentMessageID = at
			linked = append(linked, &store.Imported{Transcript: fork,
				Grown: &store.Grown{Before: &session.Transcript{Session: *was}}})
		}
	}
	var failed error
	im.store.ImportAll(ctx, slices.Values(linked), func(_ *store.Imported, _ store.ImportResult, err error) bool {
		failed = err
		return err == nil
	})
	if failed != nil {
		return storeError{failed}
	}
	return nil
}

// keepLink has a fork whose file grew keep where it left its parent, which its file does not say.
func (im *Importer) keepLink(ctx context.Context, s *store.Imported) error {
	if s.Grown == nil || !isFork(&s.Session) {
		return nil
	}
	if im.puts[s.Session.ID] != nil {
		if err := im.flush(ctx); err != nil {
			return err
		}
	}
	row, err := found(im.store.Session(ctx, s.Session.ID))
	s.Session.ParentMessageID, s.Grown.Before.Session.ParentMessageID = row.ParentMessageID, row.ParentMessageID
	return err
}

func isFork(s *session.Session) bool {
	return s.ParentID != nil && session.TranscriptTraceOf(s.MetadataJSON).Forked
}

// whereForked returns the id of the parent's message of which the last copy of a user's message is one, nil if there is
// none: that of the same text and time, or else of the same text and place, or else the last of the same text.
func whereForked(parent, fork *session.Transcript) (id *string) {
	if parent == nil || fork == nil {
		return nil
	}
	var last *session.Message
	asked, place := "", -1
	for m, text := range questions(fork) {
		if fork.Session.Copied(m.CreatedAt) {
			last, asked = m, text
			place++
		}
	}
	users, found := -1, false
	for m, text := range questions(parent) {
		if users++; last == nil || found || text != asked {
			continue
		}
		if id = &m.ID; m.CreatedAt == last.CreatedAt {
			return id
		}
		found = users == place
	}
	return id
}
