package redact

import "strings"

const (
	hex32 = "0f3a9c4e7b1d8265" + "e4a70b9d3c5f1826"
	hex64 = hex32 + "9b2e6d0c81f7a354" + "7c1e93d05ab8f246"
	mix20 = "aZ3kQ9xW7mB2" + "vN5tL8rD"
	mix40 = mix20 + "hF4jY6cP1sG0uE9oK3iX"
	caps  = "Q7ZL3MXK5RVN" + "2TWB"
)

// rules are the built-in patterns; the first that matches at a place wins. The shapes
// are those the providers publish and the public secret scanners agree on.
var rules = []*rule{
	{name: "private-key", about: "private keys in PEM: PKCS, RSA, EC, OpenSSH, PGP; line ends escaped or lost; cut short",
		literals: []string{"-----BEGIN"}, open: true, find: privateKey,
		example: []string{"-----BEGIN RSA PRIV", "ATE KEY-----\n", "MIIEow" + mix40 + "\n" + mix40 + "\n-----END RSA PRIV" + "ATE KEY-----"},
		not:     []string{"-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN PUBLIC KEY-----\nMIIB", "a line of -----BEGIN PRIVATE KEY----- in it."}},
	{name: "url-password", about: "the password of a user in a URL, or a user that is a token",
		literals: []string{"://", `:\/\/`}, open: true, find: urlPassword, maybe: maybeURL,
		example: []string{"postgres://app:", "s3cr3t-" + mix20, "@db.example.com/main"},
		not:     []string{"https://host:8080/a@b", "git@github.com:a/b.git", "https://user@example.com/", "postgres://app:${DB_PASSWORD}@db/main"}},
	{name: "anthropic-key", about: "Anthropic API, admin and OAuth keys",
		literals: []string{"sk-ant-"}, find: prefixed(slug, 20, mixed), example: []string{"sk-ant-", "api03-" + mix40 + mix40 + "AA"}, not: []string{"sk-ant-api03"}},
	{name: "openrouter-key", about: "OpenRouter keys",
		literals: []string{"sk-or-"}, find: prefixed(slug, 20, mixed), example: []string{"sk-or-", "v1-" + hex64}},
	{name: "langfuse-key", about: "Langfuse secret keys",
		literals: []string{"sk-lf-"}, find: prefixed(slug, 20, mixed), example: []string{"sk-lf-", "0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "openai-key", about: "OpenAI keys, and the like of DeepSeek, Moonshot, LiteLLM",
		literals: []string{"sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-", "sk-"}, find: openaiKey, example: []string{"sk-proj-", mix40 + "T3BlbkFJ" + mix40},
		not: []string{"sk-estimator-doc-link", "sk-toggleable__label-arrow2024", "task-0123456789abcdef0123"}},
	{name: "cerebras-key", about: "Cerebras keys", literals: []string{"csk-"}, find: prefixed(alnum, 30, mixed), example: []string{"csk-", mix40}},
	{name: "groq-key", about: "Groq keys", literals: []string{"gsk_"}, find: prefixed(alnum, 30, mixed), example: []string{"gsk_", mix40 + "a1b2c3d4e5f6"}},
	{name: "xai-key", about: "xAI keys", literals: []string{"xai-"}, find: prefixed(alnum, 40, mixed), example: []string{"xai-", mix40 + mix40}, not: []string{"xai-grok-2-latest-and-other-models-with-long-names"}},
	{name: "perplexity-key", about: "Perplexity keys", literals: []string{"pplx-"}, find: prefixed(alnum, 40, mixed), example: []string{"pplx-", mix40 + "a1b2c3d4"}, not: []string{"pplx-70b-online"}},
	{name: "replicate-token", about: "Replicate tokens", literals: []string{"r8_"}, find: prefixed(alnum, 30, mixed), example: []string{"r8_", mix40[:37]}},
	{name: "nvidia-key", about: "NVIDIA API catalog keys", literals: []string{"nvapi-"}, find: prefixed(slug, 40, mixed), example: []string{"nvapi-", mix40 + mix20}},
	{name: "langsmith-key", about: "LangSmith keys", literals: []string{"lsv2_pt_", "lsv2_sk_"}, find: prefixed(word, 32, mixed), example: []string{"lsv2_pt_", hex32 + "_0f3a9c4e7b"}},
	{name: "tavily-key", about: "Tavily keys", literals: []string{"tvly-"}, find: prefixed(slug, 20, mixed), example: []string{"tvly-", "dev-" + mix40}},
	{name: "fireworks-key", about: "Fireworks keys", literals: []string{"fw_"}, find: prefixed(alnum, 20, mixed), example: []string{"fw_", mix20 + "x1y2"}},
	{name: "together-key", about: "Together keys", literals: []string{"tgp_v1_"}, find: prefixed(slug, 30, mixed), example: []string{"tgp_v1_", mix40}},
	{name: "e2b-key", about: "E2B keys", literals: []string{"e2b_"}, find: prefixed(hexSet, 32, mixed), example: []string{"e2b_", hex32 + "0f3a9c4e"}},
	{name: "elevenlabs-key", about: "ElevenLabs keys", literals: []string{"sk_"}, find: exactly(digit|hexLower, 48), example: []string{"sk_", hex32 + "9b2e6d0c81f7a354"}},
	{name: "google-key", about: "Google API keys", literals: []string{"AIza"}, find: prefixed(slug, 30, mixed), example: []string{"AIza", "Sy" + mix40[:33]}},
	{name: "google-oauth", about: "Google OAuth access tokens, refresh tokens and client secrets",
		literals: []string{"ya29.", "GOCSPX-", "1//0"}, find: prefixed(slug, 24, mixed), example: []string{"GOCSPX-", mix40[:28]}, not: []string{"1//0 rounds down"}},
	{name: "github-token", about: "GitHub personal, OAuth, app and refresh tokens",
		literals: []string{"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, find: prefixed(word, 30, mixed), example: []string{"ghp_", mix40[:36]}, not: []string{"ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "the prefix ghp_ marks"}},
	{name: "gitlab-token", about: "GitLab personal, deploy, runner, job, feed and agent tokens",
		literals: []string{"glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glffct-", "glsoat-", "gloas-", "glimt-", "glagent-", "GR1348941"},
		find:     prefixed(slug|dot, 18, mixed), example: []string{"glpat-", mix20}},
	{name: "slack-token", about: "Slack bot, user, app, legacy and configuration tokens",
		literals: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxc-", "xoxd-", "xapp-", "xoxe.xoxp-", "xoxe.xoxb-"},
		find:     prefixed(alnum|dash, 10, mixed), example: []string{"xoxb-", "123456789012-1234567890123-" + mix20}},
	{name: "webhook-url", about: "webhook URLs whose path is the secret: Slack, Discord, Teams, Datadog",
		literals: []string{"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", ".webhook.office.com/webhookb2/", "datadoghq.com/v1/input/"},
		open:     true, find: after(slug|plusSlash|tilde, 16), example: []string{"https://hooks.slack.com/services/", "T0" + mix20 + "/B0" + mix20}},
	{name: "telegram-token", about: "Telegram bot tokens", literals: []string{":AA"}, open: true, find: around(digit, 8, slug, 30), example: []string{"1234567890", ":AA" + mix40[:33]}},
	{name: "stripe-key", about: "Stripe secret, restricted and webhook keys",
		literals: []string{"sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "whsec_"}, find: prefixed(alnum|plusSlash|equals, 16, mixed), example: []string{"sk_live_", mix20 + "q7w8"}},
	{name: "aws-key", about: "AWS access key ids, and the secret key beside one",
		literals: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, find: awsKey, example: []string{"AKIA", caps}, not: []string{"ASIAPACIFIC", "AKIA is a prefix"}},
	{name: "aws-bedrock-key", about: "Amazon Bedrock API keys", literals: []string{"ABSK", "bedrock-api-key-"}, find: prefixed(base64|dash, 60, mixed), example: []string{"ABSK", mix40 + mix40 + mix40}},
	{name: "azure-key", about: "keys in Azure connection strings, signatures of shared access",
		literals: []string{"AccountKey=", "SharedAccessKey=", "SharedSecretValue="}, fold: true, open: true, find: after(base64, 20),
		example: []string{"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", mix40 + mix40 + "ab+/Cd==", ";EndpointSuffix=core.windows.net"}},
	{name: "url-signature", about: "signatures of presigned URLs", literals: []string{"?sig=", "&sig=", "X-Amz-Signature=", "X-Goog-Signature=", ";sig=", `\u0026sig=`}, fold: true, open: true, find: signature,
		example: []string{"https://x.blob.core.windows.net/c/b?sv=2024-01-01&sig=", mix40 + "%2B%3D", "&se=2030"}, not: []string{"?sig=1", "&sig=alg"}},
	{name: "azure-client-secret", about: "Azure AD client secrets", literals: []string{"0Q~", "1Q~", "2Q~", "3Q~", "4Q~", "5Q~", "6Q~", "7Q~", "8Q~", "9Q~"}, open: true,
		find: around(word|tilde|dot|dash, 3, word|tilde|dot|dash, 25), example: []string{"aB3", "8Q~" + mix40[:34]}},
	{name: "connection-password", about: "the password of an ODBC or ADO connection string", literals: []string{";pwd=", ";password="}, fold: true, open: true, find: connectionPassword,
		example: []string{"Server=db;Uid=app;Pwd=", "s3cr3t" + mix20, ";Encrypt=yes"}, not: []string{"cd /tmp;pwd=$PWD"}},
	{name: "npm-token", about: "npm access tokens", literals: []string{"npm_"}, find: prefixed(alnum, 30, mixed), example: []string{"npm_", mix40[:36]}, not: []string{"npm_config_registry", "npm_package_version"}},
	{name: "pypi-token", about: "PyPI upload tokens", literals: []string{"pypi-AgE"}, find: prefixed(slug, 20, mixed), example: []string{"pypi-AgE", "IcHlwaS5vcmcC" + mix40 + mix40}, not: []string{"pypi-publish"}},
	{name: "rubygems-token", about: "RubyGems tokens", literals: []string{"rubygems_"}, find: prefixed(hexSet, 40, mixed), example: []string{"rubygems_", hex32 + "9b2e6d0c81f7a354"}},
	{name: "huggingface-token", about: "Hugging Face user and organization tokens", literals: []string{"hf_", "api_org_"}, find: prefixed(alnum, 30, mixed), example: []string{"hf_", "aBcDeFgHiJkLmNoPqRs" + "TuVwXyZaBcDeFgH"}, not: []string{"hf_transfer", "hf_hub_download"}},
	{name: "twilio-key", about: "Twilio API keys", literals: []string{"SK0", "SK1", "SK2", "SK3", "SK4", "SK5", "SK6", "SK7", "SK8", "SK9", "SKa", "SKb", "SKc", "SKd", "SKe", "SKf"},
		find: exactly(digit|hexLower, 31), example: []string{"SK", hex32}, not: []string{"SK1234", "SKeleton"}},
	{name: "sendgrid-key", about: "SendGrid keys", literals: []string{"SG."}, find: prefixed(slug|dot, 40, mixed), example: []string{"SG.", mix20 + "a1." + mix40 + "a1b"}, not: []string{"SG.Singapore"}},
	{name: "mailgun-key", about: "Mailgun private keys", literals: []string{"key-"}, find: exactly(digit|hexLower, 32), example: []string{"key-", hex32}, not: []string{"key-value", "key-0123"}},
	{name: "mailchimp-key", about: "Mailchimp keys", literals: []string{"-us1", "-us2", "-us3", "-us4", "-us5", "-us6", "-us7", "-us8", "-us9"}, open: true, find: mailchimp, example: []string{hex32, "-us21"}, not: []string{"ec2-us1"}},
	{name: "brevo-key", about: "Brevo keys", literals: []string{"xkeysib-", "xsmtpsib-"}, find: prefixed(slug, 40, mixed), example: []string{"xkeysib-", hex64 + "-aB3dE6gH9jK2mN5p"}},
	{name: "digitalocean-token", about: "DigitalOcean personal, OAuth and refresh tokens", literals: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, find: prefixed(hexSet, 32, mixed), example: []string{"dop_v1_", hex64}},
	{name: "databricks-token", about: "Databricks tokens", literals: []string{"dapi"}, find: prefixed(digit|hexLower|dash, 32, mixed), example: []string{"dapi", hex32}},
	{name: "datadog-key", about: "Datadog keys in an intake URL", literals: []string{"dd-api-key="}, fold: true, open: true, find: after(alnum, 20), example: []string{"/api/v2/logs?dd-api-key=", hex32}},
	{name: "doppler-token", about: "Doppler tokens", literals: []string{"dp.pt.", "dp.st.", "dp.ct.", "dp.sa."}, find: prefixed(slug|dot, 40, mixed), example: []string{"dp.pt.", mix40 + "a1b"}},
	{name: "grafana-token", about: "Grafana service account and cloud tokens", literals: []string{"glsa_", "glc_"}, find: prefixed(base64|under, 32, mixed), example: []string{"glsa_", mix20 + mix20[:12] + "_0f3a9c4e"}},
	{name: "vault-token", about: "HashiCorp Vault service, batch and recovery tokens", literals: []string{"hvs.", "hvb.", "hvr."}, find: prefixed(slug, 24, mixed), example: []string{"hvs.", "CAESI" + mix40 + mix40}},
	{name: "terraform-token", about: "Terraform Cloud tokens", literals: []string{".atlasv1."}, open: true, find: around(alnum, 14, slug|equals, 40), example: []string{"aB3dE6gH9jK2mN", ".atlasv1." + mix40 + mix20 + "abcde"}},
	{name: "docker-token", about: "Docker Hub tokens", literals: []string{"dckr_pat_", "dckr_oat_"}, find: prefixed(slug, 20, mixed), example: []string{"dckr_pat_", mix20 + "a1b2c3d"}},
	{name: "atlassian-token", about: "Atlassian API tokens", literals: []string{"ATATT3", "ATCTT3", "ATBB"}, find: prefixed(slug|equals, 24, mixed), example: []string{"ATATT3", mix40 + mix40}},
	{name: "artifactory-key", about: "Artifactory keys", literals: []string{"AKCp"}, find: prefixed(alnum, 60, mixed), example: []string{"AKCp", mix40 + mix20 + "a1b2c3d4e"}},
	{name: "linear-key", about: "Linear keys", literals: []string{"lin_api_", "lin_oauth_"}, find: prefixed(alnum, 30, mixed), example: []string{"lin_api_", mix40}},
	{name: "notion-token", about: "Notion tokens", literals: []string{"ntn_", "secret_"}, find: prefixed(alnum, 40, mixed), example: []string{"ntn_", "12345678901" + mix40[:35]}, not: []string{"secret_key_base", "secret_santa2024"}},
	{name: "figma-token", about: "Figma tokens", literals: []string{"figd_"}, find: prefixed(slug, 30, mixed), example: []string{"figd_", mix40}},
	{name: "newrelic-key", about: "New Relic keys", literals: []string{"NRAK-", "NRII-", "NRJS-"}, find: prefixed(slug, 19, mixed), example: []string{"NRAK-", "A1B2C3D4E5F6G7H8I9J0" + "K1L2M3N"}},
	{name: "postman-key", about: "Postman keys", literals: []string{"PMAK-"}, find: prefixed(alnum|dash, 40, mixed), example: []string{"PMAK-", hex32[:24] + "-" + hex64[:34]}},
	{name: "pulumi-token", about: "Pulumi tokens", literals: []string{"pul-"}, find: exactly(digit|hexLower, 40), example: []string{"pul-", hex64[:40]}},
	{name: "planetscale-token", about: "PlanetScale tokens and passwords", literals: []string{"pscale_tkn_", "pscale_pw_", "pscale_oauth_"}, find: prefixed(slug|dot|equals, 30, mixed), example: []string{"pscale_pw_", mix40}},
	{name: "sentry-token", about: "Sentry tokens", literals: []string{"sntrys_", "sntryu_"}, find: prefixed(base64|under, 40, mixed), example: []string{"sntryu_", hex64}},
	{name: "shopify-token", about: "Shopify tokens", literals: []string{"shpat_", "shpca_", "shppa_", "shpss_"}, find: prefixed(hexSet, 32, mixed), example: []string{"shpat_", hex32}},
	{name: "square-token", about: "Square tokens", literals: []string{"sq0atp-", "sq0csp-", "EAAA"}, find: prefixed(slug, 22, dense), example: []string{"sq0atp-", mix20 + "a1"}},
	{name: "supabase-key", about: "Supabase tokens and secret keys", literals: []string{"sbp_", "sb_secret_"}, find: prefixed(slug, 24, mixed), example: []string{"sbp_", hex64[:40]}},
	{name: "resend-key", about: "Resend keys", literals: []string{"re_"}, find: resend, example: []string{"re_", "aB3dE6gH_" + mix20 + "a1b2"}, not: []string{"re_compile_2024_pattern_cache_size1"}},
	{name: "fly-token", about: "Fly.io tokens", literals: []string{"fo1_", "fm1r_", "fm1a_", "fm2_"}, find: prefixed(base64|under|dash, 40, mixed), example: []string{"fo1_", mix40 + "a1b"}},
	{name: "heroku-key", about: "Heroku keys", literals: []string{"HRKU-"}, find: prefixed(slug, 30, mixed), example: []string{"HRKU-", "AA" + mix40 + mix20[:18]}},
	{name: "sonar-token", about: "SonarQube tokens", literals: []string{"sqp_", "squ_", "sqa_"}, find: prefixed(hexSet, 40, mixed), example: []string{"sqp_", hex64[:40]}},
	{name: "circleci-token", about: "CircleCI tokens", literals: []string{"CCIPAT_", "CCIPRJ_"}, find: prefixed(word, 30, mixed), example: []string{"CCIPAT_", mix20 + "_" + hex64[:40]}},
	{name: "buildkite-token", about: "Buildkite tokens", literals: []string{"bkua_"}, find: prefixed(hexSet, 40, mixed), example: []string{"bkua_", hex64[:40]}},
	{name: "onepassword-token", about: "1Password service account tokens", literals: []string{"ops_eyJ"}, find: prefixed(base64, 60, mixed), example: []string{"ops_eyJ", mix40 + mix40 + mix40}},
	{name: "age-key", about: "age secret keys", literals: []string{"AGE-SECRET-KEY-1"}, find: prefixed(digit|upper, 40, mixed), example: []string{"AGE-SECRET-" + "KEY-1", caps + caps + caps + "QPZRY9X8GF"}},
	{name: "jwt", about: "JSON Web Tokens, signed or encrypted", literals: []string{"eyJ"}, find: jwt, example: []string{"eyJ", "hbGciOiJIUzI1NiJ9.eyJ" + mix40 + "." + mix40}, not: []string{"eyJhIjoxfQ", "eyJ.eyJ"}},
	{name: "authorization", about: "credentials after Bearer and Basic", literals: []string{"bearer ", "basic "}, fold: true, find: authScheme, example: []string{"Bearer ", mix40},
		not: []string{"Bearer authentication", "basic understanding of things", "Basic authentication", "bearer token"}},
	{name: "command-password", about: "passwords in the short flags of known commands: curl -u, mysql -p, docker login -p, redis-cli -a, …",
		literals: []string{" -u", " -U", " -p", " -P", " -a", " -w", `"-u`, `"-U`, `"-p`, `"-P`, `"-a`, `"-w`, " --user", " --proxy-user", "curl -"}, open: true, find: commandFlag, maybe: maybeCommand,
		example: []string{"curl -sS -u app:", "s3cr3t" + mix20, " https://example.com"}, not: []string{"ls -a /srv", "mkdir -p /srv/data1", "docker run -p 8080:80 nginx", "curl -u app https://example.com", "grep -w Password1234 f"}},
	{name: "openssl-password", about: "passwords passed to openssl", literals: []string{"-passin pass:", "-passout pass:", "-pass pass:"}, find: restOfWord, example: []string{"openssl rsa -passin pass:", "s3cr3t" + mix20, " -in k.pem"}},
}

func init() {
	for _, x := range rules {
		x.marker = "[redacted:" + x.name + "]"
	}
}

// openaiKey takes what follows a known prefix for a key, and after a bare "sk-", which
// style sheets have too, only what is dense.
func openaiKey(s string, floor, at, n int) (int, int) {
	if n > len("sk-") {
		return prefixed(slug, 20, mixed)(s, floor, at, n)
	}
	return prefixed(slug, 20, dense)(s, floor, at, n)
}

// signature matches the value of a query parameter, with its escapes.
func signature(s string, _, at, n int) (int, int) {
	start := at + n
	end := start
	for end < len(s) && (class[s[end]]&(base64|slug|tilde) != 0 || s[end] == '%') {
		end++
	}
	if end-start < 20 || !random(s[start:end], mixed) {
		return 0, 0
	}
	return start, end
}

// connectionPassword matches what follows, to the semicolon.
func connectionPassword(s string, floor, at, n int) (int, int) {
	begin := max(floor, at-200)
	if line := strings.LastIndexByte(s[begin:at], '\n'); line >= 0 {
		begin += line + 1
	}
	if !strings.Contains(s[begin:at], "=") {
		return 0, 0 // a command after another
	}
	start := at + n
	end := start
	for end < len(s) && strings.IndexByte("; \t\r\n\"'`<\\", s[end]) < 0 {
		end++
	}
	if v := s[start:end]; v == "" || placeholder(v) {
		return 0, 0
	}
	return start, end
}

// mailchimp matches a digest with a data center after it.
func mailchimp(s string, floor, at, n int) (int, int) {
	start := at - 32
	if start < floor || run(s[:at], start, digit|hexLower) != at || !bounded(s, start) {
		return 0, 0
	}
	return start, run(s, at+n, digit)
}

// resend matches a short name of letters and digits and a longer one; words joined by
// underscores are neither.
func resend(s string, _, at, n int) (int, int) {
	first := run(s, at+n, alnum)
	if first-at-n != 8 || first == len(s) || s[first] != '_' {
		return 0, 0
	}
	end := run(s, first+1, alnum)
	if end-first-1 < 20 || !random(s[first+1:end], dense) {
		return 0, 0
	}
	return at, end
}

func restOfWord(s string, _, at, n int) (int, int) {
	start := at + n
	end := start
	for end < len(s) && class[s[end]]&space == 0 && strings.IndexByte("\"'`", s[end]) < 0 {
		end++
	}
	if placeholder(s[start:end]) {
		return 0, 0
	}
	return start, end
}
