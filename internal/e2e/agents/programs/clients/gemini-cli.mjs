import { home } from "../commands.mjs";
import { briefly } from "../model.mjs";

export default async function ({ url, client }) {
  const settings = { security: { auth: { selectedType: "gemini-api-key" } }, general: { maxAttempts: 2, enableAutoUpdate: false }, privacy: { usageStatisticsEnabled: false } };
  const run = home(client, { GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: "x" }, { ".gemini/settings.json": JSON.stringify(settings) });
  const goesOn = [];
  return {
    says: briefly, refused: 400,
    ask: (text) => {
      const asked = run("@google/gemini-cli/bundle/gemini.js", "-y", "--skip-trust", "-m", "gemini-2.5-pro", ...goesOn, "-p", text);
      goesOn.splice(0, 2, "--resume", "latest");
      return asked;
    },
    flush: async () => {},
  };
}
