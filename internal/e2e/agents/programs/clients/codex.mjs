import { home } from "../commands.mjs";
import { retried } from "../model.mjs";

export default async function ({ url, client }) {
  const run = home(client, { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "x", CODEX_API_KEY: "x" }, { ".bash_profile": `export PATH="$HOME/bin:$PATH"\n` });
  const goesOn = [];
  return {
    says: retried, refused: 400,
    ask: (text) => {
      const asked = run("@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5", ...goesOn, text);
      goesOn.splice(0, 2, "resume", "--last");
      return asked;
    },
    flush: async () => {},
  };
}
