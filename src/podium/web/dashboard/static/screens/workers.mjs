// Workers: a list, one worker with its changes, and merging their branches.

import { html, useEffect, useState } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { count, money, plural } from "../format.mjs";
import { Changed } from "../parts/changed.mjs";
import { ChecksPassed } from "../parts/checks_passed.mjs";
import { Value, isEmpty } from "../parts/columns.mjs";
import { ContextFill } from "../parts/context_fill.mjs";
import { DelegateForm } from "../parts/delegate_form.mjs";
import { Forecast } from "../parts/forecast.mjs";
import { Icon } from "../parts/icons.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { MergePanel } from "../parts/merge_panel.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { revealLine, revealSummary } from "../parts/reveal.mjs";
import { Age } from "../parts/time.mjs";
import { WorkerBadge, groupOf, isOver } from "../parts/worker_badge.mjs";
import { WorkerDetail } from "../parts/worker_detail.mjs";

const GROUPS = [["needs", "Needs you"], ["working", "Working"], ["resting", "Paused or interrupted"], ["over", "Finished"]];

/** The columns that have a place of their own on a card; the others follow them. */
const PLACED = new Set([
  "id", "name", "branch", "state", "agent", "role", "task", "reader", "tool", "added", "removed", "tokens", "usd", "waiting_since", "answer", "why", "unproved", "checks",
  "model", "context",
]);

function WorkerCard({ worker, columns }) {
  const tone = groupOf(worker) === "needs" ? "needs" : null;
  return html`<a class="card" data-item data-tone=${tone} href=${address("workers", worker.id)}>
    <span class="row"><span class="strong clip worker-name">${revealLine(worker.name)}</span><span class="gap"></span><${WorkerBadge} state=${worker.state} /></span>
    <span class="lines-2">${revealSummary(worker.task)}</span>
    ${worker.tool ? html`<span class="small quiet clip">${worker.state === "waiting_permission" ? "asks to use" : "uses"} <code>${revealLine(worker.tool)}</code></span>` : null}
    ${worker.unproved ? html`<span class="small quiet lines-2">Unproved: ${revealLine(worker.unproved)}</span>` : null}
    ${isOver(worker) && !worker.answer && worker.why ? html`<span class="small quiet lines-2">${revealLine(worker.why)}</span>` : null}
    <span class="foot">${worker.reader ? html`<span>read-only</span>` : html`<span class="clip"><${Icon} name="branch" /> ${revealLine(worker.branch)}</span>
      <${Changed} added=${worker.added} removed=${worker.removed} />`}
      <${ChecksPassed} checks=${worker.checks} />
      ${worker.usd ? html`<span>${money(worker.usd)}</span>` : null}${worker.tokens ? html`<span>${count(worker.tokens)} tokens</span>` : null}
      <${ContextFill} context=${worker.context} />
      <span class="clip">${[worker.agent, worker.role, worker.model].filter(Boolean).map(revealLine).join(" · ")}</span>
      ${columns.filter((one) => !PLACED.has(one.name) && !isEmpty(worker[one.name])).map((one) => html`<span key=${one.name}>${one.heading} <${Value} column=${one} row=${worker} /></span>`)}
      ${worker.waiting_since ? html`<span class="tone-needs"><${Age} at=${worker.waiting_since} before="waiting " /></span>` : null}</span></a>`;
}

function WorkerList({ workers, columns }) {
  if (!workers.length) {
    return html`<${Empty} title="No workers yet" command=${'podium delegate feat/csv "Export to CSV"'}>
      Each worker does a task on its own branch, next to your work. Its progress and its changes appear here.<//>`;
  }
  const newest = [...workers].reverse();
  return html`<div class="stack wide">${GROUPS.map(([group, title]) => {
    const here = newest.filter((one) => groupOf(one) === group);
    return here.length ? html`<section class="band" key=${group}><h2>${title} <span class="quiet small">${plural(here.length, "worker")}</span></h2>
      <div class="cards">${here.map((one) => html`<${WorkerCard} key=${one.id} worker=${one} columns=${columns} />`)}</div></section>` : null;
  })}</div>`;
}

function AllWorkers({ workers, columns }) {
  const [isDelegating, setDelegating] = useState(false);
  return html`<div class="screen-head"><h1>Workers</h1><span class="gap"></span>
      <a class="button" href=${address("workers", "", { view: "merge" })}><${Icon} name="branch" />Merge…</a>
      <button type="button" class="button primary" onClick=${() => setDelegating(true)}><${Icon} name="plus" />Delegate</button></div>
    <${WorkerList} workers=${workers} columns=${columns} />
    ${isDelegating ? html`<${DelegateForm} onClose=${() => setDelegating(false)} />` : null}`;
}

const Back = () => html`<a class="button small" href=${address("workers")}><${Icon} name="back" />Workers</a>`;

/** The branches that may be merged, with what the list of workers and the forecast say about them. */
function listChoices({ candidates, forecast }, workers) {
  const changes = new Map((forecast ? forecast.branches : []).map((one) => [one.branch, one]));
  return candidates.map(({ branch, run, notice }) => {
    const { added = 0, removed = 0 } = changes.get(branch) || {};
    const worker = workers.find((one) => one.id === run && one.branch === branch);
    return { branch, added, removed, text: notice ? notice.replace(`${branch}: `, "") : worker ? worker.task : "" };
  });
}

function Merge({ workers }) {
  const { data, problem, reload } = useLoaded("/api/forecast", { pause: 10000 });
  return html`<div class="screen-head"><${Back} /><h1>Merge branches</h1></div>
    <div class="stack wide">
      <section class="stack"><h2>Overlap forecast</h2><${ProblemBanner} problem=${problem} onRetry=${reload} />
        ${data ? html`<${Forecast} forecast=${data.forecast} />` : problem ? null : html`<${Loading} what="the forecast" />`}</section>
      <${MergePanel} choices=${data ? listChoices(data, workers) : []} skipped=${data ? data.skipped : []} onto=${data && data.forecast ? data.forecast.onto : ""} /></div>`;
}

function OneWorker({ workers, run, reload }) {
  const worker = workers.find((one) => one.id === run);
  // The list can be older than the worker.
  const [isFresh, setFresh] = useState(Boolean(worker));
  useEffect(() => {
    if (!isFresh) reload.now().then(() => setFresh(true));
  }, []);
  return html`<div class="screen-head"><${Back} /><h1>Worker</h1></div>
    ${worker ? html`<${WorkerDetail} key=${worker.id} worker=${worker} />`
      : !isFresh ? html`<${Loading} what="the worker" />` : html`<${Empty} title="This worker is not in the list">Only the newest workers that have ended are listed.
        <a href=${address("run", run)}> Open its run</a><//>`}`;
}

export default function Workers() {
  const { data, problem, reload } = useLoaded("/api/workers", { pause: 2000 });
  const { id, query } = route.value;
  const banner = html`<${ProblemBanner} problem=${problem} onRetry=${reload} />`;
  if (!data) return html`<div class="screen-head"><h1>Workers</h1></div>${problem ? banner : html`<${Loading} what="the workers" />`}`;
  const { workers, columns } = data;
  const screen = query.get("view") === "merge" ? html`<${Merge} workers=${workers} />`
    : id ? html`<${OneWorker} key=${id} workers=${workers} run=${id} reload=${reload} />` : html`<${AllWorkers} workers=${workers} columns=${columns} />`;
  return html`${banner}${screen}`;
}
