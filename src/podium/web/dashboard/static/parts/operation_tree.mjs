// The tree of operations, one row each, with the end of the text that the operation is producing.

import { html } from "../vendor.mjs";
import { walk } from "../run_state.mjs";
import { duration, plural } from "../format.mjs";
import { StateBadge } from "./badge.mjs";
import { Elapsed } from "./time.mjs";
import { VirtualList } from "./run_virtual.mjs";

const ROW = 58;
const DEEPEST = 8;

const TRIGGERS = {
  request: "answers the request", handoff: "takes over by handoff", route: "chosen by the router", advice: "advises",
  member: "works as a member", tool: "called as a tool", retry: "tries again", vote: "votes",
};

export const describeTrigger = (trigger) => TRIGGERS[trigger] ?? trigger;

/** Return the state of an operation for its badge. `waiting` are the operations that wait for a person. */
export function nodeState(node, { runState, waiting }) {
  if (node.outcome !== null) return node.outcome;
  if (waiting.has(node.path)) return "waiting";
  return runState === "running" ? "working" : runState === "resumable" ? "interrupted" : runState;
}

/** What an operation does now, in words. A request can still be open when the agent already streams more text. */
export function describeActivity(node, { waiting }) {
  if (waiting.has(node.path) && !node.activity.startsWith("waiting")) return "waiting for a person";
  return node.status || node.activity;
}

/** How long an operation has taken: it counts by itself only while the run is live and working. */
export function NodeTime({ node, moment }) {
  if (node.ended === null && moment.isMoving) return html`<${Elapsed} since=${node.started} />`;
  return html`<span>${duration((node.ended ?? moment.at) - node.started)}</span>`;
}

/** Return the last line that has text, without reading more than the end of a long text. */
function lastLine(text) {
  const lines = text.slice(-400).trimEnd().split("\n");
  return lines[lines.length - 1].slice(-200).trim();
}

/** `moment` says which state of the run is shown: see screens/run.mjs. */
export default function OperationTree({ view, moment, selected, onSelect }) {
  const rows = walk(view, view.first);
  if (!rows.length) return html`<p class="empty">The operations of the run appear here when its first agent starts.</p>`;
  return html`<${VirtualList} count=${rows.length} height=${ROW} className="run-tree" label=${plural(rows.length, "operation")} mostRows=${10}
    showPlace=${rows.findIndex(({ node }) => node.path === selected)}
    renderRow=${(place) => html`<${Row} key=${rows[place].node.path} ...${rows[place]} moment=${moment}
      isSelected=${rows[place].node.path === selected} onSelect=${onSelect} />`} />`;
}

function Row({ node, depth, moment, isSelected, onSelect }) {
  const text = node.ended === null ? describeActivity(node, moment) : node.failure?.message ?? "";
  return html`<div role="listitem" class="run-node"><button type="button" data-item aria-current=${isSelected ? "true" : null}
    data-path=${node.path} onClick=${() => onSelect(node.path)} style=${{ paddingLeft: `${12 + Math.min(depth, DEEPEST) * 18}px` }}>
    <span class="run-node-head"><strong class="clip">${node.agent}</strong>
      <span class="quiet small clip">${describeTrigger(node.trigger)}</span><span class="run-gap"></span>
      <span class="quiet small nowrap"><${NodeTime} node=${node} moment=${moment} /></span>
      <${StateBadge} state=${nodeState(node, moment)} /></span>
    <span class="run-node-text clip"><span class=${node.failure ? "tone-failed" : "quiet"}>${text}</span>
      ${text && node.text ? html`<span class="quiet"> · </span>` : null}${lastLine(node.text)}</span>
  </button></div>`;
}
