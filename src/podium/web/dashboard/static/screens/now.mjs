// The first screen: what needs you, what works, and what has finished.

import { html } from "../vendor.mjs";
import { post } from "../api.mjs";
import { address } from "../router.mjs";
import { overview, requests } from "../state.mjs";
import { count, duration, money, plural } from "../format.mjs";
import { KindBadge, StateBadge, listedState } from "../parts/badge.mjs";
import { Button } from "../parts/button.mjs";
import { ChecksPassed } from "../parts/checks_passed.mjs";
import { ContextFill } from "../parts/context_fill.mjs";
import { Icon } from "../parts/icons.mjs";
import { Empty, Loading } from "../parts/notices.mjs";
import { openDialog } from "../parts/open_dialog.mjs";
import { plain } from "../parts/plain_text.mjs";
import { Age, Countdown, Elapsed } from "../parts/time.mjs";

export default function Now() {
  const found = overview.value;
  return html`<div class="screen-head"><h1>Now</h1><span class="gap"></span>
      <button type="button" class="button primary" onClick=${() => { openDialog.value = "start"; }}>
        <${Icon} name="plus" />Start a run</button></div>
    ${found && requests.value ? html`<div class="stack wide">
      <${NeedsYou} waiting=${requests.value} />
      <${Working} active=${found.active} />
      <${Finished} ended=${found.ended} />
    </div>` : html`<${Loading} what="the runs" />`}`;
}

function Band({ title, count, children }) {
  return html`<section class="band" aria-label=${title}>
    <h2>${title}${count ? html`<span class="quiet small">${count}</span>` : null}</h2>${children}</section>`;
}

function NeedsYou({ waiting }) {
  return html`<${Band} title="Needs you" count=${waiting.length}>
    ${waiting.length ? html`<div class="cards">${waiting.map((one) => html`<${WaitingCard} key=${one.id} one=${one} />`)}</div>`
      : html`<${Empty} title="Nothing needs you.">Requests for permission, questions, and plans and decisions to approve
          appear here, the oldest first.<//>`}
  <//>`;
}

function WaitingCard({ one }) {
  return html`<a class="card" data-tone="needs" data-item href=${address("approvals", one.id)}>
    <span class="row"><${KindBadge} kind=${one.kind} /><span class="gap"></span>
      <span class="small quiet nowrap"><${Age} at=${one.asked_at} before="waiting " /></span></span>
    <span class=${`lines-2 ${one.kind === "permission" ? "mono" : ""}`}>${one.text}</span>
    <span class="foot"><span>${one.agent}</span>${one.worker ? html`<span><${Icon} name="branch" /> ${one.worker}</span>` : null}</span>
  </a>`;
}

function Working({ active }) {
  const isAtWork = (one) => one.state === "running";
  const sorted = [...active.filter(isAtWork), ...active.filter((one) => !isAtWork(one))];
  return html`<${Band} title="Working" count=${active.length}>
    ${sorted.length ? html`<div class="cards">${sorted.map((one) => html`<${RunCard} key=${one.id} run=${one} />`)}</div>`
      : html`<${Empty} title="No run is active." command=${'podium run plan-build-review "add a healthcheck"'}>
          Active runs appear here with their agents, steps and cost.<//>`}
  <//>`;
}

function RunCard({ run }) {
  const state = listedState(run, requests.value.some((one) => one.run === run.id));
  return html`<article class="card">
    <div class="row"><${StateBadge} state=${state} /><span class="gap"></span><span class="small quiet">
      ${run.wakes_at ? html`<${Countdown} until=${run.wakes_at} />` : run.state === "running" ? html`<${Elapsed} since=${run.started_at} />` : duration(run.seconds)}</span></div>
    <h3><a href=${address("run", run.id)} data-item>${plain(run.worker || run.agent)}</a></h3>
    <p class="lines-2">${plain(run.request)}</p>
    <${Activity} agents=${run.agents} />
    <${Sparkline} counts=${run.activity} />
    ${run.steps ? html`<${Steps} run=${run.id} steps=${run.steps} />` : null}
    <div class="foot">
      <span>${money(run.usage.usd)}</span>${run.usage.input_tokens ? html`<span>${count(run.usage.input_tokens + run.usage.output_tokens)} tokens</span>` : null}
      <${ContextFill} context=${run.context} />
      ${run.model ? html`<span>${plain(run.model)}</span>` : null}
      ${run.worker ? html`<span>${plain(run.agent)}</span>` : null}
      ${run.added || run.removed ? html`<span class="nowrap">+${count(run.added)} −${count(run.removed)}</span>` : null}
      <${ChecksPassed} checks=${run.checks} />
      ${run.parent ? html`<a href=${address("run", run.parent)}>from run ${run.parent}</a>` : null}
      <span class="foot-end">${run.state === "running" ? html`<a class="button small" href=${address("run", run.id, { tab: "chat" })}>Message</a>` : null}
        <${Steering} run=${run} /></span>
    </div>
  </article>`;
}

function Activity({ agents }) {
  if (!agents.length) return null;
  return html`<ul class="activity">${agents.map((one) => {
    const [name, ...rest] = plain(one).split(": ");
    return html`<li class="clip"><span class="strong">${name}</span> <span class="quiet">${rest.join(": ")}</span></li>`;
  })}</ul>`;
}

/** What was recorded in the last three minutes, as a row of bars. */
function Sparkline({ counts }) {
  if (!counts.length) return null;
  const most = Math.max(1, ...counts);
  const recent = counts.reduce((sum, one) => sum + one, 0);
  return html`<svg class="sparkline" viewBox=${`0 0 ${counts.length * 6} 16`} role="img" aria-label=${`Entries in the last three minutes: ${count(recent)}`}>
    ${counts.map((one, place) => {
      const height = one ? Math.max(2, Math.round((16 * one) / most)) : 1;
      return html`<rect key=${place} x=${place * 6} y=${16 - height} width="4" height=${height} rx="1" />`;
    })}</svg>`;
}

function Steps({ run, steps }) {
  const share = steps.total ? Math.round((100 * steps.done) / steps.total) : 0;
  return html`<div><div class="meter"><span style=${{ width: `${share}%` }}></span></div>
    <p class="small"><a href=${address("plans", run)}>${steps.done} of ${plural(steps.total, "step")} done</a></p></div>`;
}

function Steering({ run }) {
  const send = (verb) => () => post(`/api/runs/${encodeURIComponent(run.id)}/${verb}`);
  if (run.state === "running") return html`<${Button} look="small" busy="Pausing…" command=${send("pause")}>Pause<//>`;
  if (run.state === "queued") return null;
  return html`<${Button} look="small" busy="Resuming…" command=${send("resume")}>Resume<//>`;
}

function Finished({ ended }) {
  return html`<${Band} title="Finished">
    ${ended.length ? html`<ul class="list">${ended.map((one) => html`<${EndedRow} key=${one.id} run=${one} />`)}</ul>
      <p class="small"><a href=${address("runs")}>All runs</a></p>`
      : html`<${Empty} title="No run has finished yet.">The latest results appear here.<//>`}
  <//>`;
}

function EndedRow({ run }) {
  const ended = run.started_at + run.seconds;
  return html`<li><a class="item ended" data-item href=${address("run", run.id)}>
    <${StateBadge} state=${run.state} />
    <span class="strong ended-name">${plain(run.worker || run.agent)}</span>
    <span class="ended-text"><span class="clip quiet">${plain(run.request)}</span>
      ${run.result ? html`<span class="clip">${plain(run.result)}</span>` : null}</span>
    <span class="small quiet nowrap ended-facts">${run.added || run.removed ? html`+${count(run.added)} −${count(run.removed)} · ` : null}${run.checks.length ? html`<${ChecksPassed} checks=${run.checks} /> · ` : null}${money(run.usage.usd)} · ${duration(run.seconds)} · <${Age} at=${ended} after=" ago" /></span>
  </a></li>`;
}
