package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a time as users write it: an age before now as of [ParseAge], an instant of RFC 3339, a day, a day
// and a time, or the last time of day before now. Days begin in the zone.
func ParseTime(text string, now time.Time, zone *time.Location) (time.Time, error) {
	if at, err := ParseAge(text, now); err == nil {
		return at, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			y, m, d := now.In(zone).Date()
			at := time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, zone)
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 2h, 7d or 6mo "+
		"nor a time such as 15:04 or 2026-11-20T15:04:05Z", text)
}

const (
	day     = 24 * time.Hour
	century = 36500 * day
)

// ageUnits are the units of ages that [time.ParseDuration] does not know. Months are those of the calendar.
var ageUnits = []struct {
	name   string
	length time.Duration
	months int
}{{"min", time.Minute, 0}, {"d", day, 0}, {"w", 7 * day, 0}, {"mo", 30 * day, 1}, {"y", 365 * day, 12}}

// ParseAge returns the time that an age before now. An age is a number with a unit, such as 30min, 7d, 2w, 6mo or 1y, or
// a duration as of [time.ParseDuration] that is not negative, such as 12h. So m are minutes, but see [AmbiguousAge].
func ParseAge(text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, u := range ageUnits {
		number, ok := strings.CutSuffix(text, u.name)
		n, err := strconv.ParseUint(number, 10, 32)
		switch {
		case !ok || err != nil || n > uint64(century/u.length):
			continue
		case u.months == 0:
			return now.Add(-time.Duration(n) * u.length), nil
		}
		at := now.AddDate(0, -int(n)*u.months, 0)
		if at.Day() != now.Day() {
			at = at.AddDate(0, 0, -at.Day()) // the last day of a month that is shorter
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is not an age; use one such as 30min, 12h, 30d, 8w, 6mo or 1y", text)
}

// AmbiguousAge returns an error for an age in m alone, which people write for minutes and for months. What deletes by an
// age refuses it.
func AmbiguousAge(text string) error {
	number, ok := strings.CutSuffix(text, "m")
	if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
		return nil
	}
	return fmt.Errorf("%q can mean minutes or months; use %smin or %smo", text, number, number)
}
