package store_test

import (
	"strings"
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
		"6m":                   now.Add(-6 * time.Minute),
		"6min":                 now.Add(-6 * time.Minute),
		"6mo":                  time.Date(2026, 5, 20, 18, 15, 40, 0, time.UTC),
		"2y":                   time.Date(2024, 11, 20, 18, 15, 40, 0, time.UTC),
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

func TestAMonthBeforeTheEndOfALongOneEndsAShortOne(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	if got, err := store.ParseAge("1mo", now); err != nil || !got.Equal(time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("a month before %v is %v, %v", now, got, err)
	}
}

// TestAnAgeThatMayBeMinutesOrMonthsIsRefusedBeforeDeletion names both readings.
func TestAnAgeThatMayBeMinutesOrMonthsIsRefusedBeforeDeletion(t *testing.T) {
	for text, want := range map[string]string{"6m": "6min or 6mo", "6mo": "", "1h6m": "", "30d": "", "": ""} {
		got := ""
		if err := store.AmbiguousAge(text); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
}
