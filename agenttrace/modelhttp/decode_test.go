package modelhttp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// everything has a field of each type that requests and answers have.
type everything struct {
	anthropicMessage
	Text    string                     `json:"text"`
	Maybe   *string                    `json:"maybe"`
	Count   int                        `json:"count"`
	Big     *int64                     `json:"big"`
	Float   *float64                   `json:"float"`
	Yes     bool                       `json:"yes"`
	Raw     json.RawMessage            `json:"raw"`
	View    view                       `json:"view"`
	List    []everything               `json:"list"`
	Child   *everything                `json:"child"`
	Members map[string]json.RawMessage `json:"members"`
	Texts   map[string]string          `json:"texts"`
	Bytes   []byte                     `json:"bytes"`
	Inner   struct {
		Name string `json:"name"`
	} `json:"inner"`
}

// compare decodes a document with unmarshal and with encoding/json.
func compare[T any](t *testing.T, data []byte) {
	t.Helper()
	var ours, theirs T
	ourErr, theirErr := unmarshal(data, &ours), json.Unmarshal(data, &theirs)
	if (ourErr == nil) != (theirErr == nil) || !reflect.DeepEqual(ours, theirs) {
		t.Errorf("%q\nunmarshal     %+v, %v\nencoding/json %+v, %v", data, ours, ourErr, theirs, theirErr)
	}
}

// FuzzUnmarshal has documents decoded the same as by encoding/json.
func FuzzUnmarshal(f *testing.F) {
	for _, data := range []string{
		`{"text":"a\nä\ud83d\ude00","maybe":"","count":7,"big":123456789012,"float":-1.5e3,"yes":true,"raw": {"a":[1, 2]} }`,
		`{"text":null,"maybe":null,"count":null,"float":null,"yes":null,"raw":null,"list":null,"child":null,"inner":null}`,
		`{"list":[],"members":{}}`, `{"list":[{"text":"a"},{},{"list":[{"count":1}]}],"child":{"child":{"text":"b"}}}`,
		`{"view":{"a":[1]},"list":[{"view":" a"},{"view":null}]}`,
		`{"members":{"a":1,"a":{"b":null},"\u0061":2},"texts":{"a":"b","a":null}}`,
		`{"id":"x","usage":{"n":1},"content":[1,"a"]}`,
		`{"Text":"other case"}`, `{"text":"twice","text":"more"}`, `{"inner":{"name":"a"},"inner":{}}`, `{"count":1.5}`,
		`{"count":"1"}`, `{"text":1}`, `{"list":{}}`, `{"bytes":"AAAA"}`, `{"texts":{"a":1}}`, `{"raw":}`, `[]`, `null`, ``,
		`{"text":"` + "\xff" + `"}`, `{"unknown":"\q"}`, `{"count":-1,"float":01}`, `{"float":1e999}`, `{"yes":truer}`,
	} {
		f.Add([]byte(data))
	}
	for name, events := range deltas {
		for _, data := range slices.Concat(events, odd[name]) {
			f.Add([]byte(data))
		}
	}
	for _, a := range modelserver.APIs {
		_, body := a.Request(&modelserver.Weather, 1, 1, true)
		data, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compare[everything](t, data)
		compare[[]everything](t, data)
		compare[map[string]json.RawMessage](t, data)
		compare[string](t, data)
		compare[chatChunk](t, data)
		compare[geminiContent](t, data)
		compare[geminiChunk](t, data)
		compare[responsesItem](t, data)
		if before := bytes.Clone(data); isJSON(data) != json.Valid(before) || !bytes.Equal(before, data) {
			t.Errorf("isJSON of %q is wrong", before)
		}
	})
}
