package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/internal/cli"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/session/web"
)

// The API exports the bytes that the command exports, in every format.
func TestTheAPIExportsAsTheCommandDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	command := func(args ...string) []byte {
		t.Helper()
		var out, errs bytes.Buffer
		if code := cli.Main("v1.2.3", append([]string{"--store", path}, args...), nil, &out, &errs); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, &errs)
		}
		return out.Bytes()
	}
	captures := "../../session/ingest/testdata/captures/"
	command("import", "--quiet", "../../session/testdata/reference.jsonl", captures+"claude-code-2.1.329",
		captures+"gemini-cli-0.61.0")
	r := testscale.Open(t, sqlite.OpenReader, path)
	server := httptest.NewServer(web.New(web.Backend{Sessions: document.Reader{Reader: r}}, web.Options{}))
	defer server.Close()
	for _, row := range storetest.Sessions(t, r) {
		for _, f := range formats.Filter((*formats.Format).InFile) {
			for _, option := range []string{"", "redact"} {
				args := []string{"export", row.ID, "--format", f.Name}
				q := url.Values{"format": {f.Name}}
				if option != "" {
					args = append(args, "--"+option)
					q.Set(option, "true")
				}
				answer, err := http.Get(server.URL + web.Prefix + "sessions/" + row.ID + "/export?" + q.Encode())
				testscale.Must(t, err)
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("%s of %s: status %d (%v)\n%s", f.Name, row.ID, answer.StatusCode, err, got)
					continue
				}
				var want []byte
				if f.Stream != nil {
					want = command(args...)
				} else {
					file := filepath.Join(t.TempDir(), "x"+f.Ext)
					command(append(args, "--output", file)...)
					if want, err = os.ReadFile(file); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s of %s %s: the API gives %d bytes, the command %d", f.Name, row.ID, option, len(got),
						len(want))
				}
			}
		}
	}
}
