// A client on the protocol's own SDK: it runs the agent that follows a directory in its arguments, in which client.read
// and client.wrote have what it reads and writes, gives it two prompts, and allows what it asks for the first time.

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { PassThrough, Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const [dir, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("exit", resolve));

// copied is a stream that is also written to a file.
const copied = (name, to) => {
  const file = createWriteStream(`${dir}/${name}`);
  const stream = new PassThrough();
  stream.on("data", (chunk) => file.write(chunk));
  if (to) stream.pipe(to);
  return stream;
};

let asked = 0;
const { initialize, session } = acp.methods.agent;
await acp
  .client({ name: "editor" })
  .onRequest(acp.methods.client.session.requestPermission, () => ({
    outcome: { outcome: "selected", optionId: asked++ === 0 ? "yes" : "no" } }))
  .onNotification(acp.methods.client.session.update, () => {})
  .connectWith(
    acp.ndJsonStream(Writable.toWeb(copied("client.wrote", child.stdin)), Readable.toWeb(child.stdout.pipe(copied("client.read")))),
    async (agent) => {
      await agent.request(initialize, { protocolVersion: 1, clientCapabilities: {} });
      const { sessionId } = await agent.request(session.new, { cwd: "/w", mcpServers: [] });
      for (const text of ["first", "second"]) {
        const { stopReason } = await agent.request(session.prompt, { sessionId, prompt: [{ type: "text", text }] });
        console.log(text, stopReason);
      }
    },
  );
child.stdin.end();
process.exitCode = await ended;
