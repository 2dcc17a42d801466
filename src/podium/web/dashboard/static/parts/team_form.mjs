// Make a team from agents that exist, and save it like podium team save does.

import { html, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { address, go } from "../router.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";
import { Icon } from "./icons.mjs";
import { useLoaded } from "./loaded.mjs";
import { MemberChoice } from "./member_choice.mjs";
import { Loading, ProblemBanner } from "./notices.mjs";
import { revealLine } from "./reveal.mjs";

/** What happens in each mode, and the options that have an effect in it. */
const MODES = {
  orchestrate: ["The lead plans, the members work at the same time, and the lead combines their results.", ["max_concurrent", "worktrees"]],
  reflect: ["The same in a loop, until the goal is met.", ["max_iterations", "evaluator", "max_concurrent", "worktrees"]],
  sequential: ["The members work one after the other, each with the answers before it.", ["worktrees"]],
  broadcast: ["Every member gets the request; the answer has a section for each. The lead takes no part.", ["max_concurrent", "worktrees"]],
  discuss: ["The members talk in rounds and vote; the lead coordinates and answers.", ["max_rounds", "termination", "max_concurrent"]],
  collaborate: ["The members agree on a plan, work on its steps, and review each other.", ["approve_plan", "review_by", "max_concurrent"]],
};

/** The fields of the options: label, hint, and the choices or "number" or "agent". */
const OPTIONS = {
  max_iterations: ["Iterations at most", "10 if empty", "number"],
  evaluator: ["Evaluator", "the lead if empty", "agent"],
  max_rounds: ["Rounds at most", "", "number"],
  termination: ["A discussion ends", "", [["consensus", "with a consensus"], ["max_rounds", "after the last round"], ["coordinator_decides", "when the lead decides"]]],
  approve_plan: ["The plan is approved by", "", [["lead", "the lead"], ["person", "you"]]],
  review_by: ["Steps are reviewed by", "", [["member", "another member"], ["person", "you"]]],
  max_concurrent: ["Members at work at most", "all if empty", "number"],
  worktrees: ["Checkouts", "", [["shared", "the repository itself"], ["team", "one for the team"], ["lead", "one for the lead"], ["each", "one for each member"]]],
};
/** Options that are fields of the team itself in the API, not of its mode. */
const PLAIN = ["max_iterations", "evaluator", "worktrees"];

function Option({ name }) {
  const [word, hint, kind] = OPTIONS[name];
  const note = hint ? html` <span class="hint">${hint}</span>` : null;
  if (kind === "number") return html`<label class="field">${word}${note}<input name=${name} type="number" min="1" step="1" inputmode="numeric" /></label>`;
  if (kind === "agent") return html`<label class="field">${word}${note}<input name=${name} list="team-agents" autocomplete="off" spellcheck=${false} /></label>`;
  return html`<label class="field">${word}<select class="input" name=${name}><option value="">default</option>
    ${kind.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>`;
}

function readForm(form, mode, members) {
  const fields = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
  const body = { name: fields.name, mode, members, mine: fields.where !== "repo", options: {} };
  for (const name of ["description", "lead", "model", "shared_context"]) if (fields[name]) body[name] = fields[name];
  for (const name of MODES[mode][1]) {
    if (!fields[name]) continue;
    const value = OPTIONS[name][2] === "number" ? Number(fields[name]) : fields[name];
    (PLAIN.includes(name) ? body : body.options)[name] = value;
  }
  return body;
}

function Fields({ agents, mode, setMode }) {
  return html`<div class="pair halves">
      <label class="field">Name <span class="hint">letters and digits</span><input name="name" required data-first autocomplete="off" spellcheck=${false} placeholder="api-review" /></label>
      <label class="field">Description <span class="hint">what the team is for</span><input name="description" autocomplete="off" /></label>
      <label class="field">Mode <span class="hint">how the members work together</span><select class="input" name="mode" value=${mode} aria-describedby="mode-text" onChange=${(event) => setMode(event.target.value)}>
        ${Object.keys(MODES).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <label class="field">Lead <span class="hint">an agent to lead it; a general lead if empty</span>
        <input name="lead" list="team-agents" autocomplete="off" spellcheck=${false} /></label></div>
    <p class="quiet small" id="mode-text">${MODES[mode][0]}</p>
    <datalist id="team-agents">${agents.map((one) => html`<option key=${one.name} value=${one.name}>${revealLine(one.description)}</option>`)}</datalist>`;
}

function MoreFields({ mode }) {
  return html`<details><summary>Options of the team</summary><div class="form details-form">
      <div class="pair">${MODES[mode][1].map((name) => html`<${Option} key=${name} name=${name} />`)}
        <label class="field">Model of the lead<input name="model" autocomplete="off" spellcheck=${false} placeholder="openai:gpt-5-mini" /></label></div>
      <label class="field">Shared context <span class="hint">what every member is told</span><textarea name="shared_context" rows="3"></textarea></label></div></details>
    <fieldset class="field-set"><legend>Save it</legend>
      <label class="check"><input type="radio" name="where" value="mine" defaultChecked />for me, in every repository</label>
      <label class="check"><input type="radio" name="where" value="repo" />for me, and as the squad of this repository (.squad)</label></fieldset>`;
}

function ConfirmSave({ question, onClose, onSave }) {
  return html`<${Dialog} title="Save the team?" onClose=${onClose}><p class="pre">${question}</p>
    <div class="dialog-foot"><button type="button" class="button" data-first onClick=${onClose}>Cancel</button>
      <${Button} look="primary" busy="Saving…" command=${onSave}>Save<//></div><//>`;
}

export function TeamForm() {
  const form = useRef(null);
  const [mode, setMode] = useState("orchestrate");
  const [members, setMembers] = useState([]);
  const [problem, setProblem] = useState(null);
  const [question, setQuestion] = useState("");
  const all = useLoaded("/api/agents", { isFixed: true });
  const teams = useLoaded("/api/teams", { isFixed: true });
  const save = async (agreed) => {
    if (!form.current.reportValidity()) return undefined;
    setProblem(null);
    setQuestion("");
    try {
      const saved = await post("/api/teams", { ...readForm(form.current, mode, members), agreed });
      go("teams", saved.name);
      return `The team ${saved.name} is saved.${saved.overrides ? ` The built-in one is still available as ${saved.overrides}.` : ""}`;
    } catch (error) {
      if (error.status === 409 && !agreed) setQuestion(error.message);
      else setProblem(error);
      return undefined;
    }
  };
  if (!all.data || !teams.data) return html`<${ProblemBanner} problem=${all.problem || teams.problem} /><${Loading} what="the agents" />`;
  const names = new Set(teams.data.teams.map((one) => one.name));
  const agents = all.data.agents.filter((one) => !names.has(one.name));
  return html`<form class="form team-form" ref=${form} onSubmit=${(event) => event.preventDefault()}>
    <${Fields} agents=${agents} mode=${mode} setMode=${setMode} />
    <${MemberChoice} agents=${agents} chosen=${members} onChange=${setMembers} isOrdered=${mode === "sequential"} />
    <${MoreFields} mode=${mode} />
    <${ProblemBanner} problem=${problem} />
    <div class="row"><${Button} look="primary" busy="Saving…" disabled=${!members.length} command=${() => save(false)}>Save the team<//>
      <a class="button" href=${address("teams")}>Cancel</a>
      ${members.length ? null : html`<span class="quiet small"><${Icon} name="teams" /> Choose at least one member.</span>`}</div>
    ${question ? html`<${ConfirmSave} question=${question} onClose=${() => setQuestion("")} onSave=${() => save(true)} />` : null}</form>`;
}
