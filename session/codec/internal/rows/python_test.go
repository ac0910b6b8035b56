package rows

import (
	"encoding/json"
	"testing"
)

func TestPythonAppend(t *testing.T) {
	ascii := Python{ASCII: true}
	for _, tt := range []struct {
		p        Python
		in, want string
	}{
		{Python{}, `{}`, `{}`},
		{Python{Indent: true}, `{}`, `{}`},
		{Python{}, `{"a":[],"b":{},"c":[1,-0.5,1e-05,true,null],"d":{"e":"x, y: [z]"}}`,
			`{"a": [], "b": {}, "c": [1, -0.5, 1e-05, true, null], "d": {"e": "x, y: [z]"}}`},
		{Python{Indent: true}, `{"a":[],"b":{},"c":[1,-0.5,1e-05,true,null],"d":{"e":"x, y: [z]"}}`,
			"{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    -0.5,\n    1e-05,\n    true,\n    null\n  ],\n" +
				"  \"d\": {\n    \"e\": \"x, y: [z]\"\n  }\n}"},
		{Python{}, `"\u00e9\u2028\/\u0001\u001f\u007f\b\f\n\r\t\"\\"`,
			"\"é\u2028/\\u0001\\u001f\x7f\\b\\f\\n\\r\\t\\\"\\\\\""},
		{Python{}, `"\ud83d\ude00"`, `"😀"`},
		{Python{}, `"\ud83d"`, `"\ud83d"`}, // half a pair
		{Python{}, `"\u003c"`, `"<"`},
		{ascii, `{"a":[1,2.50,-1e-05,true,null],"b":{}}`, `{"a": [1, 2.50, -1e-05, true, null], "b": {}}`},
		{ascii, `"é😀\u00e9\ud83d\ude00\/\b\u007f` + "\u007f" + `"`,
			`"\u00e9\ud83d\ude00\u00e9\ud83d\ude00/\b\u007f\u007f"`},
		{ascii, `"\ud800 lone \"q\" \\ \u0041"`, `"\ud800 lone \"q\" \\ A"`},
		{ascii, `"a, b: c"`, `"a, b: c"`},
	} {
		value, err := Value(json.RawMessage(tt.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(tt.p.Append(nil, value)); got != tt.want {
			t.Errorf("%+v of %s = %s, want %s", tt.p, tt.in, got, tt.want)
		}
	}
}

func TestParsePython(t *testing.T) {
	quote := func(word string) string { return `"` + word + `"` }
	for in, want := range map[string]string{
		`{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN \\\"NaN","d":-1}`: `{"a":"NaN","b":["-Infinity","Infinity"],` +
			`"c":"NaN \\\"NaN","d":-1}`,
		`{"a":"NaN"}`: `{"a":"NaN"}`,
		`{"a":1}`:     `{"a":1}`,
	} {
		got, found, err := ParsePython([]byte(in), quote)
		if string(got.JSON()) != want || found != (in != want) || err != nil {
			t.Errorf("ParsePython(%s) = %s, %v, %v", in, got.JSON(), found, err)
		}
	}
}
