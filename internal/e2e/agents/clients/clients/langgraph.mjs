import { setSession } from "@arizeai/openinference-core";
import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import * as callbacks from "@langchain/core/callbacks/manager";
import { ToolMessage } from "@langchain/core/messages";
import { MemorySaver } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { context } from "@opentelemetry/api";
import { createAgent, createMiddleware, tool } from "langchain";
import { z } from "zod";

import { scoutSystem, system, tools } from "../model.mjs";

export default async function ({ url, session, provider, crew }) {
  const p = provider();
  new LangChainInstrumentation({ tracerProvider: p }).manuallyInstrument(callbacks);
  const model = new ChatOpenAI({ model: "pilot", apiKey: "x", maxRetries: 0, configuration: { baseURL: `${url}/v1` } });
  const catalog = Object.entries(tools).map(([name, t]) => tool(async (input) => t.run(input), {
    name, description: t.description,
    schema: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  }));
  const scout = createAgent({ name: "Scout", systemPrompt: scoutSystem, model, tools: catalog });
  const askScout = tool(async ({ question }) => (await scout.invoke({ messages: [{ role: "user", content: question }] })).messages.at(-1).content, {
    name: "ask_scout", description: "Ask the scout", schema: z.object({ question: z.string() }),
  });
  const agent = createAgent({
    name: "Ferris", systemPrompt: system, checkpointer: new MemorySaver(), model, tools: crew ? [...catalog, askScout] : catalog,
    middleware: [createMiddleware({
      name: "errors",
      wrapToolCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch (e) {
          return new ToolMessage({ content: e.message, tool_call_id: request.toolCall.id, status: "error" });
        }
      },
    })],
  });
  return {
    ask: (text) => context.with(setSession(context.active(), { sessionId: session }), () =>
      agent.invoke({ messages: [{ role: "user", content: text }] }, { configurable: { thread_id: session } })),
    flush: () => p.forceFlush(),
  };
}
