// The form that starts a run. The run works in the background and does not need this page.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { get, post } from "../api.mjs";
import { go } from "../router.mjs";
import { session } from "../state.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";
import { ProblemBanner } from "./notices.mjs";

/** The agents of a repository, for suggestions; an empty list if they cannot be listed. */
function useAgents() {
  const [agents, setAgents] = useState([]);
  useEffect(() => {
    get("/api/agents").then((found) => setAgents(found.agents || []), () => {});
  }, []);
  return agents;
}

function readForm(form) {
  const fields = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
  const body = { agent: fields.agent, request: fields.request };
  if (fields.repo) body.repo = fields.repo;
  if (fields.model) body.model = fields.model;
  if (fields.usd) body.budget = { usd: Number(fields.usd) };
  return body;
}

function Fields({ agents }) {
  const repo = session.value ? session.value.repo : "";
  return html`<label class="field">Agent or team
      <input name="agent" required data-first list="agents" autocomplete="off" spellcheck=${false} /></label>
    <datalist id="agents">${agents.map((one) => html`<option key=${one.name} value=${one.name}>${one.description}</option>`)}</datalist>
    <label class="field">Request<textarea name="request" required placeholder="What should be done, and how you will know that it is done"></textarea></label>
    <label class="field">Folder <span class="hint">on the server's machine</span>
      <input name="repo" autocomplete="off" placeholder=${repo} spellcheck=${false} /></label>
    <div class="pair">
      <label class="field">Model <span class="hint">for agents that do not name one</span>
        <input name="model" autocomplete="off" placeholder="openai:gpt-5-mini" spellcheck=${false} /></label>
      <label class="field">Budget <span class="hint">in US dollars</span>
        <input name="usd" type="number" min="0" step="any" inputmode="decimal" placeholder="no limit" /></label>
    </div>`;
}

export function StartRun({ onClose }) {
  const form = useRef(null);
  // The same key is sent again if the reply was lost, so that the run starts only once.
  const key = useRef(crypto.randomUUID());
  const [problem, setProblem] = useState(null);
  const agents = useAgents();
  const start = async () => {
    if (!form.current.reportValidity()) return undefined;
    setProblem(null);
    try {
      const started = await post("/api/runs", readForm(form.current), { key: key.current });
      onClose();
      go("run", started.id);
      return `Run ${started.id} started.`;
    } catch (error) {
      if (error.status) key.current = crypto.randomUUID();
      setProblem(error);
      return undefined;
    }
  };
  return html`<${Dialog} title="Start a run" onClose=${onClose}>
    <form class="form" ref=${form} onSubmit=${(event) => event.preventDefault()}>
      <${Fields} agents=${agents} />
      <${ProblemBanner} problem=${problem} />
      <div class="dialog-foot">
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <${Button} look="primary" busy="Starting…" command=${start}>Start<//>
      </div>
    </form>
  <//>`;
}
