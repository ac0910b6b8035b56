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
		literals: []string{"-----BEGIN", "---- BEGIN SSH2"}, open: true, find: privateKey,
		example: []string{"-----BEGIN RSA PRIV", "ATE KEY-----\n", "MIIEow" + mix40 + "\n" + mix40 + "\n-----END RSA PRIV" +
			"ATE KEY-----"},
		not: []string{"-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN PUBLIC KEY-----\nMIIB",
			"a line of -----BEGIN PRIVATE KEY----- in it."}},
	{name: "private-key-end", about: "the last lines of a private key in PEM whose begin is missing",
		literals: []string{"-----END"}, open: true, find: keyTail,
		example: []string{"", mix40 + mix20 + "\n" + mix40 + "a1==\n", "-----END PRIV" + "ATE KEY-----"},
		not:     []string{"-----END CERTIFICATE-----", "the line -----END PRIVATE KEY----- ends it"}},
	{name: "private-key-encoded", about: "private keys in PEM, encoded in Base64 as a whole",
		literals: []string{"LS0tLS1CRUdJTi"}, find: encodedKey,
		example: []string{"client: LS0tLS1CRUdJTiBQUk", "lWQVRFIEtFWS0tLS0tC" + mix40 + mix40},
		not:     []string{"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J"}},
	{name: "private-key-putty", about: "the private lines of a key of PuTTY", literals: []string{"Private-Lines: "},
		find: putty, example: []string{"Private-Lines: 2\n", mix40 + mix20 + "\n" + mix40 + "a1", "\nPrivate-MAC: x"}},
	{name: "url-password", about: "the password of a user in a URL, or a user that is a token",
		literals: []string{"://", `:\/\/`}, open: true, find: urlPassword, maybe: maybeURL,
		example: []string{"postgres://app:", "s3cr3t-" + mix20, "@db.example.com/main"},
		not: []string{"https://host:8080/a@b", "git@github.com:a/b.git", "https://user@example.com/",
			"postgres://app:${DB_PASSWORD}@db/main"}},
	{name: "anthropic-key", about: "Anthropic API, admin and OAuth keys",
		literals: []string{"sk-ant-"}, find: prefixed(slug, 20, mixed),
		example: []string{"sk-ant-", "api03-" + mix40 + mix40 + "AA"}, not: []string{"sk-ant-api03"}},
	{name: "openrouter-key", about: "OpenRouter keys",
		literals: []string{"sk-or-"}, find: prefixed(slug, 20, mixed), example: []string{"sk-or-", "v1-" + hex64}},
	{name: "langfuse-key", about: "Langfuse secret keys",
		literals: []string{"sk-lf-"}, find: prefixed(slug, 20, mixed),
		example: []string{"sk-lf-", "0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "openai-key", about: "OpenAI keys, and the like of DeepSeek, Moonshot, LiteLLM",
		literals: []string{"sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-", "sk-"}, find: openaiKey,
		example: []string{"sk-proj-", mix40 + "T3BlbkFJ" + mix40},
		not:     []string{"sk-estimator-doc-link", "sk-toggleable__label-arrow2024", "task-0123456789abcdef0123"}},
	{name: "cerebras-key", about: "Cerebras keys", literals: []string{"csk-"}, find: prefixed(alnum, 30, mixed),
		example: []string{"csk-", mix40}},
	{name: "groq-key", about: "Groq keys", literals: []string{"gsk_"}, find: prefixed(alnum, 30, mixed),
		example: []string{"gsk_", mix40 + "a1b2c3d4e5f6"}},
	{name: "xai-key", about: "xAI keys", literals: []string{"xai-"}, find: prefixed(alnum, 40, mixed),
		example: []string{"xai-", mix40 + mix40}, not: []string{"xai-grok-2-latest-and-other-models-with-long-names"}},
	{name: "perplexity-key", about: "Perplexity keys", literals: []string{"pplx-"}, find: prefixed(alnum, 40, mixed),
		example: []string{"pplx-", mix40 + "a1b2c3d4"}, not: []string{"pplx-70b-online"}},
	{name: "replicate-token", about: "Replicate tokens", literals: []string{"r8_"}, find: prefixed(alnum, 30, mixed),
		example: []string{"r8_", mix40[:37]}},
	{name: "nvidia-key", about: "NVIDIA API catalog keys", literals: []string{"nvapi-"}, find: prefixed(slug, 40, mixed),
		example: []string{"nvapi-", mix40 + mix20}},
	{name: "langsmith-key", about: "LangSmith keys", literals: []string{"lsv2_pt_", "lsv2_sk_"},
		find: prefixed(word, 32, mixed), example: []string{"lsv2_pt_", hex32 + "_0f3a9c4e7b"}},
	{name: "tavily-key", about: "Tavily keys", literals: []string{"tvly-"}, find: prefixed(slug, 20, mixed),
		example: []string{"tvly-", "dev-" + mix40}},
	{name: "fireworks-key", about: "Fireworks keys", literals: []string{"fw_"}, find: prefixed(alnum, 20, mixed),
		example: []string{"fw_", mix20 + "x1y2"}},
	{name: "together-key", about: "Together keys", literals: []string{"tgp_v1_"}, find: prefixed(slug, 30, mixed),
		example: []string{"tgp_v1_", mix40}},
	{name: "e2b-key", about: "E2B keys", literals: []string{"e2b_"}, find: prefixed(hexSet, 32, mixed),
		example: []string{"e2b_", hex32 + "0f3a9c4e"}},
	{name: "elevenlabs-key", about: "ElevenLabs keys", literals: []string{"sk_"}, find: exactly(digit|hexLower, 48),
		example: []string{"sk_", hex32 + "9b2e6d0c81f7a354"}},
	{name: "google-key", about: "Google API keys", literals: []string{"AIza", "AQ."}, find: prefixed(slug, 30, mixed),
		example: []string{"AIza", "Sy" + mix40[:33]}},
	{name: "google-oauth", about: "Google OAuth access tokens, refresh tokens and client secrets",
		literals: []string{"ya29.", "GOCSPX-", "1//0"}, find: prefixed(slug, 24, mixed),
		example: []string{"GOCSPX-", mix40[:28]}, not: []string{"1//0 rounds down"}},
	{name: "github-token", about: "GitHub personal, OAuth, app and refresh tokens",
		literals: []string{"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, find: prefixed(word, 30, mixed),
		example: []string{"ghp_", mix40[:36]}, not: []string{"ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
			"the prefix ghp_ marks"}},
	{name: "gitlab-token", about: "GitLab personal, deploy, runner, job, feed and agent tokens",
		literals: []string{"glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glffct-", "glsoat-", "gloas-",
			"glimt-", "glagent-", "GR1348941"},
		find: prefixed(slug|dot, 18, mixed), example: []string{"glpat-", mix20}},
	{name: "slack-token", about: "Slack bot, user, app, legacy and configuration tokens",
		literals: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxc-", "xoxd-", "xapp-",
			"xoxe.xoxp-", "xoxe.xoxb-"},
		find: slack, example: []string{"xoxb-", "123456789012-1234567890123-" + mix20}},
	{name: "webhook-url", about: "webhook URLs whose path is the secret: Slack, Discord, Teams, Datadog",
		literals: []string{"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/",
			"discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "hooks.zapier.com/hooks/catch/",
			".webhook.office.com/webhookb2/", "datadoghq.com/v1/input/"},
		open: true, find: restOfURL, example: []string{"https://hooks.slack.com/services/", "T0" + mix20 + "/B0" +
			mix20}},
	{name: "telegram-token", about: "Telegram bot tokens", literals: []string{":AA"}, open: true,
		find: around(digit, 8, slug, 30), example: []string{"1234567890", ":AA" + mix40[:33]}},
	{name: "stripe-key", about: "Stripe secret, restricted and webhook keys",
		literals: []string{"sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "whsec_", "sk_user_"},
		find:     prefixed(alnum|plusSlash|equals, 10, mixed), example: []string{"sk_live_", mix20 + "q7w8"}},
	{name: "aws-key", about: "AWS access key ids, and the secret key beside one",
		literals: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, find: awsKey, example: []string{"AKIA", caps},
		not: []string{"ASIAPACIFIC", "AKIA is a prefix"}},
	{name: "aws-bedrock-key", about: "Amazon Bedrock API keys", literals: []string{"ABSK", "bedrock-api-key-"},
		find: prefixed(base64|dash, 60, mixed), example: []string{"ABSK", mix40 + mix40 + mix40}},
	{name: "azure-key", about: "keys in Azure connection strings, signatures of shared access",
		literals: []string{"AccountKey=", "SharedAccessKey=", "SharedSecretValue="}, fold: true, open: true,
		find: after(base64, 20),
		example: []string{"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", mix40 + mix40 + "ab+/Cd==",
			";EndpointSuffix=core.windows.net"}},
	{name: "url-signature", about: "signatures of presigned URLs",
		literals: []string{"?sig=", "&sig=", "X-Amz-Signature=", "X-Goog-Signature=", ";sig=", `\u0026sig=`, "?Signature=",
			"&Signature="}, fold: true, open: true, find: signature,
		example: []string{"https://x.blob.core.windows.net/c/b?sv=2024-01-01&sig=", mix40 + "%2B%3D", "&se=2030"},
		not:     []string{"?sig=1", "&sig=alg"}},
	{name: "azure-client-secret", about: "Azure AD client secrets",
		literals: []string{"0Q~", "1Q~", "2Q~", "3Q~", "4Q~", "5Q~", "6Q~", "7Q~", "8Q~", "9Q~"}, open: true,
		find: around(word|tilde|dot|dash, 3, word|tilde|dot|dash, 25), example: []string{"aB3", "8Q~" + mix40[:34]}},
	{name: "connection-password", about: "the password of an ODBC or ADO connection string",
		literals: []string{";pwd=", ";password="}, fold: true, open: true, find: connectionPassword,
		example: []string{"Server=db;Uid=app;Pwd=", "s3cr3t" + mix20, ";Encrypt=yes"}, not: []string{"cd /tmp;pwd=$PWD"}},
	{name: "npm-token", about: "npm access tokens", literals: []string{"npm_"}, find: prefixed(alnum, 30, mixed),
		example: []string{"npm_", mix40[:36]}, not: []string{"npm_config_registry", "npm_package_version"}},
	{name: "pypi-token", about: "PyPI upload tokens", literals: []string{"pypi-AgE"}, find: prefixed(slug, 20, mixed),
		example: []string{"pypi-AgE", "IcHlwaS5vcmcC" + mix40 + mix40}, not: []string{"pypi-publish"}},
	{name: "rubygems-token", about: "RubyGems tokens", literals: []string{"rubygems_"},
		find: prefixed(hexSet, 40, mixed), example: []string{"rubygems_", hex32 + "9b2e6d0c81f7a354"}},
	{name: "huggingface-token", about: "Hugging Face user and organization tokens",
		literals: []string{"hf_", "api_org_"}, find: huggingFace,
		example: []string{"hf_", "aBcDeFgHiJkLmNoPqRs" + "TuVwXyZaBcDeFgH"}, not: []string{"hf_transfer", "hf_hub_download"}},
	{name: "twilio-key", about: "Twilio API keys", literals: []string{"SK0", "SK1", "SK2", "SK3", "SK4", "SK5", "SK6",
		"SK7", "SK8", "SK9", "SKa", "SKb", "SKc", "SKd", "SKe", "SKf"},
		alone: true, find: exactly(digit|hexLower, 31), example: []string{"SK", hex32}, not: []string{"SK1234", "SKeleton"}},
	{name: "sendgrid-key", about: "SendGrid keys", literals: []string{"SG."}, find: prefixed(slug|dot, 40, mixed),
		example: []string{"SG.", mix20 + "a1." + mix40 + "a1b"}, not: []string{"SG.Singapore"}},
	{name: "mailgun-key", about: "Mailgun private keys", literals: []string{"key-"}, alone: true,
		find: exactly(digit|hexLower, 32), example: []string{"key-", hex32}, not: []string{"key-value", "key-0123"}},
	{name: "mailchimp-key", about: "Mailchimp keys", literals: []string{"-us1", "-us2", "-us3", "-us4", "-us5", "-us6",
		"-us7", "-us8", "-us9"}, open: true, find: mailchimp, example: []string{hex32, "-us21"}, not: []string{"ec2-us1"}},
	{name: "brevo-key", about: "Brevo keys", literals: []string{"xkeysib-", "xsmtpsib-"},
		find: prefixed(slug, 40, mixed), example: []string{"xkeysib-", hex64 + "-aB3dE6gH9jK2mN5p"}},
	{name: "digitalocean-token", about: "DigitalOcean personal, OAuth and refresh tokens",
		literals: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, find: prefixed(hexSet, 32, mixed),
		example: []string{"dop_v1_", hex64}},
	{name: "databricks-token", about: "Databricks tokens", literals: []string{"dapi"}, alone: true,
		find: prefixed(digit|hexLower|dash, 32, mixed), example: []string{"dapi", hex32}},
	{name: "datadog-key", about: "Datadog keys in an intake URL", literals: []string{"dd-api-key="}, fold: true,
		open: true, find: after(alnum, 20), example: []string{"/api/v2/logs?dd-api-key=", hex32}},
	{name: "doppler-token", about: "Doppler tokens", literals: []string{"dp.pt.", "dp.st.", "dp.ct.", "dp.sa."},
		find: prefixed(slug|dot, 40, mixed), example: []string{"dp.pt.", mix40 + "a1b"}},
	{name: "grafana-token", about: "Grafana service account and cloud tokens", literals: []string{"glsa_", "glc_"},
		find: prefixed(base64|slug, 32, mixed), example: []string{"glsa_", mix20 + mix20[:12] + "_0f3a9c4e"}},
	{name: "vault-token", about: "HashiCorp Vault service, batch and recovery tokens",
		literals: []string{"hvs.", "hvb.", "hvr."}, find: prefixed(slug, 24, mixed),
		example: []string{"hvs.", "CAESI" + mix40 + mix40}},
	{name: "terraform-token", about: "Terraform Cloud tokens", literals: []string{".atlasv1."}, open: true,
		find: around(alnum, 14, slug|equals, 40), example: []string{"aB3dE6gH9jK2mN", ".atlasv1." + mix40 + mix20 + "abcde"}},
	{name: "docker-token", about: "Docker Hub tokens", literals: []string{"dckr_pat_", "dckr_oat_"},
		find: prefixed(slug, 20, mixed), example: []string{"dckr_pat_", mix20 + "a1b2c3d"}},
	{name: "atlassian-token", about: "Atlassian API tokens", literals: []string{"ATATT3", "ATCTT3", "ATBB", "BBDC-"},
		find: prefixed(slug|equals, 24, mixed), example: []string{"ATATT3", mix40 + mix40}},
	{name: "artifactory-key", about: "Artifactory keys", literals: []string{"AKCp"}, find: prefixed(alnum, 60, mixed),
		example: []string{"AKCp", mix40 + mix20 + "a1b2c3d4e"}},
	{name: "linear-key", about: "Linear keys", literals: []string{"lin_api_", "lin_oauth_"},
		find: prefixed(alnum, 30, mixed), example: []string{"lin_api_", mix40}},
	{name: "notion-token", about: "Notion tokens", literals: []string{"ntn_", "secret_"},
		find: prefixed(alnum, 40, mixed), example: []string{"ntn_", "12345678901" + mix40[:35]},
		not: []string{"secret_key_base", "secret_santa2024"}},
	{name: "figma-token", about: "Figma tokens", literals: []string{"figd_"}, find: prefixed(slug, 30, mixed),
		example: []string{"figd_", mix40}},
	{name: "newrelic-key", about: "New Relic keys", literals: []string{"NRAK-", "NRII-", "NRJS-", "NRIQ-", "NRAA-"},
		find: prefixed(slug, 19, mixed), example: []string{"NRAK-", "A1B2C3D4E5F6G7H8I9J0" + "K1L2M3N"}},
	{name: "postman-key", about: "Postman keys", literals: []string{"PMAK-"}, find: prefixed(alnum|dash, 40, mixed),
		example: []string{"PMAK-", hex32[:24] + "-" + hex64[:34]}},
	{name: "pulumi-token", about: "Pulumi tokens", literals: []string{"pul-"}, find: exactly(digit|hexLower, 40),
		example: []string{"pul-", hex64[:40]}},
	{name: "planetscale-token", about: "PlanetScale tokens and passwords",
		literals: []string{"pscale_tkn_", "pscale_pw_", "pscale_oauth_"}, find: prefixed(slug|dot|equals, 30, mixed),
		example: []string{"pscale_pw_", mix40}},
	{name: "sentry-token", about: "Sentry tokens", literals: []string{"sntrys_", "sntryu_"},
		find: prefixed(base64|slug, 40, mixed), example: []string{"sntryu_", hex64}},
	{name: "shopify-token", about: "Shopify tokens", literals: []string{"shpat_", "shpca_", "shppa_", "shpss_",
		"shptka_", "shpua_"}, find: prefixed(hexSet, 32, mixed), example: []string{"shpat_", hex32}},
	{name: "square-token", about: "Square tokens", literals: []string{"sq0atp-", "sq0csp-", "EAAA"},
		find: prefixed(slug, 22, dense), example: []string{"sq0atp-", mix20 + "a1"}},
	{name: "supabase-key", about: "Supabase tokens and secret keys", literals: []string{"sbp_", "sb_secret_"},
		find: prefixed(slug, 24, mixed), example: []string{"sbp_", hex64[:40]}},
	{name: "resend-key", about: "Resend keys", literals: []string{"re_"}, alone: true, find: resend,
		example: []string{"re_", "aB3dE6gH_" + mix20 + "a1b2"}, not: []string{"re_compile_2024_pattern_cache_size1"}},
	{name: "fly-token", about: "Fly.io tokens", literals: []string{"fo1_", "fm1r_", "fm1a_", "fm2_"},
		find: prefixed(base64|under|dash, 40, mixed), example: []string{"fo1_", mix40 + "a1b"}},
	{name: "heroku-key", about: "Heroku keys", literals: []string{"HRKU-"}, find: prefixed(slug, 30, mixed),
		example: []string{"HRKU-", "AA" + mix40 + mix20[:18]}},
	{name: "sonar-token", about: "SonarQube tokens", literals: []string{"sqp_", "squ_", "sqa_"},
		find: prefixed(hexSet, 40, mixed), example: []string{"sqp_", hex64[:40]}},
	{name: "circleci-token", about: "CircleCI tokens", literals: []string{"CCIPAT_", "CCIPRJ_"},
		find: prefixed(word, 30, mixed), example: []string{"CCIPAT_", mix20 + "_" + hex64[:40]}},
	{name: "buildkite-token", about: "Buildkite tokens", literals: []string{"bkua_"}, find: prefixed(hexSet, 40, mixed),
		example: []string{"bkua_", hex64[:40]}},
	{name: "onepassword-token", about: "1Password service account tokens", literals: []string{"ops_eyJ"},
		find: prefixed(base64|slug, 60, mixed), example: []string{"ops_eyJ", mix40 + mix40 + mix40}},
	{name: "age-key", about: "age secret keys", literals: []string{"AGE-SECRET-KEY-1"},
		find: prefixed(digit|upper, 40, mixed), example: []string{"AGE-SECRET-" + "KEY-1", caps + caps + caps +
			"QPZRY9X8GF"}},
	{name: "cloudflare-tunnel", about: "tokens of Cloudflare tunnels", literals: []string{"eyJhIjoi"},
		find: prefixed(base64|slug, 100, mixed), example: []string{"eyJhIjoi", mix40 + mix40 + mix40 + "=="}},
	{name: "jwt", about: "JSON Web Tokens, signed or encrypted", literals: []string{"eyJ"}, find: jwt,
		example: []string{"eyJ", "hbGciOiJIUzI1NiJ9.eyJ" + mix40 + "." + mix40}, not: []string{"eyJhIjoxfQ", "eyJ.eyJ"}},
	{name: "authorization", about: "credentials after Bearer and Basic", literals: []string{"bearer ", "basic "},
		fold: true, find: authScheme, example: []string{"Bearer ", mix40},
		not: []string{"Bearer authentication", "basic understanding of things", "Basic authentication", "bearer token"}},
	{name: "pinecone-key", about: "Pinecone keys", literals: []string{"pcsk_"}, find: prefixed(word, 40, mixed),
		example: []string{"pcsk_", mix20[:6] + "_" + mix40 + mix20}},
	{name: "jina-key", about: "Jina keys", literals: []string{"jina_"}, find: prefixed(slug, 40, mixed),
		example: []string{"jina_", hex32 + mix20 + "a1b2c3d4"}},
	{name: "voyage-key", about: "Voyage keys", literals: []string{"pa-"}, alone: true, find: sized(slug, 43, 46),
		example: []string{"pa-", mix40 + "a1b"}, not: []string{"pa-system-for-the-2025-conference-in-the-big-hall1"}},
	{name: "firecrawl-key", about: "Firecrawl keys", literals: []string{"fc-"}, alone: true,
		find: exactly(digit|hexLower, 32), example: []string{"fc-", hex32}, not: []string{"fc-cache2"}},
	{name: "runpod-key", about: "RunPod keys", literals: []string{"rpa_"}, find: prefixed(alnum, 36, mixed),
		example: []string{"rpa_", mix40 + "a1b2"}},
	{name: "posthog-key", about: "PostHog keys", literals: []string{"phc_", "phx_", "phs_", "phr_", "pha_"},
		find: prefixed(alnum, 36, mixed), example: []string{"phx_", mix40 + "a1b"}},
	{name: "context7-key", about: "Context7 keys", literals: []string{"ctx7sk"}, find: prefixed(slug, 24, mixed),
		example: []string{"ctx7sk", "-0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "assembly-key", about: "Apify, Browserbase, Helicone, Braintrust and Arize keys",
		literals: []string{"apify_api_", "bb_live_", "ak-"}, alone: true, find: prefixed(slug, 26, dense),
		example: []string{"apify_api_", mix40[:36]}},
	{name: "tailscale-key", about: "Tailscale keys", literals: []string{"tskey-"}, find: prefixed(slug, 20, mixed),
		example: []string{"tskey-", "auth-" + mix20[:17] + "-" + mix40[:32]}},
	{name: "hubspot-token", about: "HubSpot private app tokens",
		literals: []string{"pat-na1-", "pat-na2-", "pat-eu1-", "pat-ap1-", "pat-au1-"},
		find:     prefixed(hexSet|dash, 32, mixed), example: []string{"pat-na1-", "0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "dynatrace-token", about: "Dynatrace tokens",
		literals: []string{"dt0c01.", "dt0s01.", "dt0s02.", "dt0s03.", "dt0s04.", "dt0s06.", "dt0s08.", "dt0s16."},
		find:     prefixed(alnum|dot, 40, mixed), example: []string{"dt0c01.", caps + caps[:8] + "." + caps + caps + caps +
			caps}},
	{name: "sourcegraph-token", about: "Sourcegraph tokens", literals: []string{"sgp_"}, find: prefixed(word, 40, mixed),
		example: []string{"sgp_", hex32[:16] + "_" + hex64[:40]}},
	{name: "neon-key", about: "Neon keys", literals: []string{"napi_"}, find: prefixed(alnum, 40, mixed),
		example: []string{"napi_", hex64}},
	{name: "netlify-token", about: "Netlify tokens", literals: []string{"nfp_", "nfc_", "nfo_", "nfu_", "nfb_"},
		find: prefixed(alnum, 30, mixed), example: []string{"nfp_", mix40[:36]}},
	{name: "vercel-token", about: "Vercel tokens", literals: []string{"vcp_", "vci_", "vca_", "vcr_", "vck_", "vercel_"},
		find: prefixed(alnum, 24, mixed), example: []string{"vcp_", mix40}},
	{name: "discord-token", about: "Discord bot tokens", literals: discordBegins(), find: discord,
		example: []string{"", "MTA" + mix20 + "a." + "GaB3dE." + mix40[:38]}, not: []string{"MTA-STS: v1", "MTE1.2.3"}},
	{name: "airtable-token", about: "Airtable personal tokens", literals: []string{"pat"}, alone: true, find: airtable,
		maybe: maybeAirtable, example: []string{"pat", mix20[:14] + "." + hex64}, not: []string{"path.to.file", "patch1.2"}},
	{name: "crates-token", about: "crates.io tokens", literals: []string{"cio"}, alone: true, find: exactly(alnum, 32),
		example: []string{"cio", mix40[:32]}},
	{name: "nuget-key", about: "NuGet keys", literals: []string{"oy2"}, alone: true, find: exactly(digit|lower, 43),
		example: []string{"oy2", hex32 + "0f3a9c4e7b1"}},
	{name: "artifactory-token", about: "Artifactory reference tokens", literals: []string{"cmVmd"},
		find: sized(alnum, 56, 64), example: []string{"cmVmd", "GtuOjAxOj" + mix40 + mix20[:10]}},
	{name: "intercom-token", about: "Intercom tokens", literals: []string{"dG9rOi", "dG9rO"},
		find: prefixed(base64, 40, mixed), example: []string{"dG9rOi", mix40 + "a1b2"}},
	{name: "dropbox-token", about: "Dropbox tokens", literals: []string{"sl."}, alone: true,
		find: prefixed(slug|dot, 100, mixed), example: []string{"sl.", "u.A" + mix40 + mix40 + mix40 + mix20}},
	{name: "facebook-token", about: "Facebook access tokens",
		literals: []string{"EAACEdEose0cBA", "EAAC", "EAAM", "EAAB", "EAAG", "EAAJ"}, find: prefixed(alnum, 60, mixed),
		example: []string{"EAACEdEose0cBA", mix40 + mix20}},
	{name: "firebase-key", about: "Firebase server keys", literals: []string{":APA91b"}, open: true,
		find: around(slug, 11, slug, 100), example: []string{"AAAAb3dE6gH", ":APA91b" + mix40 + mix40 + mix40 + mix20}},
	{name: "alibaba-key", about: "Alibaba Cloud access keys", literals: []string{"LTAI"}, find: sized(alnum, 12, 26),
		example: []string{"LTAI", mix20}},
	{name: "tencent-key", about: "Tencent Cloud secret ids", literals: []string{"AKID"}, find: sized(alnum, 32, 36),
		example: []string{"AKID", mix40[:32]}},
	{name: "yandex-token", about: "Yandex Cloud tokens and keys", literals: []string{"AQVN", "y0_", "t1."}, alone: true,
		find: prefixed(slug|dot|equals, 35, dense), example: []string{"AQVN", mix40[:35]},
		not: []string{"t1.join(x)", "t1.column_2_of_the_table_with_a_long_name"}},
	{name: "plaid-token", about: "Plaid access tokens",
		literals: []string{"access-sandbox-", "access-development-", "access-production-"},
		find:     prefixed(hexSet|dash, 36, mixed), example: []string{"access-production-",
			"0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "duffel-token", about: "keys of Cal.com, Cloudflare, Duffel, Honeycomb, Inngest, Polar, Prefect, ReadMe, " +
		"Render, Typeform and others", literals: []string{"duffel_test_", "duffel_live_", "cal_live_", "cal_test_", "rnd_",
		"pnu_", "rdme_", "tfp_", "zpka_", "apik_", "snyk_uat.", "snyk_sat.", "rzp_live_", "rzp_test_", "aio_", "CFPAT-",
		"shippo_live_", "shippo_test_", "ddapi_", "lmnr_", "sm_aat_", "tk-us-", "p8e-", "fio-u-", "CLOJARS_", "endr+",
		"pk_prod_", "fcm_", "stytch_", "signkey-prod-", "signkey-test-", "slk_", "polar_oat_", "polar_pat_", "mzp_", "dtn_",
		"vercel_blob_rw_", "wandb_v1_", "mdb_sa_sk_", "cfut_", "cfat_", "cfk_", "hcaik_", "hcxik_", "hcalk_", "hcxlk_",
		"hcamk_"},
		alone: true, find: prefixed(slug|dot, 24, dense), example: []string{"duffel_test_", mix40 + "a1b"},
		not: []string{"rnd_walk_2d", "x_rnd_walk_of_2d_points_and_more"}},
	{name: "aws-key-old", about: "AWS ids of an older kind", literals: []string{"A3T"}, alone: true,
		find: exactly(digit|upper, 17), example: []string{"A3T", caps + "X"}},
	{name: "clickhouse-key", about: "ClickHouse Cloud secret keys", literals: []string{"4b1d"}, alone: true,
		find: exactly(alnum, 38), example: []string{"4b1d", mix40[:38]}},
	{name: "harness-token", about: "Harness tokens", literals: []string{"pat.", "sat."}, alone: true,
		find: prefixed(slug|dot, 60, mixed), example: []string{"pat.", mix20 + "a1." + hex32[:24] + "." + mix20}},
	{name: "intra42-secret", about: "Intra42 client secrets", literals: []string{"s-s4t2"},
		find: prefixed(slug, 60, mixed), example: []string{"s-s4t2", "ud-" + hex64}},
	{name: "infracost-key", about: "Infracost keys", literals: []string{"ico-"}, alone: true, find: infracost,
		example: []string{"ico-", mix40[:32]}, not: []string{"ico-7a388b69018576d24b59331fd60aab0c.png"}},
	{name: "wakatime-key", about: "WakaTime keys", literals: []string{"waka_"}, find: prefixed(hexSet|dash, 36, mixed),
		example: []string{"waka_", "0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}},
	{name: "live-key", about: "keys of other providers that say what they are for",
		literals: []string{"_live_", "_prod_", "_sk_", "_pat_", "_api_", "_secret_", "_token_", "_key_"}, open: true,
		find: liveKey, example: []string{"patch_live_", mix40},
		not: []string{"get_api_version_2_of_the_thing", "my_secret_santa", "is_live_"}},
	{name: "easypost-key", about: "EasyPost keys", literals: []string{"EZAK", "EZTK"}, find: exactly(alnum, 54),
		example: []string{"EZAK", mix40 + mix20[:14]}},
	{name: "flutterwave-key", about: "Flutterwave keys",
		literals: []string{"FLWSECK_TEST-", "FLWSECK-", "FLWPUBK_TEST-"}, find: prefixed(alnum|dash, 12, mixed),
		example: []string{"FLWSECK_TEST-", hex32 + "-X"}},
	{name: "cloudflare-key", about: "Cloudflare origin CA keys", literals: []string{"v1.0-"},
		find: prefixed(hexSet|dash, 100, mixed), example: []string{"v1.0-", hex32[:24] + "-" + hex64 + hex64}},
	{name: "openshift-token", about: "OpenShift tokens", literals: []string{"sha256~"}, find: prefixed(slug, 43, mixed),
		example: []string{"sha256~", mix40 + "a1b"}},
	{name: "onepassword-key", about: "1Password secret keys", literals: []string{"A3-"}, alone: true, find: onePassword,
		example: []string{"A3-", "ABC2D3-EFG4HJ5-KLM6N-PQR7S-TUV8W-XYZ9A"[:34]}, not: []string{"A3-paper"}},
	{name: "password-hash", about: "hashes of passwords as crypt writes them",
		literals: []string{"$1$", "$5$", "$6$", "$y$", "$2a$", "$2b$", "$2y$", "$apr1$", "$argon2id$", "$argon2i$", "$7$"},
		open:     true, find: cryptHash, example: []string{"root:", "$6$" + mix20[:8] + "$" + mix40 + mix40,
			":19000:0:99999:7:::"}, not: []string{"echo $1$2", "cost is $5$ or $6$ each"}},
	{name: "session-cookie", about: "session ids of web frameworks",
		literals: []string{"JSESSIONID=", "PHPSESSID=", "sessionid=", "connect.sid=", "ASP.NET_SessionId=",
			"laravel_session=", "_session=", "session=", "XSRF-TOKEN="}, fold: true, open: true, find: sessionCookie,
		example: []string{"Set-Cookie2: JSESSIONID=", caps + caps, "; Path=/"},
		not:     []string{"session=42", "session=ses_01HZX3ABCDEFGHJKMNPQRSTVWX"}},
	{name: "driver-password", about: "the password in the data source name of a driver",
		literals: []string{"@tcp(", "@unix(", "@udp(", "@cloudsql("}, open: true, find: dsn,
		example: []string{"app:", "s3cr3t" + mix20, "@tcp(db:3306)/main"},
		not:     []string{"user:password@tcp(localhost)", "key@tcp(x)"}},
	{name: "oracle-password", about: "the password before an Oracle host",
		literals: []string{"jdbc:oracle:thin:", "jdbc:oracle:oci:"}, open: true, find: oracle,
		example: []string{"jdbc:oracle:thin:app/", "s3cr3t" + mix20, "@db:1521/x"},
		not:     []string{"jdbc:oracle:thin:@db:1521/x"}},
	{name: "pgpass", about: "the password of a line in .pgpass",
		literals: []string{":5432:", ":5433:", ":6432:", ":*:*:", "*:*:*:"}, open: true, find: pgpass,
		example: []string{"db.example.com:5432:main:app:", "s3cr3t" + mix20},
		not:     []string{"localhost:5432:main", "db:5432:main:app:password"}},
	{name: "connection-string", about: "passwords in SQL: IDENTIFIED BY",
		literals: []string{"identified by", "identified with", "set password for"}, fold: true, find: identifiedBy,
		example: []string{"CREATE USER a IDENTIFIED BY '", "s3cr3t" + mix20, "'"},
		not:     []string{"identified by the team", "IDENTIFIED BY '${PW}'", "identified with 3 others"}},
	{name: "convert-to-securestring", about: "passwords in PowerShell's ConvertTo-SecureString",
		literals: []string{"ConvertTo-SecureString"}, fold: true, find: secureString,
		example: []string{"ConvertTo-SecureString -String \"", "s3cr3t" + mix20, "\" -AsPlainText -Force"},
		not:     []string{"ConvertTo-SecureString $pw -AsPlainText"}},
	{name: "basic-auth-call", about: "passwords in calls that take a user and a password",
		literals: []string{"auth=(", "basicauth(", "basic_auth(", ".auth(", "networkcredential(", "credentials(",
			"passwordauthentication(", ".login("}, fold: true, open: true, find: basicAuth,
		example: []string{"requests.get(url, auth=('app', '", "s3cr3t" + mix20, "'))"},
		not:     []string{"auth=(user, password)", "BasicAuth(user, pw)"}},
	{name: "redis-auth", about: "passwords in commands and files of Redis",
		literals: []string{"requirepass ", "masterauth ", "auth ", "bindpw ", "rootpw "}, fold: true, open: true,
		find: directive, example: []string{"requirepass ", "s3cr3t" + mix20},
		not: []string{"requirepass foobared", "AUTH LOGIN"}},
	{name: "login-pair", about: "user and password with a slash between them",
		literals: []string{"admin / ", "root / ", "guest / ", "admin/", "root/", "admin` / `"}, find: loginPair,
		example: []string{"admin / ", "s3cr3tZ9" + mix20[:4]}, not: []string{"admin / user", "root / group2"}},
	{name: "secret-phrase", about: "phrases of words that restore a wallet",
		literals: []string{"recovery phrase", "seed phrase", "mnemonic", "secret phrase", "backup phrase"}, fold: true,
		open: true, find: phrase,
		example: []string{"seed phrase: ", "abandon ability able about above absent absorb abstract absurd abuse access " +
			"accident"}, not: []string{"the mnemonic is easy", "seed phrase: twelve words"}},
	{name: "gitlab-feed-token", about: "GitLab feed and incoming mail tokens", literals: []string{"secret-token:"},
		find: prefixed(slug, 20, mixed), example: []string{"secret-token:", mix40}},
	{name: "helicone-key", about: "Helicone keys", literals: []string{"sk-helicone-"}, find: prefixed(slug, 24, mixed),
		example: []string{"sk-helicone-", "q3w9e2r-a8s1d4f-z6x2c7v-p5o1i8u"}},
	{name: "kubernetes-secret", about: "the data of a Secret of Kubernetes",
		literals: []string{"kind: Secret", "stringData:", "\ndata:"}, open: true, find: kubernetes,
		example: []string{"kind: Secret\nstringData:\n  config: ", "s3cr3tZ9" + mix20, "\n"},
		not: []string{"kind: SecretStore\ndata:\n  a: b1c2d3", "kind: ConfigMap\ndata:\n  level: debug",
			"kind: Secret\nmetadata:\n  name: db-1"}},
	{name: "signing-call", about: "keys in calls that sign", fold: true, open: true, find: secondArgument,
		literals: []string{"jwt.encode(", "jwt.sign(", "createhmac("},
		example:  []string{"jwt.sign(payload, '", "s3cr3tZ9" + mix20, "')"}, not: []string{"jwt.sign(payload, secret)"}},
	{name: "ipsec-secret", about: "shared secrets of IPsec", open: true, find: restOfString,
		literals: []string{`PSK "`, `PSK \`, `XAUTH "`, `XAUTH \`},
		example:  []string{`10.0.0.1 : PSK "`, "s3cr3t" + mix20, `"`}, not: []string{`: PSK "${PSK}"`}},
	{name: "device-secret", about: "secrets in the configuration of network devices", open: true, find: restOfPassword,
		literals: []string{"snmp-server community ", "key-string ", "wpa-psk ascii 0 "},
		example:  []string{"snmp-server community ", "s3cr3tZ9" + mix20[:4], " RO"},
		not:      []string{"snmp-server community public RO"}},
	{name: "uuid-key", about: "keys of LaunchDarkly and Axiom: a prefix and a UUID",
		literals: []string{"sdk-", "xaat-", "xapt-"}, alone: true, find: thenUUID,
		example: []string{"sdk-", "0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826"}, not: []string{"sdk-0f3a9c4e", "sdk-go-v2"}},
	{name: "paypal-token", about: "PayPal access tokens of Braintree", literals: []string{"access_token$"},
		find: restOfKey, example: []string{"access_token$", "production$" + mix20[:16] + "$" + hex32},
		not: []string{"access_token$1"}},
	{name: "facebook-token-long", about: "Facebook access tokens of applications", literals: []string{"EAA"},
		alone: true, find: sized(alnum, 100, 300), example: []string{"EAA", mix40 + mix40 + mix40 + "ZD"}},
	{name: "twitter-token", about: "Twitter bearer tokens of applications", literals: []string{"AAAAAAAAAAAAAAAAAAAA"},
		find: twitter, example: []string{"AAAAAAAAAAAAAAAAAAAAA", mix40 + "%3D" + mix40 + mix20[:10]},
		not: []string{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}},
	{name: "openai-session", about: "OpenAI session keys", literals: []string{"sess-"}, alone: true,
		find: exactly(alnum, 40), example: []string{"sess-", mix40}},
	{name: "trigger-key", about: "Trigger.dev keys", literals: []string{"tr_prod_", "tr_dev_", "tr_stg_", "tr_pat_"},
		alone: true, find: sized(alnum, 18, 40), example: []string{"tr_prod_", mix20}},
	{name: "aiven-password", about: "Aiven passwords and tokens", literals: []string{"AVNS_"},
		find: prefixed(slug, 15, mixed), example: []string{"AVNS_", mix20[:19]}},
	{name: "octopus-key", about: "Octopus Deploy keys", literals: []string{"API-"}, alone: true,
		find: sized(digit|upper, 25, 32), example: []string{"API-", caps + caps[:10]},
		not: []string{"API-REFERENCE", "API-2024"}},
	{name: "jetbrains-token", about: "JetBrains permanent tokens", literals: []string{"perm:", "perm-"},
		find: prefixed(base64|dot|dash, 40, mixed), example: []string{"perm:", mix20 + "." + mix20[:8] + "." + mix40},
		not: []string{"perm: 0644"}},
	{name: "cursor-key", about: "Cursor keys", literals: []string{"key_"}, alone: true,
		find: exactly(digit|hexLower, 64), example: []string{"key_", hex64}},
	{name: "statsig-key", about: "Statsig secret keys", literals: []string{"secret-"}, alone: true,
		find: sized(alnum, 40, 48), example: []string{"secret-", mix40 + "a1b"}},
	{name: "wallet-key", about: "extended private keys of wallets", literals: []string{"xprv", "yprv", "zprv", "tprv"},
		find: prefixed(alnum, 90, mixed), example: []string{"xprv", "9s21ZrQH143K" + mix40 + mix40 + mix20}},
	{name: "aspnet-cookie", about: "what ASP.NET protects: cookies and tokens", literals: []string{"CfDJ8"},
		find: prefixed(slug, 60, mixed), example: []string{"CfDJ8", mix40 + mix40}},
	{name: "unseal-key", about: "keys that unseal Vault", literals: []string{"Unseal Key ", "Recovery Key "},
		find: unsealKey, example: []string{"Unseal Key 1: ", mix40 + "a1b="},
		not: []string{"Unseal Key 1: see the safe", "Unseal Key Shares: 5"}},
	{name: "masked-value", about: "values that a workflow asks to be masked", literals: []string{"::add-mask::"},
		open: true, find: restOfWord, example: []string{"echo ::add-mask::", "s3cr3t" + mix20},
		not: []string{"::add-mask::$TOKEN", "::add-mask::${{ secrets.X }}"}},
	{name: "literal-of-secret", about: "values of kubectl create secret", literals: []string{"--from-literal="},
		open: true, find: fromLiteral, example: []string{"kubectl create secret generic x --from-literal=a=", "s3cr3t" +
			mix20}, not: []string{"--from-literal=a=$A", "--from-literal=log_level=debug", "--from-literal=username=admin"}},
	{name: "redis-user", about: "passwords of users of Redis", literals: []string{" on >"}, open: true,
		find: restOfPassword, example: []string{"user app on >", "s3cr3t" + mix20, " ~* +@all"},
		not: []string{"click on > next", "turn it on >>out.log"}},
	{name: "url-code", about: "codes and keys in the query of a URL, tokens in its path",
		literals: []string{"?code=", "&code=", "?key=", "&key=", "password/", "reset/", "invite/"}, open: true,
		find: urlCode, example: []string{"https://x.example/callback?code=", mix40, "&state=x"},
		not: []string{"?code=404", "?key=name", "/password/reset", "reset/0f3a9c4e-7b1d-4265-a4a7-0b9d3c5f1826",
			"src/password/resetPasswordControllerV2Test.java"}},
	{name: "sent-password", about: "passwords that scripts of expect send",
		literals: []string{"send \"", "send -- \"", `send \`, `send -- \`}, find: sent,
		example: []string{"send \"", "s3cr3tZ9" + mix20[:4], "\\r\""},
		not:     []string{"send \"exit\\r\"", "send \"ls -la /srv2\\r\"", "send \"hello\""}},
	{name: "replaced-password", about: "the old password in ALTER USER of Oracle",
		literals: []string{"\" replace \"", " replace '"}, fold: true, open: true, find: oldPassword,
		example: []string{"ALTER USER a IDENTIFIED BY \"${NEW}\" REPLACE \"", "s3cr3t" + mix20, "\""},
		not:     []string{"x replace 'a1' with 'b1'"}},
	{name: "password-label", about: "passwords and keys after their names in other languages", literals: labels,
		open: true, find: labelled, example: []string{"Das Passwort lautet ", "s3cr3tZ9" + mix20[:4]},
		not: []string{"Passwort: erforderlich", "Das Passwort ist zu kurz", "Senha: 12345", "密码是必填项"}},
	{name: "command-password", about: "passwords given to known commands: curl -u, mysql -p, docker login -p, sudo " +
		"-S, chpasswd, …",
		literals: commandLiterals(), open: true, find: command,
		example: []string{"curl -sS -u app:", "s3cr3t" + mix20, " https://example.com"},
		not: []string{"ls -a /srv", "mkdir -p /srv/data1", "docker run -p 8080:80 nginx",
			"curl -u app https://example.com", "grep -w Password1234 f"}},
	{name: "openssl-password", about: "passwords passed to openssl",
		literals: []string{"-passin pass:", "-passout pass:", "-pass pass:", "-password pass:"}, find: restOfWord,
		example: []string{"openssl rsa -passin pass:", "s3cr3t" + mix20, " -in k.pem"}},
}

func init() {
	for _, x := range rules {
		x.marker = "[redacted:" + x.name + "]"
	}
}

// openaiKey takes what follows a known prefix for a key, and after a bare "sk-", which
// style sheets have too, only what is dense.
func openaiKey(c *scan, at, n int) (int, int) {
	if n > len("sk-") {
		return longMixed(c, at, n)
	}
	for _, other := range [...]string{"ant-", "or-", "lf-", "helicone-"} {
		if strings.HasPrefix(c.s[at+n:], other) {
			return 0, 0
		}
	}
	return longDense(c, at, n)
}

var longMixed, longDense = prefixed(slug, 20, mixed), prefixed(slug, 20, dense)

// signature matches the value of a query parameter, with its escapes.
func signature(c *scan, at, n int) (int, int) {
	s := c.s
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

// restOfURL matches what follows of a URL, where it is long and made by chance.
func restOfURL(c *scan, at, n int) (int, int) {
	start := at + n
	end := c.urlEnd(start)
	for end > start && class[c.s[end-1]]&(alnum|slug) == 0 {
		end--
	}
	if v := c.s[start:end]; len(v) < 14 || !random(v, mixed) || strings.ContainsAny(v, "{}*") ||
		strings.Trim(v[strings.LastIndexByte(v, '/')+1:], "Xx0") == "" {
		return 0, 0
	}
	return start, end
}

// liveKey matches a word of capitals, letters and digits with more words before it.
func liveKey(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, alnum)
	if end-at-n < 24 || !random(c.s[at+n:end], dense) || wordy(c.s[at+n:end]) && countDigits(c.s[at+n:end]) < 4 ||
		at == c.floor || class[c.s[at-1]]&alnum == 0 || at-c.floor >= 2 && c.s[at-2:at] == "pk" { // publishable
		return 0, 0
	}
	return at + n, end
}

// connectionPassword matches what follows, to the semicolon.
func connectionPassword(c *scan, at, n int) (int, int) {
	s := c.s
	from, _ := c.line(at)
	if begin := max(c.floor, from, at-80); strings.IndexByte(s[begin:at], '=') < 0 {
		return 0, 0 // a command after another
	}
	start := at + n
	end := start
	if start < len(s) && s[start] == '{' { // braces are quotes here
		if k := strings.IndexByte(s[start:min(len(s), start+maxKey)], '}'); k > 0 && digits(s[start:start+k]) {
			return start + 1, start + k
		}
	}
	for end < len(s) && end-start < maxJudged && strings.IndexByte("; \t\r\n\"'`<\\", s[end]) < 0 {
		end++
	}
	if v := s[start:end]; v == "" || placeholder(v) || has(passwordWords, v) {
		return 0, 0
	}
	return start, end
}

// mailchimp matches a digest with a data center after it.
func mailchimp(c *scan, at, n int) (int, int) {
	s, floor := c.s, c.floor
	start := at - 32
	if start < floor || run(s[:at], start, digit|hexLower) != at || !bounded(s, start) {
		return 0, 0
	}
	return start, run(s, at+n, digit)
}

// resend matches a short name of letters and digits and a longer one; words joined by
// underscores are neither.
func resend(c *scan, at, n int) (int, int) {
	s := c.s
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

func restOfWord(c *scan, at, n int) (int, int) {
	s := c.s
	start := at + n
	end := start
	for end < len(s) && class[s[end]]&space == 0 && strings.IndexByte("\"'`", s[end]) < 0 {
		end++
	}
	if v := s[start:end]; placeholder(v) || v[0] == '$' {
		return 0, 0
	}
	return start, end
}

var slackToken = prefixed(slug, 10, mixed)

// slack matches tokens, which have more digits than names of files do.
func slack(c *scan, at, n int) (int, int) {
	start, end := slackToken(c, at, n)
	if end > 0 && countDigits(c.s[at+n:end]) < 3 {
		return 0, 0
	}
	return start, end
}

var ico = sized(alnum, 32, 32)

// infracost matches keys, which have capitals where the names of icons have none.
func infracost(c *scan, at, n int) (int, int) {
	start, end := ico(c, at, n)
	if end > 0 && strings.ToLower(c.s[at+n:end]) == c.s[at+n:end] {
		return 0, 0
	}
	return start, end
}

// huggingFace matches tokens, which may have no digit where they are as long as tokens
// are.
func huggingFace(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, alnum)
	if v := c.s[at+n : end]; len(v) == 34 && !wordy(v) && !repeated(v) {
		return at, end
	}
	return hfToken(c, at, n)
}

var hfToken = prefixed(alnum, 30, mixed)

// sized matches the literal and from low to high bytes of set after it.
func sized(set charset, low, high int) matcher {
	return func(c *scan, at, n int) (int, int) {
		end := run(c.s, at+n, set)
		if got := end - at - n; got < low || got > high || !random(c.s[at+n:end], dense) {
			return 0, 0
		}
		return at, end
	}
}

// discordBegins are how the Base64 of an id begins that was given out since 2022.
func discordBegins() (out []string) {
	for _, first := range []string{"MT"} {
		for _, c := range "AEIMQ" {
			out = append(out, first+string(c))
		}
	}
	return out
}

func discord(c *scan, at, _ int) (int, int) {
	first := run(c.s, at, slug)
	if first-at < 23 || first-at > 28 || first == len(c.s) || c.s[first] != '.' {
		return 0, 0
	}
	second := run(c.s, first+1, slug)
	if second-first != 7 || second == len(c.s) || c.s[second] != '.' {
		return 0, 0
	}
	end := run(c.s, second+1, slug)
	if end-second < 27 {
		return 0, 0
	}
	return at, end
}

func maybeAirtable(raw string, at, n int) bool {
	i := at + n + 14
	return i >= len(raw) || raw[i] == '.'
}

func airtable(c *scan, at, n int) (int, int) {
	i := at + n + 14
	if i >= len(c.s) || c.s[i] != '.' || run(c.s[:i], at+n, alnum) != i {
		return 0, 0
	}
	end := run(c.s, i+1, digit|hexLower)
	if end-i != 65 {
		return 0, 0
	}
	return at, end
}

// onePassword matches groups of capitals and digits.
func onePassword(c *scan, at, n int) (int, int) {
	end := run(c.s, at+n, digit|upper|dash)
	if v := c.s[at:end]; len(v) < 34 || len(v) > 42 || strings.Count(v, "-") < 5 || !digits(v[n:]) {
		return 0, 0
	}
	return at, end
}

// cryptHash matches the salt and the hash that follow the sign of an algorithm.
func cryptHash(c *scan, at, n int) (int, int) {
	i, parts := at+n, 0
	for parts < 4 {
		end := run(c.s, i, base64|dot)
		for end < len(c.s) && c.s[end] == ',' {
			end = run(c.s, end+1, base64|dot)
		}
		if end-i >= 22 && random(c.s[i:end], mixed) && (end == len(c.s) || c.s[end] != '$') {
			return at, end
		}
		if end == i || end == len(c.s) || c.s[end] != '$' || end-i > 64 {
			return 0, 0
		}
		i, parts = end+1, parts+1
	}
	return 0, 0
}

// sessionCookie matches the value of a cookie that is long and made by chance.
func sessionCookie(c *scan, at, n int) (int, int) {
	start := at + n
	end := start
	for end < len(c.s) && end-start < 4*maxJudged && (class[c.s[end]]&(slug|dot|plusSlash|tilde|equals) != 0 ||
		c.s[end] == '%' || c.s[end] == ':') {
		end++
	}
	v := c.s[start:end]
	if len(v) < 20 || strings.HasPrefix(v, "ses_") || uuid(v) || countDigits(v) < 3 || date(v) ||
		run(v, 0, digit) == len(v) {
		return 0, 0
	}
	return start, end
}

// quotedAfter returns the bounds of the string in quotes that begins at i.
func (c *scan) quotedAfter(i int) (int, int) {
	q := i
	for q < len(c.s) && c.s[q] == '\\' {
		q++
	}
	if q < len(c.s) && (c.s[q] == '"' || c.s[q] == '\'') {
		if end := c.closing(q+1, c.s[q], q-i); end < len(c.s) && end > q && end-q < maxJudged {
			if v := c.s[q+1 : end]; !placeholder(v) && !marked(v) && strings.IndexByte(v, '\n') < 0 {
				return q + 1, end
			}
		}
	}
	return 0, 0
}

// bareWord returns the end of the word at i, without quotes.
func (c *scan) bareWord(i int) int {
	end := i
	for end < len(c.s) && end-i < 128 && class[c.s[end]]&space == 0 && strings.IndexByte("\"'`<,;)|", c.s[end]) < 0 {
		if c.s[end] == '\\' && end+1 < len(c.s) && strings.IndexByte(`nrt"'\`, c.s[end+1]) >= 0 {
			break
		}
		end++
	}
	if end > i && c.s[end-1] == '.' {
		end--
	}
	return end
}

// identifiedBy matches the password of a user in SQL.
func identifiedBy(c *scan, at, n int) (int, int) {
	i := skipSpace(c.s, at+n)
	if equalFold(c.s[at+n-4:at+n], "with") { // a plugin is between
		i = skipSpace(c.s, run(c.s, i, word))
		if rest := c.s[i:min(len(c.s), i+3)]; !strings.EqualFold(rest, "by ") && !strings.EqualFold(rest, "as ") {
			return 0, 0
		}
		i = skipSpace(c.s, i+3)
	}
	if c.s[at]|0x20 == 's' { // SET PASSWORD FOR user = …
		k := strings.IndexByte(c.s[i:min(len(c.s), i+maxKey)], '=')
		if k < 0 {
			return 0, 0
		}
		i = skipSpace(c.s, i+k+1)
	}
	for _, before := range [...]string{"PASSWORD ", "PASSWORD(", "VALUES "} {
		if len(c.s)-i > len(before) && strings.EqualFold(c.s[i:i+len(before)], before) {
			i += len(before)
		}
	}
	if lo, hi := c.quotedAfter(i); hi > lo {
		return lo, hi
	}
	end := c.bareWord(i)
	if v := c.s[i:end]; len(v) < 6 || !digits(v) && !gibberish(v) && !c.endsStatement(at, end) || placeholder(v) ||
		marked(v) || has(passwordWords, v) || label(c.r, v) || c.s[at]|0x20 != 'i' {
		return 0, 0
	}
	return i, end
}

// endsStatement reports whether a statement of SQL that began at at, in capitals, ends at
// end or goes on with a clause: by its grammar what is before is the password.
func (c *scan) endsStatement(at, end int) bool {
	if c.s[at] != 'I' || c.s[at+1] != 'D' {
		return false
	}
	rest := strings.TrimLeft(c.s[end:min(len(c.s), end+20)], " ")
	for _, clause := range [...]string{";", "USING", "DEFAULT", "ACCOUNT", "QUOTA", "PROFILE", "REPLACE"} {
		if strings.HasPrefix(rest, clause) {
			return true
		}
	}
	return rest == ""
}

func secureString(c *scan, at, n int) (int, int) {
	i := skipSpace(c.s, at+n)
	if strings.HasPrefix(c.s[i:], "-") && (i+1 < len(c.s) && c.s[i+1]|0x20 == 's') {
		i = skipSpace(c.s, run(c.s, i, slug))
	}
	return c.quotedAfter(i)
}

// basicAuth matches the second of two strings in parentheses.
func basicAuth(c *scan, at, n int) (int, int) {
	_, end := c.quotedAfter(skipSpace(c.s, at+n))
	if end == 0 {
		return 0, 0
	}
	i := skipSpace(c.s, end+1)
	if i >= len(c.s) || c.s[i] != ',' {
		return 0, 0
	}
	lo, hi := c.quotedAfter(skipSpace(c.s, i+1))
	if hi <= lo || has(passwordWords, c.s[lo:hi]) {
		return 0, 0
	}
	return lo, hi
}

// directive matches the word after a directive, if no words come after it.
func directive(c *scan, at, n int) (int, int) {
	i := at + n
	if n == len("auth ") {
		if from, _ := c.line(at); from != at || c.s[at:i] != "AUTH " {
			return 0, 0
		}
	}
	if strings.HasPrefix(c.s[i:], "--plaintext ") {
		i += len("--plaintext ")
	}
	if lo, hi := c.quotedAfter(i); hi > lo {
		return lo, hi
	}
	end := c.bareWord(i)
	if v := c.s[i:end]; len(v) < 4 || !digits(v) || placeholder(v) || marked(v) || !chancy(v) && end < len(c.s) &&
		c.s[end] == ' ' && strings.TrimSpace(c.s[end:min(c.eol(end), end+20)]) != "" {
		return 0, 0
	}
	return i, end
}

func loginPair(c *scan, at, n int) (int, int) {
	i := at + n
	if c.s[i-1] == '/' { // is a path, where nobody logs in
		from, _ := c.line(at)
		before := c.s[max(c.floor, from, at-24):at]
		if indexFold(before, "log") < 0 && indexFold(before, "redential") < 0 && indexFold(before, "with ") < 0 {
			return 0, 0
		}
	}
	end := c.bareWord(i)
	if v := c.s[i:end]; !chancy(v) && !strong(v) {
		return 0, 0
	}
	return i, end
}

// phrase matches twelve words or more, of lower-case letters, after a colon or "is".
func phrase(c *scan, at, n int) (int, int) {
	i := at + n
	for range 3 {
		for i < len(c.s) && i-at < 60 && strings.IndexByte(" \"'`:=*\n", c.s[i]) >= 0 {
			i++
		}
		if rest := c.s[i:]; strings.HasPrefix(rest, "is ") || strings.HasPrefix(rest, "is: ") {
			i += 2
		}
	}
	end, count := i, 0
	for j := i; j < len(c.s) && count < 24; count++ {
		stop := run(c.s[:min(len(c.s), j+10)], j, lower)
		if stop-j < 3 || stop-j > 8 {
			break
		}
		end = stop
		if j = stop; j < len(c.s) && class[c.s[j]]&space != 0 {
			j++
		}
	}
	if count < 12 {
		return 0, 0
	}
	return i, end
}
