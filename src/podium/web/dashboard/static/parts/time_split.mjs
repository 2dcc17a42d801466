// How the time of runs was spent: thinking, using tools, waiting for a person, and the rest.

import { html } from "../vendor.mjs";
import { duration } from "../format.mjs";

/** The activities: key in the API, word, and what it means. */
const ACTIVITIES = [
  ["thinking", "Thinking", "a model works on a reply"],
  ["tool", "Tools", "a tool runs and no model works"],
  ["waiting", "Waiting for a person", "nothing goes on before somebody answers"],
  ["other", "Other", "queued, paused, interrupted, or waiting for workers"],
];

export function TimeSplit({ wall, title }) {
  const total = ACTIVITIES.reduce((sum, [key]) => sum + wall[key], 0);
  if (!total) return null;
  return html`<section class="card"><h2>${title}</h2>
    <div class="split-bar" aria-hidden="true">${ACTIVITIES.map(([key]) => html`<span key=${key} data-activity=${key} style=${{ width: `${(100 * wall[key]) / total}%` }}></span>`)}</div>
    <dl class="split">${ACTIVITIES.map(([key, word, meaning]) => html`<div key=${key}><dt><span class="chart-key" data-activity=${key}></span>${word}</dt>
      <dd><strong>${duration(wall[key])}</strong> <span class="quiet">${Math.round((100 * wall[key]) / total)} %</span><span class="quiet small split-meaning">${meaning}</span></dd></div>`)}</dl></section>`;
}
