// What runs used: over time by agent, by model and by run, in total, and how their time was spent. The numbers are sums
// over the timelines.

import { html, useState } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { count } from "../format.mjs";
import { StateBadge } from "../parts/badge.mjs";
import { CostChart } from "../parts/cost_chart.mjs";
import { Icon } from "../parts/icons.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { revealLine, revealSummary } from "../parts/reveal.mjs";
import { Age } from "../parts/time.mjs";
import { TimeSplit } from "../parts/time_split.mjs";
import { COLUMNS, Numbers, UsageTable } from "../parts/usage_table.mjs";

const PAGE = 100;
const NOTE = html`<p class="quiet small">Money covers the calls whose price is known. Rehearsed calls reach no model and cost nothing. A worker's run is counted once, as its own run.</p>`;

function CostTable({ runs, usage }) {
  const [shown, setShown] = useState(PAGE);
  return html`<section class="stack"><h2>By run</h2><div class="table-wrap cost-wrap" role="group" aria-label="Usage by run" tabindex="0"><table class="table cost-table"><caption class="visually-hidden">Usage by run</caption>
      <thead><tr><th scope="col">Run</th>${COLUMNS.map(([label]) => html`<th scope="col" class="number" key=${label}>${label}</th>`)}</tr></thead>
      <tbody>
        <tr class="cost-total"><td class="main-cell strong">All runs<span class="quiet small"> ${count(runs.length)}</span></td><${Numbers} usage=${usage} /></tr>
        ${runs.slice(0, shown).map((run) => html`<tr key=${run.id} data-run=${run.id}>
          <td class="main-cell"><span class="row"><a class="strong" href=${address("cost", run.id)} data-item>${revealLine(run.agent)}</a><${StateBadge} state=${run.state} /></span>
            <span class="quiet small lines-2">${revealSummary(run.request)}</span><span class="quiet small"><code>${run.id}</code>, <${Age} at=${run.started_at} after=" ago" /></span></td>
          <${Numbers} usage=${run.usage} /></tr>`)}
      </tbody></table></div>
    ${runs.length > shown ? html`<button type="button" class="button" onClick=${() => setShown(shown + PAGE)}>Show more runs</button>` : null}</section>`;
}

function AllCosts() {
  const { data, problem, reload } = useLoaded("/api/costs", { pause: 4000 });
  return html`<div class="screen-head"><h1>Cost</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${!data ? (problem ? null : html`<${Loading} what="the costs" />`) : !data.runs.length
      ? html`<${Empty} title="No costs yet" command=${'podium run answer "What is in this repository?"'}>The tokens and the money of every run appear here.<//>`
      : html`<div class="stack wide"><${CostChart} history=${data.history} /><${TimeSplit} wall=${data.wall} title="Time of all runs" />
        <${CostTable} runs=${data.runs} usage=${data.usage} />
        <${UsageTable} title="By agent" word="Agent" rows=${data.agents} hasTime />
        <${UsageTable} title="By model" word="Model" rows=${data.models} />${NOTE}</div>`}`;
}

function RunCosts({ id }) {
  const { data, problem, reload } = useLoaded(`/api/costs/${encodeURIComponent(id)}`, { pause: 2000 });
  return html`<div class="screen-head"><a class="button small" href=${address("cost")}><${Icon} name="back" />Cost</a><h1>Cost of a run</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${!data ? (problem ? null : html`<${Loading} what="the costs" />`) : html`<div class="stack wide">
      <div class="stack tight"><div class="row"><a class="strong" href=${address("run", data.run.id)}>${revealLine(data.run.agent)}</a><${StateBadge} state=${data.run.state} /><code class="quiet">${data.run.id}</code></div>
        <p class="quiet lines-2">${revealSummary(data.run.request)}</p></div>
      ${data.history.series.length ? html`<${CostChart} history=${data.history} budget=${data.budget} exhaustedAt=${data.exhausted_at} />`
        : html`<${Empty} title="No model calls yet">What the agents of this run use appears here.<//>`}
      <${TimeSplit} wall=${data.wall} title="Time of the run" />
      <${UsageTable} title="By agent" word="Agent" rows=${[{ name: "Total", usage: data.usage, time: sumTimes(data.agents) }, ...data.agents]} hasTime />
      <${UsageTable} title="By model" word="Model" rows=${data.models} />
      <p class="quiet small">Workers that the run started are included, each with the name of its branch. The times of agents add up to more than the time of the run if several work at once.</p></div>`}`;
}

function sumTimes(agents) {
  const sum = { thinking: 0, tool: 0, waiting: 0, other: 0 };
  for (const { time } of agents) for (const key of Object.keys(sum)) sum[key] += time[key];
  return sum;
}

export default function Cost() {
  const { id } = route.value;
  return id ? html`<${RunCosts} key=${id} id=${id} />` : html`<${AllCosts} />`;
}
