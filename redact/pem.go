package redact

import "strings"

// maxPEM is as long as a private key in PEM gets.
const maxPEM = 32 << 10

// privateKey matches a private key in PEM, with line ends as they are, escaped, or lost, and with or without its end.
func privateKey(c *scan, at, n int) (int, int) {
	// -----BEGIN OPENSSH PRIVATE KEY-----␤b3BlbnNza…␤-----END OPENSSH PRIVATE KEY-----
	s := c.s
	i := keyLabel(s, at+n, 80)
	if i == 0 {
		return 0, 0
	}
	if len(s)-i < 5 { // cut short
		return at, len(s)
	}
	i += len(s[i:]) - len(strings.TrimPrefix(s[i:], " BLOCK"))
	dashes := skip(s, i, i+5, " -") // SSH2 has a space and four
	if dashes < i+5 {
		return 0, 0
	}
	i = dashes
	window := s[i:min(len(s), i+maxPEM)]
	body, rest, ended := strings.Cut(window, "-----")
	// Each of a thousand begins without an end would be looked at up to the same end.
	if !c.afford(len(body) / 16) {
		return at, c.eol(i)
	}
	// With its end the key is all up to there. Without it, as in the head of a file that was cut, the key goes on as long
	// as lines look like those of a key.
	if ended && strings.HasPrefix(rest, "END") {
		end := i + len(body) + len("-----END")
		if label, _, ok := strings.Cut(rest[:min(len(rest), 60)], " KEY"); ok && strings.Contains(label, "PRIVATE") {
			end = skip(s, end+len(label)-len("END")+len(" KEY"), len(s), "- BLOCK")
		}
		return unless(strings.Trim(body, " \t\r\n\\nr.") == "" || len(body) < 120 && wordy(body), at, end) // or talk of keys
	}
	end := unterminated(window, 0)
	return unless(end == 0, at, i+end) // a header without a body is talk of keys
}

// keyLabel returns the end of a label of private keys that begins at i and ends within limit
// bytes, 0 where there is none.
func keyLabel(s string, i, limit int) int {
	head, _, ok := strings.Cut(s[i:min(len(s), i+limit)], "PRIVATE KEY")
	if !ok || strings.ContainsAny(head, "\n-\\") {
		return 0
	}
	return i + len(head) + len("PRIVATE KEY")
}

// unterminated returns the end of the Base64 that follows i, over line ends, quotes and what else is between lines of
// code. Runs too short for a line end it, unless the text does.
func unterminated(s string, i int) int {
	end := i
	for i < len(s) {
		switch c := s[i]; {
		// "MIIE…\n" +, as code has it line by line
		case c == '\\' && i+1 < len(s) && strings.IndexByte(`nrt\"`, s[i+1]) >= 0:
			i += 2
		case class[c]&base64 != 0 && c != '+':
			stop := run(s, i, base64)
			line := s[i:stop]
			if end := run(s, i, slug); end < len(s) && s[end] == ':' { // a header: Proc-Type: 4,ENCRYPTED
				stop = until(s, i, len(s), "\n")
				line = s[i:stop]
			}
			if len(line) < 8 && stop < len(s) && !strings.HasSuffix(line, "=") && s[stop] != '-' {
				return end
			}
			i, end = stop, stop
		case class[c]&space != 0 || strings.IndexByte(`"'+,;()>|`, c) >= 0:
			i++
		case c == '-' && strings.HasPrefix("-----END", s[i:]):
			return len(s)
		default:
			return end
		}
	}
	return end
}

// keyTail matches the lines of a private key whose begin is not there, at its end.
func keyTail(c *scan, at, n int) (int, int) {
	s := c.s
	last := keyLabel(s, at+n, 60)
	if last == 0 {
		return 0, 0
	}
	start := at
	for start > c.floor && at-start < maxPEM &&
		(class[s[start-1]]&(base64|space) != 0 || oneByteOf("\\\"'>|", s[start-1])) {
		start--
	}
	// tail -5 id_rsa prints such an end. Words before the key are no part of it: it begins where a line is long enough.
	for start < at {
		end := run(s[:at], start, base64)
		if end-start >= 24 && !wordy(s[start:end]) {
			return start, last
		}
		start = max(end, start+1)
	}
	return 0, 0
}

// putty matches the private lines of PuTTY's keys.
func putty(c *scan, at, n int) (int, int) {
	start := run(c.s, at+n, digit)
	limit := min(len(c.s), start+maxPEM)
	end := unterminated(c.s[:limit], start)
	return unless(end-start < 40, start, start+len(strings.TrimSuffix(c.s[start:end], "Private")))
}
