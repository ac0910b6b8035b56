#!/usr/bin/env node
// Runs the static binary, which is in the package of this platform: npm installs that one only, and downloads nothing
// else.
"use strict";
const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`@agenttrace/${platform}/agenttrace${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`agenttrace: no package @agenttrace/${platform} is installed
hint: npm leaves it out with --omit=optional, and there is none for other platforms than Linux, macOS and Windows on \
x64 and arm64; go install builds the program for any: https://github.com/agenttrace/agenttrace`);
  process.exit(5);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
process.on("SIGINT", () => {}); // a terminal sends it to the binary, too, which ends in its own time
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (err) => {
  console.error(`agenttrace: ${err.message}`);
  process.exit(5);
});
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
