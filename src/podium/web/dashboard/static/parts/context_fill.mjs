// How full the context window of an agent's model is.

import { html } from "../vendor.mjs";
import { count } from "../format.mjs";
import { plain } from "./plain_text.mjs";

/** `context` is that of a run or worker. Nothing is shown if there is none, or if the model's window is unknown. */
export function ContextFill({ context }) {
  if (!context?.window) return null;
  const share = Math.min(100, Math.round((100 * context.tokens) / context.window));
  return html`<span class="context-fill nowrap" title=${`${plain(context.agent)}: ${count(context.tokens)} of ${count(context.window)} tokens in the context window of ${plain(context.model)}`}>
    <span class="meter"><span style=${{ width: `${share}%` }}></span></span>context ${share}% full</span>`;
}
