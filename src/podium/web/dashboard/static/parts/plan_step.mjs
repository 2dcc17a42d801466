// One step of a plan: its card on the board, and its box in the graph.

import { html } from "../vendor.mjs";
import { count, duration } from "../format.mjs";
import { address } from "../router.mjs";
import { StateBadge } from "./badge.mjs";
import { Icon } from "./icons.mjs";
import { Meter } from "./meter.mjs";
import { reveal, revealLine } from "./reveal.mjs";

/** Return whether a criterion was met, as "met", "not met" or "not reviewed", and the finding. */
function findVerdict(step, criterion) {
  const finding = (step.findings || []).find((one) => one.criterion === criterion.text);
  if (!finding) return ["not reviewed", null];
  return [finding.is_met ? "met" : "not met", finding];
}

const VERDICT_ICONS = { met: "check", "not met": "cross", "not reviewed": "dot" };

function Criterion({ step, criterion }) {
  const [verdict, finding] = findVerdict(step, criterion);
  const reason = finding && finding.reason ? `${finding.by ? `${finding.by}: ` : ""}${finding.reason}` : "";
  return html`<li class="criterion" data-verdict=${verdict}><${Icon} name=${VERDICT_ICONS[verdict]} />
    <span><span class="visually-hidden">${verdict}: </span>${reveal(criterion.text)}
      ${criterion.command ? html`<code class="criterion-command">${revealLine(criterion.command)}</code>` : null}
      ${reason ? html`<span class="criterion-reason pre"> ${reveal(reason)}</span>` : null}</span></li>`;
}

/** Return the limits of a step: what is limited, the part of it that is used, and that in words. */
function listLimits({ seconds, tokens, files }, used) {
  const limits = [];
  if (seconds != null) limits.push(["Time", used.seconds / seconds, `${duration(used.seconds)} of ${duration(seconds)}`]);
  if (tokens != null) limits.push(["Tokens", used.tokens / tokens, `${count(used.tokens)} of ${count(tokens)}`]);
  if (files != null) limits.push(["Files", used.files / files, `${count(used.files)} of ${count(files)} changed`]);
  return limits;
}

/** How much of its budget a step has used: a bar with words for each limit. */
function StepBudget({ policy, used }) {
  const limits = listLimits(policy, used);
  if (!limits.length) return null;
  return html`<dl class="facts small budget">${limits.map(([name, part, words]) => html`<dt key=${name}>${name}</dt>
    <dd><${Meter} part=${part} label=${`${name} of the step's budget`} words=${words} />${words}${part >= 1 ? " (used up)" : ""}</dd>`)}</dl>`;
}

function Policy({ policy }) {
  const facts = [];
  if (policy.tools) facts.push(["Tools", policy.tools.length ? policy.tools.join(", ") : "none"]);
  if (policy.approval === "ask") facts.push(["Approval", "asks before every action"]);
  if (policy.allow && policy.allow.length) facts.push(["Allows", policy.allow.join(", ")]);
  if (!facts.length) return null;
  return html`<dl class="facts small">${facts.map(([name, text]) => html`<dt key=${name}>${name}</dt><dd>${revealLine(text)}</dd>`)}</dl>`;
}

const reasonTone = { failed: "failed", blocked: "needs", ready: "needs", planned: "needs", running: "needs" };

/** The card of a step on the board. `team` names the team if the run has several. */
export function StepCard({ step, decisions }) {
  const { state } = step;
  return html`<article class="card step" data-state=${state} aria-label=${`Step ${revealLine(step.id)}`}>
    <div class="row"><code class="strong">${revealLine(step.id)}</code>
      ${state === "failed" || state === "reopened" ? html`<${StateBadge} state=${state} />` : null}
      <span class="gap"></span><span class="quiet small">${revealLine(step.owner)}</span></div>
    <p class="pre step-text">${reveal(step.description)}</p>
    ${step.reason ? html`<p class=${`small pre tone-${reasonTone[state] || "quiet"}`}>${reveal(step.reason)}</p>` : null}
    <ul class="stack criteria">${step.acceptance.map((one, number) => html`<${Criterion} key=${number} step=${step} criterion=${one} />`)}</ul>
    <${Policy} policy=${step.policy || {}} />
    <${StepBudget} policy=${step.policy || {}} used=${step.used} />
    <div class="foot">
      ${step.depends_on && step.depends_on.length ? html`<span>after ${step.depends_on.map(revealLine).join(", ")}</span>` : null}
      ${step.attempt > 1 ? html`<span>attempt ${step.attempt}</span>` : null}
      ${step.branch ? html`<span><${Icon} name="branch" /> ${revealLine(step.branch)}</span>` : null}
      ${decisions.filter((one) => one.step === step.id).map((one) =>
        html`<a key=${one.id} href=${address("decisions", `${one.run}/${one.id}`)}>decision</a>`)}
    </div>
  </article>`;
}

/** The box of a step in the graph. */
export function StepBox({ step }) {
  return html`<div class="graph-box" data-state=${step.state}>
    <div class="row"><code class="strong clip">${revealLine(step.id)}</code><span class="gap"></span><${StateBadge} state=${step.state} /></div>
    <p class="clip small">${revealLine(step.description)}</p>
    <p class="clip small quiet">${revealLine(step.owner)}</p></div>`;
}
