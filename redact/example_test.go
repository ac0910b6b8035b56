package redact_test

import (
	"fmt"
	"log"

	"github.com/agenttrace/agenttrace/redact"
)

func Example() {
	r, err := redact.New(redact.Config{MaxBytes: 20000})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Text("mysql -u root -phunter2 shop && curl -H 'X-Api-Key: abc123def' https://example.com"))
	fmt.Println(
		string(
			r.JSON([]byte(`{"user":"me","password":["a"],"usage":{"input_tokens":12},` +
				`"args":"{\"access_token\":\"abc\"}"}`))))
	fmt.Println(r.Value("accessToken", "abc"), r.Value("max_tokens", "4096"))
	// Output:
	// mysql -u root -p__REDACTED__ shop && curl -H 'X-Api-Key: __REDACTED__' https://example.com
	// {"user":"me","password":"__REDACTED__","usage":{"input_tokens":12},"args":"{\"access_token\":\"__REDACTED__\"}"}
	// __REDACTED__ 4096
}

func ExampleRedactor_Apply() {
	r, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true}, MaxBytes: 100})
	if err != nil {
		log.Fatal(err)
	}
	text, res := r.Apply(redact.Prompt, "", "You are a careful agent.")
	fmt.Println(text, res.Omitted, res.Size)
	// Output:
	// [omitted: 24 bytes] true 24
}
