import { chat, StreamProcessor, toolDefinition } from "@tanstack/ai";
import { otelMiddleware } from "@tanstack/ai/middlewares/otel";
import { createOpenaiChatCompletions } from "@tanstack/ai-openai";
import { trace } from "@opentelemetry/api";

import { jsonSchema, system, tools } from "../model.mjs";

export default async function ({ url, session, provider }) {
  const p = provider();
  const adapter = createOpenaiChatCompletions("gpt-5.1", "x", { baseURL: `${url}/v1`, maxRetries: 0 });
  const catalog = Object.entries(tools).map(([name, t]) =>
    toolDefinition({ name, description: t.description, inputSchema: jsonSchema(name) }).server(async (input) => t.run(input)));
  const middleware = [otelMiddleware({
    tracer: trace.getTracer("harbour"), captureContent: true, attributeEnricher: () => ({ "session.id": session }),
  })];
  const conversation = new StreamProcessor();
  return {
    ask: async (text) => {
      conversation.addUserMessage(text);
      for await (const chunk of chat({ adapter, messages: conversation.getMessages(), systemPrompts: [system], tools: catalog, middleware })) {
        conversation.processChunk(chunk);
      }
    },
    flush: () => p.forceFlush(),
  };
}
