package web

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// storeMethod names a method of a store that a client calls.
type storeMethod struct {
	Method string
}

// callStore calls a method of the store for a client: the body is a JSON array of its arguments. The answer is the JSON
// of its result or, of a sequence, a line of JSON for each element and one for the end.
func (a *api) callStore(w http.ResponseWriter, r *http.Request, p storeMethod) error {
	method, ok := reflect.TypeFor[callee]().MethodByName(p.Method)
	if !ok || slices.Contains([]string{"Close", "Import"}, p.Method) {
		return NotFoundf("method", "use the same version of agenttrace", "a store has no method %q", p.Method)
	}
	d, err := jsonBody(w, r, maxImport)
	if err != nil {
		return err
	}
	var args []json.RawMessage
	if err := d.Decode(&args); err != nil {
		return bodyProblem(err, new(struct{}))
	}
	in := []reflect.Value{{}, {}} // the receiver and the context
	if len(args) != method.Type.NumIn()-len(in) {
		return Invalidf("", "send an array of them", "the body is not the arguments of %s", p.Method)
	}
	for i, text := range args {
		arg := reflect.New(method.Type.In(i + 2))
		if err := json.Unmarshal(text, arg.Interface()); err != nil {
			return bodyProblem(err, new(struct{}))
		}
		in = append(in, arg.Elem())
	}
	// The client gets an error as the store returned it, not as one of a parameter of this request.
	if err := a.change(r.Context(), func(ctx context.Context, s store.Service) error {
		in[0], in[1] = reflect.ValueOf(callee{s, a.Changes}), reflect.ValueOf(ctx)
		call := method.Func.Call
		if method.Type.IsVariadic() {
			call = method.Func.CallSlice
		}
		out := call(in)
		if out[0].Kind() == reflect.Func {
			writeLines(w, out[0])
			return nil
		}
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			return err
		}
		if len(out) == 1 {
			return answer(w, r, http.StatusOK, none{})
		}
		return answer(w, r, http.StatusOK, out[0].Interface())
	}); err != nil {
		WriteProblem(w, err)
	}
	return nil
}

// line is a line of the answer of a sequence. The last has End or Problem.
type line[A any] struct {
	Value   *A       `json:"value,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
	End     bool     `json:"end,omitempty"`
}

// writeLines answers with a sequence of values and errors.
func writeLines(w http.ResponseWriter, all reflect.Value) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(patiently(w))
	out.SetEscapeHTML(false)
	last := line[any]{End: true}
	for v, failed := range all.Seq2() {
		if err, _ := failed.Interface().(error); err != nil {
			last = line[any]{Problem: ProblemOf(err)}
			break
		}
		value := v.Interface()
		if out.Encode(line[any]{Value: &value}) != nil {
			return // the reader is gone
		}
	}
	_ = out.Encode(last) // likewise
}

// callee is a store as a client calls it. It has other arguments where those of a store have no JSON.
type callee struct {
	store.Service
	changes *Counter
}

// Name is that of the store.
func (c callee) Name(context.Context) (string, error) { return c.Service.Name(), nil }

// Position is that of the store's changes.
func (c callee) Position(ctx context.Context) (Position, error) {
	if c.changes == nil {
		return Position{}, NotFoundf("", "", "the changes of this store are not counted")
	}
	return c.changes.Position(ctx)
}

// Origin returns what a store adds to a session.
func (c callee) Origin(ctx context.Context, id string) (in store.Imported, err error) {
	in.Transcript = &session.Transcript{Session: session.Session{ID: id}}
	return in, c.Service.Origin(ctx, &in)
}

// Apply sets the functions of a batch.
func (c callee) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if b == nil {
		return store.Result{}, Invalidf("", "", "the batch is null")
	}
	ingest.Complete(b)
	return c.Service.Apply(ctx, b)
}

// importResult is a result of an import with its error.
type importResult struct {
	Result  store.ImportResult
	Problem *Problem `json:",omitempty"`
}

// ImportAll returns a result for each session.
func (c callee) ImportAll(ctx context.Context, sessions []*store.Imported) (all []importResult, _ error) {
	if slices.ContainsFunc(sessions, func(in *store.Imported) bool { return in == nil || in.Transcript == nil }) {
		return nil, Invalidf("", "", "a session has no rows")
	}
	c.Service.ImportAll(ctx, slices.Values(sessions), func(_ *store.Imported, r store.ImportResult, err error) bool {
		out := importResult{Result: r}
		if err != nil {
			out.Problem = ProblemOf(err)
		}
		all = append(all, out)
		return true
	})
	return all, nil
}

// modelRate is a price that a client has, of a model that the server has asked for. A function cannot be sent, and a
// list of all prices is large.
type modelRate struct {
	Model session.Model
	Rate  *price.Rate
}

// priced is an answer, and the models whose prices the server lacked. Then the client asks again.
type priced[A any] struct {
	Answer A
	Asked  []session.Model
}

// withRates calls do with a price of these rates, nil without them.
func withRates[A any](known []modelRate, do func(store.Price) (A, error)) (a priced[A], err error) {
	if known == nil {
		a.Answer, err = do(nil)
		return a, err
	}
	var mu sync.Mutex
	a.Answer, err = do(func(m session.Model) *price.Rate {
		m.Variant = ""
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(known, func(r modelRate) bool { return r.Model == m })
		if i < 0 {
			i, known = len(known), append(known, modelRate{Model: m})
			a.Asked = append(a.Asked, m)
		}
		return known[i].Rate
	})
	return a, err
}

// Spent has rates in the place of a price.
func (c callee) Spent(ctx context.Context, ids []string, r []modelRate) (priced[map[string]store.Spent], error) {
	return withRates(r, func(p store.Price) (map[string]store.Spent, error) { return c.Service.Spent(ctx, ids, p) })
}

// Stats has the name of a time zone and rates in the place of a location and a price.
func (c callee) Stats(ctx context.Context, q store.StatsQuery, name string, r []modelRate) (priced[store.Stats],
	error) {
	var in zone
	if err := in.UnmarshalText([]byte(name)); err != nil {
		return priced[store.Stats]{}, Invalidf("zone", err.Error(), "the time zone is %q", name)
	}
	return withRates(r, func(p store.Price) (store.Stats, error) {
		q.Location, q.Price = in.Location, p
		return c.Service.Stats(ctx, q)
	})
}
