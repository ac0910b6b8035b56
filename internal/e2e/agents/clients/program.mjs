// Plays the script with one client package, whose own instrumentation exports by
// OTLP/HTTP, and prints what happened: a line of JSON per turn.
//
//	node program.mjs CLIENT ENDPOINT
//
// With CLIENT-crew the agent has another one that it asks by a tool, which calls tools too.

import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

import * as model from "./model.mjs";

// Standard output is for what happened; packages write their notices there too.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
process.env.AI_SDK_LOG_WARNINGS = "false";
process.env.VOLTAGENT_LOG_LEVEL = process.env.LOG_LEVEL = "silent";

const [client, endpoint] = process.argv.slice(2);
const exporter = () => new OTLPTraceExporter({ url: `${endpoint}/v1/traces` });

// provider makes a tracer provider that exports, and makes it the process's own.
export function provider(...processors) {
  const p = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": client }),
    spanProcessors: processors.length ? processors : [new BatchSpanProcessor(exporter())],
  });
  p.register();
  return p;
}

const crew = client.endsWith("-crew");
const { default: setup } = await import(`./clients/${client.replace("-crew", "")}.mjs`);
const server = await model.start();
const url = process.env.AGENTTRACE ? await (await import("./tap.mjs")).start(server.url, `homes/${client}/outside`) : server.url;
const { ask, flush, says = model.prompts, refused = 500, session = `${client}-1` } = await setup({ url, session: `${client}-1`, endpoint, provider, exporter, client, crew });
server.log.refused = refused;
for (const text of crew ? model.crewPrompts : says) {
  let exit;
  try {
    await ask(text);
  } catch (e) {
    exit = e?.exit;
    if (!String(e?.message ?? e).includes("fire") && !String(e?.cause?.message).includes("fire")) console.error(`${client}: ${text}:`, e);
  }
  if (exit) server.log.turns.at(-1).exit = exit;
}
await flush();
server.close();
write(server.log.seen(session).map((turn) => JSON.stringify(turn) + "\n").join(""), () => process.exit(0));
