package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

func newWatch() *cobra.Command {
	var x struct{ Rules, State string }
	return described("watch", &x, noArguments,
		func(cmd *cobra.Command, _ []string) error {
			if x.Rules == "" {
				return usagef("watch needs rules; add --rules FILE, as docs/watch.md describes")
			}
			path, err := ownStore(cmd)
			if err != nil {
				return err
			}
			if x.State == "" {
				if stores.HasEngine(path) {
					return usagef("watch of a database needs --state FILE, which remembers what was found")
				}
				x.State = path + gate.WatchSuffix
			}
			w := gate.Watcher{Store: stores.Follow(path), State: x.State}
			defer w.Store.Close()
			if w.Rules, err = gate.ReadRules(x.Rules); err != nil {
				return usageError{err}
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			w.Price = p.Price
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			w.Found = func(rule *gate.Rule, f gate.Fact) {
				if !rule.Does(gate.ActionLog) {
					return
				}
				if err := document.EncodeJSON(jsonOutput(cmd), "", f); err != nil {
					cancel(err)
				}
			}
			w.Problem = func(err error) { _ = note(cmd, "%s\n", document.Sanitize(fmt.Sprint(err))) }
			if err := w.Run(ctx); err != nil {
				return err
			}
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
}
