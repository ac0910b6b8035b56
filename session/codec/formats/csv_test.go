package formats

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"

	"github.com/google/go-cmp/cmp"
)

const csvHeader = "session_id,title,agent,message_id,role,turn,message_created_at,hidden,provider_id,model_id," +
	"part_id,index,type,tool_name,tool_call_id,tool_state,chars,part_created_at,part_updated_at," +
	"input,output,reasoning,cache_read,cache_write,total,cost_usd,stop_reason,duration_ms,copied,tags,scores,notes\n"

func TestCSVEncode(t *testing.T) {
	part := func(id string, index int64, partType, data string) session.Part {
		return session.Part{ID: id, MessageID: "m", SessionID: "s", Index: index, Type: partType, DataJSON: data,
			CreatedAt: 7, UpdatedAt: 8}
	}
	tool := part("p1", 1, "tool-bash",
		`{"type":"tool-bash","toolCallId":"c","state":"output-error","input":{"cmd":"ls"},"errorText":"böm"}`)
	tool.ToolCallID, tool.ToolState = new("c"), new("output-error")
	tr := &session.Transcript{
		Session: session.Session{ID: "s", Title: "Say, \"hi\"", Agent: "a"},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "sys", Role: "system", MetadataJSON: "{}", CreatedAt: 1}},
			{Message: session.Message{ID: "u0", Role: "user", MetadataJSON: `{"usage":{"input":9}}`, CreatedAt: 2},
				Parts: []session.Part{part("p", 0, "text", `{"type":"text","text":"héllo"}`)}},
			{Message: session.Message{ID: "a0", Role: "assistant", CreatedAt: 3, HiddenAt: new(int64(4)),
				MetadataJSON: `{"model":{"provider_id":"p","model_id":"m"},"usage":{"input":1,"output":2,"cache_read":0},
					"agenttrace":{"cost_usd":0.0000125,"stop_reason":"end_turn","duration_ms":1500}}`},
				Parts: []session.Part{
					tool,
					part("p0", 0, "reasoning", `{"type":"reasoning","text":""}`),
					part("p2", 2, "dynamic-tool",
						`{"type":"dynamic-tool","toolName":"mcp_x","toolCallId":"d","state":"output-available",`+
							`"input":1,"output":[2, 3]}`),
					part("p3", 3, "data-mark", `{"type":"data-mark","data":{"a":1}}`),
					part("p4", 4, "file", `{"type":"file","url":"data:,x"}`),
					part("p5", 5, "step-start", `{"type":"step-start"}`),
					part("p6", 6, "text", `{`),
				}},
			{Message: session.Message{ID: "u1", Role: "user", MetadataJSON: "", CreatedAt: 5}},
			{Message: session.Message{ID: "a1", Role: "assistant",
				MetadataJSON: `{"model":"odd","usage":{"reasoning":3,"cache_write":4}}`, CreatedAt: 6}},
		},
	}
	var b strings.Builder
	testscale.Must(t, csvNewEncoder(&b).Encode(&codec.Session{Transcript: tr}))
	want := csvHeader +
		`s,"Say, ""hi""",a,sys,system,1,1,false,,,,,,,,,,,,,,,,,,,,,false,,,
s,"Say, ""hi""",a,u0,user,1,2,false,,,p,0,text,,,,6,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p0,0,reasoning,,,,0,7,8,1,2,,0,,3,0.0000125,end_turn,1500,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p1,1,tool-bash,bash,c,output-error,16,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p2,2,dynamic-tool,mcp_x,,,7,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p3,3,data-mark,,,,7,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p4,4,file,,,,7,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p5,5,step-start,,,,0,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a0,assistant,1,3,true,p,m,p6,6,text,,,,,7,8,,,,,,,,,,false,,,
s,"Say, ""hi""",a,u1,user,2,5,false,,,,,,,,,,,,,,,,,,,,,false,,,
s,"Say, ""hi""",a,a1,assistant,2,6,false,,,,,,,,,,,,,,3,,4,7,,,,false,,,
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestCSVFormulasAreGuarded(t *testing.T) {
	tr := &session.Transcript{Session: session.Session{ID: "s"}}
	for i, title := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "1=1", "'=1", "", "é\xff", "a\x1b]0;b\u009b\u202e"} {
		want := []string{"'=1+1", "'+1", "'-1", "'@SUM(A1)", "'    =1", "␍=1", "1=1", "'=1", "", "é\uFFFD",
			"a␛]0;b<U+009B><U+202E>"}[i]
		tr.Session.Title = title
		// A number keeps its sign.
		tr.Messages = []session.MessageAndParts{{Message: session.Message{ID: "m", CreatedAt: -5}}}
		var b strings.Builder
		testscale.Must(t, csvNewEncoder(&b).Encode(&codec.Session{Transcript: tr}))
		rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		testscale.Must(t, err)
		if got := rows[1][1]; got != want {
			t.Errorf("title %q is written as %q, want %q", title, got, want)
		}
		if got := rows[1][6]; got != "-5" {
			t.Errorf("message_created_at is %q, want -5", got)
		}
	}
}

// Sessions one after the other have one header, of which every column is documented.
func TestCSVOfSeveralSessions(t *testing.T) {
	var b bytes.Buffer
	e, want := csvNewEncoder(&b), 1
	for _, tr := range codectest.Load(t, "../../testdata/reference.jsonl") {
		testscale.Must(t, e.Encode(tr))
		for _, m := range tr.Messages {
			want += len(m.Parts)
		}
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != want {
		t.Fatalf("%d rows, want %d with the header; %v", len(rows), want, err)
	}
	for i, c := range csvColumns {
		if rows[0][i] != c {
			t.Errorf("column %d is %q, want %q", i, rows[0][i], c)
		}
	}
}

// TestCSVWithheldValuesHaveNoSize: the null that stands for what no source reports does not
// count as an output of four bytes.
func TestCSVWithheldValuesHaveNoSize(t *testing.T) {
	for _, sample := range codectest.Corpus() {
		if sample.Name != "withheld values" {
			continue
		}
		var b bytes.Buffer
		testscale.Must(t, csvNewEncoder(&b).Encode(sample.Session))
		records, err := csv.NewReader(&b).ReadAll()
		testscale.Must(t, err)
		got := map[string]string{}
		for _, record := range records[1:] {
			if call := record[14]; call != "" {
				got[call] = record[16]
			}
		}
		want := map[string]string{"call_1": strconv.Itoa(len(`{"command":"ls"}`)), "call_2": "0", "call_3": "6",
			"call_4": "6"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("chars of the calls (-want +got):\n%s", d)
		}
		return
	}
	t.Error("the suite has no session of withheld values")
}
