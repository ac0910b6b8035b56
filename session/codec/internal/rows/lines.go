package rows

import "github.com/agenttrace/agenttrace/session/codec"

// Records calls record for each JSON object in text, and reports lines that are not one.
func Records(text []byte, report func(codec.Problem), record func(o Object, line int)) {
	for l := range Lines(text, report) {
		if l.Err != nil {
			report(codec.Problem{Line: l.N, Reason: "is not a record: left out: " + l.Err.Error()})
			continue
		}
		record(l.Object, l.N)
	}
}
