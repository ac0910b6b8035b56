import { createOpenAI } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { z } from "zod";

import { scoutSystem, system, tools } from "../model.mjs";

export default async function ({ url, session, endpoint, crew }) {
  const exporter = new OtelExporter({ provider: { custom: { endpoint, protocol: "http/protobuf" } } });
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "x" });
  const catalog = Object.fromEntries(Object.entries(tools).map(([id, t]) => [id, createTool({
    id, description: t.description, execute: async (input) => t.run(input),
    inputSchema: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  })]));
  const scout = new Agent({
    id: "scout", name: "Scout", description: "Looks at the sea", instructions: scoutSystem, model: openai.chat("pilot"), maxRetries: 0, tools: catalog,
  });
  const agent = new Agent({
    id: "ferris", name: "Ferris", instructions: system, model: openai.chat("pilot"), maxRetries: 0, tools: catalog, agents: crew ? { scout } : {},
  });
  const mastra = new Mastra({
    agents: { agent }, logger: false,
    observability: new Observability({ configs: { otel: { serviceName: "mastra", exporters: [exporter] } } }),
  });
  const messages = [];
  return {
    ask: async (text) => {
      const asked = [...messages, { role: "user", content: text }];
      const answer = await mastra.getAgent("agent").generate(asked, { maxSteps: 5, tracingOptions: { metadata: { sessionId: session } }, modelSettings: { maxRetries: 0 } });
      if (answer.error) throw answer.error;
      messages.push({ role: "user", content: text }, ...answer.response.messages);
    },
    flush: () => mastra.observability.shutdown(),
  };
}
