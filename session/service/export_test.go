package service

import "time"

// Zone is a time zone as a server gets it.
func Zone(where *time.Location) (*time.Location, error) { return locationOf(zoneOf(where)) }
