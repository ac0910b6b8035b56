package gate

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Headers of a webhook's request. The signature is "sha256=" and the HMAC of the timestamp, a dot and the body, in
// hexadecimal digits; the timestamp is in Unix seconds.
const (
	HeaderID        = "Idempotency-Key"
	HeaderTimestamp = "X-Agenttrace-Timestamp"
	HeaderSignature = "X-Agenttrace-Signature"
)

// An attempt to deliver has attemptTimeout. Between two attempts are minPause, twice as much each time, up to maxPause.
const (
	attemptTimeout     = 10 * time.Second
	minPause, maxPause = 500 * time.Millisecond, time.Minute
)

// A fact that has been delivered is forgotten when it was not found again for remembered: its session did not change
// for as long. That it was found again is written once in seenEvery.
const (
	remembered = 30*24*time.Hour + seenEvery
	seenEvery  = time.Hour
)

// outbox is a database of facts. A fact is in it before it is delivered. The file is locked, so that one process uses
// it.
type outbox struct {
	rules   *Rules
	resumed bool

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // there is more to be delivered, or an end of it
	conn    *sqlite.Conn
	ending  bool // what is to be delivered is all that will be
}

// outboxTable has the facts as JSON. seen is when one was found last, and done are the ways that have delivered it. The
// function pending has the ways that are to deliver it yet.
const outboxTable = `CREATE TABLE facts (id TEXT PRIMARY KEY, rule TEXT NOT NULL, at INTEGER NOT NULL,
	seen INTEGER NOT NULL, fact TEXT NOT NULL, done TEXT NOT NULL DEFAULT '')`

func openOutbox(path string, rules *Rules) (*outbox, error) {
	o := &outbox{rules: rules}
	o.changed = sync.NewCond(&o.mu)
	err := os.MkdirAll(filepath.Dir(path), 0o700) // there need be no store yet
	if err == nil {
		err = o.open(path)
	}
	if err == nil {
		return o, nil
	}
	if o.conn != nil {
		_ = o.conn.Close()
	}
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		return nil, fmt.Errorf("another watch uses %s; end it, or name a file of this one's own, with --state or "+
			"watch::state", path)
	}
	return nil, fmt.Errorf("open the state of the watch: %w; name another file", err)
}

func (o *outbox) open(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // the database would be for all to read
	if err != nil {
		return err
	}
	_ = f.Close()
	if o.conn, err = sqlite.OpenConn(path, sqlite.OpenReadWrite); err != nil {
		return err
	}
	o.conn.SetBusyTimeout(0)
	// What the first transaction locks stays so.
	if err := sqlitex.ExecuteTransient(o.conn, "PRAGMA locking_mode = EXCLUSIVE", nil); err != nil {
		return err
	}
	err = o.conn.CreateFunction("pending", &sqlite.FunctionImpl{NArgs: 2, // the rule, and done
		Scalar: func(_ sqlite.Context, of []sqlite.Value) (sqlite.Value, error) {
			ways := slices.DeleteFunc(o.rules.ways(of[0].Text()), func(way string) bool {
				return strings.Contains(of[1].Text(), way)
			})
			return sqlite.TextValue(strings.Join(ways, " ")), nil
		}})
	if err != nil {
		return err
	}
	end, err := sqlitex.ExclusiveTransaction(o.conn)
	if err != nil {
		return err
	}
	defer end(&err)
	o.resumed, err = sqlitex.ResultBool(o.conn.Prep("SELECT count(*) > 0 FROM sqlite_schema"))
	if err == nil && !o.resumed {
		err = sqlitex.ExecuteTransient(o.conn, outboxTable, nil)
	}
	if err == nil {
		err = o.forget()
	}
	return err
}

// forget removes what is not to be remembered.
func (o *outbox) forget() error {
	return o.write("DELETE FROM facts WHERE seen < ? AND pending(rule, done) = ''",
		time.Now().Add(-remembered).UnixMilli())
}

func (o *outbox) write(query string, args ...any) error {
	if err := sqlitex.Execute(o.conn, query, &sqlitex.ExecOptions{Args: args}); err != nil {
		return fmt.Errorf("write the state of the watch: %w", err)
	}
	return nil
}

// add keeps a fact, unless it is known.
func (o *outbox) add(f Fact) (added bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text, _ := json.Marshal(f) // strings and numbers can be encoded
	err = o.write("INSERT INTO facts (id, rule, at, seen, fact) VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT DO NOTHING",
		f.ID, f.Rule, f.At, string(text))
	if err != nil {
		return false, err
	}
	if o.conn.Changes() == 0 {
		return false, o.write("UPDATE facts SET seen = ? WHERE id = ? AND seen < ?", f.At, f.ID,
			f.At-seenEvery.Milliseconds())
	}
	o.changed.Broadcast()
	return true, o.forget()
}

// next is the first fact that is to be delivered by a way. It waits for one until ctx ends; nil is the end.
func (o *outbox) next(ctx context.Context, way string) (f *Fact, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ctx.Err() == nil {
		const first = "SELECT fact FROM facts WHERE instr(pending(rule, done), ?) ORDER BY at, id LIMIT 1"
		err := sqlitex.Execute(o.conn, first,
			&sqlitex.ExecOptions{Args: []any{way}, ResultFunc: func(stmt *sqlite.Stmt) error {
				f = new(Fact)
				return json.Unmarshal([]byte(stmt.ColumnText(0)), f)
			}})
		if err != nil || f != nil || o.ending {
			return f, err
		}
		o.changed.Wait()
	}
	return nil, nil
}

// delivered notes that a fact has been delivered.
func (o *outbox) delivered(f *Fact, way string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write("UPDATE facts SET done = done || ? || ' ' WHERE id = ?", way, f.ID)
}

// deliver delivers what is there and what comes, in order, until ctx ends, or all is delivered after end. What fails is
// tried again. A fact is delivered again if the process is killed between its delivery and the note of it: the receiver
// knows it by its id.
func (o *outbox) deliver(ctx context.Context, problem func(error)) (wait func()) {
	var running sync.WaitGroup
	for way, send := range map[string]func(context.Context, *Fact) error{ActionWebhook: o.rules.Webhook.post,
		ActionCommand: o.rules.run} {
		running.Go(func() { o.deliverBy(ctx, way, send, problem) })
	}
	return running.Wait
}

// end has deliver end when all is delivered, and returns how much is not.
func (o *outbox) end() (left int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.changed.Broadcast()
	err = sqlitex.Execute(o.conn, "SELECT pending(rule, done) FROM facts", &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error {
			left += len(strings.Fields(stmt.ColumnText(0)))
			return nil
		}})
	return left, err
}

func (o *outbox) deliverBy(ctx context.Context, way string, send func(context.Context, *Fact) error,
	problem func(error)) {
	defer context.AfterFunc(ctx, func() {
		o.mu.Lock() // so that nobody is about to wait
		defer o.mu.Unlock()
		o.changed.Broadcast()
	})()
	for {
		var f *Fact
		found := persist(ctx, problem, func() (err error) {
			f, err = o.next(ctx, way)
			return err
		})
		if !found || f == nil {
			return
		}
		sent := persist(ctx, problem, func() error {
			attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
			defer cancel()
			if err := send(attempt, f); err != nil {
				return fmt.Errorf("%s of fact %s, which is tried again: %w", way, f.ID, err)
			}
			return nil
		})
		if !sent || !persist(ctx, problem, func() error { return o.delivered(f, way) }) {
			return
		}
	}
}

// persist does something again, with pauses, until it succeeds; false where ctx ended first. problem is called for the
// first failure.
func persist(ctx context.Context, problem func(error), do func() error) bool {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if pause == minPause {
			problem(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (w *Webhook) post(ctx context.Context, f *Fact) error {
	body, _ := json.Marshal(f) // strings and numbers can be encoded
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderID, f.ID)
	req.Header.Set(HeaderTimestamp, at)
	if len(w.secret) > 0 {
		req.Header.Set(HeaderSignature, Sign(w.secret, at, body))
	}
	resp, err := http.DefaultClient.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err // without the address, which may have a token
	} else if err != nil {
		return err
	}
	if resp.Body.Close(); resp.StatusCode/100 != 2 {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	return nil
}

// Sign is the signature of a request with that timestamp and body.
func Sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func (r *Rules) run(ctx context.Context, f *Fact) error {
	body, _ := json.Marshal(f) // strings and numbers can be encoded
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	return cmd.Run()
}
