// How each variant of the AI SDK is told to emit telemetry, as its documentation
// says.

import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

// Variants by name: the package of the SDK, its mock model, the processor that
// exports, and what is told to every call.
const variants = {
  v5: { sdk: "ai-v5", mock: "MockLanguageModelV2" },
  v6: { sdk: "ai-v6", mock: "MockLanguageModelV3" },
  v7: { sdk: "ai", mock: "MockLanguageModelV4", integration: "OpenTelemetry" },
  "v7-legacy": { sdk: "ai", mock: "MockLanguageModelV4", integration: "LegacyOpenTelemetry" },
  "v6-openinference": { sdk: "ai-v6", mock: "MockLanguageModelV3", processor: "openinference-vercel-v2" },
  "v7-openinference": { sdk: "ai", mock: "MockLanguageModelV4", integration: "OpenTelemetry", processor: "@arizeai/openinference-vercel" },
};

// setup returns the SDK of a variant, told to export to the OTLP/HTTP endpoint.
export async function setup(name, endpoint) {
  const variant = variants[name];
  if (!variant) throw new Error(`variant is ${name}, want one of ${Object.keys(variants).join(", ")}`);
  const exporter = new OTLPTraceExporter({ url: `${endpoint}/v1/traces` });
  const traces = new Traces();
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": `aisdk-${name}` }),
    spanProcessors: [traces, await processor(variant, exporter)],
  });
  provider.register();
  const ai = await import(variant.sdk);
  const test = await import(`${variant.sdk}/test`);
  if (variant.integration) {
    const otel = await import("@ai-sdk/otel");
    ai.registerTelemetry(
      new otel[variant.integration]({ usage: true, providerMetadata: true, runtimeContext: true, schema: true }),
    );
  }
  return { name, ai, Model: test[variant.mock], spec: Number(variant.mock.at(-1)), traces, provider, telemetry: telemetry(variant) };
}

async function processor(variant, exporter) {
  if (!variant.processor) return new BatchSpanProcessor(exporter);
  const { OpenInferenceBatchSpanProcessor } = await import(variant.processor);
  return new OpenInferenceBatchSpanProcessor({ exporter });
}

// telemetry says what a call of the SDK is given for a session; it is a function
// of the session's id, which may be missing.
function telemetry(variant) {
  if (variant.integration) {
    return (sessionId) => ({
      telemetry: { functionId: "assistant", ...(sessionId && { includeRuntimeContext: { sessionId: true } }) },
      ...(sessionId && { runtimeContext: { sessionId } }),
    });
  }
  return (sessionId) => ({
    experimental_telemetry: { isEnabled: true, functionId: "assistant", ...(sessionId && { metadata: { sessionId } }) },
  });
}

// Traces is a span processor that remembers which traces were begun.
class Traces {
  #begun = new Set();

  onStart(span) {
    this.#begun.add(span.spanContext().traceId);
  }
  onEnd() {}
  async forceFlush() {}
  async shutdown() {}

  // take returns the traces that began since it was last called.
  take() {
    const begun = [...this.#begun];
    this.#begun.clear();
    return begun;
  }
}
