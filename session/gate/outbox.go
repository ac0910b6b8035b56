package gate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
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

// entry is a line of the outbox's file: a fact, or how far its delivery is.
type entry struct {
	Fact *Fact `json:"fact,omitempty"`
	// Seen is when the fact was found last, where that is later than its time.
	Seen int64 `json:"seen,omitempty"`
	// Done is the fact's id, and By what has delivered it: "webhook" or "command".
	Done string `json:"done,omitempty"`
	By   string `json:"by,omitempty"`
}

// kept is a fact in an outbox.
type kept struct {
	Fact
	seen int64    // when it was found last, in Unix milliseconds
	done []string // the ways that have delivered it
}

// A fact that has been delivered is forgotten when it was not found again for remembered: its session did not change
// for as long. The file is written anew when it has slack lines more than twice as many as are needed.
const (
	remembered = 30 * 24 * time.Hour
	slack      = 1000
)

// outbox is a file of facts, to which lines are added. A fact is in it before it is delivered. A file beside it is
// locked, so that one process uses it.
type outbox struct {
	path    string
	rules   *Rules
	lock    *flock.Flock
	file    *os.File
	resumed bool

	mu      sync.Mutex // guards the fields below, and writing
	changed *sync.Cond // there is more to be delivered, or an end of it
	known   map[string]*kept
	order   []*kept // in which they are delivered
	lines   int     // in the file
	most    int     // as many lines have it written anew
	torn    bool    // the last line may be in part
	ending  bool    // what is to be delivered is all that will be
}

func openOutbox(path string, rules *Rules) (o *outbox, err error) {
	o = &outbox{path: path, rules: rules, lock: flock.New(path+".lock", flock.SetPermissions(0o600)),
		known: make(map[string]*kept)}
	o.changed = sync.NewCond(&o.mu)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { // there need be no store yet
		return nil, fmt.Errorf("make the directory for the state of the watch: %w; name another file", err)
	}
	if held, err := o.lock.TryLock(); err != nil {
		return nil, fmt.Errorf("lock the state of the watch: %w; name another file", err)
	} else if !held {
		return nil, fmt.Errorf("another watch uses %s; end it, or name a file of this one's own, with --state or "+
			"watch::state", path)
	}
	defer func() {
		if err != nil {
			_ = o.lock.Unlock()
		}
	}()
	if err := o.read(); err != nil {
		return nil, err
	}
	return o, o.rewrite()
}

// read reads the file, if there is one.
func (o *outbox) read() error {
	f, err := os.Open(o.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("open the state of the watch: %w; name another file", err)
	}
	defer f.Close()
	o.resumed = true
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		var e entry
		if json.Unmarshal(line, &e) == nil { // else a crash cut it short, before anything was delivered of it
			switch k := o.known[e.Done]; {
			case e.Fact != nil && o.known[e.Fact.ID] == nil:
				o.keep(e.Fact, e.Seen)
			case k != nil:
				k.done = append(k.done, e.By)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the state of the watch: %w", err)
		}
	}
}

// pending are the ways by which a fact is to be delivered yet.
func (o *outbox) pending(k *kept) []string {
	return slices.DeleteFunc(o.rules.ways(k.Rule), func(way string) bool { return slices.Contains(k.done, way) })
}

func (o *outbox) keep(f *Fact, seen int64) {
	k := &kept{Fact: *f, seen: max(seen, f.At)}
	o.known[f.ID], o.order = k, append(o.order, k)
}

// rewrite puts a new file in the place of the file, of what is to be remembered.
func (o *outbox) rewrite() error {
	before := time.Now().Add(-remembered).UnixMilli()
	o.order = slices.DeleteFunc(o.order, func(k *kept) bool {
		forgotten := k.seen < before && len(o.pending(k)) == 0
		if forgotten {
			delete(o.known, k.ID)
		}
		return forgotten
	})
	slices.SortFunc(o.order, func(a, b *kept) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	})
	var text bytes.Buffer
	lines, to := 0, json.NewEncoder(&text)
	for _, k := range o.order {
		e := entry{Fact: &k.Fact}
		if k.seen > k.At {
			e.Seen = k.seen
		}
		_ = to.Encode(e) // strings and numbers can be encoded
		for _, way := range k.done {
			_ = to.Encode(entry{Done: k.ID, By: way})
		}
		lines += 1 + len(k.done)
	}
	next := o.path + ".new"
	err := writeWhole(next, text.Bytes())
	if err == nil {
		if o.file != nil {
			_ = o.file.Close() // some systems do not replace a file that is open
		}
		err = os.Rename(next, o.path)
		if dir, failed := os.Open(filepath.Dir(o.path)); failed == nil {
			_ = dir.Sync() // which some systems cannot
			_ = dir.Close()
		}
		var failed error
		o.file, failed = os.OpenFile(o.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("write the state of the watch: %w; name another file", err)
	}
	o.lines, o.most, o.torn = lines, 2*lines+slack, false
	return nil
}

// writeWhole writes a file that is on the disk when it returns.
func writeWhole(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func (o *outbox) close() error { return errors.Join(o.file.Close(), o.lock.Unlock()) }

// add keeps a fact, unless it is known.
func (o *outbox) add(f Fact) (added bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.known[f.ID]; k != nil {
		k.seen = f.At
		return false, nil
	}
	if err := o.write(entry{Fact: &f}); err != nil {
		return false, err
	}
	o.keep(&f, f.At)
	o.changed.Broadcast()
	return true, nil
}

// next is the first fact that is to be delivered by a way. It waits for one until ctx ends; nil is the end.
func (o *outbox) next(ctx context.Context, way string) *kept {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ctx.Err() == nil {
		i := slices.IndexFunc(o.order, func(k *kept) bool { return slices.Contains(o.pending(k), way) })
		if i >= 0 {
			return o.order[i]
		} else if o.ending {
			return nil
		}
		o.changed.Wait()
	}
	return nil
}

// delivered notes that a fact has been delivered.
func (o *outbox) delivered(k *kept, way string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	k.done = append(k.done, way)
	return o.write(entry{Done: k.ID, By: way})
}

func (o *outbox) write(e entry) error {
	if o.lines >= o.most {
		if err := o.rewrite(); err != nil {
			return err
		}
	}
	line, _ := json.Marshal(e) // strings and numbers can be encoded
	if line = append(line, '\n'); o.torn {
		line = slices.Concat([]byte("\n"), line)
	}
	_, err := o.file.Write(line)
	if err == nil {
		err = o.file.Sync()
	}
	if o.torn = err != nil; o.torn {
		return fmt.Errorf("write the state of the watch: %w", err)
	}
	o.lines++
	return nil
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
func (o *outbox) end() (left int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	for _, k := range o.order {
		left += len(o.pending(k))
	}
	o.changed.Broadcast()
	return left
}

func (o *outbox) deliverBy(ctx context.Context, way string, send func(context.Context, *Fact) error,
	problem func(error)) {
	pause := minPause
	defer context.AfterFunc(ctx, func() {
		o.mu.Lock() // so that nobody is about to wait
		defer o.mu.Unlock()
		o.changed.Broadcast()
	})()
	for k := o.next(ctx, way); k != nil; k = o.next(ctx, way) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := send(attempt, &k.Fact)
		cancel()
		if err == nil {
			pause = minPause
			if err := o.delivered(k, way); err != nil {
				problem(err)
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if pause == minPause {
			problem(fmt.Errorf("%s of fact %s, which is tried again: %w", way, k.ID, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
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
