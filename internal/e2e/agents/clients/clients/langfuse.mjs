import { observeOpenAI } from "@langfuse/openai";
import { LangfuseSpanProcessor } from "@langfuse/otel";
import { propagateAttributes, startActiveObservation } from "@langfuse/tracing";
import OpenAI from "openai";

import { jsonSchema, system, tools } from "../model.mjs";

export default async function ({ url, session, provider, exporter }) {
  const p = provider(new LangfuseSpanProcessor({ exporter: exporter(), publicKey: "pk", secretKey: "sk" }));
  const openai = observeOpenAI(new OpenAI({ baseURL: `${url}/v1`, apiKey: "x", maxRetries: 0 }));
  const messages = [{ role: "system", content: system }];
  const catalog = Object.entries(tools).map(([name, t]) => ({ type: "function", function: { name, description: t.description, parameters: jsonSchema(name) } }));
  const turn = (text) => startActiveObservation("Ferris", async (agent) => {
    agent.update({ input: text });
    messages.push({ role: "user", content: text });
    try {
      for (;;) {
        const answer = await openai.chat.completions.create({ model: "pilot", messages, tools: catalog });
        const message = answer.choices[0].message;
        messages.push(message);
        if (!message.tool_calls?.length) {
          agent.update({ output: message.content });
          return;
        }
        messages.push(...await Promise.all(message.tool_calls.map((call) => startActiveObservation(call.function.name, async (tool) => {
          const input = JSON.parse(call.function.arguments);
          tool.update({ input });
          let output;
          try {
            output = tools[call.function.name].run(input);
            tool.update({ output });
          } catch (e) {
            output = { error: e.message };
            tool.update({ level: "ERROR", statusMessage: e.message });
          }
          return { role: "tool", tool_call_id: call.id, content: JSON.stringify(output) };
        }, { asType: "tool" }))));
      }
    } catch (e) {
      agent.update({ level: "ERROR", statusMessage: e.message });
      messages.pop();
      throw e;
    }
  }, { asType: "agent" });
  return { ask: (text) => propagateAttributes({ sessionId: session, userId: "u_1" }, () => turn(text)), flush: () => p.forceFlush() };
}
