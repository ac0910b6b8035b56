// A tap is a server that passes requests on and keeps them with their answers, byte for byte. There is one on either
// side of agenttrace run: between the client and its proxy, and between the proxy and the model's server.

import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { dirname, resolve } from "node:path";

// start starts a tap before a server and returns its base URL. Each exchange is a line of the file.
export async function start(target, file) {
  const tap = createServer(async (asked, answer) => {
    const body = await read(asked);
    const url = new URL(target);
    const on = request({ host: url.hostname, port: url.port, path: asked.url, method: asked.method, headers: asked.rawHeaders, agent: false });
    on.on("error", (e) => answer.destroy(e));
    on.on("response", async (answered) => {
      answer.writeHead(answered.statusCode, answered.rawHeaders);
      const text = await read(answered, (chunk) => answer.write(chunk));
      answer.end();
      const { method, url: path, rawHeaders: headers } = asked;
      appendFileSync(file, JSON.stringify({ method, path, headers, body, status: answered.statusCode, answerHeaders: answered.rawHeaders, answer: text }) + "\n");
    });
    on.end(Buffer.from(body, "base64"));
  });
  await new Promise((done) => tap.listen(0, "127.0.0.1", done));
  tap.unref();
  return `http://127.0.0.1:${tap.address().port}`;
}

async function read(stream, seen = () => {}) {
  const chunks = [];
  for await (const chunk of stream) {
    chunks.push(chunk);
    seen(chunk);
  }
  return Buffer.concat(chunks).toString("base64");
}

// tapped returns the path of a script by which agenttrace knows the program, and which starts it behind a tap.
export function tapped(program, file) {
  const script = resolve("taps", program);
  mkdirSync(dirname(script), { recursive: true });
  const [self, real] = [import.meta.url, resolve("node_modules", program)].map((text) => JSON.stringify(text));
  writeFileSync(script, `import(${self}).then((tap) => tap.inside(${real}, ${JSON.stringify(file)}));\n`);
  return script;
}

// inside starts a program whose requests for the proxy's address go to a tap.
export async function inside(program, file) {
  const proxy = /^http:\/\/127\.0\.0\.1:\d+(?=\/(openai|anthropic|gemini))/;
  const origin = Object.values(process.env).map((value) => value.match(proxy)?.[0]).find(Boolean);
  const tap = await start(origin, file);
  const moved = (text) => text.replaceAll(origin, tap);
  const env = Object.fromEntries(Object.entries(process.env).map(([name, value]) => [name, moved(value)]));
  const command = [...(/\.[cm]?js$/.test(program) ? [process.execPath] : []), program, ...process.argv.slice(2).map(moved)];
  const child = spawn(command[0], command.slice(1), { env, stdio: "inherit" });
  child.on("exit", (code) => process.exit(code ?? 1));
}
