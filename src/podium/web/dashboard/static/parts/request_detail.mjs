// One request in full. Everything that an agent wrote is shown as text, with hidden characters escaped by the server.

import { html, useEffect, useRef } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { Age } from "./time.mjs";
import { useGuard, useShownToEnd } from "./answering.mjs";
import { KindBadge } from "./badge.mjs";
import { Icon } from "./icons.mjs";
import { PermissionButtons } from "./permission_buttons.mjs";
import { QuestionButtons } from "./question_buttons.mjs";

/** Everything that the answer depends on. If any of it changes, the person has to see it again. */
function contentOf(request) {
  const { lines, question, choices, shown, always, denied, action_id, digest } = request;
  return JSON.stringify([request.id, lines, question, choices, shown, always, denied, action_id, digest]);
}

/** Move the focus to the request that is shown. */
export function focusHeading() {
  document.querySelector(".request-head h2")?.focus();
}

export function RequestDetail({ row: { request, closing }, open, hasRoute, onAnswered, onDismiss }) {
  const content = contentOf(request);
  const { end, isShown } = useShownToEnd(content);
  const isGuarded = useGuard(content);
  const text = useRef(null);
  const heading = useRef(null);
  useEffect(() => { text.current.scrollTop = 0; }, [content]);
  // Somebody who goes through the list stays in it.
  useEffect(() => { if (hasRoute && !document.activeElement?.closest(".approvals-list")) heading.current.focus(); }, [hasRoute, route.value.id]);
  const Buttons = request.kind === "permission" ? PermissionButtons : QuestionButtons;
  return html`<article class="request">
    <header class="request-head">
      <a class="narrow-only back" href=${address("approvals")}><${Icon} name="back" />All</a>
      <${KindBadge} kind=${request.kind} />
      <h2 tabindex="-1" ref=${heading}>${request.kind === "permission" ? `${request.agent} wants to use ${request.tool}` : `${request.agent} asks`}</h2>
      <span class="small quiet nowrap"><${Age} at=${request.asked_at} before=${closing ? "asked " : "waiting "} after=${closing ? " ago" : ""} /></span>
    </header>
    <div class="request-text" ref=${text} tabindex="0" role="region" aria-label="The whole request">
      ${request.kind === "permission" ? html`<${Permission} request=${request} />` : html`<${Question} request=${request} />`}
      <div class="end" ref=${end}></div>
    </div>
    <footer class="request-foot">
      ${closing
        ? html`<${Closed} closing=${closing} onDismiss=${onDismiss} />`
        : html`<p class="hint small quiet" role="status">${isShown ? "" : "Scroll to the end to answer."}</p>
          <${Buttons} request=${request} open=${open} isReady=${isShown && isGuarded} onAnswered=${onAnswered} />`}
    </footer>
  </article>`;
}

function Closed({ closing, onDismiss }) {
  return html`<div class="notice" data-tone="quiet" role="status"><${Icon} name="check" />
    <span class="grow pre">${closing.text}, <${Age} at=${closing.at} after=" ago" /></span>
    <button type="button" class="button small" onClick=${onDismiss}>Dismiss</button></div>`;
}

const isDiffLine = (line) => /^ {2}[+-]/.test(line);

function Permission({ request }) {
  const tone = (line) => (request.shown && isDiffLine(line) ? (line[2] === "+" ? "added" : "removed") : "");
  return html`<section><h3>What exactly</h3>
      <div class="block" data-part="lines">${request.lines.map((line, at) => html`<div key=${at} class=${tone(line)}>${line || " "}</div>`)}</div></section>
    ${request.risks.length ? html`<section><h3>Risks</h3><ul class="stack tight">${request.risks.map((risk) => html`<li key=${risk.kind} class="tone-failed">
      <${Icon} name="hand" /> ${risk.text}</li>`)}</ul></section>` : null}
    <section><h3>Who, where and why</h3><dl class="facts"><${Who} request=${request} />
      ${request.agent_reason ? html`<dt>Agent's words</dt><dd class="quote" data-part="agent-reason" title="Nobody has checked this">${request.agent_reason}</dd>` : null}
      <dt>Directory</dt><dd class="mono">${request.directory || "none"}</dd>
      <dt>Sandbox</dt><dd>${request.sandbox}</dd>
      <dt>Rule</dt><dd>${request.reason}</dd>
      ${request.denied.length ? html`<dt>Denied before</dt><dd class="pre tone-needs">${request.denied.join("\n")}</dd>` : null}</dl></section>`;
}

function Question({ request }) {
  return html`<section><p class="question pre" data-part="question">${request.question}</p></section>
    ${request.shown ? html`<section><h3>In full</h3><div class="block" data-part="shown">${request.shown}</div></section>` : null}
    <section><h3>Who</h3><dl class="facts"><${Who} request=${request} /></dl></section>`;
}

function Who({ request }) {
  return html`<dt>Agent</dt><dd>${request.agent}${request.operation !== request.agent ? html` <span class="quiet small mono">${request.operation}</span>` : null}</dd>
    ${request.worker ? html`<dt>Worker</dt><dd class="mono">${request.worker}</dd>` : null}
    ${request.step ? html`<dt>Plan step</dt><dd><a class="mono" href=${address("plans", request.plan_run)}>${request.step}</a></dd>` : null}
    <dt>Run</dt><dd><a class="mono" href=${address("run", request.run)}>${request.run}</a></dd>
    <dt>Goal</dt><dd class="pre">${request.goal}</dd>`;
}
