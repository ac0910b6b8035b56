import { setSession } from "@arizeai/openinference-core";
import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import * as callbacks from "@langchain/core/callbacks/manager";
import { ToolMessage } from "@langchain/core/messages";
import { MemorySaver } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { context } from "@opentelemetry/api";
import { createAgent, createMiddleware, tool } from "langchain";
import { z } from "zod";

import { system, tools } from "../model.mjs";

export default async function ({ url, session, provider }) {
  const p = provider();
  new LangChainInstrumentation({ tracerProvider: p }).manuallyInstrument(callbacks);
  const agent = createAgent({
    name: "Ferris", systemPrompt: system, checkpointer: new MemorySaver(),
    model: new ChatOpenAI({ model: "pilot", apiKey: "x", maxRetries: 0, configuration: { baseURL: `${url}/v1` } }),
    tools: Object.entries(tools).map(([name, t]) => tool(async (input) => t.run(input), {
      name, description: t.description,
      schema: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
    })),
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
