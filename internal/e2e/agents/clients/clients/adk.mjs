import { system, scoutSystem, tools } from "../model.mjs";
import { z } from "zod";

export default async function ({ url, session, provider, crew }) {
  const p = provider();
  process.env.GOOGLE_GEMINI_BASE_URL = url;
  // It makes its tracer when it is loaded, and has a copy of the API of its own.
  const { AgentTool, FunctionTool, Gemini, InMemoryRunner, LlmAgent } = await import("@google/adk");
  const model = new Gemini({ model: "gemini-pilot", apiKey: "x" });
  const catalog = Object.entries(tools).map(([name, t]) => new FunctionTool({
    name, description: t.description, execute: (input) => t.run(input),
    parameters: z.object(Object.fromEntries(Object.entries(t.properties).map(([k, v]) => [k, v.type === "number" ? z.number() : z.string()]))),
  }));
  const scout = new LlmAgent({ name: "Scout", description: "Looks at the sea", instruction: scoutSystem, model, tools: catalog });
  const agent = new LlmAgent({ name: "Ferris", instruction: system, model, tools: crew ? [...catalog, new AgentTool({ agent: scout })] : catalog });
  const runner = new InMemoryRunner({ agent, appName: "harbour" });
  await runner.sessionService.createSession({ appName: "harbour", userId: "u_1", sessionId: session });
  return {
    ask: async (text) => {
      for await (const _ of runner.runAsync({ userId: "u_1", sessionId: session, newMessage: { role: "user", parts: [{ text }] } }));
    },
    flush: () => p.forceFlush(),
  };
}
