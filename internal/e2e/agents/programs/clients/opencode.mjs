import { home } from "../commands.mjs";
import { briefly } from "../model.mjs";

export default async function ({ url, client }) {
  const provider = { npm: "@ai-sdk/openai-compatible", options: { baseURL: "{env:OPENAI_BASE_URL}", apiKey: "x" }, models: { pilot: {} } };
  const config = { provider: { scripted: provider }, permission: "allow", autoupdate: false };
  const run = home(client, { OPENAI_BASE_URL: `${url}/v1`, OPENCODE_DISABLE_MODELS_FETCH: "1" }, { ".config/opencode/opencode.json": JSON.stringify(config) });
  const goesOn = ["--title", "Harbour"]; // else it asks the model for a title
  return {
    says: briefly.slice(2), refused: 400, // with quotes and spaces, it would say something else
    ask: (text) => {
      const asked = run("opencode-linux-x64/bin/opencode", "run", "-m", "scripted/pilot", ...goesOn, text);
      goesOn.splice(0, 2, "--continue");
      return asked;
    },
    flush: async () => {},
  };
}
