// Tables of usage: a name and the same numbers in every row.

import { html } from "../vendor.mjs";
import { count, duration } from "../format.mjs";
import { revealLine } from "./reveal.mjs";

/** Money with the same number of decimals in every row, so that the points stand below each other. */
const dollars = (usd) => `$${usd.toFixed(4)}`;

/** The columns with numbers: label, key in the usage, and how to write it. */
export const COLUMNS = [
  ["Calls", "calls", count],
  ["Tokens in", "input_tokens", count],
  ["Cached", "cached_tokens", count],
  ["Tokens out", "output_tokens", count],
  ["Time", "seconds", duration],
  ["Money", "usd", dollars],
];

function Money({ usage }) {
  const marks = [];
  if (usage.unpriced) marks.push(`${count(usage.unpriced)} without a known price`);
  if (usage.estimated) marks.push(`${count(usage.estimated)} estimated`);
  return html`${dollars(usage.usd)}${marks.length ? html`<span class="cost-mark">${marks.join(", ")}</span>` : null}`;
}

function Calls({ usage }) {
  return html`${count(usage.calls)}${usage.rehearsed_calls ? html`<span class="cost-mark">+ ${count(usage.rehearsed_calls)} rehearsed</span>` : null}`;
}

export function Numbers({ usage, columns = COLUMNS }) {
  return columns.map(([label, key, write]) => html`<td class="number" key=${key} data-label=${label} data-column=${key}>
    ${key === "usd" ? html`<${Money} usage=${usage} />` : key === "calls" ? html`<${Calls} usage=${usage} />` : write(usage[key])}</td>`);
}

/** The activities of an agent that have a column: key in the API and label. */
const SPENT = [["thinking", "Thinking"], ["tool", "Tools"], ["waiting", "Waiting"]];
const WITHOUT_TIME = COLUMNS.filter(([, key]) => key !== "seconds");

/** A table with one row for each agent or model. Agents also have the time that they spent thinking, and so on. */
export function UsageTable({ title, word, rows, hasTime = false }) {
  if (!rows.length) return null;
  const spent = hasTime ? SPENT : [];
  return html`<section class="stack"><h2>${title}</h2>
    <div class="table-wrap cost-wrap" role="group" aria-label=${title} tabindex="0"><table class="table cost-table"><caption class="visually-hidden">${title}</caption>
      <thead><tr><th scope="col">${word}</th>${WITHOUT_TIME.map(([label]) => html`<th scope="col" class="number" key=${label}>${label}</th>`)}
        ${spent.map(([key, label]) => html`<th scope="col" class="number" key=${key}>${label}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.name} data-name=${row.name}><td class="main-cell strong">${revealLine(row.name) || "the run itself"}</td><${Numbers} usage=${row.usage} columns=${WITHOUT_TIME} />
        ${spent.map(([key, label]) => html`<td class="number" key=${key} data-label=${label} data-column=${key}>${duration(row.time[key])}</td>`)}</tr>`)}</tbody></table></div></section>`;
}
