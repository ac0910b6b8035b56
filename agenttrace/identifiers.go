package agenttrace

import (
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
)

// Content passes the filter where its kind is known: a prompt, an output. What is left are texts that identify
// things: ids, names of agents, models and tools, finish reasons. An agent may have put a secret there too, so a
// span's attributes pass here last.

// contents are the attributes that passed the filter before and may be long.
var contents = map[attribute.Key]bool{
	semconv.CompactionSummaryKey: true, semconv.ErrorKey: true, semconv.GenAIToolCallArgumentsKey: true,
	semconv.GenAIToolCallResultKey: true, semconv.SystemPromptTextKey: true, semconv.ToolCatalogJSONKey: true,
	semconv.SessionMetadataKey: true, semconv.UserMessageMetadataKey: true, semconv.GenAIInputMessagesKey: true,
	semconv.GenAIOutputMessagesKey: true, semconv.GenAISystemInstructionsKey: true,
	semconv.GenAIToolDefinitionsKey: true, semconv.AssistantMessageMetadataKey: true,
	semconv.MessageMetadataKey: true, semconv.SessionPermissionsKey: true, semconv.UsageRawKey: true,
}

// attributes redacts in place what identifies, and makes every text valid UTF-8.
func (f *filter) attributes(kvs []attribute.KeyValue) []attribute.KeyValue {
	for i := range kvs {
		kv := &kvs[i]
		switch kv.Value.Type() {
		case attribute.STRING:
			s := kv.Value.AsString()
			out := validUTF8(s)
			if !contents[kv.Key] {
				out = f.id(out)
			}
			if out != s {
				kv.Value = attribute.StringValue(out)
			}
		case attribute.STRINGSLICE:
			// Parts are JSON, and were redacted when they were made.
			before := kv.Value.AsStringSlice()
			all := before
			if f.redactor != nil && len(all) > 0 && !strings.HasPrefix(all[0], "{") {
				all = f.builtin().List(all) // one may name what the next one is
			}
			all = slices.Clone(all)
			for k, s := range all {
				if all[k] = validUTF8(s); !strings.HasPrefix(s, "{") {
					all[k] = f.id(all[k])
				}
			}
			if !slices.Equal(all, before) {
				kv.Value = attribute.StringSliceValue(all)
			}
		}
	}
	return kvs
}

// id returns an identifier as it may be sent. The session store makes the same of it. An
// agent's own Redactor is for content: identifiers go by package redact then.
func (f *filter) id(s string) string {
	if f.redactor == nil || s == "" {
		return s
	}
	return f.builtin().Identifier(s)
}

// builtin is the Redactor of package redact: the agent's own, or the default one.
func (f *filter) builtin() *redact.Redactor {
	if r, ok := f.redactor.(*redact.Redactor); ok {
		return r
	}
	return builtin()
}

var builtin = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(redact.Config{})
	if err != nil {
		panic("the default configuration of package redact is not valid: " + err.Error())
	}
	return r
})
