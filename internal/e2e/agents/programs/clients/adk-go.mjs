import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { scoutSystem, system } from "../model.mjs";

export default async function ({ url, session, endpoint, crew }) {
  const prompts = [];
  const conversation = { url, session, system, scout: crew ? scoutSystem : "", prompts };
  const env = { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: "true" };
  return {
    ask: async (text) => prompts.push(text),
    flush: () => promisify(execFile)("../adk", [JSON.stringify(conversation)], { env }),
  };
}
