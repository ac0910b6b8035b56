// ATIF: these files read and write the Agent Trajectory Interchange Format: a JSON document for each run of an agent,
// which benchmarks write and trainers read. Versions 1.0 to 1.8 are read, and 1.7 is written. docs/formats.md lists
// what becomes what.

package formats

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// atifVersionPrefix is how the version of every trajectory begins, and version the one that is written.
const (
	atifVersionPrefix = "ATIF-v"
	atifVersion       = atifVersionPrefix + "1.7"
)

// atifLooks reports whether an object with these keys is a trajectory; see codec.Reading.SniffKeys.
func atifLooks(keys map[string]string) bool {
	return strings.HasPrefix(keys["schema_version"], atifVersionPrefix)
}

// Sources of a step.
const (
	atifSourceSystem = "system"
	atifSourceUser   = "user"
	atifSourceAgent  = "agent"
)

// atifTypeObservation is the type of a part for a result that is not a tool call's.
const atifTypeObservation = "data-observation"

// atifImageTypes are the media types that an image may have.
var atifImageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// atifCounts are the fields of metrics, with the tokens that they count. The first two are required of
// a step whose usage is known, and extra has the others.
var atifCounts = []struct {
	key   string
	extra bool
	total string // in final_metrics
	of    func(session.Usage) int64
}{
	{"prompt_tokens", false, "total_prompt_tokens", func(u session.Usage) int64 {
		return u.Input + u.CacheRead + u.CacheWrite
	}},
	{"completion_tokens", false, "total_completion_tokens",
		func(u session.Usage) int64 { return u.Output + u.Reasoning }},
	{"cached_tokens", false, "total_cached_tokens", func(u session.Usage) int64 { return u.CacheRead }},
	{"reasoning_tokens", true, "", func(u session.Usage) int64 { return u.Reasoning }},
	{"cache_creation_input_tokens", true, "", func(u session.Usage) int64 { return u.CacheWrite }},
}

// atifContent returns the blocks of a message or of a result as the format has them: one text alone is a string.
func atifContent(blocks []rows.Object) json.RawMessage {
	switch {
	case len(blocks) == 0:
		return json.RawMessage(`""`)
	case len(blocks) == 1 && blocks[0].Text("type") == "text":
		return blocks[0].Get("text")
	}
	return rows.Raw(blocks)
}

// atifBlock returns the block of a part's data, nil where the format has none for it.
func atifBlock(data rows.Object) rows.Object {
	switch data.Text("type") {
	case "text":
		return rows.Of("type", "text", "text", data.Get("text"))
	case session.TypeWithheld:
		return rows.TextPart("text", codec.WithheldText)
	case "file":
		if media := data.Text("mediaType"); slices.Contains(atifImageTypes, media) {
			return atifImage(media, data.Get("url"))
		}
	}
	return nil
}

// atifImage is the block of an image, whose path may be a data: URL.
func atifImage(media string, path json.RawMessage) rows.Object {
	return rows.Of("type", "image", "source", rows.Of("media_type", media, "path", path))
}
