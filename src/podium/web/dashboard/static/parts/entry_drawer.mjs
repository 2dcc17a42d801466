// One entry of a timeline in a drawer: a summary, the diff, the output, and the entry as it is stored.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { KINDS } from "../event_kinds.mjs";
import { clock, iso } from "../format.mjs";
import { address } from "../router.mjs";
import { find, findCall } from "../run_state.mjs";
import { say } from "../state.mjs";
import { Button } from "./button.mjs";
import { Icon } from "./icons.mjs";
import { sentenceOf, subjectOf } from "./run_entries.mjs";
import { Code, useEntry } from "./run_operation.mjs";
import { useKeys } from "./keys.mjs";
import { useLoaded } from "./loaded.mjs";

const TABS = ["Summary", "Diff", "Output", "JSON"];

export default function EntryDrawer({ log, seq, at, onOpen, onClose, onReplay }) {
  const [tab, setTab] = useState("Summary");
  const entry = useEntry(log, seq);
  const head = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    head.current.focus({ preventScroll: true });
    return () => before?.isConnected && before.focus({ preventScroll: true });
  }, []);
  useKeys({ Escape: onClose });
  const last = at ?? log.last;
  return html`<aside class="drawer run-drawer" aria-label=${`Entry ${seq}`} onKeyDown=${(event) => event.key === "Escape" && onClose()}>
    <div class="drawer-head"><h2 ref=${head} tabIndex="-1">Entry ${seq}</h2><span class="row">
      <button type="button" class="button small" aria-label="Previous entry" disabled=${seq <= 1} onClick=${() => onOpen(seq - 1)}>‹</button>
      <button type="button" class="button small" aria-label="Next entry" disabled=${seq >= last} onClick=${() => onOpen(seq + 1)}>›</button>
      <button type="button" class="close" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></span></div>
    <div class="tabs" role="tablist">${TABS.map((name) => html`<button key=${name} type="button" role="tab" class="tab"
      aria-selected=${name === tab} onClick=${() => setTab(name)}>${name}</button>`)}</div>
    <div role="tabpanel" class="stack">${entry ? html`<${Panel} tab=${tab} log=${log} entry=${entry} onOpen=${onOpen} />`
      : html`<p class="quiet">Loading the entry…</p>`}</div>
    <div class="row run-drawer-foot"><${Button} command=${() => copyLink(log.id, seq)}>Copy link<//>
      <button type="button" class="button" onClick=${() => onReplay(seq)}>Show the run at this entry</button></div>
  </aside>`;
}

async function copyLink(run, seq) {
  const link = `${location.origin}${location.pathname}${address("run", run, { at: seq, entry: seq })}`;
  await navigator.clipboard.writeText(link).catch(() => { throw new Error(`the browser does not allow copying; the link is ${link}`); });
  return "link copied";
}

function Panel({ tab, log, entry, onOpen }) {
  if (tab === "Diff") return html`<${DiffPanel} log=${log} entry=${entry} />`;
  if (tab === "Output") return html`<${OutputPanel} log=${log} entry=${entry} />`;
  if (tab === "JSON") return html`<${Code} text=${formatStored(entry)} />`;
  return html`<${Summary} log=${log} entry=${entry} onOpen=${onOpen} />`;
}

/** Return an entry as it is stored, without the sentence that the server adds. */
function formatStored({ text, ...stored }) {
  return JSON.stringify(stored, null, 2);
}

/** The fields of an event that the summary lists one by one: what is short enough to read. */
const isShort = ([name, value]) => name !== "type" && (typeof value !== "object" ? String(value).length <= 2000 : JSON.stringify(value).length <= 300);

function Summary({ log, entry, onOpen }) {
  const { event } = entry;
  const call = findCall(log.activity, entry);
  const other = call && (call.seq === entry.seq ? call.end_seq : call.seq);
  return html`<p class="pre">${subjectOf(entry)}: ${sentenceOf(entry)}</p>
    <p class="quiet small">${KINDS[event.type] ?? ""}</p>
    <dl class="facts">
      <dt>Kind</dt><dd><code>${event.type}</code></dd>
      <dt>Time</dt><dd><time dateTime=${iso(entry.at)}>${clock(entry.at)}</time> <span class="quiet">${iso(entry.at)}</span></dd>
      <dt>Operation</dt><dd>${entry.operation ? html`<code>${entry.operation}</code>` : "the run itself"}</dd>
      ${Object.entries(event).filter(isShort).map(([name, value]) => html`<dt key=${name}>${name.replaceAll("_", " ")}</dt>
        <dd class="pre"><${Value} name=${name} value=${value} event=${event} /></dd>`)}
      <${Hashes} run=${log.id} seq=${entry.seq} />
    </dl>
    ${other && html`<button type="button" class="button small" onClick=${() => onOpen(other)}>
      ${other > entry.seq ? "Go to the result" : "Go to the call"}</button>`}`;
}

/** The hashes that connect an entry to all entries before it. They are loaded only here, so that long runs open quickly. */
function Hashes({ run, seq }) {
  const { data, problem } = useLoaded(`/api/runs/${encodeURIComponent(run)}/entries/${seq}`, { isFixed: true });
  const show = (hash) => (hash ? html`<code>${hash}</code>` : html`<span class="quiet">${problem ? problem.message : "Loading the hash…"}</span>`);
  return html`<dt>Hash</dt><dd class="hash">${show(data?.hash)}</dd>
    <dt>Previous hash</dt><dd class="hash">${show(data?.previous_hash)}</dd>`;
}

function Value({ name, value, event }) {
  if (name === "run" && event.type.startsWith("worker_")) return html`<a href=${address("run", value)}>${value}</a>`;
  if (typeof value === "string") return value;
  return html`<code>${JSON.stringify(value)}</code>`;
}

/** A diff is shown in the request for permission; the call and its result point to that request by their scope. */
function DiffPanel({ log, entry }) {
  const asked = useEntry(log, entry.event.shown !== undefined ? 0 : find(log.activity.permissions, entry.scope) ?? 0);
  const text = entry.event.shown ?? asked?.event.shown ?? "";
  if (!text) return html`<p class="quiet">This entry has no diff. Entries about changes to files that needed permission have one.</p>`;
  return html`<${Diff} text=${text} />`;
}

const MOST_LINES = 2000;

/** A unified diff, line by line. */
export function Diff({ text }) {
  const lines = text.split("\n");
  const kind = (line) => (/^(\+\+\+|---)/.test(line) ? "file" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : line.startsWith("@@") ? "quiet" : "");
  return html`<div class="block run-diff" tabIndex="0">${lines.slice(0, MOST_LINES).map((line, place) => html`<span key=${place} class=${kind(line)}>${line}</span>`)}</div>
    ${lines.length > MOST_LINES && html`<p class="quiet">${lines.length - MOST_LINES} more lines are in the JSON.</p>`}`;
}

const OUTPUT_FIELDS = ["text", "message", "output", "summary", "rationale", "evidence", "prompt"];

function OutputPanel({ log, entry }) {
  const call = findCall(log.activity, entry);
  const answered = useEntry(log, call?.end_seq ?? 0);
  const { event } = entry;
  const field = OUTPUT_FIELDS.find((name) => typeof event[name] === "string" && event[name]);
  const text = answered?.event.text ?? (field ? event[field] : "");
  if (!text) return html`<p class="quiet">This entry has no output.</p>`;
  return html`<${Code} text=${text} />`;
}
