package agenttrace

import "encoding/json"

func validJSON(s string) bool { return json.Valid([]byte(s)) }
