package store

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// A process that dies leaves tool calls open. The one that resumes the session ends
// those that it knows of, from the state that was saved; a call that began after that
// is known from live events only, and nobody would ever end it.
//
// So where a turn was given up, what is open in its message has ended with it. That
// is no change like others, but a view of the part as it was seen last, which can be
// taken back: when a later or better description arrives, it is merged with what was
// seen, and the view is made anew. So the order of arrival does not matter here
// either.

// abandonedMark is in the data of a part that is such a view.
const abandonedMark = `"abandoned":`

// givenUp says whether metadata is that of a turn which a later process ended.
func givenUp(metadata string) bool {
	if !strings.Contains(metadata, semconv.AbortedByRestart) {
		return false
	}
	var m struct {
		Agenttrace struct {
			EndReason string `json:"end_reason"`
			Error     string `json:"error"`
		} `json:"agenttrace"`
	}
	return json.Unmarshal([]byte(metadata), &m) == nil && m.Agenttrace.EndReason == semconv.EndAbort && m.Agenttrace.Error == semconv.AbortedByRestart
}

// endAbandoned makes the calls of a message end with its turn, or takes that back.
func (a *applier) endAbandoned(w *sessionWork, m, old *session.Message) error {
	ended := givenUp(m.MetadataJSON)
	if !ended && (old == nil || !givenUp(old.MetadataJSON)) {
		return nil
	}
	parts, err := a.tx.Parts(m.ID)
	if err != nil {
		return err
	}
	for i := range parts {
		want := seenPart(&parts[i])
		if ended {
			want = abandonedPart(want)
		}
		if equalParts(want, &parts[i]) {
			continue
		}
		if err := a.wrote(true, a.tx.PutPart(want)); err != nil {
			return err
		}
		w.touched[m.ID] = true
	}
	return nil
}

// abandonedPart returns the part as it is when its turn was given up.
func abandonedPart(p *session.Part) *session.Part {
	if p.ToolState == nil || PartRank(p.DataJSON) != RankLive {
		return p
	}
	switch *p.ToolState {
	case session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested, session.StateApprovalResponded:
	default:
		return p
	}
	d := readLivePart(p)
	if d == nil {
		return p
	}
	was := map[string]json.RawMessage{"state": d.data["state"]}
	d.data["state"] = json.RawMessage(`"` + session.StateOutputError + `"`)
	d.data["errorText"] = json.RawMessage(`"` + semconv.AbortedByRestart + `"`)
	if approval, ok := d.data["approval"]; ok { // nobody will answer
		was["approval"] = approval
		delete(d.data, "approval")
	}
	d.ours["abandoned"] = json.RawMessage(encodeObject(was))
	d.ours["error_type"] = json.RawMessage(`"` + semconv.ErrorTypeAborted + `"`)
	out, state := *p, session.StateOutputError
	out.ToolState, out.DataJSON = &state, d.encode()
	return &out
}

// seenPart undoes abandonedPart. Any other part it returns as it is.
func seenPart(p *session.Part) *session.Part {
	if !strings.Contains(p.DataJSON, abandonedMark) {
		return p
	}
	d := readLivePart(p)
	if d == nil || d.ours["abandoned"] == nil {
		return p
	}
	was := object(string(d.ours["abandoned"]))
	var state string
	if json.Unmarshal(was["state"], &state) != nil {
		return p
	}
	delete(d.ours, "abandoned")
	delete(d.ours, "error_type")
	delete(d.data, "errorText")
	maps.Copy(d.data, was)
	out := *p
	out.ToolState, out.DataJSON = &state, d.encode()
	return &out
}

// livePart is the data of a tool call that was seen live.
type livePart struct {
	kind                 string
	data, metadata, ours map[string]json.RawMessage
}

// readLivePart reads the data of a part, nil when it is not written as live events
// are: it could not be written again as it was.
func readLivePart(p *session.Part) *livePart {
	d := &livePart{kind: p.Type, data: object(p.DataJSON)}
	d.metadata = object(string(d.data["toolMetadata"]))
	d.ours = object(string(d.metadata["agenttrace"]))
	if string(d.ours["live"]) != "true" || d.ours["seen"] == nil || d.encode() != p.DataJSON {
		return nil
	}
	return d
}

// encode writes the data as package ingest does: the type first, then when it was
// seen.
func (d *livePart) encode() string {
	b := spans.AppendJSONString([]byte(`{"type":`), d.kind)
	b = append(append(b, `,"toolMetadata":{"agenttrace":{"seen":`...), d.ours["seen"]...)
	b = append(b, `,"live":true`...)
	b = appendOthers(b, d.ours, "seen", "live")
	b = appendOthers(append(b, '}'), d.metadata, "agenttrace")
	b = appendOthers(append(b, '}'), d.data, "type", "toolMetadata")
	return string(append(b, '}'))
}

// appendOthers appends the members but for those named, each after a comma.
func appendOthers(dst []byte, members map[string]json.RawMessage, but ...string) []byte {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(but, name) {
			dst = append(spans.AppendJSONString(append(dst, ','), name), ':')
			dst = append(dst, members[name]...)
		}
	}
	return dst
}
