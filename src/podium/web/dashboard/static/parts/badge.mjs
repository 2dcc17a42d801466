// A state as a word, a shape and a colour. The word alone is enough to understand it.

import { html } from "../vendor.mjs";
import { Icon } from "./icons.mjs";

/** What is shown for a state of a run, a worker, a plan step or an operation: word, icon, tone. */
const STATES = {
  running: ["running", "play", "works"],
  working: ["working", "play", "works"],
  thinking: ["thinking", "play", "works"],
  active: ["active", "play", "works"],
  ready: ["ready", "clock", "works"],
  review: ["in review", "search", "works"],
  queued: ["queued", "clock", "quiet"],
  planned: ["planned", "clock", "quiet"],
  waiting: ["waiting", "hand", "needs"],
  limit: ["waits for a limit", "clock", "quiet"],
  waits: ["waits for you", "hand", "needs"],
  blocked: ["blocked", "hand", "needs"],
  conflict: ["conflict", "hand", "needs"],
  paused: ["paused", "pause", "quiet"],
  resumable: ["interrupted, can resume", "resume", "needs"],
  interrupted: ["interrupted", "resume", "needs"],
  succeeded: ["succeeded", "check", "well"],
  done: ["done", "check", "well"],
  merged: ["merged", "branch", "well"],
  failed: ["failed", "cross", "failed"],
  timed_out: ["timed out", "clock", "failed"],
  cancelled: ["stopped", "stop", "quiet"],
};

/** What is shown for a kind of request. */
const KINDS = {
  permission: ["permission", "hand", "needs"],
  question: ["question", "question", "needs"],
  plan: ["plan to approve", "plan", "needs"],
  decision: ["decision", "decisions", "needs"],
  review: ["review", "search", "needs"],
};

export function Badge({ word, icon, tone = "quiet" }) {
  return html`<span class="badge" data-tone=${tone}><${Icon} name=${icon} />${word}</span>`;
}

/** The badge of a state. A state that is not in the list is shown as it is, in grey. */
export function StateBadge({ state }) {
  const [word, icon, tone] = STATES[state] || [String(state).replaceAll("_", " "), "dot", "quiet"];
  return html`<${Badge} word=${word} icon=${icon} tone=${tone} />`;
}

/** Return the state of a run in a list. `asks` says whether one of its requests waits for a person. */
export const listedState = (run, asks) => (asks && run.state === "running" ? "waits" : run.wakes_at ? "limit" : run.state);

export function KindBadge({ kind }) {
  const [word, icon, tone] = KINDS[kind] || [kind, "hand", "needs"];
  return html`<${Badge} word=${word} icon=${icon} tone=${tone} />`;
}
