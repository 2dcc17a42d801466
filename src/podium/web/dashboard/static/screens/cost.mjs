// What every run used, and the total. The numbers are sums over the timelines.

import { html, useState } from "../vendor.mjs";
import { address } from "../router.mjs";
import { count, duration } from "../format.mjs";
import { StateBadge } from "../parts/badge.mjs";
import { CostChart } from "../parts/cost_chart.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { revealLine, revealSummary } from "../parts/reveal.mjs";
import { Age } from "../parts/time.mjs";

const PAGE = 100;

/** Money with the same number of decimals in every row, so that the points stand below each other. */
const dollars = (usd) => `$${usd.toFixed(4)}`;

/** The columns with numbers: label, key in the usage, and how to write it. */
const COLUMNS = [
  ["Calls", "calls", count],
  ["Tokens in", "input_tokens", count],
  ["Cached", "cached_tokens", count],
  ["Tokens out", "output_tokens", count],
  ["Time", "seconds", duration],
  ["Money", "usd", dollars],
];

function Money({ usage }) {
  const marks = [];
  if (usage.unpriced) marks.push(`${count(usage.unpriced)} without a known price`);
  if (usage.estimated) marks.push(`${count(usage.estimated)} estimated`);
  return html`${dollars(usage.usd)}${marks.length ? html`<span class="cost-mark">${marks.join(", ")}</span>` : null}`;
}

function Calls({ usage }) {
  return html`${count(usage.calls)}${usage.rehearsed_calls ? html`<span class="cost-mark">+ ${count(usage.rehearsed_calls)} rehearsed</span>` : null}`;
}

function Numbers({ usage }) {
  return COLUMNS.map(([label, key, write]) => html`<td class="number" key=${key} data-label=${label} data-column=${key}>
    ${key === "usd" ? html`<${Money} usage=${usage} />` : key === "calls" ? html`<${Calls} usage=${usage} />` : write(usage[key])}</td>`);
}

function CostTable({ runs, usage }) {
  const [shown, setShown] = useState(PAGE);
  return html`<div class="table-wrap cost-wrap" role="group" aria-label="Usage by run" tabindex="0"><table class="table cost-table"><caption class="visually-hidden">Usage by run</caption>
      <thead><tr><th scope="col">Run</th>${COLUMNS.map(([label]) => html`<th scope="col" class="number" key=${label}>${label}</th>`)}</tr></thead>
      <tbody>
        <tr class="cost-total"><td class="main-cell strong">All runs<span class="quiet small"> ${count(runs.length)}</span></td><${Numbers} usage=${usage} /></tr>
        ${runs.slice(0, shown).map((run) => html`<tr key=${run.id} data-run=${run.id}>
          <td class="main-cell"><span class="row"><a class="strong" href=${address("run", run.id)} data-item>${revealLine(run.agent)}</a><${StateBadge} state=${run.state} /></span>
            <span class="quiet small lines-2">${revealSummary(run.request)}</span><span class="quiet small"><code>${run.id}</code>, <${Age} at=${run.started_at} after=" ago" /></span></td>
          <${Numbers} usage=${run.usage} /></tr>`)}
      </tbody></table></div>
    ${runs.length > shown ? html`<button type="button" class="button" onClick=${() => setShown(shown + PAGE)}>Show more runs</button>` : null}`;
}

export default function Cost() {
  const { data, problem, reload } = useLoaded("/api/costs", { pause: 4000 });
  return html`<div class="screen-head"><h1>Cost</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${!data ? (problem ? null : html`<${Loading} what="the costs" />`) : !data.runs.length
      ? html`<${Empty} title="No costs yet" command=${'podium run answer "What is in this repository?"'}>The tokens and the money of every run appear here.<//>`
      : html`<div class="stack wide"><${CostChart} runs=${data.runs} usage=${data.usage} /><${CostTable} runs=${data.runs} usage=${data.usage} />
        <p class="quiet small">Money covers the calls whose price is known. Rehearsed calls reach no model and cost nothing. A worker's run is counted once, as its own run.</p></div>`}`;
}
