package formats

import (
	"cmp"
	_ "embed" // of the schema
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// skilletDecodeFile reads the conversations in path: a state directory or one that holds it, a directory of logs, a
// log, or a store. A conversation that is in the logs and in the store is one session. Sessions come in the order of
// the logs' paths, then those that only the store has. A log that cannot be read is reported and left out.
func skilletDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		logs, store, err := skilletPlaces(path)
		var conversations []skilletConversation
		if err == nil && store != "" {
			conversations, err = skilletReadStore(store)
		}
		if err != nil {
			return err
		}
		seen := make(map[skilletNames]bool)
		for _, path := range logs {
			user, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
			name := skilletNames{strings.ToValidUTF8(user, "\uFFFD"),
				strings.ToValidUTF8(strings.TrimSuffix(file, ".jsonl"), "\uFFFD")}
			d := &skilletLogDecoder{key: name}
			d.Report, d.Place.File = report, filepath.ToSlash(filepath.Join(user, file))
			all, err := d.read(path, conversations)
			if err != nil {
				d.Place.Line = 0
				d.Problem("%v: the log was left out", err)
				continue
			}
			if seen[name] = true; !yield(all[0]) {
				return nil
			}
		}
		for _, c := range conversations {
			if !seen[c.key.sanitized()] && !yield(skilletDecodeItems(c.key, c.items, filepath.Base(store), report)) {
				break
			}
		}
		return nil
	})
}

// read reads the log with what the store has of it. Several names may be one in a path. Then the log is all of theirs,
// and the store of none of them reports it.
func (d *skilletLogDecoder) read(path string, conversations []skilletConversation) ([]*codec.Session, error) {
	text, err := codec.ReadFile(path)
	if err != nil {
		return nil, err
	}
	same := slices.DeleteFunc(slices.Clone(conversations), func(c skilletConversation) bool {
		return c.key.sanitized() != d.key
	})
	if len(same) == 1 {
		d.key, d.store = same[0].key, skilletNewGuide(same[0].items)
	} else if len(same) > 1 {
		d.Problem("%d conversations of the store have this log: none of them was read with it", len(same))
	}
	return d.decode(text)
}

// skilletPlaces finds the logs and the store in path.
func skilletPlaces(path string) (logs []string, store string, err error) {
	info, err := os.Stat(path)
	isStore := false
	if err == nil && !info.IsDir() {
		isStore, err = rows.IsDatabase(path)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read conversations: %w", err)
	case isStore:
		return nil, path, nil
	case !info.IsDir():
		return []string{path}, "", nil
	}
	logsIn := func(dir string) []string {
		names, _ := filepath.Glob(filepath.Join(GlobEscape(dir), "*", "*.jsonl")) // none, if it cannot be read
		return names
	}
	for _, sub := range []string{".", "state", ".skilled-agent/state"} {
		root := filepath.Join(path, sub)
		database := filepath.Join(root, skilletDatabaseFile)
		if info, err := os.Stat(database); err == nil && info.Mode().IsRegular() && store == "" {
			store = database
		}
		logs = append(logs, logsIn(filepath.Join(root, skilletLogsDir))...)
	}
	if logs == nil && store == "" {
		logs = logsIn(path)
	}
	if logs == nil && store == "" {
		return nil, "", fmt.Errorf("%s: no conversation in it: want a directory with %s or %s", path, skilletLogsDir,
			skilletDatabaseFile)
	}
	return logs, store, nil
}

//go:embed skillet.sql
var skilletSchema string

// skilletConversation is what the store has of one.
type skilletConversation struct {
	key   skilletNames
	items []skilletItem
}

// skilletReadStore returns the conversations of the store in order of their names.
func skilletReadStore(path string) (all []skilletConversation, err error) {
	const query = `SELECT id, user_id, session_name, created_at, item_json FROM session_items
		ORDER BY user_id, session_name, created_at, id`
	err = rows.QueryDatabase(path, query, func(stmt *sqlite.Stmt) {
		key := skilletNames{strings.ToValidUTF8(stmt.ColumnText(1), "\uFFFD"),
			strings.ToValidUTF8(stmt.ColumnText(2), "\uFFFD")}
		if len(all) == 0 || all[len(all)-1].key != key {
			all = append(all, skilletConversation{key: key})
		}
		c := &all[len(all)-1]
		c.items = append(c.items, skilletItem{stmt.ColumnInt64(0), stmt.ColumnInt64(3), stmt.ColumnText(4)})
	})
	if err != nil {
		return nil, fmt.Errorf("read session_items of %s: %w", path, err)
	}
	return all, nil
}

// skilletWriteStore adds a conversation to the store, which is made when it is not there, or replaces the one of its
// names. All of it is written, or nothing, as with an error of last, which is called in the end.
func skilletWriteStore(path string, c skilletConversation, replace bool, last func() error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// SQLite would make a file that others can read. One that is there keeps its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err = sqlitex.ExecuteScript(conn, skilletSchema, nil); err != nil {
		return err
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	there := false
	execute := func(query string, args ...any) {
		if err == nil {
			err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
				Args:       append([]any{c.key.UserID, c.key.SessionName}, args...),
				ResultFunc: func(*sqlite.Stmt) error { there = true; return nil }})
		}
	}
	if replace {
		execute(`DELETE FROM session_items WHERE user_id = ? AND session_name = ?`)
	}
	execute(`SELECT 1 FROM session_items WHERE user_id = ? AND session_name = ? LIMIT 1`)
	if there {
		return fmt.Errorf("session %q of user %q: %w", c.key.SessionName, c.key.UserID, fs.ErrExist)
	}
	for _, i := range c.items {
		execute(`INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`, i.at, i.text)
	}
	if err == nil {
		err = last()
	}
	return err
}

// skilletEncodeFile writes the session: to a store when path ends in .sqlite, and otherwise to a log and a store in a
// state directory, which is made when it is not there. A session without a turn has no log there. It has the names that
// it was read with, or else those of "skillet" and its id.
//
// A log that exists, or a conversation that the store has, is replaced if replace is set, and with an error it is as it
// was. Otherwise it gives an error that is [os.ErrExist].
func skilletEncodeFile(path string, s *codec.Session, replace bool) (err error) {
	defer wrapWriting(s, &err)
	if err := s.CheckTree(); err != nil {
		return err
	}
	c := skilletConversation{skilletNamesOf(&s.Session), skilletItemsOf(s.Transcript)}
	if filepath.Ext(path) == ".sqlite" {
		return skilletWriteStore(path, c, replace, func() error { return nil })
	}
	safe := c.key.sanitized()
	log := filepath.Join(path, skilletLogsDir, safe.UserID, safe.SessionName+".jsonl")
	before, absent := os.ReadFile(log)
	switch {
	case errors.Is(absent, fs.ErrNotExist):
	case !replace:
		return &fs.PathError{Op: "create", Path: log, Err: fs.ErrExist}
	case absent != nil:
		return absent
	}
	placed := false
	// The log takes its place when the store has all but committed, so that there are both or none.
	err = skilletWriteStore(filepath.Join(path, skilletDatabaseFile), c, replace, func() error {
		if len(skilletTurnsOf(s.Transcript)) == 0 { // skillet makes a log with its first entry
			return os.RemoveAll(log)
		}
		err := os.MkdirAll(filepath.Dir(log), 0o700)
		if err == nil {
			err = session.ReplaceFiles(session.NewFile{Path: log, Text: skilletEncode(s)})
		}
		placed = err == nil
		return err
	})
	// The commit of the store may fail after the log is written. Then the log is put back, or a conversation would be
	// in the log alone, and a second attempt be refused because the log exists.
	switch {
	case err == nil || !placed:
		return err
	case absent != nil:
		return errors.Join(err, os.RemoveAll(log))
	}
	return errors.Join(err, session.ReplaceFiles(session.NewFile{Path: log, Text: before}))
}

// skilletText reads a replay log, which does not report whose it is. Lines that cannot be read are left out and
// reported, as are steps that are in no turn, which skillet drops too.
func skilletText(_ string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	return (&skilletLogDecoder{Reporter: rows.Reporter{Report: report}}).decode(text)
}

// Kinds of entries, types of steps, and the parts that stand for steps.
const (
	skilletUserMessage, skilletStepEntry, skilletFinalResult = "user_message", "step", "final_result"

	skilletAgentStart, skilletAgentEnd, skilletHandoff = "agent_start", "agent_end", "handoff"
	skilletToolStart, skilletToolEnd, skilletTextStep  = "agent_tool_start", "agent_tool_end", "text"

	skilletAgentPart, skilletHandoffPart = "data-agent", "data-handoff"
)

type skilletLogDecoder struct {
	rows.Reporter
	key   skilletNames
	store skilletGuide

	s     *rows.Session
	turn  *skilletTurn
	turns int64 // user messages so far
	at    int64 // of the entry before
	agent bool  // the session's agent is known
}

// skilletTurn is an assistant message being built.
type skilletTurn struct {
	m       *rows.Message
	pending []*rows.Part // calls that have not come back
	calls   int
	text    *rows.Part      // that a text step continues
	words   strings.Builder // its text so far
	agent   string
	model   *session.Model
	done    bool
}

func (d *skilletLogDecoder) decode(text []byte) ([]*codec.Session, error) {
	d.s = rows.New(d.key.sessionID(), skilletName)
	entries := 0
	for l := range rows.Lines(text, func(p codec.Problem) { d.Place.Line = p.Line; d.Problem("%s", p.Reason) }) {
		d.Place.Line = l.N
		switch kind := l.Object.Text("kind"); {
		case l.Err != nil:
			d.Problem("is not an entry: left out: %v", l.Err)
		case kind != skilletUserMessage && kind != skilletStepEntry && kind != skilletFinalResult:
			d.Problem("has a kind that a log does not know: left out")
		default:
			entries++
			d.entry(kind, l.Object)
		}
	}
	if entries == 0 {
		return nil, fmt.Errorf("no entry in it: want lines of kind %s, %s and %s",
			skilletUserMessage, skilletStepEntry, skilletFinalResult)
	}
	d.close()
	return []*codec.Session{skilletFinish(d.s, d.key)}, nil
}

func (d *skilletLogDecoder) entry(kind string, e rows.Object) {
	if at, ok := rows.ParseTime(e.Text("timestamp")); ok {
		d.at = at
	} else {
		d.Problem("timestamp is not a time: took that of the entry before it")
	}
	switch {
	case kind == skilletUserMessage:
		d.user(e.Get("userInput"))
		return
	case d.turns == 0:
		d.Problem("%s is not in a turn: left out, as skillet does", kind)
		return
	case d.turn != nil && d.turn.done:
		d.Problem("%s comes after the final result of its turn: left out, as skillet does", kind)
		return
	}
	d.s.See(d.at)
	if d.turn == nil {
		d.turn = &skilletTurn{m: d.s.Message(session.RoleAssistant, d.at)}
	}
	if kind == skilletStepEntry {
		d.step(e.Get("stepResult"))
	} else {
		d.final(e)
	}
	d.turn.m.Touch(d.at)
}

func (d *skilletLogDecoder) user(userInput json.RawMessage) {
	d.close()
	d.s.See(d.at)
	d.turns++
	m := d.s.Message(session.RoleUser, d.at)
	var messages [][]rows.Object
	if len(userInput) > 0 && userInput[0] == '"' {
		messages = append(messages, skilletContentParts(userInput))
	}
	for _, v := range rows.Elements(userInput) {
		messages = append(messages, skilletContentParts(rows.Read(string(v)).Get("content")))
	}
	parts := slices.Concat(messages...)
	for _, p := range parts {
		m.Part(p, m.Row.CreatedAt)
	}
	if d.store.take(skilletUserHint(parts)).key == "" {
		// Messages that came at once are one entry, and an item each.
		for _, message := range messages {
			d.store.take(skilletUserHint(message))
		}
	}
}

func (d *skilletLogDecoder) step(data json.RawMessage) {
	t, step := d.turn, rows.Read(string(data))
	typ := step.Text("type")
	if typ != skilletTextStep {
		t.flush()
	}
	switch typ {
	case skilletTextStep:
		if t.text == nil {
			d.reasoning(d.store.take(skilletTextHint).thoughts)
			t.text = t.m.Part(rows.TextPart("text", ""), d.at)
		}
		t.words.WriteString(step.Text("text"))
		t.text.Touch(d.at)
	case skilletToolStart:
		arguments := step.Text("toolArgumentsStr")
		hint := d.store.take(skilletCallHint(step.Text("toolName"), arguments))
		d.reasoning(hint.thoughts)
		t.pending = append(t.pending, d.call(hint.id, step, skilletParseArguments(arguments)))
	case skilletToolEnd:
		d.toolEnd(step)
	case skilletAgentStart, skilletAgentEnd, skilletHandoff:
		partType := skilletAgentPart
		if typ == skilletHandoff {
			partType = skilletHandoffPart
		}
		if name := step.Text("agentName"); typ == skilletAgentStart && t.agent == "" {
			t.agent = name
			if !d.agent && name != "" {
				d.s.Row.Agent, d.agent = name, true
			}
		}
		t.m.Part(rows.DataPart(partType, step), d.at)
	default:
		d.Problem("step of type %q, which skillet does not know and cannot replay: kept as data-step", typ)
		t.m.Part(rows.DataPart("data-step", rows.OrNull(data)), d.at)
	}
}

// flush ends the text that steps have made so far.
func (t *skilletTurn) flush() {
	if t.text != nil {
		t.text.Set(rows.TextPart("text", t.words.String()))
		t.text = nil
		t.words.Reset()
	}
}

func (d *skilletLogDecoder) reasoning(texts []string) {
	for _, text := range texts {
		d.turn.m.Part(rows.TextPart("reasoning", text), d.at)
	}
}

// call adds the part of a call of a step. A call without an id gets one.
func (d *skilletLogDecoder) call(id string, step rows.Object, input json.RawMessage) *rows.Part {
	t := d.turn
	if id == "" {
		id = spans.DeriveID("call_", d.at, d.s.Row.ID, strconv.FormatInt(d.turns-1, 10), strconv.Itoa(t.calls))
	}
	t.calls++
	p := t.m.Call(id, step.Text("toolName"), input, d.at)
	p.SetKey("callProviderMetadata", rows.Of(skilletName, rows.Of("agentName", step.Text("agentName"))))
	return p
}

func (d *skilletLogDecoder) toolEnd(step rows.Object) {
	t, c := d.turn, skilletCall{step.Text("agentName"), step.Text("toolName")}
	i := slices.IndexFunc(t.pending, func(p *rows.Part) bool { return skilletCallOf(p.Data(), "") == c })
	var p *rows.Part
	if i >= 0 {
		p = t.pending[i]
		t.pending = slices.Delete(t.pending, i, i+1)
	} else {
		d.Problem("tool %q ended and was not started: its input is unknown", c.tool)
		p = d.call("", step, nil)
	}
	skilletWithResult(p, rows.OrNull(step.Get("result")))
	p.Touch(d.at)
}

// final ends the turn with a result, which is a text of its own unless it repeats the last text, or all of them.
func (d *skilletLogDecoder) final(e rows.Object) {
	t := d.turn
	t.flush()
	t.done = true
	var last, all string
	for _, p := range t.m.Parts() {
		if p.Row.Type == "text" {
			last = p.Data().Text("text")
			all += last
		}
	}
	text := e.Object("finalResult").Text("text")
	if text != strings.TrimSpace(last) && text != strings.TrimSpace(all) && text != skilletNoResponse {
		d.reasoning(d.store.take(skilletTextHint).thoughts)
		t.m.Part(rows.TextPart("text", text), d.at)
	}
	if spec := e.Text("model"); spec != "" {
		t.model = &session.Model{ModelID: spec}
		if provider, model, ok := strings.Cut(spec, "/"); ok {
			t.model = &session.Model{ProviderID: provider, ModelID: model}
		}
		d.s.Row.ModelJSON = new(string(rows.Raw(t.model)))
	}
}

const skilletNoResponse = "[no response]"

// close ends the turn.
func (d *skilletLogDecoder) close() {
	t := d.turn
	if t == nil {
		return
	}
	t.flush()
	d.turn = nil
	for _, text := range d.store.rest() {
		t.m.Part(rows.TextPart("reasoning", text), t.m.Row.UpdatedAt)
	}
	t.m.AddMeta(rows.NonEmpty("model", t.model))
	if t.agent != "" && t.agent != d.s.Row.Agent {
		t.m.SetMeta("agent", t.agent)
	}
	trace := session.MessageTrace{TurnIndex: new(d.turns - 1), Incomplete: !t.done}
	if t.done {
		trace.EndReason = semconv.EndFinish
	}
	t.m.SetMeta("agenttrace", trace)
}

// skilletEncode writes the session as a replay log.
func skilletEncode(s *codec.Session) []byte {
	t := s.Sorted()
	d := skilletLogDrafter{s: &t.Session}
	d.native = rows.Read(t.Session.MetadataJSON).Object(skilletName).Has("session_name")
	for _, turn := range skilletTurnsOf(t) {
		d.turn(turn)
	}
	return d.log
}

// skilletTurnRows are the messages of a turn of the log: what users said, and then what the assistant did.
type skilletTurnRows struct {
	users, assistants []*session.MessageAndParts
}

// skilletTurnsOf groups messages into turns. Messages of the system, those that a rewind hid, and compactions are in
// none.
func skilletTurnsOf(t *session.Transcript) (turns []skilletTurnRows) {
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil || m.Message.Role == session.RoleSystem ||
			len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction {
			continue
		}
		user := m.Message.Role == session.RoleUser
		if n := len(turns); n == 0 || user && len(turns[n-1].assistants) > 0 {
			turns = append(turns, skilletTurnRows{})
		}
		last := &turns[len(turns)-1]
		if user {
			last.users = append(last.users, m)
		} else {
			last.assistants = append(last.assistants, m)
		}
	}
	return turns
}

type skilletLogDrafter struct {
	log []byte
	s   *session.Session
	// native sessions came from skillet: parts stand for the start and the end of agents, which the log of another
	// session gets for each of its messages.
	native bool
	// steps are those of the turn, and said is the last text.
	steps []skilletStep
	said  string
	// open are the calls that have not come back. A result names its tool and agent only, so one is closed before the
	// next of them begins.
	open map[skilletCall]bool
}

func (d *skilletLogDrafter) entry(kind, key string, value any, at int64, more ...any) {
	e := rows.Of(append([]any{"kind", kind, key, value, "timestamp", rows.FormatTime(at)}, more...)...)
	d.log = append(append(d.log, e.JSON()...), '\n')
}

// skilletStep is a step of a turn with its time.
type skilletStep struct {
	at int64
	rows.Object
}

// step adds a step. Texts that follow one another are one, for a reader joins them.
func (d *skilletLogDrafter) step(at int64, step rows.Object) {
	n := len(d.steps)
	switch is := step.Text("type") == skilletTextStep; {
	case is && n > 0 && d.steps[n-1].Text("type") == skilletTextStep:
		d.said += step.Text("text")
		n--
		step.Set("text", d.said)
	case is:
		d.said = step.Text("text")
	}
	d.steps = append(d.steps[:n], skilletStep{at, step})
}

// turn writes a turn. An answer that failed, was interrupted, or did not end has no final result.
func (d *skilletLogDrafter) turn(turn skilletTurnRows) {
	first := slices.Concat(turn.users, turn.assistants)[0]
	d.entry(skilletUserMessage, "userInput", skilletUserInput(turn.users), first.Message.CreatedAt)
	if len(turn.assistants) == 0 {
		return
	}
	d.steps, d.said, d.open = nil, "", make(map[skilletCall]bool)
	last := turn.assistants[len(turn.assistants)-1]
	meta := session.ParseMessageMetadata([]byte(last.Message.MetadataJSON))
	finished := !rows.GoesOn(last) && !meta.Trace.PendingApproval &&
		(meta.Trace.EndReason == "" || meta.Trace.EndReason == semconv.EndFinish)
	for _, m := range turn.assistants {
		d.message(m)
	}
	for _, step := range d.steps {
		d.entry(skilletStepEntry, "stepResult", step.Object, step.at)
	}
	if !finished {
		return
	}
	text := cmp.Or(strings.TrimSpace(d.said), skilletNoResponse)
	var model []any
	if m := session.Deref(meta.Model); m.ProviderID != "" {
		model = []any{"model", m.ProviderID + "/" + m.ModelID}
	} else if m.ModelID != "" {
		model = []any{"model", m.ModelID}
	}
	d.entry(skilletFinalResult, "finalResult", rows.Of("text", text), last.Message.UpdatedAt, model...)
}

// skilletUserInput is what users said; nothing, where the assistant began.
func skilletUserInput(users []*session.MessageAndParts) json.RawMessage {
	var messages []rows.Object
	for _, m := range users {
		in := skilletInput(dataOf(m))
		if len(users) == 1 && in[0] == '"' {
			return in
		}
		messages = append(messages, rows.Of("type", skilletMessageItem, "role", session.RoleUser,
			"content", skilletContent(dataOf(m))))
	}
	if messages == nil {
		return rows.Raw("")
	}
	return rows.Raw(messages)
}

func (d *skilletLogDrafter) message(m *session.MessageAndParts) {
	agent := cmp.Or(session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Agent, d.s.Agent)
	parts := dataOf(m)
	framed := d.native || slices.ContainsFunc(m.Parts, func(p session.Part) bool { return p.Type == skilletAgentPart })
	frame := func(typ string, at int64) {
		if !framed {
			d.step(at, rows.Of("type", typ, "agentName", agent))
		}
	}
	frame(skilletAgentStart, m.Message.CreatedAt)
	for i, data := range parts {
		p := &m.Parts[i]
		switch step := data.Object("data"); {
		case data.Text("type") == "text":
			d.step(p.UpdatedAt, rows.TextPart(skilletTextStep, data.Text("text")))
		case session.IsToolType(p.Type):
			d.tool(p, data, agent)
		case (p.Type == skilletAgentPart || p.Type == skilletHandoffPart) &&
			slices.Contains([]string{skilletAgentStart, skilletAgentEnd, skilletHandoff}, step.Text("type")):
			d.step(p.UpdatedAt, step) // any other would stop skillet's replay
		}
	}
	frame(skilletAgentEnd, m.Message.UpdatedAt)
}

func (d *skilletLogDrafter) tool(p *session.Part, data rows.Object, agent string) {
	c := skilletCallOf(data, agent)
	step := func(typ string, at int64, key, value string) {
		d.step(at, rows.Of("type", typ, "agentName", c.agent, "toolName", c.tool, key, value))
	}
	if d.open[c] {
		step(skilletToolEnd, p.CreatedAt, "result", skilletNoResult)
	}
	step(skilletToolStart, p.CreatedAt, "toolArgumentsStr", skilletArgumentsOf(data))
	result, done := skilletResultText(data)
	if done {
		step(skilletToolEnd, p.UpdatedAt, "result", result)
	}
	d.open[c] = !done
}
