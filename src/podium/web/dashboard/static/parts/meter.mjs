// How much of a limit is used, as a bar.

import { html } from "../vendor.mjs";

/** `part` is the part that is used, such as 0.5. `words` say the same as text for screen readers. */
export function Meter({ part, label, words }) {
  const share = Math.min(100, Math.round(part * 100));
  return html`<span class="meter" role="meter" aria-valuenow=${share} aria-valuemin="0" aria-valuemax="100"
    aria-valuetext=${words} aria-label=${label} data-full=${share === 100}><span style=${{ width: `${share}%` }}></span></span>`;
}
