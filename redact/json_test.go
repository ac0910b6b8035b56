package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSONByKey(t *testing.T) {
	r := mustNew(t, Config{})
	for in, want := range map[string]string{
		`{"password":"x1"}`: `{"password":"__REDACTED__"}`,
		` { "password" : [1, {"a": "b"}] , "b": 2.50e3 } `:  ` { "password" : "__REDACTED__" , "b": 2.50e3 } `,
		`{"cookies":{"sid":"x"},"n":1}`:                     `{"cookies":"__REDACTED__","n":1}`,
		`{"secret":[123456,"required"]}`:                    `{"secret":"__REDACTED__"}`,
		`{"secret":["This field is required.",""]}`:         `{"secret":["This field is required.",""]}`,
		`{"password":1234}`:                                 `{"password":"__REDACTED__"}`,
		`{"token":1234,"access_token":5}`:                   `{"token":1234,"access_token":5}`,
		`{"token":{"in":1,"out":[2,3]}}`:                    `{"token":{"in":1,"out":[2,3]}}`,
		`{"token":{"value":"abc"}}`:                         `{"token":"__REDACTED__"}`,
		`{"SecretList":[{"Name":"db"}]}`:                    `{"SecretList":[{"Name":"db"}]}`,
		`{"passwordList":[["x1"]],"secretList":"[\"x1\"]"}`: `{"passwordList":"__REDACTED__","secretList":"__REDACTED__"}`,
		`{"password":"${A}x1${B}","secret":"${A}"}`:         `{"password":"__REDACTED__","secret":"${A}"}`,
		`{"pass\u0077ord":"x1"}`:                            `{"pass\u0077ord":"__REDACTED__"}`,
		`{"Secret":null,"secret":true,"api_key":""}`:        `{"Secret":null,"secret":true,"api_key":""}`,
		`{"password":{"type":"string","default":"hunter2"}}`: `{"password":{"type":"string",` +
			`"default":"__REDACTED__"}}`,
		`{"password":{"type":"string","value":"hunter2"}}`: `{"password":"__REDACTED__"}`,
		`{"a":"{\"password\":\"x1\",\"n\":[1,2]}"}`: `{"a":"{\"password\":\"__REDACTED__\",\"n\":[1,` +
			`2]}"}`,
		`{"a":"{\"password\":{\"deep\":[1]}}","\u00e9":"\ud83d"}`: `{"a":"{\"password\":\"__REDACTED__\"}",` +
			`"\u00e9":"\ud83d"}`,
		`["--password","x1","--verbose"]`:                      `["--password","__REDACTED__","--verbose"]`,
		`["--max-tokens","4096","--token-file","f"]`:           `["--max-tokens","4096","--token-file","f"]`,
		`["docker","login","-u","me","-p","x1"]`:               `["docker","login","-u","me","-p","__REDACTED__"]`,
		`["docker","run","-p","8080:80"]`:                      `["docker","run","-p","8080:80"]`,
		`["mysql","-px1y2","db"]`:                              `["mysql","-p__REDACTED__","db"]`,
		`{"a":"\ud83d password=abc1defg \ud83d\ude00 \u2028"}`: `{"a":"\ud83d password=__REDACTED__ \ud83d\ude00 \u2028"}`,
	} {
		got := string(r.JSON([]byte(in)))
		if got != want {
			t.Errorf("JSON(%s)\n got %s\nwant %s", in, got, want)
		}
		if again := string(r.JSON([]byte(got))); again != got {
			t.Errorf("JSON twice: %s, then %s", got, again)
		}
	}
}

func TestJSONKeepsItsInput(t *testing.T) {
	r := mustNew(t, Config{})
	clean := []byte(`{"a":[1,2],"password":""}`)
	if got := r.JSON(clean); &got[0] != &clean[0] {
		t.Error("clean JSON was copied")
	}
	dirty := []byte(`{"password":"x1"}`)
	before := string(dirty)
	if got := r.JSON(dirty); string(dirty) != before || string(got) == before {
		t.Errorf("JSON wrote to its input, or left it: %s, %s", dirty, got)
	}
}

func TestWhatIsNotJSON(t *testing.T) {
	r := mustNew(t, Config{})
	for _, in := range []string{
		`{"password":"` + password + `"`, `{"a":{"password":"` + password,
		`{"cookies":{"sid":"` + password + `","x":"` + password, `{"password":["` + password + `",`,
		`{"password":"` + password + `"} {"password":"` + password + `"}`,
		"{\"password\":\"" + password + "\"}\n{\"b\":1}\n", `{password: "` + password + `"}`,
		`{"password":"` + password + TruncatedMarker + `[99 bytes]`,
		"```json\n{\"api_key\": \"" + password + "\"}\n```", `data: {"token":"` + password + `"}` + "\n\n",
	} {
		if out := r.Text(in); survives(out, password) != "" {
			t.Errorf("Text(%q) = %q", in, out)
		}
		if out := r.JSON([]byte(in)); survives(string(out), password) != "" {
			t.Errorf("JSON(%q) = %q", in, out)
		}
	}
}

func TestJSONNestsDeeply(t *testing.T) {
	r := mustNew(t, Config{})
	in := `{"password":"` + password + `"}`
	for range 12 {
		if len(in) > 1<<16 {
			break
		}
		in = asJSON(map[string]string{"a": in})
		out := r.JSON([]byte(in))
		if !json.Valid(out) || survives(string(out), password) != "" {
			t.Fatalf("nested: %s", out)
		}
	}
	deep := strings.Repeat("[", 5000) + `"password=` + password + `"` + strings.Repeat("]", 5000)
	if out := r.JSON([]byte(deep)); survives(string(out), password) != "" || !json.Valid(out) {
		t.Errorf("5000 arrays deep: %q left", survives(string(out), password))
	}
}

func TestFunc(t *testing.T) {
	type call struct{ key, value string }
	var calls []call
	r := mustNew(t, Config{Func: func(key, value string) (string, bool) {
		calls = append(calls, call{key, value})
		return strings.ReplaceAll(value, "ACME", "[customer]"), strings.Contains(value, "ACME")
	}})
	got := string(r.JSON([]byte(`{"name":"ACME \"x\"","password":"ACME","list":["ACME"],"key":"` + "gh" + "p_" +
		mix40[:36] + `"}`)))
	want := `{"name":"[customer] \"x\"","password":"__REDACTED__","list":["[customer]"],` +
		`"key":"[redacted:github-token]"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(calls) != 3 || calls[0] != (call{"name", `ACME "x"`}) || calls[1].key != "list" ||
		calls[2] != (call{"key", "[redacted:github-token]"}) {
		t.Errorf("calls: %q", calls)
	}
	if got := r.Value("note", "for ACME"); got != "for [customer]" {
		t.Errorf("Value: %q", got)
	}
}

func TestNilRedactorChangesNothing(t *testing.T) {
	var r *Redactor
	s := `{"password":"` + password + `"}`
	if got := r.Text(s); got != s {
		t.Errorf("Text: %q", got)
	}
	if got := r.Value("password", s); got != s {
		t.Errorf("Value: %q", got)
	}
	if got := r.JSON([]byte(s)); string(got) != s {
		t.Errorf("JSON: %q", got)
	}
	if got, res := r.Truncate(s); got != s || res != (Result{Size: len(s)}) {
		t.Errorf("Truncate: %q %+v", got, res)
	}
	if got, res := r.TruncateJSON([]byte(s)); string(got) != s || res != (Result{Size: len(s)}) {
		t.Errorf("TruncateJSON: %q %+v", got, res)
	}
	if got, res := r.Apply(Prompt, "password", s); got != s || res != (Result{Size: len(s)}) {
		t.Errorf("Apply: %q %+v", got, res)
	}
	if got, res := r.ApplyJSON(Prompt, "password", []byte(s)); string(got) != s || res != (Result{Size: len(s)}) {
		t.Errorf("ApplyJSON: %q %+v", got, res)
	}
}

func TestOffSwitches(t *testing.T) {
	s := "password=" + password + " gh" + "p_" + mix40[:36]
	if got := mustNew(t, Config{DisableKeys: true, DisablePatterns: true}).Text(s); got != s {
		t.Errorf("all off: %q", got)
	}
	if got, want := mustNew(t, Config{DisablePatterns: true}).Text(s),
		"password=__REDACTED__ __REDACTED__"; got != want { // what is beside a label is judged without them
		t.Errorf("patterns off: %q", got)
	}
	far := "Pour la base de recette, connecte-toi avec k39qeapQ9MeYR et password=" + password
	if got, want := mustNew(t, Config{DisableRules: []string{"clues"}}).Text("k39qeapQ9MeYR"+strings.Repeat(" ", 200)+far),
		"k39qeapQ9MeYR"; !strings.HasPrefix(got, want) || strings.Contains(got, password) {
		t.Errorf("clues off: %q", got)
	}
	if got, want := mustNew(t, Config{DisableKeys: true}).Text(s),
		"password="+password+" [redacted:github-token]"; got != want {
		t.Errorf("keys off: %q", got)
	}
}

// Whether JSON is worth decoding does not depend on where in it a secret stands.
func TestSuspectAtEveryPlace(t *testing.T) {
	r := mustNew(t, Config{})
	texts := []string{`password: \"hunter2swordfish\"`, `\u0070assword=hunter2swordfish`,
		`https:\/\/u:hunter2swordfish@example.com`}
	for _, x := range ruleExamples {
		texts = append(texts, asJSON(x.whole())[1:len(asJSON(x.whole()))-1])
	}
	for _, key := range DefaultKeys() {
		texts = append(texts, `app_`+key+`=\"`+mix20+`\"`)
	}
	for _, text := range texts {
		for n := range 16 {
			raw := `{"` + strings.Repeat("x", n) + `":" ` + text + strings.Repeat(" ", n) + `"}`
			if out := r.JSON([]byte(raw)); string(out) == raw {
				t.Errorf("at place %d: %s", n, raw)
			}
		}
	}
}
