package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// The corpus has the shape of transcripts that Claude Code 2.1 wrote: about 60 % of the bytes are
// copies of the system prompt and of the tool catalog, which the client records with its
// requests; a quarter are results of tools, most of them code; and each result is there twice,
// as the model gets it and as the client keeps it.
const (
	turns        = 6
	stepsPerTurn = 4
)

// object is a JSON object whose keys are written in the order of their names.
type object map[string]any

// transcript is one file of the corpus.
type transcript struct {
	w       *bufio.Writer
	r       *rand.Rand
	session string
	parent  string
	second  int
}

// writeCorpus writes n transcripts below dir, in the layout of Claude Code, and returns their size.
func writeCorpus(dir string, n int) (bytes int64, err error) {
	for i := range n {
		t := transcript{r: rand.New(rand.NewPCG(1, uint64(i)))}
		t.session = t.id()
		path := filepath.Join(dir, "projects", fmt.Sprintf("-work-project%d", i%10), t.session+".jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return 0, err
		}
		size, err := t.write(path)
		if err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

func (t *transcript) write(path string) (int64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	t.w = bufio.NewWriter(f)
	prompt, tools := t.text(4400), t.tools(18)
	for turn := range turns {
		task := fmt.Sprintf("Task %d: %s", turn, t.text(300))
		t.record("user", object{"message": object{"role": "user", "content": task},
			"promptId": t.id(), "permissionMode": "default"})
		for step := range stepsPerTurn {
			t.record("attachment", object{
				"attachment": object{"type": "prompt_snapshot", "systemPrompt": []string{prompt}},
			})
			t.record("api-request-shape", object{"model": "claude-opus-5-5", "tools": tools})
			t.step(fmt.Sprintf("msg_%s_%d_%d", t.session[:8], turn, step), step == stepsPerTurn-1)
		}
		t.record("system", object{"subtype": "turn_duration", "durationMs": 4000 + t.r.IntN(9000), "isMeta": false})
	}
	if err := t.w.Flush(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Close()
}

// step writes an answer of the model and, unless it ends the turn, the result of the tool that it calls.
func (t *transcript) step(id string, last bool) {
	usage := object{"input_tokens": 4 + t.r.IntN(500), "output_tokens": 50 + t.r.IntN(900),
		"cache_read_input_tokens": 9000 + t.r.IntN(9000), "cache_creation_input_tokens": t.r.IntN(800)}
	answer := func(stop any, block object) {
		t.record("assistant", object{"requestId": "req_" + id, "effort": "medium", "message": object{
			"id": id, "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []object{block},
			"stop_reason": stop, "stop_sequence": nil, "usage": usage}})
	}
	answer(nil, object{"type": "thinking", "thinking": t.text(400), "signature": t.id() + t.id()})
	if last {
		answer("end_turn", object{"type": "text", "text": t.text(900)})
		return
	}
	call := "toolu_" + t.id()[:20]
	answer("tool_use", object{"type": "tool_use", "id": call, "name": "Bash",
		"input": object{"command": "cat src/file" + t.id()[:4] + ".go", "description": t.text(40)}})
	output := t.code(2200)
	t.record("user", object{"message": object{"role": "user",
		"content": []object{{"tool_use_id": call, "type": "tool_result", "content": output, "is_error": false}}},
		"toolUseResult": object{"stdout": output, "stderr": "", "interrupted": false, "isImage": false}})
}

// record writes a record of a kind, with what all records have.
func (t *transcript) record(kind string, o object) {
	t.second++
	id := t.id()
	o["type"], o["uuid"], o["parentUuid"] = kind, id, any(t.parent)
	if t.parent == "" {
		o["parentUuid"] = nil
	}
	t.parent = id
	o["timestamp"] = fmt.Sprintf("2026-05-%02dT10:%02d:%02d.%03dZ", 1+len(t.session)%28, t.second/60%60, t.second%60,
		t.r.IntN(1000))
	o["sessionId"], o["cwd"], o["version"], o["gitBranch"] = t.session, "/work/project", "2.1.329", "main"
	o["isSidechain"], o["userType"] = false, "external"
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // texts and numbers always have JSON
	}
	_, _ = t.w.Write(append(line, '\n')) // Flush reports the error
}

func (t *transcript) id() string {
	a, b := t.r.Uint64(), t.r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&(1<<48-1))
}

var words = strings.Fields(`the of and to in a is that for it as was with be by on not he this are or his from at which
 but have an they you were her all she there would their we him been has when who will more no if out so said what up
 its about into than them can only other new some could time these two may then do first any my now such like our over`)

func (t *transcript) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[t.r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// code is text with line breaks, tabs and quotes, which JSON escapes.
func (t *transcript) code(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%6d\tif err := %s.%s(ctx, \"%s\"); err != nil {\n"+
			"\t\treturn fmt.Errorf(\"%s: %%w\", err)\n\t}\n",
			t.r.IntN(900), words[t.r.IntN(len(words))], words[t.r.IntN(len(words))], t.id()[:8],
			words[t.r.IntN(len(words))])
	}
	return b.String()
}

// tools is a catalog of n tools with their schemas.
func (t *transcript) tools(n int) []object {
	var all []object
	for i := range n {
		all = append(all, object{"name": fmt.Sprintf("Tool%d", i), "description": t.text(60), "input_schema": object{
			"type": "object", "properties": object{"path": object{"type": "string", "description": t.text(20)}},
			"required": []string{"path"}}})
	}
	return all
}
