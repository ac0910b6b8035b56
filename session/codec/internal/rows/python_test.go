package rows

import "testing"

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
