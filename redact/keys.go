package redact

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// keyClass is what a key promises of its value.
type keyClass uint8

const (
	notSecret keyClass = iota
	// keyed is a key of something, or "auth": a secret where its value looks like
	// a token and no words before it state what else it is.
	keyed
	// weak is a short name that means other things too, such as pass and pwd: a
	// secret unless its value is a number, a path or a state.
	weak
	// countable is a token: a secret unless it is a number, and in text only where
	// its value looks like one, because models and parsers speak of tokens too.
	countable
	// credential is a secret header whose value has a scheme or pairs.
	credential
	// secret is a secret, whatever its value.
	secret
)

// keyName is one configured key, split into words.
type keyName struct {
	words  []string // lower case
	joined string   // the words without separators
	class  keyClass
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func newKeyName(name string) (keyName, error) {
	if len(name) < 3 {
		return keyName{}, fmt.Errorf("read key %q: shorter than 3 bytes, it would match by accident", name)
	}
	var k keyName
	for i := range len(name) {
		if name[i] >= 0x80 || name[i] <= ' ' {
			return keyName{}, fmt.Errorf("read key %q: use printable ASCII without spaces", name)
		}
	}
	for w := range splitWords(name) {
		k.words = append(k.words, strings.ToLower(w))
	}
	k.joined = strings.Join(k.words, "")
	if len(k.joined) < 3 {
		return keyName{}, fmt.Errorf("read key %q: fewer than 3 letters or digits, it would match by accident", name)
	}
	if k.class = ambiguous[k.joined]; k.class == notSecret {
		k.class = secret
	}
	return k, nil
}

// ambiguous are the names that do not always promise a secret.
var ambiguous = map[string]keyClass{"token": countable, "authorization": credential, "cookie": credential, "pass": weak,
	"pwd": weak, "psk": weak, "key": keyed, "pat": keyed, "auth": keyed}

// vendorKeys are the names of services whose keys have no shape of their own: where what
// is assigned to one looks like a token, it is one.
var vendorKeys = func() (out []keyName) {
	for name := range strings.FieldsSeq("adafruit adobe airtable algolia asana atlassian confluence jira beamer " +
		"bitbucket bittrex cloudflare codecov cohere coinbase confluent contentful discord droneci " +
		"dropbox etsy facebook fastly finicity finnhub flickr freshbooks gitter gocardless heroku hubspot intercom " +
		"jfrog artifactory kraken kucoin launchdarkly linkedin looker mailchimp mailgun " +
		"mapbox mattermost maxmind messagebird netlify newrelic nytimes okta openweather plaid rapidapi privateai " +
		"sendbird sentry snyk sonar squarespace sumologic telegram travis trello twilio twitch twitter yandex " +
		"zendesk deepgram pinata infura alchemy etherscan opsgenie pagerduty datadog dynatrace grafana sendgrid " +
		"stripe openai anthropic groq mistral sourcegraph infracost alibaba meraki clickhouse") {
		out = append(out, keyName{words: []string{name}, joined: name, class: keyed})
	}
	return out
}()

// keyLiteral is a spelling that a text must hold for a key to be in it: the name is
// n bytes of it from from on.
type keyLiteral struct {
	text    string
	from, n int
	exact   bool // the case counts
}

// literals are the spellings that a text must hold for the key to be in it.
func (k *keyName) literals() (out []keyLiteral) {
	add := func(from, n int, exact bool, spellings ...string) {
		for _, text := range spellings {
			out = append(out, keyLiteral{text, from, n, exact})
		}
	}
	switch k.joined {
	case "key":
		add(1, 3, false, "_key", "-key", ".key")
		add(0, 3, true, "Key", "KEY=")
	case "pat":
		add(1, 3, false, "_pat", "-pat", ".pat")
		add(0, 3, true, "PAT=", "PAT:")
	case "pwd":
		add(0, 3, false, "pwd")
		add(1, 2, false, "_pw", "-pw", ".pw")
		add(0, 2, false, "pw=", "pw:", `pw"`, `pw\`, "pw'", "pw ")
	default:
		name := k.joined
		if len(k.words) == 1 {
			name = singular(name)
		}
		add(0, len(name), false, name)
		for _, sep := range []string{"_", "-", ".", " "} {
			if name = strings.Join(k.words, sep); len(k.words) > 1 {
				add(0, len(name), false, name)
			}
		}
	}
	return out
}

// splitWords yields the words of a key: what separators part, and accessToken and
// APIKey where their case changes.
func splitWords(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i < len(key); {
			end := wordFrom(key, i, len(key))
			if end == i {
				i++
				continue
			}
			if !yield(key[i:end]) {
				return
			}
			i = end
		}
	}
}

// wordFrom returns the end of the word of a key that begins at i: where a separator
// follows, where a lower-case letter or digit is followed by a capital (accessToken),
// and before the last capital of a run that a lower-case letter follows (APIKey).
func wordFrom(s string, i, hi int) int {
	start := i
	for ; i < hi; i++ {
		c := class[s[i]]
		if c&alnum == 0 && s[i] < 0x80 {
			break
		}
		if i > start && c&upper != 0 {
			if class[s[i-1]]&upper == 0 || i+1 < hi && class[s[i+1]]&lower != 0 && !(s[i+1] == 's' && i+2 == hi) {
				break
			}
		}
	}
	return i
}

// wordBefore returns the bounds of the word of a key that ends before i.
func wordBefore(s string, lo, i int) (from, to int) {
	for i > lo && class[s[i-1]]&alnum == 0 && s[i-1] < 0x80 {
		i--
	}
	to = i
	for i > lo && (class[s[i-1]]&alnum != 0 || s[i-1] >= 0x80) {
		i--
		if class[s[i]]&upper != 0 && (i == lo || class[s[i-1]]&upper == 0) {
			break // camelCase
		}
	}
	return i, to
}

// describing are words that, after the name of a secret, report something of it that is
// no secret: password_length, token_count, secret_name.
var describing = wordSet("count counts limit limits usage budget type types length len size name names url uri " +
	"endpoint expiry expires expiration ttl policy price cost costs rate per index position offset ratio " +
	"probability probabilities logprob logprobs format required enabled disabled present exists version field " +
	"header env file path arn manager rotation strength rules placeholder label by at on ref refs reference input " +
	"hint window stats details stdin fd changed updated created reset rotated estimate total sum lifetime expired " +
	"valid invalid error errors provider providers store regex pattern")

// valued are words that, after "token", still speak of its value.
var valued = wordSet("value secret string str text key raw plain encoded data hash b64 base64 hex cookie auth " +
	"authorization parameter param local dev prod staging test old new current base default live login sandbox " +
	"admin root main primary secondary")

// countingTokens are words that, before "token", make it a token of a model, a
// parser or a page: eos_token, next_page_token.
var countingTokens = wordSet("page next prev previous continuation eos bos pad unk mask cls sep special stop start " +
	"end first last image audio input output prompt completion cached reasoning max min total num per cancel " +
	"cancellation sync resume continue pagination cursor current cost single multi lookahead used remaining read " +
	"write creation thinking cache context history thoughts candidates tool")

// tokenOwners are words that "token" is written together with: authtoken.
var tokenOwners = wordSet("auth access refresh session bearer api id user bot csrf xsrf jwt oauth app my the x " +
	"github gitlab npm device identity root deploy private")

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

func has(set map[string]bool, word string) bool {
	if len(word) > 16 {
		return false
	}
	var buf [16]byte
	for i := range len(word) {
		buf[i] = toLower(word[i])
	}
	return set[string(buf[:len(word)])]
}

// passOwners are words that "pass", "pwd" and "pw" are written together with or behind:
// what they are the password of.
var passOwners = wordSet("db dbs database user usr username ftp sftp ssh smtp imap pop3 mail email root admin my " +
	"sql mysql mssql pg psql postgres redis mongo rabbitmq bind ldap login app api key store keystore truststore " +
	"http https proxy web wifi wlan vpn src dst source target new old confirm svc service sys system master become " +
	"ansible sudo su client server host jdbc docker registry jenkins nexus git github gitlab jira kafka sasl tls " +
	"ssl cert pem p12 pfx zip backup encryption dev prod staging nt cifs smb samba rpc x xmpp broker mqtt amqp " +
	"elastic es neo4j cassandra oracle ora")

// otherKeys are words that, before "key", report that it is no secret.
var otherKeys = wordSet("public pub primary foreign partition sort sorting cache idempotency object objects routing " +
	"dict row rows i18n config lookup message messages map hash unique composite candidate natural surrogate index " +
	"group order event events dedup dedupe query hot arrow function modifier ctrl alt shift enter tab escape delete " +
	"space home end any no each per by bucket issue project translation locale lang label metric tag tags resource " +
	"entity record field column parent child node react item items list data json yaml env header template file " +
	"path url uri image asset blob document doc search filter kms kid known site publishable pagination page last " +
	"first next prev start stop min max range join business sequence feature flag cluster topic state status error " +
	"answer legend press which what this that same other wrong right left up down f set get has del use uses is of " +
	"in on to as with for if and or the a an all some my your lock mutex rate limit throttle cell table db database " +
	"s3 minio media upload download artifact build layer step job task run workflow pipeline correlation trace span " +
	"log session user customer tenant org team member permission policy setting settings option param params " +
	"parameter property attr attribute prop props slot dom element component view route nav menu tooltip text " +
	"string int number long short sub super meta lemma pivot global local secondary clustering distribution shard " +
	"hashed encoded decoded raw version v1 v2")

// classify returns what key promises.
func (r *Redactor) classify(key string) keyClass {
	// The name of a rule in a marker is no word of the key.
	for {
		head, rest, marked := strings.Cut(key, "[redacted:")
		_, tail, closed := strings.Cut(rest, "]")
		if !marked || !closed {
			break
		}
		key = head + tail
	}
	if len(key) > maxKey || len(r.keys) == 0 {
		return notSecret
	}
	if len(key) < 3 {
		if equalFold(key, "pw") && r.names["pwd"] {
			return weak
		}
		return notSecret
	}
	return r.named(key)
}

// named is classify for the bytes of a key.
func (r *Redactor) named(key string) (found keyClass) {
	t := &r.index.table
	for at, entries := t.next(key, 0, 0); at >= 0; at, entries = t.next(key, at+1, 0) {
		for k := range entries {
			e := &entries[k]
			if begin := at - e.offset; e.key != nil && e.key.class > found && e.at(key, 0, begin) {
				found = max(found, e.key.promise(key, 0, len(key), begin+e.from, e.n))
			}
		}
	}
	if found == notSecret && r.names["pat"] && equalFold(key, "pat") {
		found = keyed // its literals want something around them
	}
	if found != notSecret && r.allowed(key) {
		return notSecret
	}
	return found
}

func (r *Redactor) allowed(key string) bool {
	return len(r.allow) > 0 && slices.Contains(r.allow, strings.ToLower(separators.Replace(key)))
}

// maxKey bounds what is looked at as a key; no name of a secret is longer.
const maxKey = 128

// promise returns what the key s[lo:hi] promises by its part s[at:at+n], which spells k.
func (k *keyName) promise(s string, lo, hi, at, n int) keyClass {
	end, ok := k.ends(s, at+n, hi)
	if !ok {
		return notSecret
	}
	owner, ok := k.begins(s, lo, at)
	if !ok {
		return notSecret
	}
	for end < hi && class[s[end]]&alnum == 0 {
		end++
	}
	if end < hi {
		after := s[end:wordFrom(s, end, hi)]
		switch {
		case has(describing, after), k.class <= countable && !has(valued, after),
			equalFold(after, "id") && k.public(): // access_key_id: the public half
			return notSecret
		}
	}
	found := k.after(s[owner.lo:owner.hi], s[lo:hi])
	if found == countable && at+n < hi && s[at+n]|0x20 == 's' {
		return keyed // tokens are counted more often than listed
	}
	return found
}

// public reports whether an id of what k names is no secret.
func (k *keyName) public() bool {
	last := k.words[len(k.words)-1]
	return last == "key" || strings.TrimSuffix(last, "s") == "credential"
}

// ends reports whether the name may end at end, and returns where its plural or number
// does.
func (k *keyName) ends(s string, end, hi int) (int, bool) {
	if end < hi && class[s[end]]&letter != 0 {
		capital := class[s[end]]&upper != 0 && class[s[end-1]]&upper == 0
		switch {
		case capital:
		case s[end]|0x20 == 's' && (k.class >= countable || k.class == weak && k.joined == "pwd") &&
			!continues(s[:hi], end+1):
			end++
		default:
			return 0, false
		}
	}
	for end < hi && class[s[end]]&digit != 0 {
		end++ // password2
	}
	return end, true
}

// begins reports whether the name may begin at at, and returns the word before it.
func (k *keyName) begins(s string, lo, at int) (owner span, ok bool) {
	if at == lo {
		return span{}, true
	}
	c := class[s[at-1]]
	from, to := wordBefore(s, lo, at)
	if c&letter == 0 || class[s[at]]&upper != 0 && (c&upper == 0 || at+1 < len(s) && class[s[at+1]]&lower != 0) {
		return span{from, to}, true
	}
	before := s[from:at]
	switch k.class {
	case countable: // "tokens" are counted, not kept secret
		ok = has(tokenOwners, before)
	case weak:
		ok = has(passOwners, before)
	case keyed:
		ok = false
	default:
		ok = len(k.joined) >= 6
	}
	return span{from, at}, ok
}

// after returns the class of the name after the word owner, in key.
func (k *keyName) after(owner, key string) keyClass {
	switch {
	case k.class == countable && has(countingTokens, owner):
		return notSecret
	case k.class == weak && (has(passOwners, owner) || owner != "" && strings.ToUpper(key) == key &&
		!has(otherPasses, owner)):
		return secret
	case k.joined == "key" && (owner == "" || has(otherKeys, owner)):
		return notSecret
	case k.class == weak && has(otherPasses, owner), k.joined == "secret" && equalFold(owner, "existing"):
		return notSecret
	}
	return k.class
}

// otherPasses are words that, before "pass" and "pwd", make it no password.
var otherPasses = wordSet("first second third one two multi single render shadow post pre by no all num n total " +
	"each per must should will would did does not never old cur current print get low high band boarding")

func singular(name string) string {
	if len(name) > 3 && !strings.HasSuffix(name, "ss") {
		return strings.TrimSuffix(name, "s")
	}
	return name
}

func toLower(c byte) byte {
	if class[c]&upper != 0 {
		return c | 0x20
	}
	return c
}

// equalFold is strings.EqualFold for ASCII; b is in lower case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if toLower(a[i]) != b[i] {
			return false
		}
	}
	return true
}
