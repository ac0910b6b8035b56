import { randomUUID } from "node:crypto";

import { home } from "../commands.mjs";
import { briefly, retried, scoutSystem } from "../model.mjs";

export default async function ({ url, endpoint, client }) {
  const session = randomUUID();
  const run = home(client, {
    COPILOT_OFFLINE: "true", COPILOT_PROVIDER_BASE_URL: `${url}/v1`, COPILOT_MODEL: "pilot", COPILOT_AUTO_UPDATE: "false",
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: "true",
  }, { ".copilot/agents/scout.agent.md": `---\nname: scout\ndescription: Looks at the sea\n---\n\n${scoutSystem}\n` });
  return { session, says: process.env.AGENTTRACE ? briefly : retried, ask: (text) => run("@github/copilot/npm-loader.js", "-p", text, "--session-id", session, "--allow-all-tools"), flush: async () => {} };
}
