// One operation: what it was asked, the text it produces, and its tool calls, one line each.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor.mjs";
import { countUntil, describeFailure, find, listCalls, totalUsage } from "../run_state.mjs";
import { count, duration, money, plural } from "../format.mjs";
import { address } from "../router.mjs";
import { StateBadge } from "./badge.mjs";
import { NodeTime, describeActivity, describeTrigger, nodeState } from "./operation_tree.mjs";

/** How many characters of a text and how many tool calls are in the page unless somebody asks for more. */
const SHOWN_TEXT = 6000;
const SHOWN_TOOLS = 50;

export default function Operation({ log, view, moment, path, at, onOpen }) {
  const node = find(view.nodes, path);
  if (!node) return html`<p class="empty">Choose an operation to see its text and its tool calls.</p>`;
  return html`<article class="run-operation" aria-label=${`Operation of ${node.agent}`}>
    <header><h2>${node.agent}</h2><${StateBadge} state=${nodeState(node, moment)} />
      <span class="quiet">${describeTrigger(node.trigger)}${node.team?.mode ? `, leads a team (${node.team.mode})` : ""}</span></header>
    <${Facts} view=${view} moment=${moment} node=${node} />
    ${node.failure && html`<p class="problem">${describeFailure(node.failure)}</p>`}
    ${node.unproved && html`<p class="notice">Unproved: ${node.unproved}</p>`}
    <details class="run-request"><summary>Request</summary><div class="pre">${node.request.text}</div></details>
    <h3>${node.ended === null ? "Text so far" : "Answer"}</h3>
    ${node.text ? html`<${LongText} key=${path} text=${node.text} isLive=${node.ended === null} />`
      : html`<p class="quiet">${node.ended === null ? "No text yet." : "The operation ended without text."}</p>`}
    <${Workers} workers=${log.activity.workers.filter((one) => one.operation === path && one.seq <= (at ?? Infinity))} />
    <${Tools} key=${`${path} tools`} log=${log} calls=${listCalls(log.activity, path)} until=${at ?? Infinity} onOpen=${onOpen} />
  </article>`;
}

function Workers({ workers }) {
  if (!workers.length) return null;
  return html`<h3>${plural(workers.length, "worker")}</h3>
    <ul class="stack">${workers.map((one) => html`<li key=${one.run}><a href=${address("run", one.run)}>${one.branch || `run ${one.run}`}</a></li>`)}</ul>`;
}

function Facts({ view, moment, node }) {
  const usage = totalUsage(view, node.path);
  const tokens = usage.input_tokens + usage.output_tokens;
  const rehearsed = usage.rehearsed_input_tokens + usage.rehearsed_output_tokens;
  return html`<dl class="run-facts">
    ${node.ended === null && html`<div><dt>Now</dt><dd>${describeActivity(node, moment)}</dd></div>`}
    <div><dt>Time</dt><dd><${NodeTime} node=${node} moment=${moment} /></dd></div>
    <div><dt>Engine</dt><dd>${node.engine || "–"}</dd></div>
    <div><dt>Tokens</dt><dd>${count(tokens)}${rehearsed ? ` (${count(rehearsed)} rehearsed)` : ""}</dd></div>
    <div><dt>Cost</dt><dd>${money(usage.usd)}${usage.unpriced ? ` + ${plural(usage.unpriced, "call")} without a price` : ""}</dd></div>
  </dl>`;
}

/** A text, of which only the end is in the page if it is long. While it grows, it stays scrolled to its end. */
export function LongText({ text, isLive = false }) {
  const [isWhole, setWhole] = useState(false);
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const isCut = !isWhole && text.length > SHOWN_TEXT;
  useLayoutEffect(() => {
    if (isLive && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const note = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    isAtEnd.current = scrollTop + clientHeight >= scrollHeight - 24;
  };
  return html`${isCut && html`<button type="button" class="button small" onClick=${() => setWhole(true)}>Show all ${count(text.length)} characters</button>`}
    <div class=${`run-text pre ${isLive ? "live" : ""}`} ref=${box} onScroll=${note} tabIndex="0">${isCut ? `…${text.slice(-SHOWN_TEXT)}` : text}</div>`;
}

function Tools({ log, calls, until, onOpen }) {
  const total = countUntil(calls, until);
  const [shift, setShift] = useState(0);
  if (!total) return null;
  const end = Math.max(Math.min(SHOWN_TOOLS, total), total - shift);
  const start = Math.max(0, end - SHOWN_TOOLS);
  return html`<h3>${plural(total, "tool call")}</h3>
    ${start > 0 && html`<button type="button" class="button small" onClick=${() => setShift(total - end + SHOWN_TOOLS)}>Show ${Math.min(SHOWN_TOOLS, start)} earlier</button>`}
    <ul class="run-tools">${calls.slice(start, end).map((call) => html`<${ToolLine} key=${call.seq} log=${log} call=${call} until=${until} onOpen=${onOpen} />`)}</ul>
    ${end < total && html`<button type="button" class="button small" onClick=${() => setShift(Math.max(0, total - end - SHOWN_TOOLS))}>Show later</button>`}`;
}

function ToolLine({ log, call, until, onOpen }) {
  const [isOpen, setOpen] = useState(false);
  const isDone = call.end_seq !== null && call.end_seq <= until;
  const state = !isDone ? "working" : call.is_error ? "failed" : "done";
  return html`<li class="run-tool"><details onToggle=${(event) => setOpen(event.target.open)}>
    <summary><code class="run-tool-name">${call.tool}</code><span class="clip run-tool-brief">${call.brief}</span>
      <span class="quiet small nowrap">${isDone ? duration(call.end_at - call.at) : ""}</span><${StateBadge} state=${state} /></summary>
    ${isOpen && html`<${ToolDetail} log=${log} call=${call} isDone=${isDone} onOpen=${onOpen} />`}
  </details></li>`;
}

function ToolDetail({ log, call, isDone, onOpen }) {
  const called = useEntry(log, call.seq);
  const answered = useEntry(log, isDone ? call.end_seq : 0);
  return html`<div class="run-tool-detail">
    <h4>Arguments</h4><${Code} text=${called ? JSON.stringify(called.event.action.arguments ?? {}, null, 2) : "Loading…"} />
    <h4>Result</h4><${Code} text=${!isDone ? "The tool has not answered yet." : answered ? answered.event.text : "Loading…"} />
    <button type="button" class="button small" onClick=${() => onOpen(call.seq)}>Open entry ${call.seq}</button>
  </div>`;
}

/** A block of text as it is; the rest of a long one is shown on request. */
export function Code({ text }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > SHOWN_TEXT;
  return html`<div class="block run-code" tabIndex="0">${isCut ? text.slice(0, SHOWN_TEXT) : text}</div>
    ${isCut && html`<button type="button" class="button small" onClick=${() => setWhole(true)}>Show all ${count(text.length)} characters</button>`}`;
}

/** Return an entry, or undefined until it is loaded. */
export function useEntry(log, seq) {
  const [entry, setEntry] = useState(undefined);
  const known = seq ? log.peekEntry(seq) : undefined;
  useEffect(() => {
    let isWanted = true;
    setEntry(undefined);
    if (seq && !known) log.readEntry(seq).then((found) => isWanted && setEntry(found), () => {});
    return () => { isWanted = false; };
  }, [seq]);
  return known ?? (entry?.seq === seq ? entry : undefined);
}
