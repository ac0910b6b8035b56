// Serves the AI SDK's responses to useChat on a loopback port, by path, and prints the
// port. The model is scripted: see models. Exits at the end of stdin.

import { createServer } from "node:http";
import { convertToModelMessages, simulateReadableStream, stepCountIs, streamText, tool, validateUIMessages } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;

const usage = (input, cached, output, reasoning) => ({
  inputTokens: { total: input, noCache: input - cached, cacheRead: cached, cacheWrite: 0 },
  outputTokens: { total: output, text: output - reasoning, reasoning },
});
const finish = (unified, counts) => ({ type: "finish", finishReason: { unified, raw: unified }, usage: usage(...counts) });
const text = (id, ...deltas) => [
  { type: "text-start", id },
  ...deltas.map((delta) => ({ type: "text-delta", id, delta })),
  { type: "text-end", id },
];
const call = (toolCallId, toolName, input) => ({ type: "tool-call", toolCallId, toolName, input: JSON.stringify(input) });

const thinksAndCalls = [
  { type: "reasoning-start", id: "r" },
  { type: "reasoning-delta", id: "r", delta: "I should " },
  { type: "reasoning-delta", id: "r", delta: "look." },
  { type: "reasoning-end", id: "r" },
  ...text("t", "Let me ", "look."),
];

// models are the parts that the model streams, call by call.
const models = {
  "/tool": [
    [...thinksAndCalls, call("c1", "list", { dir: "." }), call("c2", "fail", {}), finish("tool-calls", [100, 60, 20, 5])],
    [...text("t", "Two files."), finish("stop", [150, 100, 10, 0])],
  ],
  "/client": [
    [...text("t", "Where?"), call("c1", "locate", { exact: true }), finish("tool-calls", [10, 0, 2, 0])],
    [...text("t", "In Paris."), finish("stop", [20, 10, 3, 0])],
  ],
  "/error": [[...thinksAndCalls, { type: "error", error: new Error("overloaded") }]],
  "/broken": [[{ type: "error", error: new Error("overloaded") }]],
  "/invalid": [
    [call("c1", "list", { dir: 7 }), finish("tool-calls", [10, 0, 2, 0])],
    [...text("t", "So be it."), finish("stop", [20, 10, 3, 0])],
  ],
};

const tools = {
  list: tool({ description: "List files.", inputSchema: z.object({ dir: z.string() }), execute: async () => ({ files: ["a.txt", "b.txt"] }) }),
  fail: tool({
    inputSchema: z.object({}),
    execute: async () => {
      throw new Error("no such file");
    },
  }),
  locate: tool({ inputSchema: z.object({ exact: z.boolean() }) }), // which the client runs
};

const asked = {}; // how often each path's model was called

async function answer(path, request) {
  const { messages } = request;
  await validateUIMessages({ messages, tools });
  const model = new MockLanguageModelV3({
    doStream: async () => {
      asked[path] = (asked[path] ?? 0) + 1;
      const chunks = [{ type: "stream-start", warnings: [] }, ...models[path][asked[path] - 1]];
      return { stream: simulateReadableStream({ chunks, initialDelayInMs: null, chunkDelayInMs: null }) };
    },
  });
  const result = streamText({ model, messages: await convertToModelMessages(messages), tools, stopWhen: stepCountIs(5), maxRetries: 0, onError: () => {} });
  return result.toUIMessageStreamResponse({
    originalMessages: messages,
    generateMessageId: () => "answer-1",
    sendReasoning: true,
    messageMetadata: ({ part }) => (part.type === "finish" ? { totalUsage: part.totalUsage } : undefined),
    onError: (err) => (err instanceof Error ? err.message : String(err)),
  });
}

const server = createServer(async (req, res) => {
  try {
    const request = JSON.parse(await new Response(req).text());
    const response = await answer(new URL(req.url, "http://x").pathname, request);
    res.writeHead(response.status, Object.fromEntries(response.headers));
    for await (const chunk of response.body) res.write(chunk);
    res.end();
  } catch (err) {
    res.writeHead(400, { "content-type": "application/json" });
    res.end(JSON.stringify({ error: `${err.name}: ${err.message}` }));
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => server.close(() => process.exit(0)));
