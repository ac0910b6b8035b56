package csvfile_test

import (
	"bytes"
	"encoding/csv"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/csvfile"
)

func TestConformance(t *testing.T) {
	codectest.Run(t, codectest.Codec{

		Encode:  func(w io.Writer, s *codec.Session) error { return csvfile.Encode(w, s) },
		Explain: csvfile.Explain,
		Check: func(data []byte) error {
			_, err := csv.NewReader(bytes.NewReader(data)).ReadAll() // rows of one length
			return err
		},
	})
}

// FuzzEncode has any title and text be cells and nothing more: one row per part, or of a
// message without parts, and sums of columns that are those of the messages.
func FuzzEncode(f *testing.F) {
	f.Add(uint64(1), uint8(3), "=cmd|' /C calc'!A0\r\n\"x\",y")
	f.Add(uint64(7), uint8(9), "\ufeff\x00")
	f.Fuzz(func(t *testing.T, seed uint64, size uint8, said string) {
		s := codectest.Generate(rand.New(rand.NewPCG(seed, 2)), int(size%16))
		s.Session.Title, s.Session.Agent = said, said
		rows := 1
		var tokens int64
		for i := range s.Messages {
			m := &s.Messages[i]
			rows += max(1, len(m.Parts))
		}
		if used := s.Tokens().Used; used != nil {
			tokens = used.Total()
		}
		var b bytes.Buffer
		if err := csvfile.Encode(&b, s); err != nil {
			t.Fatal(err)
		}
		table, err := csv.NewReader(&b).ReadAll() // rows of one length
		if err != nil || len(table) != rows {
			t.Fatalf("%d rows, want %d; error %v", len(table), rows, err)
		}
		total := slices.Index(table[0], "total")
		var sum int64
		for _, row := range table[1:] {
			if row[total] == "" {
				continue
			}
			n, err := strconv.ParseInt(row[total], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if sum != tokens {
			t.Errorf("the column total sums to %d, the messages to %d", sum, tokens)
		}
	})
}
