// The replay slider: shows the run as it was after any entry.

import { html } from "../vendor.mjs";
import { clock, count } from "../format.mjs";
import { Icon } from "./icons.mjs";

/** `at` is the entry up to which the run is shown, or null for live. `onMove(null)` goes back to live. */
export default function Replay({ log, view, moment, at, onMove }) {
  const last = log.last;
  const here = at ?? last;
  const move = (seq) => onMove(Math.min(Math.max(1, seq), last));
  const isEnded = Boolean(log.view.ended);
  return html`<section class="run-replay" aria-label="Replay" data-replay=${at === null ? null : ""}>
    <span class="run-replay-state" role="status">${at === null ? (isEnded ? "The run as it ended" : moment.isMoving ? "Live" : "The latest entry")
      : html`<${Icon} name="clock" /> Replay at ${clock(view.at)}`}</span>
    <button type="button" class="button small" aria-label="Previous entry" disabled=${here <= 1} onClick=${() => move(here - 1)}>‹</button>
    <input type="range" min="1" max=${Math.max(1, last)} step="1" value=${here} aria-label="Entry"
      aria-valuetext=${`entry ${here} of ${last}, ${clock(view.at)}`} onInput=${(event) => move(Number(event.target.value))} />
    <button type="button" class="button small" aria-label="Next entry" disabled=${here >= last} onClick=${() => move(here + 1)}>›</button>
    <span class="quiet small nowrap run-replay-count">${count(here)} of ${count(last)}</span>
    <button type="button" class="button small" disabled=${at === null} onClick=${() => onMove(null)}>${isEnded ? "Back to the end" : "Back to now"}</button>
  </section>`;
}
