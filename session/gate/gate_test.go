package gate

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// call is a call of a tool in a run that is made up.
type call struct{ tool, input, outcome string }

// made is a run that is made up: what a plant changes.
type made struct {
	calls                          []call
	answer, status                 string
	tokens, cost, duration, models float64
	quality                        float64
	turns                          int
}

// usual is a run of a case as the agent makes it, with what differs from one run to the next whatever it does: times,
// ids, temporary paths, words, tokens, a file that is read twice, and a tool that fails now and then.
func usual(r *rand.Rand, of int) *made {
	about := func(v, noise float64) float64 { return v * (1 + noise*(2*r.Float64()-1)) }
	m := &made{status: "finished", tokens: about(1000*float64(of+1), .12), cost: about(.02, .12),
		duration: about(9000, .3), models: 4, quality: about(.8, .08), turns: 1}
	id := fmt.Sprintf("%08x", r.Uint32()|0xa0000000)
	m.calls = []call{
		{"list_files", fmt.Sprintf(`{"dir":"/tmp/work-%s"}`, id), "ok"},
		{"read_file", fmt.Sprintf(`{"path":"/tmp/work-%s/main%d.go"}`, id, of), "ok"},
		{"edit_file", fmt.Sprintf(`{"path":"/tmp/work-%s/main%d.go","old":"a","new":"b%d"}`, id, of, of), "ok"},
		{"run_tests", `{"package":"./..."}`, "ok"},
	}
	if r.IntN(4) == 0 {
		m.calls = slices.Insert(m.calls, 2, m.calls[1])
	}
	if r.IntN(8) == 0 {
		m.calls = slices.Insert(m.calls, 3, call{"edit_file", `{"path":"none"}`, "failed"})
	}
	m.answer = []string{"Done: all tests pass.", "All tests pass now."}[r.IntN(2)] + fmt.Sprintf(" Took %ds.", r.IntN(9)+1)
	return m
}

func (m *made) failing(tool string) {
	for i := range m.calls {
		if m.calls[i].tool == tool {
			m.calls[i].outcome = "failed"
		}
	}
}

func (m *made) add(tool, input, outcome string) {
	m.calls = append(m.calls, call{tool, input, outcome})
}

func (m *made) without(tool string) {
	m.calls = slices.DeleteFunc(m.calls, func(c call) bool { return c.tool == tool })
}

// document is the run as a reader of sessions has it.
func (m *made) document(id string, of int) (*session.Session, *document.Document, []document.Annotation) {
	row := &session.Session{ID: id, MetadataJSON: fmt.Sprintf(`{"experiment":"e","case":"case %d"}`, of)}
	doc := &document.Document{Session: document.Session{ID: id, State: document.State(m.status)},
		Status: document.Status{State: document.ActivityIdle}}
	message := &document.Message{Role: session.RoleAssistant}
	for _, c := range m.calls {
		tool := &document.ToolCall{Name: c.tool, Input: json.RawMessage(c.input), State: session.StateOutputAvailable}
		switch c.outcome {
		case "failed":
			tool.State, tool.Error = session.StateOutputError, "exit status 1"
			doc.Totals.Failed++
			doc.Totals.Errors++
		case "denied":
			tool.State, tool.Denied = session.StateOutputError, true
			doc.Totals.Denied++
		}
		message.Parts = append(message.Parts, &document.Part{Kind: document.KindTool, Tool: tool})
	}
	message.Parts = append(message.Parts, &document.Part{Kind: document.KindText, Text: m.answer})
	user := &document.Message{Role: session.RoleUser, Parts: []*document.Part{{Kind: document.KindText, Text: "fix it"}}}
	doc.Turns = []*document.Turn{{Number: 1, Messages: []*document.Message{user, message}, ModelCalls: int64(m.models)}}
	tokens, duration := int64(m.tokens), int64(m.duration)
	doc.Totals.Turns, doc.Totals.ToolCalls = m.turns, len(m.calls)
	doc.Totals.Usage, doc.Totals.CostUSD, doc.Totals.DurationMS = &session.Usage{Input: tokens}, &m.cost, &duration
	return row, doc, []document.Annotation{{Kind: "score", Name: "quality", Value: &m.quality}}
}

const (
	casesMade = 6
	runsMade  = 5 // of each case
)

// experiment are runs of all cases, which plant, if there is one, changes.
func experiment(t *testing.T, g *Gate, r *rand.Rand, plant func(m *made, of int)) (runs []*Run) {
	t.Helper()
	finder, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	for of := range casesMade {
		for range runsMade {
			m := usual(r, of)
			if plant != nil {
				plant(m, of)
			}
			row, doc, tags := m.document(fmt.Sprintf("ses_%d_%08x", of, r.Uint32()), of)
			runs = append(runs, g.Look(row, doc, tags, nil, finder))
		}
	}
	return runs
}

const assertions = `version: 1
assertions:
  - status: finished
  - denied: none
  - loops: none
  - secrets: none
  - called: {tool: run_tests, outcome: ok}
  - not_called: {tool: bash, input: {command: "*rm -rf*"}}
  - order: [read_file, edit_file, run_tests]
  - answer: {matches: "(?i)all tests pass"}
  - max: {tokens: 12000, cost_usd: 0.10, duration: 2m}
  - score: {name: quality, min: 0.6}
  - max: {tool_errors: 0}
    share: 0.5
`

// plants are thirty ways in which an agent gets worse: in one case, or in all of them.
func plants() map[string]func(m *made, of int) {
	const one = 2 // the case of those that are in one
	only := func(change func(m *made)) func(m *made, of int) {
		return func(m *made, of int) {
			if of == one {
				change(m)
			}
		}
	}
	every := func(change func(m *made)) func(m *made, of int) { return func(m *made, _ int) { change(m) } }
	return map[string]func(m *made, of int){
		"ends in an error":              only(func(m *made) { m.status = "error" }),
		"is aborted":                    every(func(m *made) { m.status = "aborted" }),
		"tokens half as many again":     every(func(m *made) { m.tokens *= 1.5 }),
		"tokens twice in one case":      only(func(m *made) { m.tokens *= 2 }),
		"costs a third more":            every(func(m *made) { m.cost *= 1.35 }),
		"costs twice in one case":       only(func(m *made) { m.cost *= 2 }),
		"takes twice as long":           every(func(m *made) { m.duration *= 2 }),
		"takes thrice as long in one":   only(func(m *made) { m.duration *= 3 }),
		"asks the model more often":     every(func(m *made) { m.models = 6 }),
		"asks twice as often in one":    only(func(m *made) { m.models = 8 }),
		"tests fail in one case":        only(func(m *made) { m.failing("run_tests") }),
		"tests fail everywhere":         every(func(m *made) { m.failing("run_tests") }),
		"an edit fails in one case":     only(func(m *made) { m.failing("edit_file") }),
		"reading fails":                 every(func(m *made) { m.failing("read_file") }),
		"skips the tests":               every(func(m *made) { m.without("run_tests") }),
		"skips the tests in one":        only(func(m *made) { m.without("run_tests") }),
		"no longer lists files":         every(func(m *made) { m.without("list_files") }),
		"no longer lists files in one":  only(func(m *made) { m.without("list_files") }),
		"reads nothing before it edits": only(func(m *made) { m.without("read_file") }),
		"edits after the tests":         only(func(m *made) { slices.Reverse(m.calls) }),
		"is denied a call":              only(func(m *made) { m.add("bash", `{"command":"sudo"}`, "denied") }),
		"deletes with rm":               only(func(m *made) { m.add("bash", `{"command":"rm -rf /x"}`, "ok") }),
		"runs in a loop":                only(func(m *made) { m.calls = slices.Concat(m.calls, slices.Repeat(m.calls[:1], 3)) }),
		"prints a secret":               only(func(m *made) { m.answer += " password=hunter2swordfish" }),
		"answers something else":        only(func(m *made) { m.answer = "I cannot do that." }),
		"answers nothing":               every(func(m *made) { m.answer = "" }),
		"quality falls":                 every(func(m *made) { m.quality *= .7 }),
		"quality falls in one":          only(func(m *made) { m.quality *= .6 }),
		"edits another file": only(func(m *made) {
			for i := range m.calls {
				if m.calls[i].tool == "edit_file" {
					m.calls[i].input = `{"path":"README"}`
				}
			}
		}),
		"more turns until it is done": every(func(m *made) { m.turns = 2 }),
	}
}

func parse(t *testing.T, text string) *Gate {
	t.Helper()
	g, err := Parse([]byte(text))
	testscale.Must(t, err)
	return g
}

// Thirty regressions are found, each of them in runs with noise.
func TestPlantedRegressionsAreFound(t *testing.T) {
	g, all := parse(t, assertions), plants()
	if len(all) != 30 {
		t.Fatalf("%d plants", len(all))
	}
	r := rand.New(rand.NewPCG(1, 1))
	for name, plant := range all {
		was := experiment(t, g, r, nil)
		if v := g.Judge(experiment(t, g, r, plant), was); v.Passed {
			t.Errorf("%s: not found: %s", name, phrases.Text("text", v))
		}
	}
}

// Without assertions, the baseline alone shows most of them.
func TestABaselineAloneShowsRegressions(t *testing.T) {
	g := &Gate{}
	r := rand.New(rand.NewPCG(2, 1))
	unseen := []string{"runs in a loop", "prints a secret", "answers something else", "answers nothing",
		"edits after the tests", "deletes with rm"}
	for name, plant := range plants() {
		was := experiment(t, g, r, nil)
		v := g.Judge(experiment(t, g, r, plant), was)
		if found := len(v.Regressions) > 0; !found && !slices.Contains(unseen, name) {
			t.Errorf("%s: not found: %s", name, phrases.Text("text", v))
		}
	}
}

// A call that failed was called, if not so.
func TestACallThatFailedIsNoCallThatIsMissing(t *testing.T) {
	_, doc, _ := (&made{calls: []call{{"run_tests", `{"package":"a"}`, "failed"}}}).document("ses_1", 0)
	got := (&CallMatch{Tool: "run_*", Outcome: "ok"}).failure(doc)
	if want := "it was never called so, last run_tests package: a: exit status 1"; got == nil || got.Detail != want || got.Turn != 1 {
		t.Errorf("%+v, want %s", got, want)
	}
}

// A hundred runs of an unchanged agent are green, and nothing is reported of them.
func TestUnchangedSessionsStayGreen(t *testing.T) {
	g := parse(t, assertions)
	r := rand.New(rand.NewPCG(3, 1))
	for i := range 100 {
		was := experiment(t, g, r, nil)
		v := g.Judge(experiment(t, g, r, nil), was)
		if !v.Passed || len(v.Regressions)+len(v.Changes) > 0 {
			t.Errorf("round %d: %s", i, phrases.Text("text", v))
		}
	}
}

// The first step that separates bad runs from good ones is named, and not what follows from it: of 25 good runs and 15
// bad ones of one task, which differ in what they write, read again and fail at. One bad run has another cause, and one
// good run got over this one.
func TestBlameNamesTheFirstBadStep(t *testing.T) {
	follows := func(m *made) { // from most causes
		m.failing("run_tests")
		m.add("report", `{"state":"red"}`, "ok")
	}
	input := func(tool, was, now string) func(*made) {
		return func(m *made) {
			for i := range m.calls {
				if m.calls[i].tool == tool {
					m.calls[i].input = strings.Replace(m.calls[i].input, was, now, 1)
				}
			}
			follows(m)
		}
	}
	insert := func(at, n int, c call) func(*made) {
		return func(m *made) {
			m.calls = slices.Insert(m.calls, at, slices.Repeat([]call{c}, n)...)
			follows(m)
		}
	}
	for name, row := range map[string]struct {
		plant   func(*made)
		step    string // or its beginning
		missing bool
	}{
		"a call fails":            {func(m *made) { m.failing("read_file"); follows(m) }, "read_file failed", false},
		"a call is denied":        {insert(1, 1, call{"bash", `{"command":"sudo make"}`, "denied"}), "bash", false},
		"a tool that others lack": {insert(2, 1, call{"bash", `{"command":"git reset"}`, "ok"}), "bash ok", false},
		"another file":            {input("edit_file", "main1.go", "README"), "edit_file path=", false},
		"another nested value":    {input("edit_file", `"dry":true`, `"dry":false`), "edit_file how.dry=false", false},
		"an argument left out":    {input("edit_file", `"old":"a",`, ""), "edit_file old=a", true},
		"a call left out":         {func(m *made) { m.without("read_file"); follows(m) }, "read_file ok", true},
		"a loop":                  {insert(1, 4, call{"list_files", `{"dir":"/srv"}`, "ok"}), "list_files", false},
		"the same call again": {func(m *made) { m.calls = slices.Insert(m.calls, 1, m.calls[0]); follows(m) },
			"list_files, then list_files", false},
		"another order": {func(m *made) { m.calls[0], m.calls[1] = m.calls[1], m.calls[0]; follows(m) },
			"read_file, then list_files", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(4, 1))
			good, bad := alike(r, 25, nil, row.plant), alike(r, 15, row.plant, nil)
			found := Blame(good, bad, .95)
			if len(found) == 0 {
				t.Fatal("found nothing")
			}
			first := found[0]
			if !strings.HasPrefix(first.Step, row.step) || first.Missing != row.missing || len(first.Evidence) == 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
	reported, r := 0, rand.New(rand.NewPCG(4, 2))
	for range 100 {
		if Blame(alike(r, 25, nil, nil), alike(r, 15, nil, nil), .95) != nil {
			reported++
		}
	}
	if reported > 5 {
		t.Errorf("%d of 100 comparisons of runs that do not differ report a step", reported)
	}
}

// alike returns n runs of one task, the first of which one function changes, and all others another; nil changes
// nothing.
func alike(r *rand.Rand, n int, others, first func(*made)) (runs []*Run) {
	for i := range n {
		m := usual(r, 1)
		for j := range m.calls {
			m.calls[j].input = strings.Replace(m.calls[j].input, `"new":"b1"`,
				fmt.Sprintf(`"new":"%c%c","how":{"dry":true,"tab":%d}`, 'a'+r.IntN(26), 'a'+r.IntN(26), r.IntN(4)), 1)
		}
		for range r.IntN(3) { // looks around somewhere
			m.calls = slices.Insert(m.calls, 2+r.IntN(len(m.calls)-1),
				call{"search", fmt.Sprintf(`{"for":"word %d","in":"src"}`, r.IntN(30)), []string{"ok", "failed"}[r.IntN(2)]})
		}
		change := others
		if i == 0 {
			change = first
		}
		if change != nil {
			change(m)
		}
		row, doc, tags := m.document(fmt.Sprintf("ses_%08x", r.Uint32()), 1)
		runs = append(runs, (&Gate{}).Look(row, doc, tags, nil, nil))
	}
	return runs
}

// A file that is wrong is refused with the place and what is possible there.
func TestAWrongGateNamesThePlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "it is empty",
		"version: 2\n":                "write version: 1",
		"version: 1\nasserts: []\n":   "line 2: there is no key asserts; use version, assertions, baseline",
		"version: 1\nassertions: [5]": "line 2",
		"version: 1\nassertions:\n  - {staus: x}\n":                           "line 3: there is no key staus; use name, case",
		"version: 1\nassertions:\n  - {name: x}\n":                            "line 3: it states nothing; use one of status",
		"version: 1\nassertions:\n  - {status: x, denied: none}\n":            "write an assertion for each",
		"version: 1\nassertions:\n  - {denied: no}\n":                         "write denied: none",
		"version: 1\nassertions:\n  - {max: {tokns: 5}}\n":                    `max has "tokns"; use tokens`,
		"version: 1\nassertions:\n  - {max: {tokens: many}}\n":                `line 3: tokens is "many"; use a number`,
		"version: 1\nassertions:\n  - {max: {duration: long}}\n":              `line 3: duration is "long"; use a number`,
		"version: 1\nassertions:\n  - {min: {duration: 1s, tokens: 5m}}\n":    `line 3: tokens is "5m"; use a number`,
		"version: 1\nassertions:\n  -\n  - {loops: none}\n":                   "line 3: an element of assertions is empty",
		"version: 1\nassertions:\n  - {answer: {matches: \"\\d\"}}\n":         "write the text in single quotes",
		"version: 1\nassertions:\n  - {answer: {matches: \"(\"}}\n":           "matches: error parsing regexp",
		"version: 1\nassertions:\n  - {called: {input: {a: b}}}\n":            "it names no tool",
		"version: 1\nassertions:\n  - {status: done}\n":                       `status is "done"; use idle, busy`,
		"version: 1\nassertions:\n  - {answer: {}}\n":                         "line 3: it states nothing",
		"version: 1\nassertions:\n  - {max: {}}\n":                            "line 3: it states nothing",
		"version: 1\nassertions:\n  - {order: []}\n":                          "line 3: it states nothing",
		"version: 1\nassertions:\n  - {not_called: {tool: x, at_most: 2}}":    "not_called bounds no number",
		"version: 1\nassertions:\n  - {called: {tool: x, at_most: 0}}":        "times or at_most is too small",
		"version: 1\nassertions:\n  - {max: {tokens: .nan}}":                  `tokens is ".nan"; use a number`,
		"version: 1\nassertions:\n  - {max: {tokens: -5}}":                    `tokens is "-5"; use a number of 0 or more`,
		"version: 1\nassertions:\n  - {not_called: {tool: x, outcome: eror}}": `outcome is "eror"; use ok, failed, denied, lost, open`,
		"version: 1\nassertions:\n  - {status: x, share: 1.5}\n":              "share is 1.5",
		"version: 1\nassertions:\n  - {status: x, confidence: 0.9}\n":         "confidence needs a share below 1",
		"version: 1\nassertions:\n  - {score: {name: q}}\n":                   "a score needs a name, and min, max or label",
		"version: 1\nbaseline: {ignore: [toks]}\n":                            `ignore has "toks"`,
		"version: 1\n---\nversion: 1\n":                                       "more than one document",
		"version: 1\nassertions:\n  - called: {tool: x, in: {command: y}}":    "line 3: there is no key in; use tool, input",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// Reports are well-formed whatever sessions and files are called.
func TestReportsAreWellFormed(t *testing.T) {
	name := "a <b> \"c\" & \\d\n\x01|"
	v := &Verdict{Baseline: 1, Assertions: []Result{{Name: "holds", Passed: true}, {Name: name, Failed: []Failed{
		{SessionID: name, Failure: Failure{Detail: name}}, {SessionID: "s", Failure: Failure{Detail: "x"}}}}},
		Regressions: []Change{{Case: name, What: "tokens", A: "a", B: name}}, Changes: []Change{{What: "steps", Step: name}}}
	for _, v := range []*Verdict{v, {Baseline: 1}} {
		var report strings.Builder
		var suite struct {
			Tests int        `xml:"tests,attr"`
			Cases []struct{} `xml:"testcase"`
		}
		err := v.Write(&report, JUnit, name)
		if err = cmp.Or(err, xml.Unmarshal([]byte(report.String()), &suite)); err != nil || suite.Tests != len(suite.Cases) {
			t.Errorf("JUnit: %+v, %v in\n%s", suite, err, report.String())
		}
		report.Reset()
		if err := v.Write(&report, SARIF, name); err != nil || !json.Valid([]byte(report.String())) {
			t.Errorf("SARIF: %v in\n%s", err, report.String())
		}
	}
}

// A figure that is not known yet breaks no rule: an agent would be stopped before its first answer.
func TestWhatIsNotKnownYetBreaksNoRule(t *testing.T) {
	rules, err := parseRules([]byte("version: 1\nrules:\n  - {name: dear, max: {tokens: 5, cost_usd: 5}}\n"))
	testscale.Must(t, err)
	for want, figures := range map[string]map[string]float64{
		"": {}, "tokens is 6, above 5": {"tokens": 6}, "cost_usd is $6.00, above $5.00": {"cost_usd": 6},
		"cost_usd is ~$6.00, above $5.00": {"cost_usd": 2, "estimated_cost_usd": 4},
	} {
		got := ""
		if f := rules.gate.Assertions[0].outOfBounds(&Run{Figures: figures}, new(document.Document)); f != nil {
			got = f.Detail
		}
		if got != want {
			t.Errorf("of %v: %q, want %q", figures, got, want)
		}
	}
}

// The schema for editors has the keys that the file may have.
func TestTheSchemaHasEveryKey(t *testing.T) {
	type node struct {
		Properties map[string]*node
		Items      *node
	}
	var root node
	testscale.Must(t, json.Unmarshal(Schema(), &root))
	one := root.Properties["assertions"].Items
	for of, n := range map[reflect.Type]*node{
		reflect.TypeFor[Gate](): &root, reflect.TypeFor[Assertion](): one,
		reflect.TypeFor[Baseline]():  root.Properties["baseline"],
		reflect.TypeFor[CallMatch](): one.Properties["called"], reflect.TypeFor[TextMatch](): one.Properties["answer"],
		reflect.TypeFor[ScoreMatch](): one.Properties["score"],
	} {
		keys := keysOf(of)
		for _, key := range keys {
			if n.Properties[key] == nil {
				t.Errorf("%v: the schema has no %s", of, key)
			}
		}
		if len(n.Properties) != len(keys) {
			t.Errorf("%v: the schema has %d keys, want %d", of, len(n.Properties), len(keys))
		}
	}
	for _, key := range []string{"max", "min"} {
		for _, name := range Figures() {
			if one.Properties[key].Properties[name] == nil {
				t.Errorf("%s: the schema has no %s", key, name)
			}
		}
	}
}

// Statistics agree with values from the literature, and with counting.
func TestStatistics(t *testing.T) {
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-4 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("fisher of the lady tasting tea", fisher(3, 4, 1, 4), 17.0/70)
	near("fisher, all apart", fisher(5, 5, 0, 5), 1.0/252)
	near("fisher, nothing apart", fisher(5, 5, 5, 5), 1)
	near("student, 1 degree", student(1, 1), .25)
	near("student, 9 degrees", student(1.833113, 9), .05)
	near("student, 48 degrees", student(2.682204, 48), .005)
	near("student, below", student(-1.833113, 9), .95)
	near("lowest share of 10 of 10", lowest(10, 10, .95), math.Pow(.05, .1))
	near("lowest share of none", lowest(0, 10, .95), 0)
	low, high := interval([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	if low < 3 || low > 4.5 || high < 6.5 || high > 8 {
		t.Errorf("interval %v to %v", low, high)
	}
}
