package ingest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// planter sets every string that a value of some type can hold to one with a secret.
type planter struct{ n int }

func (p *planter) secret() string {
	p.n++
	return fmt.Sprintf("ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0%04d", p.n)
}

func (p *planter) fill(v reflect.Value) {
	switch {
	case v.Type() == jsonType:
		v.SetBytes(fmt.Appendf(nil, `{"k":%q,%q:[%q],"agenttrace":{"x":%q,%q:1},"id":%q,"password":"Wq8zT3nR5mK1"}`,
			p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret()))
		return
	case v.Type() == reflect.TypeFor[[]byte](), // an encoded fact, which is planted itself
		// the store's, of what is redacted
		v.Type() == reflect.TypeFor[store.Attribution](), v.Type() == reflect.TypeFor[store.BlobKind]():
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(p.secret())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		p.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				p.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		p.fill(v.Index(0))
		p.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		p.fill(key)
		p.fill(value)
		v.SetMapIndex(key, value)
	}
}

// leaks adds the paths of all strings that still hold a secret.
func leaks(v reflect.Value, path string, found *[]string) {
	check := func(s string) {
		if strings.Contains(s, "aZ3kQ9xW7mB2") || strings.Contains(s, "Wq8zT3nR5mK1") {
			*found = append(*found, path+": "+s)
		}
	}
	if v.Type() == jsonType || v.Type() == reflect.TypeFor[[]byte]() {
		check(string(v.Bytes()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		check(v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			leaks(v.Elem(), path, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				leaks(v.Field(i), path+"."+v.Type().Field(i).Name, found)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaks(v.Index(i), path+"[]", found)
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			leaks(i.Key(), path+" key", found)
			leaks(i.Value(), path+" value", found)
		}
	}
}

// Whatever field is added to what is stored, a secret in it does not reach the store.
func TestNoFieldIsStoredWithASecret(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	for _, partType := range []string{"", "text", "tool-x", "dynamic-tool", "data-compaction", store.TypeDamaged,
		"data-permission", "file"} {
		var b store.Batch
		p := new(planter)
		p.fill(reflect.ValueOf(&b).Elem())
		for i := range b.Parts {
			if partType != "" {
				b.Parts[i].Type = partType
			}
			b.Parts[i].Data = fmt.Appendf(nil,
				`{"type":"tool-%s","id":%q,"toolCallId":%q,"toolName":%q,"state":%q,"approval":{"id":%q,`+
					`"reason":%q,%q:1},`+
					`"data":{"type":%q,"a":[%q],%q:2},"text":%q,"input":{%q:%q},`+
					`"toolMetadata":{"agenttrace":{"response_id":%q,%q:3},%q:{"password":"Wq8zT3nR5mK1"}}}`,
				p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(),
				p.secret(),
				p.secret(), p.secret(), p.secret(),
				p.secret(), p.secret(), p.secret(), p.secret(), p.secret())
		}
		for i := range b.Messages {
			b.Messages[i].Metadata = fmt.Appendf(nil,
				`{"model":{"modelID":%q,%q:1},"agent":%q,"compaction":{"x":%q},%q:1,"agenttrace":{"stop_reason":%q,`+
					`"response_id":%q,"y":%q,%q:1}}`,
				p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(), p.secret(),
				p.secret())
		}
		for i := range b.Sessions {
			b.Sessions[i].Permissions.Text = fmt.Sprintf(`[{"permission":%q,"pattern":%q,"action":%q,%q:1}]`,
				p.secret(),
				p.secret(), p.secret(), p.secret())
			b.Sessions[i].Model.Text = fmt.Sprintf(`{"providerID":%q,"modelID":%q}`, p.secret(), p.secret())
		}
		(&redaction{Redactor: r}).batch(&b)
		var found []string
		if leaks(reflect.ValueOf(b), "batch", &found); len(found) > 0 {
			t.Errorf("with parts of type %q:\n%s", partType, strings.Join(found, "\n"))
		}
	}
	for _, kind := range []string{"", fact.PartText, fact.PartReasoning, fact.PartCall, fact.PartResult, fact.PartFile,
		fact.PartSource, fact.PartCompaction, fact.PartOther} {
		var f fact.Fact
		p := new(planter)
		p.fill(reflect.ValueOf(&f).Elem())
		if kind != "" {
			f.Output[0].Kind, f.Input[0].Parts[0].Kind = kind, kind
		}
		(&redaction{Redactor: r}).fact(&f)
		var found []string
		if leaks(reflect.ValueOf(f), "fact", &found); len(found) > 0 {
			t.Errorf("with parts of kind %q:\n%s", kind, strings.Join(found, "\n"))
		}
		if data := string(encode(&f)); strings.Contains(data, "aZ3kQ9xW7mB2") {
			t.Errorf("encoded: %s", data)
		}
	}
}

// What belongs together still does when its id had a secret, and what differs differs.
func TestRedactedIdentifiersStillJoin(t *testing.T) {
	r, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	one, other := "ses_ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o", "ses_ghp_aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9x"
	b := store.Batch{
		Sessions: []store.SessionChange{{ID: one}, {ID: other, ParentID: &store.Value{Text: one},
			Fork: &store.Fork{From: one, Message: "m password=hunter2swordfish"}}},
		Messages: []store.MessageChange{{ID: "m password=hunter2swordfish", SessionID: one},
			{ID: "m password=hunter3swordfish", SessionID: other}},
		Parts: []store.PartChange{{ID: "p", MessageID: "m password=hunter2swordfish", SessionID: one, ToolCallID: one,
			Type: "tool-" + one,
			Data: fmt.Appendf(nil, `{"type":"tool-%s","toolCallId":"%s","toolName":"%s"}`, one, one, one)}},
		Decisions: []store.Decision{{ToolID: one, ToolCallID: one}},
	}
	(&redaction{Redactor: r}).batch(&b)
	id, p := b.Sessions[0].ID, b.Parts[0]
	want := fmt.Sprintf(`{"type":"tool-%s","toolCallId":"%s","toolName":"%s"}`, id, id, id)
	if id == b.Sessions[1].ID || b.Sessions[1].ParentID.Text != id || b.Sessions[1].Fork.From != id ||
		b.Messages[0].SessionID != id || p.SessionID != id || p.ToolCallID != id ||
		p.Type != "tool-"+id || string(p.Data) != want || b.Decisions[0].ToolID != id {
		t.Errorf("%+v\n%s", b, p.Data)
	}
	if b.Messages[0].ID == b.Messages[1].ID || p.MessageID != b.Messages[0].ID ||
		b.Sessions[1].Fork.Message != b.Messages[0].ID {
		t.Errorf("messages %+v", b.Messages)
	}
}
