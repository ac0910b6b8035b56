import { setSession } from "@arizeai/openinference-core";
import { OpenAIAgentsInstrumentation } from "@arizeai/openinference-instrumentation-openai-agents";
import * as agents from "@openai/agents";
import { context } from "@opentelemetry/api";
import OpenAI from "openai";
import { z } from "zod";

import { scoutSystem, system, tools } from "../model.mjs";

export default async function ({ url, session, provider, crew }) {
  const p = provider();
  new OpenAIAgentsInstrumentation({ tracerProvider: p }).manuallyInstrument(agents);
  agents.setDefaultOpenAIClient(new OpenAI({ baseURL: `${url}/v1`, apiKey: "x", maxRetries: 0 }));
  const catalog = Object.entries(tools).map(([name, t]) => agents.tool({
    name, description: t.description, execute: async (input) => JSON.stringify(t.run(input)),
    parameters: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  }));
  const scout = new agents.Agent({ name: "Scout", instructions: scoutSystem, model: "pilot", tools: catalog });
  const askScout = scout.asTool({ toolName: "ask_scout", toolDescription: "Ask the scout" });
  const agent = new agents.Agent({ name: "Ferris", instructions: system, model: "pilot", tools: crew ? [...catalog, askScout] : catalog });
  const memory = new agents.MemorySession();
  return {
    ask: (text) => context.with(setSession(context.active(), { sessionId: session }), () => agents.run(agent, text, { session: memory })),
    flush: async () => {
      await agents.getGlobalTraceProvider().forceFlush();
      await p.forceFlush();
    },
  };
}
