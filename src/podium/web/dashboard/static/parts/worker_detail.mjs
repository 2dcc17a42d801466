// One worker: what it does, what it changed, and how to steer it.

import { html, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { address } from "../router.mjs";
import { count, duration, money, plural } from "../format.mjs";
import { Button } from "./button.mjs";
import { Changed } from "./changed.mjs";
import { ContextFill } from "./context_fill.mjs";
import { Dialog } from "./dialog.mjs";
import { Icon } from "./icons.mjs";
import { ProblemBanner } from "./notices.mjs";
import { reveal, revealLine } from "./reveal.mjs";
import { Age } from "./time.mjs";
import { WorkerBadge, isOver } from "./worker_badge.mjs";
import { WorkerChanges } from "./worker_changes.mjs";

function Message({ worker }) {
  const [text, setText] = useState("");
  const key = useRef(crypto.randomUUID());
  const send = async () => {
    const sent = await post(`/api/runs/${worker.id}/messages`, { text: text.trim() }, { key: key.current });
    key.current = crypto.randomUUID();
    setText("");
    return sent;
  };
  return html`<form class="row message-form" onSubmit=${(event) => event.preventDefault()}>
    <input class="input" aria-label="Message to the worker" placeholder="Message to the worker" value=${text} onInput=${(event) => setText(event.target.value)} />
    <${Button} busy="Sending…" disabled=${!text.trim()} command=${send}>Send<//></form>`;
}

function Cancel({ worker }) {
  const [isAsking, setAsking] = useState(false);
  const stop = async () => {
    const done = await post(`/api/runs/${worker.id}/stop`);
    setAsking(false);
    return done;
  };
  return html`<button type="button" class="button danger" onClick=${() => setAsking(true)}>Cancel the worker…</button>
    ${isAsking ? html`<${Dialog} title="Cancel this worker?" onClose=${() => setAsking(false)}>
      <p>${revealLine(worker.name)} stops, and what it has done so far is kept on its branch.</p>
      <div class="dialog-foot"><button type="button" class="button" data-first onClick=${() => setAsking(false)}>Let it work</button>
        <${Button} look="danger" busy="Stopping…" noEnter command=${stop}>Cancel the worker<//></div><//>` : null}`;
}

const makeCommand = (worker, verb) => () => post(`/api/runs/${worker.id}/${verb}`);

function Steering({ worker }) {
  if (isOver(worker)) return null;
  const isResting = ["paused", "resumable", "waiting_limit"].includes(worker.state);
  return html`<div class="row"><${Message} worker=${worker} />
    ${isResting ? html`<${Button} busy="Resuming…" command=${makeCommand(worker, "resume")}>Resume<//>`
      : html`<${Button} busy="Pausing…" command=${makeCommand(worker, "pause")}>Pause<//>`}
    <${Cancel} worker=${worker} /></div>`;
}

function Facts({ worker }) {
  const facts = [
    ["Agent", html`${revealLine(worker.agent)}${worker.role ? html`<span class="quiet"> ${revealLine(worker.role)}</span>` : null}`],
    ["Run", html`<a href=${address("run", worker.id)}><code>${worker.id}</code></a>`],
    ["Delegated", html`<${Age} at=${worker.hired_at} after=" ago" />${worker.seconds ? html`<span class="quiet">, worked ${duration(worker.seconds)}</span>` : null}`],
    ["Cost", `${money(worker.usd)}, ${count(worker.tokens)} tokens${worker.usage.rehearsed_calls ? `, ${count(worker.usage.rehearsed_calls)} rehearsed calls` : ""}`],
  ];
  if (worker.context?.window) facts.push(["Context", html`<${ContextFill} context=${worker.context} />`]);
  if (worker.branch && !worker.reader) facts.splice(1, 0, ["Branch", html`<code>${revealLine(worker.branch)}</code>`]);
  for (const one of worker.also) facts.push(["Also in", html`<code>${revealLine(one.path)}</code><span class="quiet">, ${plural(one.files.length, "file")} committed</span>`]);
  if (worker.after.length) facts.push(["After", worker.after.map(revealLine).join(", ")]);
  if (worker.parent) facts.push(["Started by", html`<a href=${address("run", worker.parent)}><code>${worker.parent}</code></a>`]);
  if (worker.checks.length) {
    facts.push(["Checks", worker.checks.map((one) => html`<span class=${one.passed ? "tone-well" : "tone-failed"}><${Icon} name=${one.passed ? "check" : "cross"} /> ${revealLine(one.name)} ${one.passed ? "passed" : "failed"} </span>`)]);
  }
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export function WorkerDetail({ worker }) {
  return html`<div class="stack wide">
    <section class="stack"><div class="row"><h2>${revealLine(worker.name)}</h2><${WorkerBadge} state=${worker.state} />
        ${worker.tool ? html`<code>${revealLine(worker.tool)}</code>` : null}${worker.reader ? null : html`<${Changed} added=${worker.added} removed=${worker.removed} />`}</div>
      ${worker.waiting_for.length ? html`<div class="notice"><${Icon} name="hand" /><span class="grow">It waits for your answer.
        <a href=${address("approvals", worker.waiting_for[0])}>Answer it in Approvals</a></span></div>` : null}
      <p class="pre">${reveal(worker.task)}</p>
      <${Facts} worker=${worker} />
      <${Steering} worker=${worker} /></section>
    ${worker.unproved ? html`<div class="notice"><span class="grow">Unproved: ${revealLine(worker.unproved)}</span></div>` : null}
    ${worker.answer ? html`<section class="stack"><h2>Answer</h2><p class="quote">${reveal(worker.answer)}</p></section>`
      : isOver(worker) && worker.why ? html`<${ProblemBanner} problem=${reveal(worker.why)} />` : null}
    <section class="stack"><h2>Changes</h2>
      ${worker.also.length ? html`<div class="notice"><span class="grow">These are the changes in <code>${revealLine(worker.repo)}</code>. To see those in the other repositories,
        use <code>podium workers diff ${revealLine(worker.branch)}</code>; to merge all of them together, <code>podium merge ${revealLine(worker.branch)}</code>.</span></div>` : null}
      <${WorkerChanges} worker=${worker} /></section></div>`;
}
