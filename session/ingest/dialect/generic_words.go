package dialect

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// field is what a name of an attribute, or of a member of JSON, means to the generic reading.
type field uint8

const (
	fieldNone field = iota
	fieldInput
	fieldPrompt // an input that nothing but a model or an agent has
	fieldOutput
	fieldAnswer // an output that nothing but a model or an agent has
	fieldMessages
	fieldSystem
	fieldModel
	fieldResponseModel
	fieldProvider
	fieldAgent
	fieldKind
	fieldToolName
	fieldCallID
	fieldToolInput
	fieldToolOutput
	fieldTools
	fieldInputTokens
	fieldOutputTokens
	fieldTotalTokens
	fieldCacheRead
	fieldCacheWrite
	fieldReasoningTokens
	fieldUsage
	fieldCost
	fieldTemperature
	fieldFinish
	fieldResponseID
	fieldReasoning
	fieldSession
	fieldUser
	fieldError
	fieldRole
	fieldContent
)

var (
	fieldNames = strings.Fields(`none input prompt output answer messages system model response_model provider agent kind
		tool_name call_id tool_input tool_output tools input_tokens output_tokens total_tokens cache_read cache_write
		reasoning_tokens usage cost temperature finish response_id reasoning session user error role content`)
	// names are what the last words of names mean.
	names = valuesOf("fields", func(name string) field { return field(slices.Index(fieldNames, name)) })
)

// family returns the first word of a key, or "" when nothing parts it from a rest.
func family(key string) string {
	if i := strings.IndexAny(key, ".:"); i > 0 {
		return key[:i]
	}
	return ""
}

// isOrdinary reports whether a key is of a program that is no agent. A key with an underscore
// belongs to the family before that too: db_statement, http_request.
func isOrdinary(key string) bool {
	if f := family(key); f != "" {
		return families[f] == MarkOrdinary
	}
	if i := strings.IndexByte(key, '_'); i > 0 {
		switch key[:i] {
		case "http", "db", "sql", "rpc", "grpc", "url", "net", "k8s", "aws", "kafka", "redis":
			return true
		}
	}
	return false
}

// wordBytes is how much of a name counts: its end.
const wordBytes = 96

// words is a name in lower case without separators, and where its words begin. Making one allocates
// nothing, for every name is looked at of what no dialect knows.
type words struct {
	text   [wordBytes]byte
	begins [wordBytes]uint8
	n, len int
}

func (w *words) read(name string) {
	if len(name) > wordBytes {
		name = name[len(name)-wordBytes:]
	}
	before := byte('.')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '.' || c == ':' || c == '_' || c == '-' || c == '/' || c == ' ':
			before = '.'
			continue
		case before == '.', c >= 'A' && c <= 'Z' && (before < 'A' || before > 'Z'):
			w.begins[w.len] = uint8(w.n)
			w.len++
		}
		before = c
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		w.text[w.n] = c
		w.n++
	}
}

// fieldOf returns what a name means by the longest of its ends that means anything.
func fieldOf(name string) field {
	const maxWords = 4
	var w words
	w.read(name)
	for from := max(0, w.len-maxWords); from < w.len; from++ {
		if f, known := names[string(w.text[w.begins[from]:w.n])]; known {
			return f
		}
	}
	return fieldNone
}

// genericKind returns the kind of span that a client calls by a word.
func genericKind(word string) genericSpanKind {
	if len(word) > 40 {
		return kindUnknown
	}
	var w words
	w.read(strings.Trim(word, `"`)) // some write every value as JSON
	return genericKinds[string(w.text[:w.n])]
}

// genericSpanKind is a kind of span. Of several that a span's attributes name, the greatest takes
// precedence.
type genericSpanKind uint8

const (
	kindUnknown genericSpanKind = iota
	kindAgent
	kindChain
	kindOther // of an agent, and none of the others
	kindTool
	kindModel
)

var (
	kindNames    = strings.Fields("unknown agent chain other tool model")
	genericKinds = valuesOf("kinds", func(name string) genericSpanKind {
		return genericSpanKind(slices.Index(kindNames, name))
	})
)

func holdsText(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return strings.TrimSpace(v.Str()) != ""
	case pcommon.ValueTypeMap:
		return v.Map().Len() > 0
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0
	}
	return false
}
