package ingest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
)

// builder collects the changes of one delivery.
type builder struct {
	batch store.Batch
	// redaction takes out what may not be stored.
	redaction redaction
	// problems are those of the span at hand.
	problems []string
	// facts are those of the span or record at hand.
	facts dialect.Emitter
	keys  *dialect.Keys
	// noted are sessions that were named by spans which report nothing else.
	noted map[noted]bool
	// seen counts the records that report a message by their digest: of the scope at hand, for a delivery may hold what
	// was delivered before, as a block of its own.
	seen map[string]int
	// received is when the span or record at hand came.
	received int64
	// foreign is the span at hand that is not the SDK's, here so that it is not allocated.
	foreign dialect.Span
}

func (b *builder) reset() {
	b.batch = store.Batch{}
	clear(b.noted)
	clear(b.seen)
	b.foreign = dialect.Span{}
	b.problems = b.problems[:0]
}

// problem notes what is wrong with the span at hand.
func (b *builder) problem(problem string) {
	const limit = 200 // an error may quote a value of any length
	if b.redaction.Redactor != nil {
		problem = b.redaction.Text(problem) // before a cut makes a secret unlike one
	}
	if len(problem) > limit {
		problem = strings.ToValidUTF8(problem[:limit], "") + "…"
	}
	b.problems = append(b.problems, problem)
}

// takeProblems returns the problems for storing, a few at most: the count of a
// broken emitter's problems has no bound.
func (b *builder) takeProblems() []string {
	const limit = 8
	return append([]string(nil), b.problems[:min(len(b.problems), limit)]...)
}

// session adds a change of a session, which is valid until the next one. from and
// to are Unix nanoseconds; 0 is unset.
func (b *builder) session(id string, from, to int64) *store.SessionChange {
	b.batch.Sessions = append(b.batch.Sessions, store.SessionChange{ID: id, Start: from / 1e6, End: to / 1e6})
	return &b.batch.Sessions[len(b.batch.Sessions)-1]
}

// reported is a value that was reported at a time, nil without a text.
func reported(text string, at int64, rank store.Rank) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: at, Rank: rank}
}

// stub reports that a message exists.
func (b *builder) stub(sessionID, messageID string, from, to int64) {
	b.batch.Messages = append(b.batch.Messages, store.MessageChange{
		ID: messageID, SessionID: sessionID, CreatedAt: from / 1e6, UpdatedAt: to / 1e6, Rank: store.RankStub,
	})
}

// blob stores a text and returns the digest that it is kept by: the one that its source gives it,
// or else its own.
func (b *builder) blob(kind store.BlobKind, digest, body string) string {
	if body == "" {
		return digest
	}
	own := sha256Hex(body)
	blob := store.Blob{Kind: kind, Digest: cmp.Or(digest, own), Body: body}
	if blob.Exact = blob.Digest == own; !slices.Contains(b.batch.Blobs, blob) {
		b.batch.Blobs = append(b.batch.Blobs, blob)
	}
	return blob.Digest
}

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
