package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// conditions are those of a query on sessions s, with their parameters.
type conditions struct {
	d     *Dialect
	where []string
	args  []any
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

// filter adds the conditions of a filter, except for Text, of which a Reader looks for the sessions first. What costs little comes first. Conditions on tags and scores
// are decided by an index, those on messages and parts look through each session that the others have left.
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
	}
	if f.User != "" {
		c.add(d.JSON("s.metadata_json", "user_id")+" = ?", f.User)
	}
	if f.Model != "" {
		c.model(f.Model)
	}
	if f.Provider != "" {
		c.modelHas(d.JSON("s.model_json", "provider_id")+" = ?", f.Provider, jsonMember("provider_id", f.Provider))
	}
	if f.Loops {
		c.parts(`p.type = 'data-loop-warning'`)
	}
	if f.Tool != "" {
		c.parts(`p.tool_call_id IS NOT NULL AND (p.type = ? OR p.type = 'dynamic-tool' AND `+
			d.JSON("p.data_json", "toolName")+` = ?)`, "tool-"+f.Tool, f.Tool)
	}
	denied := `coalesce(` + d.JSONInt("p.data_json", "toolMetadata", "agenttrace", "denied") + `, 0)`
	if f.Errors {
		c.add(`(coalesce(` + d.JSON("s.metadata_json", "agenttrace", "outcome") + `, '') = 'error'
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND ` + d.Contains("m.metadata_json",
			`"end_reason":"error"`) + `) OR ` + hasPart(`p.tool_state = 'output-error' AND `+denied+` = 0`) + `)`)
	}
	if f.Denials {
		condition := hasPart(`(p.tool_state = 'output-denied' OR p.tool_state = 'output-error' AND ` + denied + ` <> 0)`)
		if !d.Foreign {
			condition += ` OR EXISTS (SELECT 1 FROM permission_decisions x WHERE x.session_id = s.id AND x.outcome = 'denied')`
		}
		c.add(`(` + condition + `)`)
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
}

// parts adds that the session has a part that matches a condition.
func (c *conditions) parts(condition string, args ...any) { c.add(hasPart(condition), args...) }

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
	// The id of a model may have a slash, too.
	c.add(`(`+id+` = ? OR `+id+` = ? AND `+c.d.JSON("s.model_json", "provider_id")+` = ? OR `+c.message()+` OR `+
		c.message()+`)`, name, rest, provider, jsonMember("model_id", name),
		jsonMember("provider_id", provider)+","+jsonMember("model_id", rest))
}

// modelHas adds that the session's row matches a condition, or that the metadata of a message has a text.
func (c *conditions) modelHas(condition, value, text string) {
	c.add(`(`+condition+` OR `+c.message()+`)`, value, text)
}

// message is the condition that the metadata of a message of the assistant has the text that is the parameter.
func (c *conditions) message() string {
	return `EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND m.role = 'assistant' AND ` +
		c.d.Find + `(m.metadata_json, ?) > 0)`
}

// jsonMember is a member of an object as JSON.
func jsonMember(key, value string) string {
	return `"` + key + `":` + string(session.AppendString(nil, value))
}

// among adds that the session is one of some, which may be many.
func (c *conditions) among(ids []string) {
	list, _ := json.Marshal(append([]string{}, ids...)) // texts always have JSON
	c.add(`s.id IN (SELECT value FROM `+c.d.Elements("?", "among")+`)`, string(list))
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
