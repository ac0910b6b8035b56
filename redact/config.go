package redact

import (
	"fmt"
	"slices"
	"strings"
)

// Markers in the place of what was taken out.
const (
	// Marker replaces a value whose key names a secret.
	Marker = "__REDACTED__"
	// TruncatedMarker ends what was cut; the original size follows it in brackets: "__TRUNCATED__[48213 bytes]".
	TruncatedMarker = "__TRUNCATED__"
)

// MinLimit is the smallest limit on bytes that [New] accepts: below it a marker leaves no room for content.
const MinLimit = 100

// Config states what is redacted, omitted and cut. The zero value redacts by the default keys and by every pattern,
// omits nothing and cuts nothing. The field tags serve configuration files; New checks what they cannot.
type Config struct {
	// Keys are the names whose values are secrets. A name matches a key when its words are words of the key, whatever
	// the case and whether the key is written in snake_case, kebab-case, camelCase or with dots: "token" matches
	// access_token, accessToken and X-Auth-Token, but not tokens, tokenizer or max_tokens. Some names mean other things
	// too, so that their values must look like secrets: "pass", "pwd" and "psk" no number, path or state, "key" behind
	// another word, "auth" and "pat" a token. Empty means DefaultKeys and the names of services before what looks like
	// a token; to add to DefaultKeys, list them too. A name has three bytes or more, of ASCII.
	Keys []string `mapstructure:"keys" yaml:"keys" json:"keys,omitempty"`
	// AllowKeys are keys that are never secrets although Keys matches them, compared whole, without regard to case and
	// separators. What is under them is still searched for patterns.
	AllowKeys []string `mapstructure:"allow_keys" yaml:"allow_keys" json:"allow_keys,omitempty"`
	// DisableKeys turns redaction by key off, in structures and in text.
	DisableKeys bool `mapstructure:"disable_keys" yaml:"disable_keys" json:"disable_keys,omitempty"`
	// DisablePatterns turns every rule of Rules off.
	DisablePatterns bool `mapstructure:"disable_patterns" yaml:"disable_patterns" json:"disable_patterns,omitempty"`
	// DisableRules turns single rules off, by name; "clues" is the judgement of words that no name of a secret is near,
	// which DisableKeys and DisablePatterns turn off, too.
	DisableRules []string `mapstructure:"disable_rules" yaml:"disable_rules" json:"disable_rules,omitempty"`
	// Omit names the kinds of content that are not kept at all.
	Omit Omit `mapstructure:"omit" yaml:"omit" json:"omit,omitzero"`
	// MaxBytes is the most bytes that a value keeps, the marker included; 0 is no limit, otherwise MinLimit or more.
	MaxBytes int `mapstructure:"max_bytes" yaml:"max_bytes" json:"max_bytes,omitempty"`
	// MaxDepth is how deep arrays and objects nest before what is below is
	// replaced by a marker; 0 is no limit. The outermost value is at depth 0.
	MaxDepth int `mapstructure:"max_depth" yaml:"max_depth" json:"max_depth,omitempty"`
	// Func, when set, sees every string after the built-in rules, with the nearest key it is under ("" where there is
	// none), and may replace it by returning true. Strings that a key redacted whole it does not see. It must be safe
	// for concurrent use and return valid UTF-8.
	Func func(key, value string) (string, bool) `mapstructure:"-" yaml:"-" json:"-"`
}

// Omit names kinds of content that are replaced by a marker with their size.
type Omit struct {
	// Prompts omits what goes into the model: system prompts, messages of users.
	Prompts bool `mapstructure:"prompts" yaml:"prompts" json:"prompts,omitempty"`
	// Reasoning omits what the model thought before it answered.
	Reasoning bool `mapstructure:"reasoning" yaml:"reasoning" json:"reasoning,omitempty"`
	// ToolInputs omits what the model passed to tools.
	ToolInputs bool `mapstructure:"tool_inputs" yaml:"tool_inputs" json:"tool_inputs,omitempty"`
	// ToolOutputs omits what tools returned.
	ToolOutputs bool `mapstructure:"tool_outputs" yaml:"tool_outputs" json:"tool_outputs,omitempty"`
}

// Content is the kind of content that a value is, as its caller knows.
type Content uint8

// Kinds of content. Other is never omitted.
const (
	Other Content = iota
	Prompt
	Reasoning
	ToolInput
	ToolOutput
)

// Redactor redacts, omits and cuts by one Config. It is immutable and safe for
// concurrent use. A nil *Redactor changes nothing.
type Redactor struct {
	keys       []keyName
	allow      []string
	index      *table
	byEnd      map[string][]*keyName // the keys by their last two letters
	far        bool                  // words that no label is near are judged, too
	bareLogins bool                  // the rule login-password is on
	omit       [ToolOutput + 1]bool
	maxBytes   int
	maxDepth   int
	fn         func(key, value string) (string, bool)
	trace      *trace // of Explain
}

// DefaultKeys returns the names whose values are secrets unless Config.Keys states
// otherwise. The slice is the caller's.
func DefaultKeys() []string {
	load()
	return slices.Clone(words["keys"])
}

// New returns a Redactor for cfg, which it copies. It fails on a key that has fewer than
// three letters or digits or is not ASCII, on an unknown rule and on a limit out of range.
func New(cfg Config) (*Redactor, error) {
	load()
	r := &Redactor{byEnd: map[string][]*keyName{}, fn: cfg.Func, maxBytes: cfg.MaxBytes, maxDepth: cfg.MaxDepth}
	r.omit = [...]bool{Prompt: cfg.Omit.Prompts, Reasoning: cfg.Omit.Reasoning, ToolInput: cfg.Omit.ToolInputs,
		ToolOutput: cfg.Omit.ToolOutputs}
	if cfg.MaxBytes < 0 || cfg.MaxBytes > 0 && cfg.MaxBytes < MinLimit {
		return nil, fmt.Errorf("check max_bytes %d: use 0 for no limit, or %d or more", cfg.MaxBytes, MinLimit)
	}
	if cfg.MaxDepth < 0 {
		return nil, fmt.Errorf("check max_depth %d: use 0 for no limit, or a positive depth", cfg.MaxDepth)
	}
	for _, name := range cfg.DisableRules {
		if name != cluesRule && !slices.ContainsFunc(rules, func(x *rule) bool { return x.name == name }) {
			return nil, fmt.Errorf("disable rule %q: no such rule; Rules lists them", name)
		}
	}
	active := slices.DeleteFunc(slices.Clone(rules), func(x *rule) bool {
		return cfg.DisablePatterns || slices.Contains(cfg.DisableRules, x.name)
	})
	if !cfg.DisableKeys {
		names := cfg.Keys
		if len(names) == 0 {
			names = DefaultKeys()
		}
		for _, name := range names {
			k, err := newKeyName(name)
			if err != nil {
				return nil, err
			}
			r.keys = append(r.keys, k)
		}
		for _, name := range cfg.AllowKeys {
			r.allow = append(r.allow, strings.ToLower(separators.Replace(name)))
		}
		if len(cfg.Keys) == 0 {
			r.keys = append(r.keys, vendorKeys...)
		}
	}
	// A key is looked up by the end of each of its words, so the names are in a map by their last two letters.
	for i := range r.keys {
		k := &r.keys[i]
		for _, name := range [...]string{k.joined, shortened[k.joined]} {
			if name != "" {
				end := name[len(name)-2:]
				r.byEnd[end] = append(r.byEnd[end], &keyName{joined: name, class: k.class})
			}
		}
	}
	r.far = !cfg.DisableKeys && !cfg.DisablePatterns && !slices.Contains(cfg.DisableRules, cluesRule)
	r.bareLogins = slices.ContainsFunc(active, func(x *rule) bool { return x.name == loginRule })
	r.index = newIndex(active, r.keys)
	return r, nil
}
