// The state of a worker as a word and a shape, and the group of a list to which it belongs.

import { html } from "../vendor.mjs";
import { Badge } from "./badge.mjs";

const STATES = {
  queued: ["queued", "clock", "quiet", "working"],
  starting: ["starting", "play", "works", "working"],
  idle: ["between two turns", "clock", "works", "working"],
  thinking: ["thinking", "play", "works", "working"],
  tool_call: ["using a tool", "play", "works", "working"],
  waiting_permission: ["waits for you", "hand", "needs", "needs"],
  waiting_limit: ["waits for a limit", "clock", "quiet", "resting"],
  paused: ["paused", "pause", "quiet", "resting"],
  resumable: ["interrupted", "resume", "needs", "resting"],
  complete: ["complete", "check", "well", "over"],
  failed: ["failed", "cross", "failed", "over"],
  cancelled: ["stopped", "stop", "quiet", "over"],
};

export function WorkerBadge({ state }) {
  const [word, icon, tone] = STATES[state] || [state, "dot", "quiet"];
  return html`<${Badge} word=${word} icon=${icon} tone=${tone} />`;
}

/** Return "needs", "working", "resting" or "over". */
export const groupOf = (worker) => (STATES[worker.state] || [])[3] || "working";

export const isOver = (worker) => groupOf(worker) === "over";
