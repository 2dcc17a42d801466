// Give a task to a worker, which does it on its own branch, in its own process and checkout.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { get, post } from "../api.mjs";
import { go } from "../router.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";
import { ProblemBanner } from "./notices.mjs";

function readForm(form) {
  const fields = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
  const body = { branch: fields.branch, task: fields.task, read_only: Boolean(fields.read_only) };
  if (fields.agent) body.agent = fields.agent;
  if (fields.model) body.model = fields.model;
  if (fields.after) body.after = fields.after.split(/[\s,]+/);
  if (fields.usd) body.budget = { usd: Number(fields.usd) };
  return body;
}

function Fields({ agents }) {
  return html`<label class="field">Branch<input name="branch" required data-first autocomplete="off" spellcheck=${false} placeholder="feat/csv-export" /></label>
    <label class="field">Task<textarea name="task" required placeholder="What should be done, and how you will know that it is done"></textarea></label>
    <div class="pair">
      <label class="field">Agent <span class="hint">the built-in worker if empty</span>
        <input name="agent" list="worker-agents" autocomplete="off" spellcheck=${false} placeholder="worker" /></label>
      <label class="field">After <span class="hint">branches or workers to wait for</span><input name="after" autocomplete="off" spellcheck=${false} /></label>
      <label class="field">Model <span class="hint">for agents that do not name one</span><input name="model" autocomplete="off" spellcheck=${false} /></label>
      <label class="field">Budget <span class="hint">in US dollars</span><input name="usd" type="number" min="0" step="any" inputmode="decimal" placeholder="no limit" /></label>
    </div>
    <label class="check"><input type="checkbox" name="read_only" value="yes" />Read only: no branch, no changes</label>
    <datalist id="worker-agents">${agents.map((one) => html`<option key=${one.name} value=${one.name}>${one.description}</option>`)}</datalist>`;
}

export function DelegateForm({ onClose }) {
  const form = useRef(null);
  // The same key is sent again if the reply was lost, so that the worker starts only once.
  const key = useRef(crypto.randomUUID());
  const [agents, setAgents] = useState([]);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    get("/api/agents").then((found) => setAgents(found.agents), () => {});
  }, []);
  const start = async () => {
    if (!form.current.reportValidity()) return undefined;
    setProblem(null);
    try {
      const made = await post("/api/workers", readForm(form.current), { key: key.current });
      onClose();
      go("workers", made.id);
      return `The worker on ${made.branch} started.`;
    } catch (error) {
      if (error.status) key.current = crypto.randomUUID();
      setProblem(error);
      return undefined;
    }
  };
  return html`<${Dialog} title="Delegate a task" onClose=${onClose}>
    <form class="form" ref=${form} onSubmit=${(event) => event.preventDefault()}>
      <${Fields} agents=${agents} />
      <${ProblemBanner} problem=${problem} />
      <div class="dialog-foot"><button type="button" class="button" onClick=${onClose}>Cancel</button>
        <${Button} look="primary" busy="Starting…" command=${start}>Delegate<//></div>
    </form><//>`;
}
