// The list of keys, and the hint while g waits for its second key.

import { html } from "../vendor.mjs";
import { Dialog } from "./dialog.mjs";

const GROUPS = [
  ["Everywhere", [
    ["?", "show the keys"], ["/", "search the runs"], ["Ctrl K", "search and commands"],
    ["j k", "next, previous in a list"], ["Enter", "open"], ["Esc", "close"],
  ]],
  ["Go to", [
    ["g n", "Now"], ["g r", "Runs"], ["g a", "Approvals"], ["g p", "Plans"], ["g d", "Decisions"], ["g w", "Workers"],
    ["g c", "Cost"], ["g t", "Teams"], ["g s", "Settings"],
  ]],
  ["Approvals", [
    ["y", "approve once"], ["r", "approve for this run"], ["p", "always…, shows the rule first"],
    ["n", "deny with a note"], ["x", "deny and pause"], ["a", "deny and stop the run"], ["1 to 9", "choose an answer"],
  ]],
];

export function KeyHelp({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    ${GROUPS.map(([title, keys]) => html`<section class="stack" key=${title}><h3>${title}</h3>
      <div class="keys">${keys.map(([key, what]) => html`<div key=${key}><span>${what}</span>
        <span class="nowrap">${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</span></div>`)}</div></section>`)}
  <//>`;
}

export function KeyHint() {
  return html`<div class="key-hint" role="status">go to: <kbd>n</kbd> Now <kbd>r</kbd> Runs <kbd>a</kbd> Approvals
    <kbd>p</kbd> Plans <kbd>d</kbd> Decisions <kbd>w</kbd> Workers <kbd>c</kbd> Cost <kbd>t</kbd> Teams <kbd>s</kbd> Settings</div>`;
}
