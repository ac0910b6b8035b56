// A model that says what a script has it say, in the terms of each version of the
// SDK's model interface.
//
// An answer of a script is { reasoning?, text?, calls?: [{ id, name, input }],
// usage?: [input, cacheRead, cacheWrite, output, reasoning], error?, hang? }.
// usage is in disjoint buckets. An answer with hang never ends; one with error is
// no answer.

// scripted returns a model that gives the answers one after the other. It counts
// in asked how often it was asked and how often it failed.
export function scripted({ Model, spec }, answers, asked) {
  Object.assign(asked, { calls: 0, failures: 0 });
  let next = 0;
  const take = () => {
    const answer = answers[next++];
    if (!answer) throw new Error(`the script has ${answers.length} answers, and was asked for more`);
    asked.calls++;
    if (answer.error) {
      asked.failures++;
      throw answer.error;
    }
    return answer;
  };
  return new Model({
    provider: "scripted",
    modelId: "mock-1",
    doGenerate: async () => {
      const answer = take();
      return { content: content(answer), finishReason: finish(spec, answer), usage: usage(spec, answer), warnings: [], response: { id: `resp-${next}` } };
    },
    doStream: async ({ abortSignal }) => {
      const answer = take();
      return { stream: stream(chunks(spec, answer, next), answer.hang, abortSignal) };
    },
  });
}

function content(answer) {
  const parts = [];
  if (answer.reasoning) parts.push({ type: "reasoning", text: answer.reasoning });
  if (answer.text) parts.push({ type: "text", text: answer.text });
  for (const call of answer.calls ?? []) {
    parts.push({ type: "tool-call", toolCallId: call.id, toolName: call.name, input: JSON.stringify(call.input) });
  }
  return parts;
}

function finish(spec, answer) {
  const reason = answer.calls ? "tool-calls" : "stop";
  return spec === 2 ? reason : { unified: reason, raw: answer.calls ? "tool_use" : "end_turn" };
}

// usage counts as providers of the SDK do: the input includes the cache, the
// output the reasoning. Version 5 has no word for tokens written to the cache.
function usage(spec, answer) {
  const [fresh, read, write, text, reasoning] = answer.usage;
  const [input, output] = [fresh + read + write, text + reasoning];
  if (spec === 2) {
    return { inputTokens: input, outputTokens: output, totalTokens: input + output, reasoningTokens: reasoning, cachedInputTokens: read };
  }
  return {
    inputTokens: { total: input, noCache: fresh, cacheRead: read, cacheWrite: write },
    outputTokens: { total: output, text, reasoning },
  };
}

function* chunks(spec, answer, number) {
  yield { type: "stream-start", warnings: [] };
  yield { type: "response-metadata", id: `resp-${number}`, modelId: "mock-1" };
  for (const kind of ["reasoning", "text"]) {
    if (!answer[kind]) continue;
    yield { type: `${kind}-start`, id: kind };
    for (const delta of answer[kind].match(/\S+\s*/g)) yield { type: `${kind}-delta`, id: kind, delta };
    if (!answer.hang) yield { type: `${kind}-end`, id: kind };
  }
  for (const call of answer.calls ?? []) {
    const input = JSON.stringify(call.input);
    yield { type: "tool-input-start", id: call.id, toolName: call.name };
    yield { type: "tool-input-delta", id: call.id, delta: input };
    yield { type: "tool-input-end", id: call.id };
    yield { type: "tool-call", toolCallId: call.id, toolName: call.name, input };
  }
  if (!answer.hang) yield { type: "finish", finishReason: finish(spec, answer), usage: usage(spec, answer) };
}

// stream sends the chunks. One that hangs stays open until it is aborted, as a
// provider's does.
function stream(all, hang, signal) {
  return new ReadableStream({
    start(controller) {
      signal?.addEventListener("abort", () => {
        try {
          controller.error(signal.reason);
        } catch {
          // It was closed before.
        }
      });
    },
    pull(controller) {
      const { value, done } = all.next();
      if (!done) controller.enqueue(value);
      else if (!hang) controller.close();
      else return new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
  });
}
