// An agent on the protocol's own SDK that edits a file, if it may. What it reads and writes is also in the files
// agent.read and agent.wrote of the directory that is its argument.

import { createWriteStream } from "node:fs";
import { PassThrough, Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

// copied writes what a stream has to a file as well.
const copied = (name, stream) => {
  const file = createWriteStream(`${process.argv[2]}/${name}`);
  return stream.on("data", (chunk) => file.write(chunk));
};
const read = process.stdin.pipe(copied("agent.read", new PassThrough()));
const wrote = copied("agent.wrote", new PassThrough());
wrote.pipe(process.stdout);

const { initialize, session } = acp.methods.agent;
const { requestPermission, update } = acp.methods.client.session;
acp
  .agent({ name: "pair" })
  .onRequest(initialize, () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "pair", version: "1" } }))
  .onRequest(session.new, () => ({ sessionId: "sess_pair" }))
  .onRequest(session.prompt, async ({ params: { sessionId, prompt }, client }) => {
    const say = (sessionUpdate, rest) => client.notify(update, { sessionId, update: { sessionUpdate, ...rest } });
    const id = `call_${prompt[0].text}`;
    const text = (text) => ({ content: { type: "text", text } });
    await say("agent_thought_chunk", text("Is it ä or 漢?"));
    await say("plan", { entries: [{ content: "edit", priority: "high", status: "in_progress" }] });
    await say("agent_message_chunk", text("I edit "));
    await say("agent_message_chunk", text("a.txt."));
    const call = { toolCallId: id, title: "Edit a.txt", kind: "edit", status: "pending",
      locations: [{ path: "/w/a.txt", line: 3 }], rawInput: { path: "/w/a.txt" },
      content: [{ type: "diff", path: "/w/a.txt", oldText: "old\n", newText: "new\u2028\n" }] };
    await say("tool_call", call);
    const { outcome } = await client.request(requestPermission, { sessionId, toolCall: { toolCallId: id },
      options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }, { optionId: "no", name: "No", kind: "reject_once" }] });
    const allowed = outcome.optionId === "yes";
    await say("tool_call_update", { toolCallId: id, status: allowed ? "completed" : "failed",
      rawOutput: allowed ? "edited" : "refused" });
    await say("agent_message_chunk", text(`${prompt[0].text}: ${allowed ? "done" : "not done"}.`));
    return { stopReason: "end_turn",
      usage: { totalTokens: 175, inputTokens: 100, outputTokens: 40, thoughtTokens: 5, cachedReadTokens: 30 } };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(wrote), Readable.toWeb(read)));
