package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session/store"
)

// conditions are those of a query on sessions s, with their parameters.
type conditions struct {
	d     *store.Dialect
	where []string
	args  []any
	// candidates are for some conditions the sessions that may meet them, by an index.
	candidates []candidates
}

// candidates are the sessions whose ids one of several queries finds, which all have the same parameters.
type candidates struct {
	queries []string
	args    []any
}

// maxCandidates is how many sessions are looked for by a condition that few may meet. If there are more, one in so many
// meets it that going through all in their order is fast.
const maxCandidates = 2000

// narrow adds that the session is one of those that may meet a condition, if these are few. It reports whether they
// are.
func (c *conditions) narrow(conn Conn) (bool, error) {
	if c.d.Foreign {
		return false, nil
	}
	for _, from := range c.candidates {
		var ids []string
		for _, query := range from.queries {
			found, err := texts(conn, query+" LIMIT "+strconv.Itoa(maxCandidates+1), from.args...)
			if err != nil {
				return false, err
			}
			ids = append(ids, found...)
			if len(ids) > maxCandidates {
				break
			}
		}
		if len(ids) <= maxCandidates {
			c.among(ids)
			return true, nil
		}
	}
	return false, nil
}

// from adds queries of candidates, which have the parameters.
func (c *conditions) from(args []any, queries ...string) {
	c.candidates = append(c.candidates, candidates{queries, args})
}

func (c *conditions) add(condition string, args ...any) {
	c.where, c.args = append(c.where, condition), append(c.args, args...)
}

// String is the WHERE clause, "" if nothing is excluded.
func (c *conditions) String() string {
	if len(c.where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.where, " AND ")
}

// filter adds the conditions of a filter, except for Text, of which a Reader looks for the sessions first. What costs
// little comes first. Conditions on tags and scores are decided by an index, those on messages and parts look through
// each session that the others have left.
func (c *conditions) filter(f *store.SessionFilter) error {
	d := c.d
	if f.IDs != nil {
		c.among(f.IDs)
	}
	if f.Agent != "" {
		c.add("s.agent = ?", f.Agent)
	}
	if !f.Since.IsZero() {
		c.add("s.updated_at >= ?", f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		c.add("s.created_at < ?", f.Until.UnixMilli())
		c.from([]any{f.Until.UnixMilli()}, `SELECT id FROM chat_sessions WHERE created_at < ?`)
	}
	for _, tag := range f.Tags {
		c.annotated(`kind = 'tag' AND name = ?`, tag)
	}
	for _, score := range f.Scores {
		if !score.Valid() {
			return fmt.Errorf("unknown comparison %q of score %s", score.Op, score.Name)
		}
		if score.Op == "" {
			c.annotated(`kind = 'score' AND name = ?`, score.Name)
		} else {
			c.annotated(`kind = 'score' AND name = ? AND value `+score.Op+` ?`, score.Name, score.Value)
		}
	}
	if f.Project != "" {
		const of = `(%[1]s.workspace_root = ? OR %[1]s.workspace_id = ?)`
		c.add(`(`+fmt.Sprintf(of, "s")+` OR s.workspace_root IS NULL AND s.workspace_id IS NULL AND s.parent_id IN (
 SELECT p.id FROM chat_sessions p WHERE `+fmt.Sprintf(of, "p")+`))`, f.Project, f.Project, f.Project, f.Project)
		const project = `SELECT p.id FROM chat_sessions p WHERE p.workspace_root = ?1
 UNION SELECT p.id FROM chat_sessions p WHERE p.workspace_id = ?1`
		c.from([]any{f.Project}, project, `SELECT c.id FROM chat_sessions c WHERE c.parent_id IN (`+project+`)`)
	}
	if f.User != "" {
		text := string(jsonscan.AppendString(nil, f.User))
		c.add(d.Find+"(s.metadata_json, ?) > 0", text) // costs less than the next
		c.from([]any{text}, `SELECT s.id FROM chat_sessions s NOT INDEXED WHERE `+d.Find+`(s.metadata_json, ?) > 0`)
		c.add(d.JSON("s.metadata_json", "user_id")+" = ?", f.User)
	}
	if f.Model != "" {
		c.model(f.Model)
	}
	if f.Provider != "" {
		c.modelHas(d.JSON("s.model_json", "provider_id")+" = ?", f.Provider, jsonMember("provider_id", f.Provider))
	}
	if f.Loops {
		c.add(hasPart(`p.type = 'data-loop-warning'`))
		c.from(nil, `SELECT DISTINCT session_id FROM chat_parts WHERE type = 'data-loop-warning'`)
	}
	if f.Tool != "" {
		condition := `(` + hasPart(`p.type = ?`) + ` OR ` + hasPart(`p.type = 'dynamic-tool' AND `+
			d.JSON("p.data_json", "toolName")+` = ?`) + `)`
		c.add(condition, "tool-"+f.Tool, f.Tool)
		// This reads indexes only.
		c.from([]any{"tool-" + f.Tool, f.Tool}, `SELECT s.id FROM chat_sessions s WHERE `+condition)
	}
	// What is a failure, and what a denied call, is defined by session.Failures.
	state, marked := callEnd(d)
	const ended = ` p.tool_state <> 'output-available'` // as the index has it
	if f.Errors {
		outcome := d.Contains("s.metadata_json", `"outcome":"error"`)
		endReason := d.Contains("m.metadata_json", `"end_reason":"error"`)
		modelError := d.Contains("m.metadata_json", `"model_errors":["`)
		const of, failed = `SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND `, ended +
			` AND p.tool_state IN ('output-error', 'input-streaming')`
		c.add(`(` + outcome + ` AND coalesce(` + d.JSON("s.metadata_json", "agenttrace", "outcome") + `, '') = 'error'
 OR EXISTS (` + of + endReason + `) OR EXISTS (` + of + modelError + `) OR ` +
			hasPart(failed+` AND `+state+` = 'output-error' AND coalesce(`+marked+`, 0) = 0`) + `)`)
		c.from(nil, `SELECT s.id FROM chat_sessions s WHERE `+outcome,
			`SELECT DISTINCT m.session_id FROM chat_messages m WHERE `+endReason,
			`SELECT DISTINCT m.session_id FROM chat_messages m WHERE `+modelError,
			`SELECT DISTINCT p.session_id FROM chat_parts p WHERE`+failed)
	}
	if f.Denials {
		condition := hasPart(ended + ` AND (` + state + ` = 'output-denied' OR coalesce(` + marked + `, 0) <> 0)`)
		if !d.Foreign {
			condition += ` OR EXISTS (
 SELECT 1 FROM permission_decisions x WHERE x.session_id = s.id AND x.outcome = 'denied')`
		}
		c.add(`(` + condition + `)`)
		c.from(nil, `SELECT DISTINCT session_id FROM permission_decisions WHERE outcome = 'denied'`,
			`SELECT DISTINCT p.session_id FROM chat_parts p WHERE`+ended)
	}
	return nil
}

// annotated adds that the session has an annotation that matches a condition.
func (c *conditions) annotated(condition string, args ...any) {
	if c.d.Foreign || c.d.Unannotated {
		c.add("1 = 0")
		return
	}
	c.add(`EXISTS (SELECT 1 FROM annotations a WHERE a.session_id = s.id AND a.deleted_at IS NULL AND `+condition+`)`,
		args...)
	c.from(args, `SELECT DISTINCT session_id FROM annotations WHERE deleted_at IS NULL AND `+condition)
}

// hasPart is the condition that the session has a part p that matches one.
func hasPart(condition string) string {
	return `EXISTS (SELECT 1 FROM chat_parts p WHERE p.session_id = s.id AND ` + condition + `)`
}

// model adds that the session, or a message of it, has a model.
func (c *conditions) model(name string) {
	id := c.d.JSON("s.model_json", "model_id")
	provider, rest, ok := strings.Cut(name, "/")
	if !ok {
		c.modelHas(id+" = ?", name, jsonMember("model_id", name))
		return
	}
	c.fromModels(jsonMember("model_id", name), jsonMember("model_id", rest))
	// The id of a model may have a slash, too.
	c.add(`(`+id+` = ? OR `+id+` = ? AND `+c.d.JSON("s.model_json", "provider_id")+` = ? OR `+c.message()+` OR `+
		c.message()+`)`, name, rest, provider, jsonMember("model_id", name),
		jsonMember("provider_id", provider)+","+jsonMember("model_id", rest))
}

// modelHas adds that the session's row matches a condition, or that the metadata of a message has a text.
func (c *conditions) modelHas(condition, value, text string) {
	c.add(`(`+condition+` OR `+c.message()+`)`, value, text)
	c.fromModels(text, text)
}

// fromModels adds as candidates the sessions with one of two texts in a model. No index has them, but going through a
// table once costs less than looking for the messages of each session.
func (c *conditions) fromModels(x, y string) {
	has := func(column string) string {
		return `(` + c.d.Find + `(` + column + `, ?1) > 0 OR ` + c.d.Find + `(` + column + `, ?2) > 0)`
	}
	c.from([]any{x, y}, `SELECT s.id FROM chat_sessions s NOT INDEXED WHERE `+has("s.model_json"),
		`SELECT DISTINCT m.session_id FROM chat_messages m NOT INDEXED WHERE m.role = 'assistant' AND `+
			has("m.metadata_json"))
}

// message is the condition that the metadata of a message of the assistant has the text that is the parameter.
func (c *conditions) message() string {
	return `EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND m.role = 'assistant' AND ` +
		c.d.Find + `(m.metadata_json, ?) > 0)`
}

// jsonMember is a member of an object as JSON.
func jsonMember(key, value string) string {
	return `"` + key + `":` + string(jsonscan.AppendString(nil, value))
}

// among adds that the session is one of some, which may be many.
func (c *conditions) among(ids []string) {
	c.add(`s.id IN (SELECT value FROM `+c.d.Elements("?", "among")+`)`, listOf(ids))
}

// withText returns the ids of the sessions in whose titles or messages a text is.
func (r *Reader) withText(ctx context.Context, text string) ([]string, error) {
	found := map[string]bool{}
	for hit, err := range r.Search(ctx, store.SearchQuery{Text: text}) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains([]string{store.TypeSystemPrompt, store.TypeToolCatalog, store.TypeNote}, hit.Type) {
			found[hit.SessionID] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// sortColumns are the columns that orders of sessions go by.
var sortColumns = map[store.SessionSort]string{
	store.SortUpdated: "updated_at", store.SortCreated: "created_at", store.SortTitle: "title",
	store.SortContext: "total_tokens", store.SortCost: "cost_usd",
}
