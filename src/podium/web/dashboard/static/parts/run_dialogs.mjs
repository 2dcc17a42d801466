// The dialogs behind the commands of a run. Each closes when its command has succeeded.

import { html, useState } from "../vendor.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";

const thenClose = (command, onClose) => async () => {
  const done = await command();
  onClose();
  return done;
};

export function StopDialog({ command, onClose }) {
  return html`<${Dialog} title="Stop this run?" onClose=${onClose}>
    <p>Its agents stop now. What they have done so far is kept as a partial result. A stopped run cannot be resumed; it can be retried or forked.</p>
    <div class="dialog-foot"><button type="button" class="button" data-first onClick=${onClose}>Keep running</button>
      <${Button} look="danger" busy="Stopping…" command=${thenClose(command, onClose)}>Stop the run<//></div>
  <//>`;
}

const LIMITS = [
  ["usd", "Money (USD)", "0.01"], ["tokens", "Tokens", "1"], ["seconds", "Seconds", "1"], ["turns", "Turns", "1"],
  ["files_changed", "Changed files", "1"],
];

export function BudgetDialog({ budget, command, onClose }) {
  const [given, setGiven] = useState({});
  const limits = () => Object.fromEntries(Object.entries(given).filter(([, text]) => text !== "").map(([name, text]) => [name, Number(text)]));
  return html`<${Dialog} title="Change the budget" onClose=${onClose}>
    <p class="quiet">A time limit applies at once; other limits apply from the next model call. A limit that you leave empty does not change.</p>
    <div class="pair">${LIMITS.map(([name, word, step], place) => html`<label class="field" key=${name}>${word}
      <input type="number" min="0" step=${step} inputmode="decimal" data-first=${place === 0 ? "" : null} value=${given[name] ?? ""}
        placeholder=${budget?.[name] ?? "no limit"} onInput=${(event) => setGiven({ ...given, [name]: event.target.value })} /></label>`)}</div>
    <div class="dialog-foot"><button type="button" class="button" onClick=${onClose}>Cancel</button>
      <${Button} look="primary" busy="Changing…" disabled=${!Object.keys(limits()).length}
        command=${thenClose(() => command(limits()), onClose)}>Change the budget<//></div>
  <//>`;
}

export function ForkDialog({ at, command, onClose }) {
  const [request, setRequest] = useState("");
  const where = at === null ? "its last snapshot, or from its last entry if it has none" : `entry ${at}`;
  return html`<${Dialog} title="Fork this run" onClose=${onClose}>
    <p class="quiet">A new run shares this one's timeline up to ${where}, and continues from there. To fork at another moment, move the replay slider there first.</p>
    <label class="field">Message to the first agent <span class="hint">What it should do differently. Leave it empty to change nothing.</span>
      <textarea data-first value=${request} onInput=${(event) => setRequest(event.target.value)}></textarea></label>
    <div class="dialog-foot"><button type="button" class="button" onClick=${onClose}>Cancel</button>
      <${Button} look="primary" busy="Forking…" command=${thenClose(() => command({ at: at === null ? "" : String(at), request }), onClose)}>Fork<//></div>
  <//>`;
}

export function RetryDialog({ command, onClose }) {
  const [start, setStart] = useState("");
  return html`<${Dialog} title="Retry this run" onClose=${onClose}>
    <p class="quiet">A new run starts from just before this run failed or was stopped. What was done before that is kept.</p>
    <label class="field">Start from <span class="hint">A plan step or an agent. Leave it empty to start where the run failed or was stopped.</span>
      <input data-first value=${start} onInput=${(event) => setStart(event.target.value)} /></label>
    <div class="dialog-foot"><button type="button" class="button" onClick=${onClose}>Cancel</button>
      <${Button} look="primary" busy="Starting…" command=${thenClose(() => command({ start }), onClose)}>Retry<//></div>
  <//>`;
}
