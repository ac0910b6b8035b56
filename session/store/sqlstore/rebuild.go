package sqlstore

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session/store"
)

// rebuildAfter is how long after it was stored an observation of a long turn is in its rows, unless rebuilding takes so
// long that there would be time for nothing else.
const rebuildAfter = time.Second

// rebuilder has the turns rebuilt that a store has left unbuilt; see [store.Batch].
type rebuilder struct {
	// working is held while turns are rebuilt, so that who asks for that waits until it is done.
	working sync.Mutex
	mu      sync.Mutex
	// functions has the functions of the last batch, nil until there is one. With the first, it is not known what an
	// earlier process has left.
	functions *store.Batch
	// unbuilt reports that there may be such turns, timer is set while they are to be rebuilt, and pause how long after.
	unbuilt bool
	timer   *time.Timer
	pause   time.Duration
	closed  bool
	running sync.WaitGroup
}

// applied notes what a batch has left.
func (w *Writer) applied(b *store.Batch, unbuilt bool) {
	r := w.rebuilder
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.functions == nil {
		r.functions = &store.Batch{Assemble: b.Assemble, Adopt: b.Adopt, Threads: b.Threads}
		r.pause, unbuilt = rebuildAfter, true
	}
	if unbuilt {
		r.unbuilt = true
		w.rebuildSoon()
	}
}

// rebuildSoon starts the timer. The rebuilder is locked.
func (w *Writer) rebuildSoon() {
	r := w.rebuilder
	if r.timer != nil || r.closed {
		return
	}
	r.running.Add(1)
	r.timer = time.AfterFunc(r.pause, func() {
		defer r.running.Done()
		begin := time.Now()
		_ = w.Rebuild(context.Background()) // the marks are still there, and it is tried again
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timer, r.pause = nil, max(rebuildAfter, 4*time.Since(begin))
		if r.unbuilt {
			w.rebuildSoon()
		}
	})
}

// Rebuild builds what long turns lack, and returns when that is committed: the turns of each owner that is marked in a
// transaction of its own. Without it, that is done within a second, or when the store is closed.
func (w *Writer) Rebuild(ctx context.Context) error {
	r := w.rebuilder
	r.working.Lock()
	defer r.working.Unlock()
	r.mu.Lock()
	functions, unbuilt := r.functions, r.unbuilt
	r.unbuilt = false
	r.mu.Unlock()
	for owner := ""; unbuilt; unbuilt = owner != "" {
		var err error
		owner, err = committed(ctx, w, func(t Tx) (string, error) { return store.Rebuild(t, functions, owner) })
		if err != nil {
			r.mu.Lock()
			r.unbuilt = true
			r.mu.Unlock()
			return err
		}
	}
	return nil
}

// Finish rebuilds what is left before an engine closes. What cannot be rebuilt now stays marked.
func (w *Writer) Finish() {
	r := w.rebuilder
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.running.Done()
	}
	r.mu.Unlock()
	r.running.Wait()
	if !closed {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = w.Rebuild(ctx) // the marks are still there
	}
}

// fold returns a character that is the same for all that are equal apart from case.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			least = min(least, f)
		}
	}
	return least
}

// AppendFolded appends a text in which characters that a search takes for equal are equal.
func AppendFolded(to []byte, text string) []byte {
	for _, r := range text {
		to = utf8.AppendRune(to, fold(r))
	}
	return to
}

// AppendFoldedJSON appends JSON with its escapes resolved, folded likewise: what is in a string of it is in the result.
func AppendFoldedJSON(to, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && i+1 < len(raw):
			r, size := unescaped(raw[i:])
			to = utf8.AppendRune(to, fold(r))
			i += size
		case c < utf8.RuneSelf:
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			to = append(to, c)
			i++
		default:
			r, size := utf8.DecodeRune(raw[i:])
			to = utf8.AppendRune(to, fold(r))
			i += size
		}
	}
	return to
}

// unescaped returns the character that an escape at the beginning of raw means, and the length of the escape.
func unescaped(raw []byte) (rune, int) {
	if i := strings.IndexByte("bfnrt", raw[1]); i >= 0 {
		return rune("\b\f\n\r\t"[i]), 2
	} else if raw[1] != 'u' {
		return rune(raw[1]), 2 // the next byte of a longer character, which JSON does not allow here, does not match
	}
	r, size := escapedUnit(raw), min(6, len(raw))
	if !utf16.IsSurrogate(r) {
		return r, size
	}
	if pair := utf16.DecodeRune(r, escapedUnit(raw[size:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, size
}

// escapedUnit returns the UTF-16 unit of an escape \uXXXX at the beginning of raw, [utf8.RuneError] if there is none.
func escapedUnit(raw []byte) rune {
	if bytes.HasPrefix(raw, []byte(`\u`)) {
		if r := jsonscan.Unit(string(raw[2:min(6, len(raw))])); r >= 0 {
			return r
		}
	}
	return utf8.RuneError
}
