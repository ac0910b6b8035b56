package watch

import (
	"bufio"
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
	"strconv"
	"sync"
	"time"
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
	// Done is the fact's id, and By what has delivered it: "webhook" or "command".
	Done string `json:"done,omitempty"`
	By   string `json:"by,omitempty"`
}

// outbox is a file of facts, to which lines are only added. A fact is in it before it is delivered.
type outbox struct {
	file    *os.File
	resumed bool
	wake    chan struct{}

	mu    sync.Mutex // guards the fields below, and writing
	known map[string]bool
	facts []Fact
	done  map[entry]bool
}

func openOutbox(path string) (*outbox, error) {
	o := &outbox{wake: make(chan struct{}, 1), known: make(map[string]bool), done: make(map[entry]bool)}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state of the watch: %w; name another file", err)
	}
	o.file = f
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e entry
		o.resumed = true
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a crash cut it short, before anything was delivered of it
		}
		if e.Fact != nil {
			o.known[e.Fact.ID] = true
			o.facts = append(o.facts, *e.Fact)
		} else {
			o.done[e] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the state of the watch: %w", err)
	}
	if o.resumed { // what was cut short ends here
		_, err = f.WriteString("\n")
	}
	return o, err
}

func (o *outbox) close() error { return o.file.Close() }

// add keeps a fact, unless it is known.
func (o *outbox) add(f Fact) (added bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known[f.ID] {
		return false, nil
	}
	if err := o.write(entry{Fact: &f}); err != nil {
		return false, err
	}
	o.known[f.ID] = true
	o.facts = append(o.facts, f)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return true, nil
}

func (o *outbox) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err = o.file.Write(append(line, '\n')); err == nil {
		err = o.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the state of the watch: %w", err)
	}
	return nil
}

// deliver delivers what is there and what comes, in order, until ctx ends. What fails is tried again. A fact is
// delivered again if the process is killed between its delivery and the note of it: its id tells the receiver.
func (o *outbox) deliver(ctx context.Context, r *Rules, problem func(error)) {
	ways := map[string]func(context.Context, *Fact) error{}
	if r.Webhook != nil {
		ways["webhook"] = r.Webhook.post
	}
	if len(r.Command) > 0 {
		ways["command"] = r.run
	}
	var running sync.WaitGroup
	signals := make([]chan struct{}, 0, len(ways))
	for name, send := range ways {
		signal := make(chan struct{}, 1)
		signals = append(signals, signal)
		running.Go(func() { o.deliverBy(ctx, name, send, signal, problem) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-o.wake:
		}
		for _, signal := range signals {
			select {
			case signal <- struct{}{}:
			default:
			}
		}
	}
	running.Wait()
}

func (o *outbox) deliverBy(ctx context.Context, by string, send func(context.Context, *Fact) error,
	signal <-chan struct{}, problem func(error)) {
	pause := minPause
	for next := 0; ctx.Err() == nil; {
		o.mu.Lock()
		var f *Fact
		for ; f == nil && next < len(o.facts); next++ {
			if !o.done[entry{Done: o.facts[next].ID, By: by}] {
				fact := o.facts[next]
				f = &fact
			}
		}
		o.mu.Unlock()
		if f == nil {
			select {
			case <-ctx.Done():
			case <-signal:
			}
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := send(attempt, f)
		cancel()
		if err == nil {
			pause = minPause
			o.mu.Lock()
			done := entry{Done: f.ID, By: by}
			o.done[done] = true
			err = o.write(done)
			o.mu.Unlock()
			if err != nil {
				problem(err)
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		next-- // the same again
		if pause == minPause {
			problem(fmt.Errorf("%s of fact %s, which is tried again: %w", by, f.ID, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

func (w *Webhook) post(ctx context.Context, f *Fact) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
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
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	return cmd.Run()
}
