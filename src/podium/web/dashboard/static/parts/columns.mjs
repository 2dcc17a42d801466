// The columns of a list, as the API describes them: how a value is drawn follows from the kind of its column.

import { html } from "../vendor.mjs";
import { count, duration, money } from "../format.mjs";
import { revealLine } from "./reveal.mjs";
import { Age } from "./time.mjs";

const DRAW = {
  number: count,
  money,
  usage: drawUsage,
  age: (at) => html`<${Age} at=${at} after=" ago" />`,
  duration,
};

function drawUsage(usage) {
  if (usage.rehearsed_calls && !usage.calls) return "rehearsed";
  const tokens = usage.input_tokens + usage.output_tokens;
  return usage.usd || !tokens ? money(usage.usd) : `${count(tokens)} tokens`;
}

/** Whether the values of a column are aligned at the right. */
export const isNumber = (column) => column.kind in DRAW;

export const isEmpty = (value) => value === undefined || value === null || value === "" || value.length === 0;

/** A value of a row, or nothing if the row has none. */
export function Value({ column, row }) {
  const value = row[column.name];
  if (isEmpty(value)) return null;
  return (DRAW[column.kind] || revealLine)(value);
}
