import { home } from "../commands.mjs";
import { briefly } from "../model.mjs";

export default async function ({ url, client }) {
  const run = home(client, { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "x", OPENAI_MODEL: "qwen3" });
  const goesOn = [];
  return {
    says: briefly.slice(1, 3), refused: 400,
    ask: (text) => {
      const asked = run("@qwen-code/qwen-code/cli.js", "-y", "--auth-type", "openai", ...goesOn, "-p", text);
      goesOn.splice(0, 1, "--continue");
      return asked;
    },
    flush: async () => {},
  };
}
