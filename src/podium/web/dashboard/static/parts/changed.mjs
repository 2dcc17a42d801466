// How many lines were added and removed.

import { html } from "../vendor.mjs";
import { count } from "../format.mjs";

export function Changed({ added, removed }) {
  return html`<span class="changed nowrap"><span class="added">+${count(added)}</span> <span class="removed">−${count(removed)}</span></span>`;
}
