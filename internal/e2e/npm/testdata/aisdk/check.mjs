// Reads sessions as canonical JSONL on stdin and checks with the AI SDK that every
// message is a valid UIMessage that it keeps unchanged and can convert for a model.
//
// Prints one line per failure and, last, "N passed, N failed". Exits with 0 if
// nothing failed, 1 if something did, and 2 if the input is not canonical JSONL.

import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { convertToModelMessages, safeValidateUIMessages } from "ai";

class InputError extends Error {}

// messages yields each message of the stream with its parts and session.
async function* messages(input) {
  let session, message;
  let number = 0;
  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    number++;
    if (line === "") continue;
    let type, data;
    try {
      ({ type, data } = JSON.parse(line));
    } catch (err) {
      throw new InputError(`line ${number}: ${err.message}`);
    }
    switch (type) {
      case "session":
        if (message) yield message;
        [session, message] = [data, undefined];
        break;
      case "message":
        if (message) yield message;
        if (data?.session_id !== session?.id) throw new InputError(`line ${number}: message outside its session`);
        message = { row: data, parts: [] };
        break;
      case "part":
        if (!message || data?.message_id !== message.row.id) throw new InputError(`line ${number}: part outside its message`);
        message.parts.push(data);
        break;
      default:
        throw new InputError(`line ${number}: type is ${JSON.stringify(type)}, want session, message or part`);
    }
  }
  if (message) yield message;
}

// uiMessage builds the UI message of a program that shows the session.
function uiMessage({ row, parts }) {
  return {
    id: row.id,
    role: row.role,
    metadata: JSON.parse(row.metadata_json),
    parts: parts.map((part) => JSON.parse(part.data_json)),
  };
}

// flaws lists the problems of a message; it is empty for a valid one.
async function flaws(message) {
  let ui;
  try {
    ui = uiMessage(message);
  } catch (err) {
    return [`JSON column: ${err.message}`];
  }
  const result = await safeValidateUIMessages({ messages: [ui] });
  if (!result.success) return rejections(message, ui, result.error);
  const lost = result.data[0].parts.flatMap((kept, i) =>
    isDeepStrictEqual(kept, ui.parts[i]) ? [] : [`${name(message.parts[i])}: the AI SDK drops ${differing(kept, ui.parts[i])}`],
  );
  try {
    await convertToModelMessages([ui]);
  } catch (err) {
    lost.push(`convertToModelMessages: ${err.message}`);
  }
  return lost;
}

// rejections validates part by part, because the SDK's error for a whole message lists
// every kind of part that the rejected one is not.
async function rejections(message, ui, error) {
  const found = [];
  for (const [i, part] of ui.parts.entries()) {
    const alone = await safeValidateUIMessages({ messages: [{ ...ui, parts: [part] }] });
    if (!alone.success) found.push(`${name(message.parts[i])}: ${reason(alone.error, 3)}`);
  }
  return found.length > 0 ? found : [reason(error, 1)];
}

// reason returns the text of a Zod error. For a union it is that of the alternative
// that fits best: the one with the part's type and state, if there is one. The first
// depth steps of a path are omitted, because the reader knows them.
function reason(error, depth) {
  const issues = error?.cause?.issues;
  if (!Array.isArray(issues) || issues.length === 0) return error?.message ?? String(error);
  return issues.map((issue) => word(issue, depth)).join("; ");
}

function word(issue, depth) {
  const path = issue.path.slice(depth).join(".");
  if (issue.code === "invalid_union" && issue.errors?.length > 0) {
    const misfit = (errors) =>
      errors.reduce((sum, e) => sum + (["type", "state"].includes(e.path.join(".")) ? 100 : 1), 0);
    const best = issue.errors.reduce((a, b) => (misfit(b) < misfit(a) ? b : a));
    return best.map((e) => word({ ...e, path: [...issue.path, ...e.path] }, depth)).join("; ");
  }
  return path === "" ? issue.message : `${path}: ${issue.message}`;
}

function differing(kept, stored) {
  return Object.keys(stored)
    .filter((key) => !isDeepStrictEqual(kept[key], stored[key]))
    .join(", ");
}

function name(part) {
  const state = part.tool_state ? `, ${part.tool_state}` : "";
  return `part ${part.id} (${part.type}${state})`;
}

let passed = 0;
let failed = 0;
try {
  for await (const message of messages(process.stdin)) {
    const found = await flaws(message);
    if (found.length === 0) {
      passed++;
      continue;
    }
    failed++;
    const { id, session_id, role } = message.row;
    console.log(`${session_id} ${id} (${role}): ${found.join(" | ").replaceAll(/\s+/g, " ")}`);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
} catch (err) {
  if (!(err instanceof InputError)) throw err;
  console.error(`read JSONL: ${err.message}`);
  process.exitCode = 2;
}
