// Reads bundles as JSON on stdin, one per line. For each it prints a line with the bodies
// of the requests that the AI SDK's providers build from its messages, by format.
//
// For a bundle that the SDK refuses to convert, {"error": ...} replaces the body.

import { createInterface } from "node:readline";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { convertToModelMessages, generateText, jsonSchema, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;

class Captured extends Error {}

// body returns what the SDK sends for a bundle with the model that make returns.
async function body(bundle, make, providerOptions) {
  const tools = Object.fromEntries(
    (bundle.tools ?? []).map(({ name, description, input_schema }) => [
      name,
      tool({ description, inputSchema: jsonSchema(input_schema ?? { type: "object" }) }),
    ]),
  );
  let sent;
  const fetch = async (_, { body }) => {
    sent = JSON.parse(body);
    throw new Captured();
  };
  const { parameters } = bundle;
  try {
    await generateText({
      model: make(fetch),
      system: bundle.system_prompt,
      messages: await convertToModelMessages(bundle.messages, { tools }),
      tools,
      maxRetries: 0,
      temperature: parameters.temperature,
      topP: parameters.top_p,
      topK: parameters.top_k,
      maxOutputTokens: parameters.max_tokens,
      frequencyPenalty: parameters.frequency_penalty,
      presencePenalty: parameters.presence_penalty,
      seed: parameters.seed,
      stopSequences: parameters.stop,
      providerOptions,
      allowSystemInMessages: true,
      experimental_download: async (files) => files.map(() => null), // leave URLs to the provider
    });
  } catch (err) {
    if (sent === undefined) return { error: `${err.name}: ${err.message}` };
  }
  return sent;
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const bundle = JSON.parse(line);
  const model = bundle.model.model_id ?? "";
  const requests = {
    "openai-chat": await body(bundle, (fetch) => createOpenAI({ apiKey: "x", fetch }).chat(model)),
    "openai-responses": await body(bundle, (fetch) => createOpenAI({ apiKey: "x", fetch }).responses(model), { openai: { store: false } }),
    anthropic: await body(bundle, (fetch) => createAnthropic({ apiKey: "x", fetch })(model)),
  };
  console.log(JSON.stringify(requests));
}
