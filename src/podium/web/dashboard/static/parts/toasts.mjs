// The result of the last command, shown for a short time. A problem stays until it is closed.

import { html, useEffect } from "../vendor.mjs";
import { message } from "../state.mjs";
import { Icon } from "./icons.mjs";
import { plain } from "./plain_text.mjs";

const SHOWN_FOR = 6000;

export function Toasts() {
  const shown = message.value;
  const close = () => { message.value = null; };
  useEffect(() => {
    if (!shown || shown.isProblem) return undefined;
    const timer = setTimeout(close, SHOWN_FOR);
    return () => clearTimeout(timer);
  }, [shown]);
  return html`<div class="toasts" aria-live="polite" role="status">
    ${shown ? html`<div class="toast" data-problem=${shown.isProblem ? "" : null}>
      <${Icon} name=${shown.isProblem ? "hand" : "check"} /><span class="pre">${plain(shown.text)}</span>
      <button type="button" class="close" aria-label="Close this message" onClick=${close}><${Icon} name="close" /></button>
    </div>` : null}
  </div>`;
}
