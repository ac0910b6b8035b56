import Anthropic from "@anthropic-ai/sdk";
import { setSession } from "@arizeai/openinference-core";
import { AnthropicInstrumentation } from "@arizeai/openinference-instrumentation-anthropic";
import { context } from "@opentelemetry/api";

import { jsonSchema, system, tools } from "../model.mjs";

export default async function ({ url, session, provider }) {
  const p = provider();
  new AnthropicInstrumentation({ tracerProvider: p }).manuallyInstrument(Anthropic);
  const anthropic = new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 });
  const messages = [];
  const catalog = Object.entries(tools).map(([name, t]) => ({ name, description: t.description, input_schema: jsonSchema(name) }));
  const ask = async (text) => {
    const before = messages.length;
    messages.push({ role: "user", content: text });
    try {
      for (;;) {
        const answer = await anthropic.messages.create({ model: "pilot", max_tokens: 100, system, tools: catalog, messages });
        messages.push({ role: "assistant", content: answer.content });
        const calls = answer.content.filter((b) => b.type === "tool_use");
        if (!calls.length) return;
        messages.push({ role: "user", content: calls.map((call) => {
          try {
            return { type: "tool_result", tool_use_id: call.id, content: JSON.stringify(tools[call.name].run(call.input)) };
          } catch (e) {
            return { type: "tool_result", tool_use_id: call.id, content: e.message, is_error: true };
          }
        }) });
      }
    } catch (e) {
      messages.length = before;
      throw e;
    }
  };
  return { ask: (text) => context.with(setSession(context.active(), { sessionId: session }), () => ask(text)), flush: () => p.forceFlush() };
}
