// A model server on loopback that plays a script in the formats of OpenAI's chat
// completions and Responses, of Anthropic's messages and of Gemini, streamed or not. It keeps what
// it was asked and what it answered: that is what really happened, whatever a client
// reports of it.

import { createServer } from "node:http";

export const system = "You are Ferris, a harbour pilot.";

// The system prompt of the agent that Ferris asks in a crew.
export const scoutSystem = "You are Scout, who looks at the sea.";

// What the model answers to each thing that the user says, call by call.
const script = {
  "What is the tide in Bergen?": [
    { calls: [["get_tide", { port: "Bergen" }]] },
    { text: "Bergen: high water at 06:10." },
  ],
  "Measure Turku twice and book a berth there.": [
    { text: "Measuring twice.", calls: [["get_tide", { port: "Turku" }], ["get_tide", { port: "Turku" }]] },
    { calls: [["book_berth", { port: "Turku", hours: 3 }]] },
    { text: "Two readings; the berth was refused." },
  ],
  'Log {"berth": 4} ⛵ – is 3 < 5?': [
    { text: "Two things first.", calls: [["write_log", { entry: '{"berth":4,"of":[1,null,{"a":"b"}]}', lines: 3 }], ["get_tide", { port: "Ålesund" }]] },
    { text: "Aye ⚓:\n\n1. logged\n2. measured" },
  ],
  "Safe?": [{ status: "refused" }],
  "Thanks.": [{ text: "Any time." }],
  "Hurry.": [{ status: 429 }, { text: "Measuring.", calls: [["get_tide", { port: "Oslo" }]] }, { text: "Done in a hurry." }],
  "Where is the ferry?": [{ text: "Asking the scout.", ask: ["Scan Oslo"], background: true }, { text: "The ferry is in Oslo." }],
  "Scan both.": [{ ask: ["Scan Moss", "Scan Oslo"] }, { text: "Both are calm." }],
  "Scan Oslo": [{ text: "Looking.", calls: [["get_tide", { port: "Oslo" }], ["get_tide", { port: "Oslo" }]] }, { text: "Calm." }],
  "Scan Moss": [{ calls: [["get_tide", { port: "Moss" }]] }, { text: "Calm as well." }],
};

// What is said to Ferris in a crew. The scout is asked what Ferris says.
export const crewPrompts = ["Where is the ferry?", "Scan both.", "Thanks."];

// What the user says, in order. The same twice is two turns.
export const prompts = [
  "What is the tide in Bergen?", "Measure Turku twice and book a berth there.", 'Log {"berth": 4} ⛵ – is 3 < 5?',
  "Safe?", "Thanks.", "Thanks.",
];

// The same, and what is tried again.
export const retried = [...prompts, "Hurry."];

// The same in fewer turns, for a program that takes seconds to start, and whose other turns another one has.
export const briefly = [...prompts.slice(1, 4), "Hurry."];

// The tools of the program. Readings are numbered, so that no two outputs are alike.
// A program that runs commands has each reading from a process of its own.
let readings = process.pid * 1000;
export const tools = {
  get_tide: { description: "Tide at a port", properties: { port: { type: "string" } }, run: ({ port }) => ({ port, reading: ++readings }) },
  write_log: {
    description: "Write an entry, which is JSON, as some lines",
    properties: { entry: { type: "string" }, lines: { type: "number" } },
    run: ({ entry, lines }) => ["Logged:", ...Array.from({ length: lines }, (_, i) => `\t${i + 1}. ${entry}`), "end of log"].join("\n"),
  },
  book_berth: {
    description: "Book a berth",
    properties: { port: { type: "string" }, hours: { type: "number" } },
    run: ({ port }) => {
      throw new Error(`no berth free in ${port}`);
    },
  },
};

// jsonSchema is the schema of a tool's input.
export function jsonSchema(name) {
  const properties = tools[name].properties;
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

// start starts the server and returns its base URL, the turns that it has seen, and
// a function that stops it.
export async function start() {
  const log = new Log();
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const path = request.url.split("?")[0];
    const format = formats[path.replace(/^.*:/, "")];
    if (!format || request.method !== "POST") return response.writeHead(request.headers.upgrade ? 426 : 404).end(); // no WebSockets
    const asked = JSON.parse(body);
    const said = format.read(asked);
    const step = log.step(said, body.includes(scoutSystem) ? "Scout" : "Ferris", format.tools(asked));
    if (step.status) {
      response.writeHead(step.status, { "content-type": "application/json", "retry-after": "0", "x-should-retry": String(step.status === 429) });
      return response.end(JSON.stringify({ type: "error", error: { type: "api_error", message: "The model is on fire" } }));
    }
    if (asked.stream || path.includes(":stream")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const [event, data] of format.stream(step, asked)) {
        response.write((event ? `event: ${event}\n` : "") + `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
      }
      return response.end();
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(format.answer(step)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, log, close: () => server.close() };
}

// Log is what was asked and answered, as turns.
class Log {
  refused = 500; // the status of an answer that fails
  turns = [];
  calls = new Map(); // by id
  count = 0;

  // step returns what to answer. said is the conversation: {user} or {results} or
  // {assistant}, in order.
  step(said, agent, offered) {
    const from = said.findLastIndex((m) => promptIn(m.user) || m.user?.includes(finished));
    const user = promptIn(said[from].user) ?? ""; // the client reports what a sub-agent came to
    const done = said.slice(from).filter((m) => m.assistant).length;
    const results = said.flatMap((m) => m.results ?? []);
    for (const r of results) {
      const call = this.calls.get(r.id);
      if (call) call.result = r.text;
    }
    // Two sub-agents may be asked the same at the same time: the results tell them apart.
    let turn = done ? this.turns.findLast((t) => !t.closed && t.user === user && t.steps.at(-1)?.calls.every((c) => results.some((r) => r.id === c.id)))
      : this.turns.findLast((t) => t.user === user && t.failures); // the client tries again
    if (!turn) {
      turn = { agent, user, steps: [], calls: 0, failures: 0, usage: { input: 0, output: 0, reasoning: 0, cache_read: 0, cache_write: 0 } };
      this.turns.push(turn);
    }
    const answers = script[user] ?? [{ text: "Noted." }];
    const scripted = answers[done + turn.failures] ?? answers.at(-1);
    turn.calls++;
    if (scripted.status) {
      turn.failures++;
      turn.closed = true;
      return { status: scripted.status === "refused" ? this.refused : scripted.status };
    }
    const n = ++this.count;
    const step = {
      id: `answer_${n}`, text: answersByCall(scripted, offered) ? "" : scripted.text ?? "",
      calls: callsOf(scripted, offered).map(([name, input], i) => ({ id: `call_${n}_${i}`, name, input })),
      usage: { input: 100 + n, cache_read: 20 + n, cache_write: 0, output: 10 + n, reasoning: 0 },
    };
    for (const call of step.calls) this.calls.set(call.id, call);
    turn.closed = step.calls.length === 0;
    turn.steps.push(step);
    for (const k of Object.keys(turn.usage)) turn.usage[k] += step.usage[k];
    return step;
  }

  // seen is what there was of each turn.
  seen(session) {
    return this.turns.map((t) => ({
      run: t.agent, session, user: t.user, calls: t.calls, failures: t.failures, exit: t.exit,
      usage: t.failures < t.calls ? t.usage : null,
      steps: t.steps.flatMap((s) => [
        { text: s.text, calls: s.calls.map((c) => ({ id: c.id, name: c.name, input: c.input, output: c.input.response ? "Message has been sent" : c.result })) },
        ...s.calls.filter((c) => c.input.response).map((c) => ({ text: c.input.response, calls: [] })),
      ]),
      finish: t.failures < t.calls ? "stop" : "", error: t.failures === t.calls ? "The model is on fire" : "",
    }));
  }
}

// finished is in what a client tells the model when a sub-agent in the background has finished.
const finished = "<task-notification>";

// promptIn is the last prompt in a text of the user's, in whatever a client puts around it.
function promptIn(text) {
  if (!text || script[text]) return text;
  const at = (prompt) => text.lastIndexOf(prompt);
  return Object.keys(script).filter((prompt) => at(prompt) >= 0).sort((a, b) => at(b) - at(a))[0];
}

// answersByCall reports that an agent has a tool for its last words.
const answersByCall = (scripted, offered) => !scripted.calls && offered.some((t) => t.name === "final_answer");

// callsOf are the calls of an answer by the tools that an agent was given: one without
// the script's runs them as commands.
function callsOf(scripted, offered) {
  if (answersByCall(scripted, offered)) return [["final_answer", { response: scripted.text }]];
  const shell = offered.find((t) => /^(bash|exec_command|run_shell_command)$/i.test(t.name));
  const call = ([name, input]) => (shell ? [shell.name, { [shell.name === "exec_command" ? "cmd" : "command"]: `${name} '${JSON.stringify(input)}'`, description: name }] : [name, input]);
  return scripted.calls?.map(call) ?? scripted.ask?.map((question) => asking(offered, question, scripted.background)) ?? [];
}

// asking is the call of whichever tool an agent was given to ask the scout, which may go on in the background.
function asking(offered, question, background = false) {
  const { name, schema } = offered.find((t) => /scout|delegate|^(agent|task)$/i.test(t.name));
  const input = {};
  const fixed = { description: "Look at the sea", subagent_type: "scout", agent_type: "scout", name: "look", mode: "sync", run_in_background: background };
  if (schema.properties.subagent_type ?? schema.properties.agent_type) {
    for (const key in fixed) if (schema.properties[key]) input[key] = fixed[key];
  }
  for (const [key, property] of Object.entries(schema.properties)) {
    if (schema.properties.prompt ? key !== "prompt" : !schema.required.includes(key)) continue;
    input[key] = String(property.type).toLowerCase() === "array" ? ["Scout"] : question;
  }
  return [name, input];
}

const textOf = (content) =>
  typeof content === "string" ? content : (content ?? []).filter((c) => c.text !== undefined).map((c) => c.text).join("");

const formats = {
  "/v1/chat/completions": {
    tools: ({ tools }) => (tools ?? []).map((t) => ({ name: t.function.name, schema: t.function.parameters })),
    read: ({ messages }) =>
      messages.flatMap((m) => {
        if (m.role === "user") return [{ user: textOf(m.content) }];
        if (m.role === "assistant") return [{ assistant: true }];
        if (m.role === "tool") return [{ results: [{ id: m.tool_call_id, text: textOf(m.content) }] }];
        return [];
      }),
    answer: (step) => ({
      id: step.id, object: "chat.completion", created: 1, model: "pilot-2026", usage: chatUsage(step.usage),
      choices: [{
        index: 0, finish_reason: step.calls.length ? "tool_calls" : "stop",
        message: { role: "assistant", content: step.text || null, ...(step.calls.length && { tool_calls: step.calls.map(chatCall) }) },
      }],
    }),
    *stream(step) {
      const chunk = (delta, finish_reason = null, usage) => [
        "", { id: step.id, object: "chat.completion.chunk", created: 1, model: "pilot-2026", choices: usage ? [] : [{ index: 0, delta, finish_reason }], ...(usage && { usage }) },
      ];
      yield chunk({ role: "assistant", content: "" });
      for (const word of step.text.split(/(?<= )/)) if (word) yield chunk({ content: word });
      for (const [index, call] of step.calls.entries()) yield chunk({ tool_calls: [{ index, ...chatCall(call) }] });
      yield chunk({}, step.calls.length ? "tool_calls" : "stop");
      yield chunk({}, null, chatUsage(step.usage));
      yield ["", "[DONE]"];
    },
  },
  "/v1/responses": {
    tools: ({ tools }) => (tools ?? []).map((t) => ({ name: t.name, schema: t.parameters })),
    read: ({ input }) =>
      (typeof input === "string" ? [{ role: "user", content: input }] : input).flatMap((m, i, all) => {
        if (m.role === "user") return [{ user: textOf(m.content) }];
        // Items of one answer stand beside each other.
        const before = all[i - 1];
        if (m.type === "function_call_output") return [{ results: [{ id: m.call_id, text: textOf(m.output) }] }];
        if (m.role === "assistant" || m.type === "function_call") {
          const goesOn = before && (before.role === "assistant" || before.type === "function_call");
          return goesOn ? [] : [{ assistant: true }];
        }
        return [];
      }),
    answer: (step) => ({
      id: `resp_${step.id}`, object: "response", created_at: 1, model: "pilot-2026", status: "completed", error: null, incomplete_details: null,
      output: [
        ...(step.text ? [{ id: `msg_${step.id}`, type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: step.text, annotations: [] }] }] : []),
        ...step.calls.map((c) => ({ id: `fc_${c.id}`, type: "function_call", status: "completed", call_id: c.id, name: c.name, arguments: JSON.stringify(c.input) })),
      ],
      usage: {
        input_tokens: step.usage.input + step.usage.cache_read, input_tokens_details: { cached_tokens: step.usage.cache_read },
        output_tokens: step.usage.output, output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: step.usage.input + step.usage.cache_read + step.usage.output,
      },
    }),
    *stream(step) {
      const whole = this.answer(step);
      yield ["response.created", { type: "response.created", response: { ...whole, status: "in_progress", output: [], usage: null } }];
      for (const [output_index, item] of whole.output.entries()) {
        yield ["response.output_item.added", { type: "response.output_item.added", output_index, item }];
        yield ["response.output_item.done", { type: "response.output_item.done", output_index, item }];
      }
      yield ["response.completed", { type: "response.completed", response: whole }];
    },
  },
  "/v1/messages": {
    tools: ({ tools }) => (tools ?? []).map((t) => ({ name: t.name, schema: t.input_schema })),
    read: ({ messages }) =>
      messages.flatMap((m) => {
        if (m.role === "assistant") return [{ assistant: true }];
        const blocks = typeof m.content === "string" ? [{ type: "text", text: m.content }] : m.content;
        const results = blocks.filter((b) => b.type === "tool_result").map((b) => ({ id: b.tool_use_id, text: textOf(b.content) }));
        const text = blocks.filter((b) => b.type === "text").map((b) => b.text).join("");
        return [...(results.length ? [{ results }] : []), ...(text ? [{ user: text }] : [])];
      }),
    answer: (step) => ({
      id: `msg_${step.id}`, type: "message", role: "assistant", model: "pilot-2026", stop_sequence: null,
      stop_reason: step.calls.length ? "tool_use" : "end_turn", usage: anthropicUsage(step.usage),
      content: [
        ...(step.text ? [{ type: "text", text: step.text }] : []),
        ...step.calls.map((c) => ({ type: "tool_use", id: c.id, name: c.name, input: c.input })),
      ],
    }),
    *stream(step) {
      const whole = this.answer(step);
      const event = (type, data) => [type, { type, ...data }];
      yield event("message_start", { message: { ...whole, content: [], stop_reason: null, usage: { ...whole.usage, output_tokens: 1 } } });
      for (const [index, block] of whole.content.entries()) {
        const empty = block.type === "text" ? { type: "text", text: "" } : { ...block, input: {} };
        yield event("content_block_start", { index, content_block: empty });
        yield event("content_block_delta", {
          index, delta: block.type === "text" ? { type: "text_delta", text: block.text } : { type: "input_json_delta", partial_json: JSON.stringify(block.input) },
        });
        yield event("content_block_stop", { index });
      }
      yield event("message_delta", { delta: { stop_reason: whole.stop_reason, stop_sequence: null }, usage: { output_tokens: whole.usage.output_tokens } });
      yield event("message_stop", {});
    },
  },
};

formats.generateContent = {
  tools: ({ tools }) => (tools ?? []).flatMap((t) => t.functionDeclarations ?? []).map((t) => ({ name: t.name, schema: t.parameters })),
  read: ({ contents }) =>
    contents.flatMap((m) => {
      if (m.role === "model") return [{ assistant: true }];
      const results = m.parts.filter((p) => p.functionResponse).map((p) => ({ id: p.functionResponse.id, text: JSON.stringify(p.functionResponse.response) }));
      const text = textOf(m.parts);
      return [...(results.length ? [{ results }] : []), ...(text ? [{ user: text }] : [])];
    }),
  answer: (step) => ({
    responseId: step.id, modelVersion: "pilot-2026",
    candidates: [{
      index: 0, finishReason: "STOP",
      content: { role: "model", parts: [...(step.text ? [{ text: step.text }] : []), ...step.calls.map((c) => ({ functionCall: { id: c.id, name: c.name, args: c.input } }))] },
    }],
    usageMetadata: {
      promptTokenCount: step.usage.input + step.usage.cache_read, cachedContentTokenCount: step.usage.cache_read, candidatesTokenCount: step.usage.output,
      totalTokenCount: step.usage.input + step.usage.cache_read + step.usage.output,
    },
  }),
};

formats.streamGenerateContent = {
  ...formats.generateContent,
  *stream(step) {
    const words = step.text.split(/(?<= )/);
    const last = { ...step, text: words.pop() };
    for (const text of words) yield ["", { candidates: [{ index: 0, content: { role: "model", parts: [{ text }] } }] }];
    yield ["", this.answer(last)];
  },
};

const chatCall = (c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: JSON.stringify(c.input) } });

const chatUsage = (u) => ({
  prompt_tokens: u.input + u.cache_read, completion_tokens: u.output, total_tokens: u.input + u.cache_read + u.output,
  prompt_tokens_details: { cached_tokens: u.cache_read }, completion_tokens_details: { reasoning_tokens: u.reasoning },
});

const anthropicUsage = (u) => ({ input_tokens: u.input, output_tokens: u.output, cache_read_input_tokens: u.cache_read, cache_creation_input_tokens: u.cache_write });
