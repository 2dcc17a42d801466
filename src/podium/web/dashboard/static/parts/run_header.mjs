// The head of the run screen: what was asked, how it goes, what it has used, and the commands.

import { html, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { count, duration, iso, money, plural } from "../format.mjs";
import { address, go } from "../router.mjs";
import { totalUsage } from "../run_state.mjs";
import { StateBadge } from "./badge.mjs";
import { Button } from "./button.mjs";
import { Icon } from "./icons.mjs";
import { Meter } from "./meter.mjs";
import { BudgetDialog, ForkDialog, RetryDialog, StopDialog } from "./run_dialogs.mjs";
import { findRunState } from "./run_log.mjs";
import { Age, Countdown, Elapsed } from "./time.mjs";

export default function RunHeader({ log, view, moment, at, onMessage }) {
  const waiting = moment.requests.length;
  const { started } = view;
  return html`<header class="run-head">
    <div class="run-title"><h1 class="lines-2" title=${started.request.text}>${started.request.text}</h1><${StateBadge} state=${moment.runState} /></div>
    <p class="run-line quiet small"><span>run <code>${view.run}</code></span><span>to ${started.agent}</span>
      <span>started <${Age} at=${view.started_at} after=" ago" /></span>
      ${started.repo ? html`<span class="clip" title=${started.repo}>in <code>${started.repo}</code></span>` : null}
      ${started.forked_from ? html`<span>forked from <a href=${forkedAddress(started.forked_from)}>${started.forked_from}</a></span>` : null}</p>
    <div class="run-figures">
      <${Time} view=${view} isMoving=${moment.isMoving} /><${Spend} view=${view} />
      <${Figure} name="Operations" value=${count(Object.keys(view.nodes).length)} /><${Figure} name="Entries" value=${count(view.seq)} />
      ${waiting > 0 && html`<a class="badge run-waiting" data-tone="needs" href=${address("approvals")}>
        <${Icon} name="hand" />${plural(waiting, "request")} ${waiting === 1 ? "needs" : "need"} you</a>`}
    </div>
    <${Commands} log=${log} view=${view} at=${at} state=${findRunState(log)} onMessage=${onMessage} />
  </header>`;
}

function forkedAddress(source) {
  const [run, at] = source.split("@");
  return address("run", run, { at });
}

function Figure({ name, value, children }) {
  return html`<div class="run-figure"><span class="quiet small">${name}</span><strong>${value}</strong>${children}</div>`;
}

function Time({ view, isMoving }) {
  if (view.paused && view.wakes_at && !view.ended) return html`<${Figure} name="Limit" value=${html`<${Countdown} until=${view.wakes_at} />`} />`;
  const value = isMoving ? html`<${Elapsed} since=${view.started_at} />` : duration(view.at - view.started_at);
  const limit = view.budget.current?.seconds;
  return html`<${Figure} name="Elapsed" value=${html`<span title=${iso(view.started_at)}>${value}${limit ? ` of ${duration(limit)}` : ""}</span>`} />`;
}

function Spend({ view }) {
  const usage = totalUsage(view, view.first);
  const tokens = usage.input_tokens + usage.output_tokens;
  const rehearsed = usage.rehearsed_input_tokens + usage.rehearsed_output_tokens;
  const { usd, tokens: most } = view.budget.current ?? {};
  return html`<${Figure} name=${html`<a href=${address("cost", view.run)}>Spend</a>`} value=${`${money(usage.usd)}${usd ? ` of ${money(usd)}` : ""}`}>${usd ? html`<${Meter} part=${usage.usd / usd} label="part of the budget" />` : null}<//>
    <${Figure} name="Tokens" value=${`${count(tokens)}${most ? ` of ${count(most)}` : ""}${rehearsed ? ` + ${count(rehearsed)} rehearsed` : ""}`}>
      ${most ? html`<${Meter} part=${tokens / most} label="part of the budget" />` : null}<//>`;
}

function Commands({ log, view, at, state, onMessage }) {
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const isOver = Boolean(log.view.ended);
  const send = (word, body) => post(`/api/runs/${log.id}/${word}`, body);
  const leave = async (word, body) => {
    const made = await send(word, body);
    go("run", made.id);
    return [`run ${made.id} started`, ...(made.notices ?? [])].join("; ");
  };
  return html`<div class="run-commands">
    ${!isOver && html`<${Button} command=${async () => onMessage()}>Message<//>`}
    ${state === "running" && html`<${Button} command=${() => send("pause")} busy="Pausing…"><${Icon} name="pause" />Pause<//>`}
    ${["paused", "resumable", "limit"].includes(state) && html`<${Button} look="primary" command=${() => send("resume")} busy="Resuming…"><${Icon} name="resume" />Resume<//>`}
    ${!isOver && html`<${Button} command=${async () => setDialog("budget")}>Budget<//>`}
    <${Button} command=${async () => setDialog("fork")}><${Icon} name="branch" />Fork here<//>
    ${isOver && html`<${Button} command=${async () => setDialog("retry")}><${Icon} name="resume" />Retry<//>`}
    ${!isOver && html`<${Button} look="danger" command=${async () => setDialog("stop")}><${Icon} name="stop" />Stop<//>`}
    ${dialog === "stop" && html`<${StopDialog} onClose=${close} command=${() => send("stop")} />`}
    ${dialog === "budget" && html`<${BudgetDialog} onClose=${close} budget=${view.budget.current} command=${(limits) => send("budget", limits)} />`}
    ${dialog === "fork" && html`<${ForkDialog} onClose=${close} at=${at} command=${(body) => leave("fork", body)} />`}
    ${dialog === "retry" && html`<${RetryDialog} onClose=${close} command=${(body) => leave("retry", body)} />`}
  </div>`;
}
