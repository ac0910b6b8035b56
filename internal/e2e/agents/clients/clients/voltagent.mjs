import { createOpenAI } from "@ai-sdk/openai";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Agent, createTool, InMemoryStorageAdapter, Memory, VoltAgentObservability } from "@voltagent/core";
import { z } from "zod";

import { scoutSystem, system, tools } from "../model.mjs";

export default async function ({ url, session, exporter, crew }) {
  const processor = new BatchSpanProcessor(exporter());
  const observability = new VoltAgentObservability({ spanProcessors: [processor] });
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "x" });
  const catalog = Object.entries(tools).map(([name, t]) => createTool({
    name, description: t.description, execute: async (input) => t.run(input),
    parameters: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  }));
  const scout = new Agent({ name: "Scout", purpose: "Looks at the sea", instructions: scoutSystem, model: openai.chat("pilot"), observability, tools: catalog });
  const agent = new Agent({
    name: "Ferris", instructions: system, model: openai.chat("pilot"), observability, maxRetries: 0,
    memory: new Memory({ storage: new InMemoryStorageAdapter() }), tools: catalog, subAgents: crew ? [scout] : [],
  });
  return {
    ask: (text) => agent.generateText(text, { userId: "u_1", conversationId: session, maxRetries: 0 }),
    flush: async () => {
      await new Promise((resolve) => setTimeout(resolve, 500)); // what it keeps in its memory it writes by the way
      await processor.forceFlush();
    },
  };
}
