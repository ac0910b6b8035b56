package store_test

import (
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

func TestTimesAsUsersWriteThem(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 15, 40, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h":                   now.Add(-2 * time.Hour),
		"7d":                   now.AddDate(0, 0, -7),
		"2w":                   now.AddDate(0, 0, -14),
		"17:00":                now.Add(-75*time.Minute - 40*time.Second),
		"19:00":                time.Date(2026, 11, 19, 19, 0, 0, 0, time.UTC),
		"2026-11-20T15:04:05Z": time.Date(2026, 11, 20, 15, 4, 5, 0, time.UTC),
		"2026-11-19":           time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := store.ParseTime(text, now, time.UTC); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-2h", "-1d", "999999999d"} {
		if got, err := store.ParseTime(text, now, time.UTC); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
