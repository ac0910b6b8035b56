import Anthropic from "@anthropic-ai/sdk";
import { Agent, tool } from "@strands-agents/sdk";
import { AnthropicModel } from "@strands-agents/sdk/models/anthropic";
import { z } from "zod";

import { system, tools } from "../model.mjs";

export default async function ({ url, session, provider }) {
  const p = provider();
  const agent = new Agent({
    name: "Ferris", systemPrompt: system, printer: false, traceAttributes: { "session.id": session, "user.id": "u_1" },
    model: new AnthropicModel({ modelId: "pilot", maxTokens: 100, client: new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 }) }),
    tools: Object.entries(tools).map(([name, t]) => tool({
      name, description: t.description, callback: (input) => t.run(input),
      inputSchema: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
    })),
  });
  return { ask: (text) => agent.invoke(text), flush: () => p.forceFlush() };
}
