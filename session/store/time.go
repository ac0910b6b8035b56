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
	if age, err := ParseAge(text); err == nil {
		return now.Add(-age), nil
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
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 2h or 7d "+
		"nor a time such as 15:04 or 2026-11-20T15:04:05Z", text)
}

// maxDays is a century.
const maxDays = 36500

// ParseAge reads a duration that is not negative, as of [time.ParseDuration] or a number of days or weeks: 7d, 2w.
func ParseAge(text string) (time.Duration, error) {
	unit := 24 * time.Hour
	number, ok := strings.CutSuffix(text, "d")
	if !ok {
		unit *= 7
		number, ok = strings.CutSuffix(text, "w")
	}
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 0 && n <= maxDays {
		return time.Duration(n) * unit, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return age, nil
	}
	return 0, fmt.Errorf("%q is not an age; use one such as 30d, 8w or 12h", text)
}
