import Anthropic from "@anthropic-ai/sdk";
import { Agent, tool } from "@strands-agents/sdk";
import { AnthropicModel } from "@strands-agents/sdk/models/anthropic";
import { z } from "zod";

import { scoutSystem, system, tools } from "../model.mjs";

export default async function ({ url, session, provider, crew }) {
  const p = provider();
  const model = new AnthropicModel({ modelId: "pilot", maxTokens: 100, client: new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 }) });
  const catalog = Object.entries(tools).map(([name, t]) => tool({
    name, description: t.description, callback: (input) => t.run(input),
    inputSchema: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  }));
  const askScout = tool({
    name: "ask_scout", description: "Ask the scout", inputSchema: z.object({ question: z.string() }),
    callback: async ({ question }) => String(await new Agent({ name: "Scout", systemPrompt: scoutSystem, printer: false, model, tools: catalog }).invoke(question)),
  });
  const agent = new Agent({
    name: "Ferris", systemPrompt: system, printer: false, traceAttributes: { "session.id": session, "user.id": "u_1" },
    model, tools: crew ? [...catalog, askScout] : catalog,
  });
  return { ask: (text) => agent.invoke(text), flush: () => p.forceFlush() };
}
