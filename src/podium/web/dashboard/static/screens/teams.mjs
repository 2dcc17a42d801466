// Teams: a list by where they come from, a form that makes a new one, and one team with its members, its workflow and a
// form to start a run.

import { html, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { address, go, route } from "../router.mjs";
import { plural } from "../format.mjs";
import { Badge } from "../parts/badge.mjs";
import { Button } from "../parts/button.mjs";
import { Icon } from "../parts/icons.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { reveal, revealLine } from "../parts/reveal.mjs";
import { TeamForm } from "../parts/team_form.mjs";
import { WorkflowGraph } from "../parts/workflow_graph.mjs";

const SOURCES = { repo: "From this repository", "built-in": "Built-in", user: "Mine" };

function TeamCard({ team }) {
  return html`<a class="card" data-item href=${address("teams", team.name)}>
    <span class="row"><span class="strong">${revealLine(team.title)}</span><span class="gap"></span><${Badge} word=${revealLine(team.mode)} icon="teams" /></span>
    <span class="lines-2 quiet">${revealLine(team.description) || "No description"}</span>
    <span class="foot"><span>${plural(team.members.length, "member")}</span><span class="clip">${team.members.map(revealLine).join(", ")}</span>
      ${team.shadowed ? html`<span class="tone-needs">hidden by another of this name</span>` : null}</span></a>`;
}

function TeamList({ teams }) {
  if (!teams.length) {
    return html`<${Empty} title="No teams yet" command="podium teams">Teams from the repository, from your settings and from Podium appear here.<//>`;
  }
  return html`<div class="stack wide">${Object.entries(SOURCES).map(([source, title]) => {
    const here = teams.filter((team) => team.source === source);
    return here.length ? html`<section class="band" key=${source}><h2>${title} <span class="quiet small">${plural(here.length, "team")}</span></h2>
      <div class="cards">${here.map((team) => html`<${TeamCard} key=${team.name} team=${team} />`)}</div></section>` : null;
  })}</div>`;
}

function Member({ member }) {
  return html`<li class="item"><span class="row"><span class="strong">${revealLine(member.name)}</span>
      ${member.agent !== member.name ? html`<code>${revealLine(member.agent)}</code>` : null}<span class="gap"></span>
      ${member.model ? html`<span class="quiet small">${revealLine(member.model)}</span>` : null}</span>
    ${member.role ? html`<p class="quiet pre">${reveal(member.role)}</p>` : null}
    ${member.prompt ? html`<details><summary>Prompt</summary><pre class="block">${reveal(member.prompt)}</pre></details>` : null}</li>`;
}

function formatOption(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function TeamFacts({ team }) {
  const facts = [["Mode", revealLine(team.mode)], ["Source", SOURCES[team.source] || team.source]];
  if (team.model) facts.push(["Model", revealLine(team.model)]);
  if (team.evaluator) facts.push(["Evaluator", revealLine(formatOption(team.evaluator))]);
  if (team.path) facts.push(["File", html`<code>${revealLine(team.path)}</code>`]);
  for (const [name, value] of Object.entries(team.options || {})) facts.push([name, html`<code>${revealLine(formatOption(value))}</code>`]);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${revealLine(name)}</dt><dd>${value}</dd>`)}</dl>`;
}

function readForm(form, agent) {
  const fields = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
  const body = { agent, request: fields.request };
  if (fields.model) body.model = fields.model;
  if (fields.iterations) body.max_iterations = Number(fields.iterations);
  if (fields.constraints) body.constraints = fields.constraints.split("\n").map((line) => line.trim()).filter(Boolean);
  if (fields.usd) body.budget = { usd: Number(fields.usd) };
  return body;
}

function StartWithTeam({ name }) {
  const form = useRef(null);
  // The same key is sent again if the reply was lost, so that the run starts only once.
  const key = useRef(crypto.randomUUID());
  const [problem, setProblem] = useState(null);
  const start = async () => {
    if (!form.current.reportValidity()) return undefined;
    setProblem(null);
    try {
      const started = await post("/api/runs", readForm(form.current, name), { key: key.current });
      go("run", started.id);
      return `Run ${started.id} started.`;
    } catch (error) {
      if (error.status) key.current = crypto.randomUUID();
      setProblem(error);
      return undefined;
    }
  };
  return html`<form class="form card" ref=${form} onSubmit=${(event) => event.preventDefault()}><h2>Start a run with this team</h2>
    <label class="field">Request<textarea name="request" required placeholder="What should be done, and how you will know that it is done"></textarea></label>
    <details><summary>Limits and model</summary><div class="form details-form">
      <label class="field">Constraints <span class="hint">one a line, for teams that collaborate</span><textarea name="constraints" rows="2"></textarea></label>
      <div class="pair"><label class="field">Model<input name="model" autocomplete="off" spellcheck=${false} placeholder="openai:gpt-5-mini" /></label>
        <label class="field">Iterations at most<input name="iterations" type="number" min="1" step="1" inputmode="numeric" /></label>
        <label class="field">Budget in US dollars<input name="usd" type="number" min="0" step="any" inputmode="decimal" placeholder="no limit" /></label></div></div></details>
    <${ProblemBanner} problem=${problem} />
    <div class="row"><${Button} look="primary" busy="Starting…" command=${start}>Start<//></div></form>`;
}

function Workflow({ name }) {
  const { data, problem } = useLoaded(`/api/agents/${encodeURIComponent(name)}/graph`, { isFixed: true });
  return html`<section class="stack"><h2>Workflow</h2><${ProblemBanner} problem=${problem} />${data ? html`<${WorkflowGraph} graph=${data} />` : null}</section>`;
}

/** A team with its members. A router has no members, only agents that it chooses from, so the list has all of it. */
function useTeam(name) {
  const all = useLoaded("/api/teams", { isFixed: true });
  const router = all.data && all.data.teams.find((one) => one.name === name && one.mode === "router");
  const whole = useLoaded(all.data && !router ? `/api/teams/${encodeURIComponent(name)}` : "", { isFixed: true });
  if (!router) return all.data ? whole : all;
  return { ...all, data: { ...router, members: router.members.map((one) => ({ name: one, agent: one })) } };
}

function OneTeam({ name }) {
  const { data: team, problem, reload } = useTeam(name);
  return html`<div class="screen-head"><a class="button small" href=${address("teams")}><${Icon} name="back" />Teams</a><h1>Team</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${team && !team.teams ? html`<div class="stack wide">
      <section class="stack"><h2>${revealLine(team.title)}</h2>${team.description ? html`<p class="pre">${reveal(team.description)}</p>` : null}<${TeamFacts} team=${team} />
        ${team.prompt ? html`<details><summary>Prompt of the lead</summary><pre class="block">${reveal(team.prompt)}</pre></details>` : null}</section>
      <section class="stack"><h2>Members</h2><ul class="list">${team.members.map((one, number) => html`<${Member} key=${number} member=${one} />`)}</ul></section></div>`
      : problem ? null : html`<${Loading} what="the team" />`}
    <div class="stack wide after"><${Workflow} name=${name} /><${StartWithTeam} name=${name} /></div>`;
}

function AllTeams() {
  const { data, problem, reload } = useLoaded("/api/teams", { isFixed: true });
  return html`<div class="screen-head"><h1>Teams</h1><span class="gap"></span>
      <a class="button primary" href=${address("teams", "", { view: "new" })}><${Icon} name="plus" />New team</a></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${data ? html`<${TeamList} teams=${data.teams} />` : problem ? null : html`<${Loading} what="the teams" />`}`;
}

function NewTeam() {
  return html`<div class="screen-head"><a class="button small" href=${address("teams")}><${Icon} name="back" />Teams</a><h1>New team</h1></div><${TeamForm} />`;
}

export default function Teams() {
  const { id: name, query } = route.value;
  if (!name && query.get("view") === "new") return html`<${NewTeam} />`;
  return name ? html`<${OneTeam} key=${name} name=${name} />` : html`<${AllTeams} />`;
}
