// Programs that run commands: their tools are commands in a directory of their own.

import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { tools } from "./model.mjs";
import { tapped } from "./tap.mjs";

// home makes a home directory with a project and the commands, and returns a function that runs a program there.
export function home(name, env, files = {}) {
  const dir = resolve("homes", name);
  const bin = join(dir, "bin");
  const cwd = join(dir, "project");
  for (const d of [bin, cwd]) mkdirSync(d, { recursive: true });
  for (const tool of Object.keys(tools)) {
    writeFileSync(join(bin, tool), `#!/bin/sh\nexec ${process.execPath} ${fileURLToPath(import.meta.url)} ${tool} "$1"\n`, { mode: 0o755 });
  }
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), text);
  }
  const { TMPDIR, AGENTTRACE_STORE } = process.env;
  const kept = { ...(TMPDIR && { TMPDIR }), ...(AGENTTRACE_STORE && { AGENTTRACE_STORE }) };
  const environment = { HOME: dir, PATH: `${bin}:${process.env.PATH}`, LANG: "C.UTF-8", ...kept, ...env };
  // AGENTTRACE is the command that records programs from outside, if they are to be.
  const recorded = process.env.AGENTTRACE ? [process.env.AGENTTRACE, "run", "--content", "--quiet", "--"] : [];
  return (program, ...args) => new Promise((done, failed) => {
    const runtime = /\.[cm]?js$/.test(program) ? [process.execPath] : [];
    const command = process.env.AGENTTRACE ? [...recorded, process.execPath, tapped(program, join(dir, "inside")), ...args]
      : [...runtime, resolve("node_modules", program), ...args];
    const child = execFile(command[0], command.slice(1), { cwd, env: environment }, (error, stdout, stderr) =>
      error ? failed(Object.assign(new Error(`${error.message}: ${stdout}${stderr}`), { exit: error.code })) : done(stdout));
    child.stdin.end();
  });
}

// As a program it is one of the commands.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [tool, input] = process.argv.slice(2);
  try {
    const output = tools[tool].run(JSON.parse(input));
    console.log(typeof output === "string" ? output : JSON.stringify(output));
  } catch (e) {
    console.error(e.message);
    process.exitCode = 1;
  }
}
