import { randomUUID } from "node:crypto";

import { home } from "../commands.mjs";
import { briefly, retried, scoutSystem, system } from "../model.mjs";

export default async function ({ url, endpoint, client, crew }) {
  const session = randomUUID();
  const run = home(client, {
    ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "x", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", CLAUDE_CODE_MAX_RETRIES: "1",
    CLAUDE_CODE_ENABLE_TELEMETRY: "1", CLAUDE_CODE_ENHANCED_TELEMETRY_BETA: "1",
    OTEL_TRACES_EXPORTER: "otlp", OTEL_LOGS_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_PROTOCOL: "http/protobuf", OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_LOG_USER_PROMPTS: "1", OTEL_LOG_ASSISTANT_RESPONSES: "1", OTEL_LOG_TOOL_DETAILS: "1", OTEL_LOG_TOOL_CONTENT: "1",
  });
  const scout = { scout: { description: "Looks at the sea", prompt: scoutSystem } };
  let known = "--session-id";
  return {
    session, says: process.env.AGENTTRACE ? briefly : retried,
    ask: (text) => {
      const asked = run("@anthropic-ai/claude-code/cli-wrapper.cjs", "-p", text, known, session, "--append-system-prompt", system, "--allowedTools", "Bash,Task,Agent",
        "--model", "claude-sonnet-4-5", ...(crew ? ["--agents", JSON.stringify(scout)] : []));
      known = "--resume";
      return asked;
    },
    flush: async () => {},
  };
}
