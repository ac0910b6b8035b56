// A program on the AI SDK: node program.mjs <variant> <OTLP/HTTP endpoint>.
//
// It makes the same scripted runs on every variant and prints, as a line of JSON
// for each request, what the SDK itself gave back. When it ends, its spans have
// been exported.

import { z } from "zod";
import { scripted } from "./model.mjs";
import { setup } from "./telemetry.mjs";

const [variant, endpoint] = process.argv.slice(2);
const sdk = await setup(variant, endpoint);
const { ai } = sdk;

const tools = {
  weather: ai.tool({
    description: "the weather of a city",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => ({ city, sky: "clear", degrees: [12, 17.5] }),
  }),
  clock: ai.tool({
    description: "the time of a zone",
    inputSchema: z.object({ zone: z.string() }),
    execute: async ({ zone }) => {
      throw new Error(`no zone ${zone}`);
    },
  }),
  note: ai.tool({
    description: "writes a line down",
    inputSchema: z.object({ line: z.string() }),
    execute: async ({ line }) => `noted: ${line}`,
  }),
};

const twoTools = [
  {
    text: "Looking both up.",
    calls: [
      { id: "call_weather", name: "weather", input: { city: "Zürich" } },
      { id: "call_clock", name: "clock", input: { zone: "Mars/Olympus" } },
    ],
    usage: [40, 10, 5, 12, 0],
  },
  { text: "Clear sky; the clock is broken.", usage: [60, 45, 0, 9, 0] },
];

const threeSteps = [
  { reasoning: "First the weather.", calls: [{ id: "call_1", name: "weather", input: { city: "Oslo" } }], usage: [21, 0, 7, 5, 3] },
  { text: "Now I note it.", calls: [{ id: "call_2", name: "note", input: { line: "Oslo is clear" } }], usage: [11, 28, 0, 8, 0] },
  { reasoning: "Done.", text: "Oslo is clear, and it is noted.", usage: [13, 39, 2, 10, 4] },
];

const overloaded = () =>
  new ai.APICallError({
    message: "the model is overloaded",
    url: "https://models.example/v1",
    requestBodyValues: {},
    statusCode: 529,
    isRetryable: true,
    responseHeaders: { "retry-after-ms": "1" },
  });

const system = "You answer in one sentence.";
const loop = { tools, stopWhen: [({ steps }) => steps.length >= 5] };

await generate("text", { system, prompt: "Who are you?" }, [{ text: "A scripted model.", usage: [30, 0, 0, 6, 0] }]);
await stream("stream", { system, prompt: "Think, then speak." }, [
  { reasoning: "What shall I say?", text: "This is what I say: grüezi 👋", usage: [20, 8, 2, 7, 5] },
]);
await generate("tools", { prompt: "Weather and time, please.", ...loop }, twoTools);
await generate("steps", { prompt: "Note the weather of Oslo.", ...loop }, threeSteps);
await generate("stopped", { prompt: "Note the weather of Oslo.", tools, stopWhen: [() => true] }, threeSteps.slice(0, 1));
await stream("stream-tools", { prompt: "Weather and time, please.", ...loop }, twoTools);
await stream("stream-steps", { prompt: "Note the weather of Oslo.", ...loop }, threeSteps);
await turns();
await stream("abort", { prompt: "Tell me everything." }, [{ text: "It all began when the", hang: true, usage: [0, 0, 0, 0, 0] }], { abortAfter: 3 });
await stream("abort-step", { prompt: "Note the weather of Oslo.", ...loop }, [threeSteps[0], { text: "Now I was", hang: true, usage: [0, 0, 0, 0, 0] }], {
  abortAfter: 2,
});
await generate("error", { prompt: "Fail.", maxRetries: 0 }, [{ error: overloaded() }]);
await stream("stream-error", { prompt: "Fail.", maxRetries: 0 }, [{ error: overloaded() }]);
await generate("retry", { prompt: "Fail once.", maxRetries: 1 }, [{ error: overloaded() }, { text: "Better now.", usage: [9, 0, 0, 3, 0] }]);
await object();
await generate("", { prompt: "I have no session." }, [{ text: "Nor have I a name for it.", usage: [5, 0, 0, 6, 0] }]);

await sdk.provider.shutdown();

// turns is a conversation: each request repeats what was said before.
async function turns() {
  const messages = [];
  const answers = [
    [{ text: "Hello, Ada.", usage: [10, 0, 0, 4, 0] }],
    [{ calls: [{ id: "call_note", name: "note", input: { line: "Ada" } }], usage: [12, 10, 0, 5, 0] }, { text: "Noted, Ada.", usage: [4, 22, 0, 3, 0] }],
    [{ reasoning: "It was Ada.", text: "You are Ada.", usage: [6, 30, 1, 4, 2] }],
  ];
  for (const [i, content] of ["I am Ada.", "Write it down.", "Who am I?"].entries()) {
    messages.push({ role: "user", content });
    const result = await generate("turns", { messages: [...messages], ...loop }, answers[i]);
    messages.push(...result.response.messages);
  }
}

async function object() {
  const asked = {};
  const model = scripted(sdk, [{ text: '{"name":"Ada","born":1815}', usage: [17, 0, 0, 11, 0] }], asked);
  const prompt = "Who wrote the first program?";
  const schema = z.object({ name: z.string(), born: z.number() });
  const result = await ai.generateObject({ model, prompt, schema, ...sdk.telemetry(sessionOf("object")) });
  print("object", { prompt }, asked, {
    steps: [{ text: JSON.stringify(result.object), calls: [] }],
    usage: sum([result.usage]),
    finish: result.finishReason,
  });
}

async function generate(run, options, answers) {
  const asked = {};
  let result;
  try {
    result = await ai.generateText({ model: scripted(sdk, answers, asked), ...options, ...sdk.telemetry(sessionOf(run)) });
  } catch (err) {
    print(run, options, asked, { steps: [], error: err.message });
    return;
  }
  print(run, options, asked, await seen(result));
  return result;
}

// stream makes a streamed request. After abortAfter pieces of text of the last
// answer it is aborted.
async function stream(run, options, answers, { abortAfter } = {}) {
  const abort = new AbortController();
  const asked = {};
  const steps = [];
  let [failure, aborted, pieces, partial] = [undefined, false, 0, ""];
  const result = ai.streamText({
    model: scripted(sdk, answers, asked),
    abortSignal: abort.signal,
    ...options,
    ...sdk.telemetry(sessionOf(run)),
    onError: ({ error }) => (failure = error),
    onAbort: () => (aborted = true),
    onStepFinish: (step) => steps.push(step),
  });
  for await (const part of result.fullStream) {
    if (part.type !== "text-delta" || steps.length < answers.length - 1) continue;
    partial += part.text;
    if (++pieces === abortAfter) abort.abort();
  }
  if (aborted) {
    print(run, options, asked, { steps: steps.map(step), usage: steps.length ? sum(steps.map((s) => s.usage)) : undefined, aborted, partial });
  } else if (failure) {
    print(run, options, asked, { steps: steps.map(step), error: failure.message });
  } else {
    print(run, options, asked, await seen(result));
  }
}

// seen is what a result says of itself.
async function seen(result) {
  return {
    steps: (await result.steps).map(step),
    usage: sum([(await result.totalUsage) ?? (await result.usage)]),
    finish: await result.finishReason,
  };
}

function step({ content, reasoningText, text }) {
  const of = (type, id) => content.find((part) => part.type === type && part.toolCallId === id);
  const calls = content
    .filter((part) => part.type === "tool-call")
    .map(({ toolCallId: id, toolName: name, input }) => ({
      id, name, input,
      output: of("tool-result", id)?.output,
      error: of("tool-error", id)?.error.message,
    }));
  return { reasoning: reasoningText, text, calls };
}

// sum adds usages up in disjoint buckets. What a version has no word for is in
// the bucket that its words count it in.
function sum(usages) {
  const total = { input: 0, output: 0, reasoning: 0, cache_read: 0, cache_write: 0 };
  for (const usage of usages) {
    const read = usage.inputTokenDetails?.cacheReadTokens ?? usage.cachedInputTokens ?? 0;
    const write = usage.inputTokenDetails?.cacheWriteTokens ?? 0;
    const reasoning = usage.outputTokenDetails?.reasoningTokens ?? usage.reasoningTokens ?? 0;
    total.input += usage.inputTokens - read - write;
    total.output += usage.outputTokens - reasoning;
    total.reasoning += reasoning;
    total.cache_read += read;
    total.cache_write += write;
  }
  return total;
}

function sessionOf(run) {
  return run && `${variant}/${run}`;
}

function print(run, { prompt, messages, system, tools }, asked, saw) {
  const user = prompt ?? messages.at(-1).content;
  const turn = { run, session: sessionOf(run), user, system, tools: Object.keys(tools ?? {}), traces: sdk.traces.take() };
  console.log(JSON.stringify({ ...turn, ...asked, ...saw }));
}
