// Reads a trace of the Agent Client Protocol on stdin, a JSON-RPC message per line,
// and validates each message with the protocol's own SDK: with the zod schemas that
// the SDK uses to parse input, which must keep the whole message, and with the
// published JSON schema, which is stricter.
//
// Prints one line per failure and, last, "N passed, N failed". Exits with 0 if
// nothing failed, 1 if something did, and 2 if a line is not JSON.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import Ajv from "ajv/dist/2020.js";

// protocol loads the schemas of a version. The SDK exports them as JSON; its zod
// schemas are not among its exports, so they are loaded by path.
async function protocol(version) {
  const published = JSON.parse(readFileSync(fileURLToPath(import.meta.resolve(`@agentclientprotocol/sdk/schema/${version}/schema.json`))));
  const zod = await import(`./node_modules/@agentclientprotocol/sdk/dist/${version}/schema/zod.gen.js`);
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema(published, "acp");
  const methods = new Map();
  for (const [name, definition] of Object.entries(published.$defs)) {
    const method = definition["x-method"];
    if (!method) continue;
    const kind = name.endsWith("Response") ? "result" : "params";
    methods.set(method, { ...methods.get(method), [kind]: name });
  }
  const schemas = new Map();
  const validator = (name) => {
    if (!schemas.has(name)) schemas.set(name, ajv.compile({ $ref: `acp#/$defs/${name}` }));
    return schemas.get(name);
  };
  return { zod, methods, validator };
}

// flaws lists the problems of a value of a type.
function flaws({ zod, validator }, name, value) {
  const found = [];
  const parsed = zod[`z${name}`].safeParse(value);
  if (!parsed.success) {
    found.push(`the SDK rejects it: ${some(parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`))}`);
  } else {
    found.push(...lost(value, parsed.data, "").map((what) => `the SDK drops ${what}`));
  }
  const valid = validator(name);
  if (!valid(value)) found.push(`the schema rejects it: ${some(valid.errors.map((e) => `${e.instancePath} ${e.message}`))}`);
  return found;
}

// some is the beginning of a list: for a union, it has an error of every alternative.
const some = (reasons) => reasons.slice(0, 3).join("; ") + (reasons.length > 3 ? "; …" : "");

// lost lists the keys of a value that the parsed value lacks. It ignores _meta, which
// is an extension point.
function lost(value, parsed, path) {
  if (isDeepStrictEqual(value, parsed)) return [];
  if (Array.isArray(value) && Array.isArray(parsed) && value.length === parsed.length) {
    return value.flatMap((element, i) => lost(element, parsed[i], `${path}[${i}]`));
  }
  if (isObject(value) && isObject(parsed)) {
    return Object.keys(value)
      .filter((key) => key !== "_meta")
      .flatMap((key) => lost(value[key], parsed[key], `${path}.${key}`));
  }
  return [path];
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Not merged into the protocol; a client enables it with clientCapabilities.logging.
const proposed = (method) => method === "log" || method.startsWith("_");

let spoken; // the version, once initialize has named it
const asked = new Map();

// check returns the problems of one message.
async function check(message) {
  if (message.jsonrpc !== "2.0") return ["it is not JSON-RPC 2.0"];
  if (message.method === undefined) {
    const id = JSON.stringify(message.id);
    const method = asked.get(id);
    if (method === undefined) return ["it answers no request"];
    asked.delete(id);
    if (message.error !== undefined) return flaws(spoken, "Error", message.error);
    const name = spoken.methods.get(method)?.result;
    return name ? flaws(spoken, name, message.result) : [];
  }
  if (message.method === "initialize") {
    spoken = await protocol(message.params?.protocolVersion === 2 ? "v2" : "v1");
    if (message.params?.clientCapabilities?.logging) delete message.params.clientCapabilities.logging;
  }
  if (!spoken) return ["it comes before initialize"];
  if (message.id !== undefined) {
    const id = JSON.stringify(message.id);
    if (asked.has(id)) return [`id ${id} is open`];
    asked.set(id, message.method);
  }
  if (proposed(message.method)) return [];
  const name = spoken.methods.get(message.method)?.params;
  return name ? flaws(spoken, name, message.params) : [`the protocol has no method ${message.method}`];
}

let passed = 0;
let failed = 0;
let number = 0;
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  number++;
  if (line === "") continue;
  let message;
  try {
    message = JSON.parse(line);
  } catch (err) {
    console.error(`read trace: line ${number}: ${err.message}`);
    process.exit(2);
  }
  const found = await check(message);
  if (found.length === 0) {
    passed++;
    continue;
  }
  failed++;
  const kind = message.params?.update?.sessionUpdate;
  console.log(`line ${number} (${message.method ?? "response"}${kind ? `, ${kind}` : ""}): ${found.join(" | ").replaceAll(/\s+/g, " ")}`);
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
