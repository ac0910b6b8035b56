import { home } from "../commands.mjs";
import { briefly } from "../model.mjs";

export default async function ({ url, client }) {
  const models = { providers: { scripted: { baseUrl: `${url}/v1`, apiKey: "x", api: "openai-completions", models: [{ id: "pilot" }] } } };
  const run = home(client, {}, { ".pi/agent/models.json": JSON.stringify(models) });
  const goesOn = [];
  return {
    says: briefly, refused: 400,
    ask: (text) => {
      const asked = run("@earendil-works/pi-coding-agent/dist/cli.js", "--provider", "scripted", "--model", "pilot", ...goesOn, "-p", text);
      goesOn.splice(0, 1, "--continue");
      return asked;
    },
    flush: async () => {},
  };
}
