// What stands in place of data: nothing yet, still loading, or a problem.

import { html } from "../vendor.mjs";
import { Icon } from "./icons.mjs";

/** An empty state: what will appear here, and the command that makes it appear. */
export function Empty({ title, children, command }) {
  return html`<div class="empty"><strong>${title}</strong>${children ? html`<p>${children}</p>` : null}
    ${command ? html`<code>${command}</code>` : null}</div>`;
}

/** A sentence of the API about what went wrong, as it is, with a button to try again if `onRetry` is given. */
export function ProblemBanner({ problem, onRetry }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert"><${Icon} name="hand" />
    <span class="grow">${problem.message || String(problem)}</span>
    ${onRetry ? html`<button type="button" class="button small" onClick=${onRetry}>Try again</button>` : null}</div>`;
}

export function Loading({ what }) {
  return html`<p class="quiet" role="status">Loading ${what}…</p>`;
}
