import { BeeAIInstrumentation } from "@arizeai/openinference-instrumentation-beeai";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import * as bee from "beeai-framework";
import { OpenAIChatModel } from "beeai-framework/adapters/openai/backend/chat";
import { ToolCallingAgent } from "beeai-framework/agents/toolCalling/agent";
import { UnconstrainedMemory } from "beeai-framework/memory/unconstrainedMemory";
import { DynamicTool, JSONToolOutput, StringToolOutput } from "beeai-framework/tools/base";

import { jsonSchema, system, tools } from "../model.mjs";

export default async function ({ url, session, provider, exporter }) {
  // It makes its spans when a run has ended, without the context of the caller.
  const named = { onStart: (span) => span.setAttribute("session.id", session), onEnd() {}, forceFlush: async () => {}, shutdown: async () => {} };
  const p = provider(named, new BatchSpanProcessor(exporter()));
  new BeeAIInstrumentation({ tracerProvider: p }).manuallyInstrument(bee);
  const catalog = Object.entries(tools).map(([name, t]) => new DynamicTool({
    name, description: t.description, inputSchema: jsonSchema(name),
    handler: async (input) => {
      const output = t.run(input);
      return typeof output === "string" ? new StringToolOutput(output) : new JSONToolOutput(output);
    },
  }));
  const agent = new ToolCallingAgent({
    llm: new OpenAIChatModel("pilot", {}, { baseURL: `${url}/v1`, apiKey: "x" }),
    memory: new UnconstrainedMemory(), tools: catalog,
    meta: { name: "Ferris", description: "A harbour pilot" },
    templates: { system: (template) => template.fork((c) => ({ ...c, defaults: { ...c.defaults, instructions: system } })) },
    execution: { totalMaxRetries: 3 },
  });
  return {
    ask: (text) => agent.run({ prompt: text }),
    flush: () => p.forceFlush(),
  };
}
