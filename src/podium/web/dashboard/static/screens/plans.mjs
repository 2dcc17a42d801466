// The plans of collaborating teams: a list, and for one run a board of its steps or a graph of their dependencies.

import { html, useState } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { requests } from "../state.mjs";
import { count, plural } from "../format.mjs";
import { Badge, StateBadge } from "../parts/badge.mjs";
import { Button } from "../parts/button.mjs";
import { Icon } from "../parts/icons.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { PlanGraph } from "../parts/plan_graph.mjs";
import { StepCard } from "../parts/plan_step.mjs";
import { reveal, revealLine } from "../parts/reveal.mjs";
import { saveFile } from "../parts/save_file.mjs";

const COLUMNS = [
  ["Planned", ["planned"]],
  ["Ready", ["ready", "reopened"]],
  ["Running", ["running"]],
  ["Review", ["review"]],
  ["Done", ["done"]],
  ["Blocked", ["blocked", "failed"]],
];

const WORK_STATES = {
  initialized: ["starting", "clock", "quiet"],
  team_formed: ["team formed", "teams", "works"],
  planning: ["planning", "plan", "works"],
  executing: ["working", "play", "works"],
  reviewing: ["in review", "search", "works"],
  completed: ["completed", "check", "well"],
  cancelled: ["stopped", "stop", "quiet"],
  error: ["failed", "cross", "failed"],
};

function WorkBadge({ state }) {
  const [word, icon, tone] = WORK_STATES[state] || [state, "dot", "quiet"];
  return html`<${Badge} word=${word} icon=${icon} tone=${tone} />`;
}

const NOTHING = { seconds: 0, tokens: 0, files: 0 };

/** Return the steps to show: those of the committed plan or, while the team is planning, those of the draft. */
function listSteps(team) {
  if (team.steps.length && !isDraft(team)) return team.steps;
  return team.draft ? team.draft.steps.map((step) => ({ state: "planned", attempt: 0, findings: [], reason: "", used: NOTHING, ...step })) : [];
}

const isDraft = (team) => team.state === "planning" && Boolean(team.draft);

function Progress({ team }) {
  const done = team.steps.filter((step) => step.state === "done").length;
  if (!team.steps.length) return html`<span class="quiet small">${isDraft(team) ? "draft" : "no steps yet"}</span>`;
  return html`<span class="progress"><span class="meter"><span style=${{ width: `${(100 * done) / team.steps.length}%` }}></span></span>
    <span class="quiet small nowrap">${count(done)} of ${plural(team.steps.length, "step")} done</span></span>`;
}

function PlanList({ plans }) {
  if (!plans.length) {
    return html`<${Empty} title="No plans yet" command=${'podium run plan-build-review "Add CSV export"'}>
      The plan of every team that collaborates appears here, with the state of each step.<//>`;
  }
  return html`<ul class="list">${plans.flatMap(({ run, teams }) => teams.map((team, number) => html`<li key=${`${run} ${number}`}>
    <a class="item plan-item" data-item href=${address("plans", run)}>
      <span class="strong lines-2">${reveal(team.goal) || "No goal yet"}</span>
      <span class="row"><${WorkBadge} state=${team.state} /><span class="small quiet">${revealLine(team.agent)} · run <code>${run}</code></span>
        <span class="gap"></span><${Progress} team=${team} /></span></a></li>`))}</ul>`;
}

/** A draft that nobody has approved yet, with the way to its request if there is one. */
function DraftNotice({ run, team }) {
  if (!isDraft(team)) return null;
  const request = (requests.value || []).find((one) => one.run === run && one.kind === "plan");
  return html`<div class="notice" data-tone=${request ? null : "quiet"}><${Icon} name=${request ? "hand" : "plan"} />
    <span class="grow">${request ? "This is a draft that waits for your approval. " : "This is a draft; the team has not committed it yet."}
      ${request ? html`<a href=${address("approvals", request.id)}>Review it in Approvals</a>` : null}</span></div>`;
}

function Board({ steps, decisions }) {
  return html`<div class="board" role="group" aria-label="Steps by state" tabindex="0">${COLUMNS.map(([title, states]) => {
    const here = steps.filter((step) => states.includes(step.state));
    return html`<section class="board-column" key=${title} data-empty=${here.length ? null : ""} aria-label=${title}>
      <h3>${title} <span class="quiet">${here.length}</span></h3>
      ${here.map((step) => html`<${StepCard} key=${step.id} step=${step} decisions=${decisions} />`)}
    </section>`;
  })}</div>`;
}

function TeamPlan({ run, team, isGraph, decisions }) {
  const steps = listSteps(team);
  return html`<section class="stack">
    <div class="row"><h2 class="pre">${reveal(team.goal) || "No goal yet"}</h2></div>
    <div class="row"><${WorkBadge} state=${team.state} /><span class="quiet small">${revealLine(team.agent)}${team.version ? ` · version ${team.version}` : ""}</span>
      <${Progress} team=${team} /></div>
    <${DraftNotice} run=${run} team=${team} />
    ${steps.length ? (isGraph ? html`<${PlanGraph} steps=${steps} />` : html`<${Board} steps=${steps} decisions=${decisions} />`)
      : html`<${Empty} title="No steps yet">They appear when the planner has written a draft.<//>`}
    ${team.snapshots.length ? html`<p class="quiet small">Snapshots: ${team.snapshots.map((one) => revealLine(one.name)).join(", ")}</p>` : null}
  </section>`;
}

function Artifacts({ run }) {
  const { data } = useLoaded(`/api/runs/${encodeURIComponent(run)}/artifacts`);
  if (!data || !data.artifacts.length) return null;
  return html`<section class="stack"><h2>Artifacts</h2><ul class="list">
    ${data.artifacts.map((one, number) => html`<li class="item row" key=${number}><span class="strong">${revealLine(one.name)}</span>
      <span class="quiet small">${one.kind}${one.step ? ` of step ${revealLine(one.step)}` : ""}${one.author ? ` by ${revealLine(one.author)}` : ""}, ${plural(one.size, "byte")}</span><span class="gap"></span>
      <${Button} look="small" busy="Saving…" command=${() => saveFile(`/api/artifacts/${one.digest}`, `${one.digest.slice(0, 12)}.txt`)}>Save<//></li>`)}
  </ul></section>`;
}

function Plan({ run }) {
  const { data, problem, reload } = useLoaded(`/api/runs/${encodeURIComponent(run)}/plan`);
  const made = useLoaded("/api/decisions", { pause: 3000 }).data;
  const [isGraph, setGraph] = useState(false);
  const decisions = made ? made.decisions.filter((one) => one.run === run) : [];
  const choose = (value) => () => setGraph(value);
  return html`<div class="screen-head"><a class="button small" href=${address("plans")}><${Icon} name="back" />Plans</a>
      <h1>Plan</h1><a class="small" href=${address("run", run)}>run <code>${run}</code></a><span class="gap"></span>
      <div class="choice" role="group" aria-label="How to show the steps">
        <button type="button" class="button small" aria-pressed=${!isGraph} onClick=${choose(false)}>Board</button>
        <button type="button" class="button small" aria-pressed=${isGraph} onClick=${choose(true)}>Graph</button></div></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${data ? html`<div class="stack wide">
      ${data.teams.length ? data.teams.map((team, number) => html`<${TeamPlan} key=${number} run=${data.run} team=${team} isGraph=${isGraph} decisions=${decisions} />`)
        : html`<${Empty} title="This run has no plan">Only teams that collaborate make one.<//>`}
      <${Artifacts} run=${run} /></div>` : problem ? null : html`<${Loading} what="the plan" />`}`;
}

function AllPlans() {
  const { data, problem, reload } = useLoaded("/api/plans", { pause: 3000 });
  return html`<div class="screen-head"><h1>Plans</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${data ? html`<${PlanList} plans=${data.plans} />` : problem ? null : html`<${Loading} what="the plans" />`}`;
}

export default function Plans() {
  const run = route.value.id;
  return run ? html`<${Plan} key=${run} run=${run} />` : html`<${AllPlans} />`;
}
