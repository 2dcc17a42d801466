// What agents used over time: one area for each agent on top of the other, the budget as a line, and where it leads to.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { clock, count, duration, money } from "../format.mjs";
import { revealLine } from "./reveal.mjs";

const HEIGHT = 200;
const LEFT = 64;
const BOTTOM = 26;
const TOP = 12;
const NARROWEST = 280;
/** A projection that is further away than this many times the time so far is only told in words. */
const FARTHEST = 2;
/** How many moments the table below the chart has. */
const ROWS = 12;

/** By measure: its name, how to write it, and the limit in a budget. */
export const MEASURES = {
  money: ["Money", money, (budget) => budget.usd],
  tokens: ["Tokens", (value) => count(Math.round(value)), (budget) => budget.tokens],
  rehearsed: ["Rehearsed tokens", (value) => count(Math.round(value)), () => undefined],
};

/** Return a round number that is at least `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((one) => one >= value * 0.999999);
}

function formatTime(at, span) {
  const date = new Date(at * 1000);
  if (span < 600) return clock(at);
  return span < 2 * 86400 ? date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** The width of an element, kept current. */
function useWidth(place) {
  const [width, setWidth] = useState(860);
  useEffect(() => {
    const observer = new ResizeObserver(([seen]) => setWidth(Math.max(NARROWEST, Math.floor(seen.contentRect.width))));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** Return the upper edges of the areas, from the lowest to the highest: at each time, the sum up to this series. */
function stackSeries(series, measure) {
  const edges = [];
  for (const one of series) {
    const below = edges.at(-1);
    edges.push(one[measure].map((value, place) => value + (below ? below[place] : 0)));
  }
  return edges;
}

/** Return how the chart is scaled: functions for x and y, and the range of both. */
function makeScale({ times, total, limit, end, width }) {
  const first = times[0];
  const last = Math.max(times.at(-1), end ?? 0);
  const showsLimit = limit !== undefined && limit <= total * 20;
  const top = roundUp(Math.max(total, showsLimit ? limit * 1.04 : 0) || 1);
  const inner = width - LEFT - 8;
  return { first, last, top, showsLimit, x: (at) => LEFT + ((at - first) / (last - first)) * inner, y: (value) => HEIGHT * (1 - value / top), inner };
}

function Axes({ scale, show, width }) {
  const steps = Math.max(2, Math.min(6, Math.floor(scale.inner / 130)));
  const at = (part) => scale.first + (scale.last - scale.first) * part;
  return html`${[0, 0.5, 1].map((part) => html`<g key=${part}><line class="chart-grid" x1=${LEFT} x2=${width - 8} y1=${scale.y(scale.top * part)} y2=${scale.y(scale.top * part)} />
      <text class="chart-text" x=${LEFT - 8} y=${scale.y(scale.top * part) + 4} text-anchor="end">${show(scale.top * part)}</text></g>`)}
    ${Array.from({ length: steps + 1 }, (_, number) => html`<text key=${number} class="chart-text" x=${scale.x(at(number / steps))} y=${HEIGHT + 19}
      text-anchor=${number === 0 ? "start" : number === steps ? "end" : "middle"}>${formatTime(at(number / steps), scale.last - scale.first)}</text>`)}`;
}

function Areas({ edges, series, times, scale, show, measure }) {
  const line = (values) => values.map((value, place) => `${scale.x(times[place]).toFixed(1)} ${scale.y(value).toFixed(1)}`);
  return edges.map((edge, place) => {
    const below = place ? edges[place - 1] : edge.map(() => 0);
    const path = `M${line(edge).join("L")}L${line(below).reverse().join("L")}Z`;
    return html`<path key=${series[place].name} class="chart-area" data-series=${place + 1} d=${path}><title>${revealLine(series[place].name)}: ${show(series[place][measure].at(-1))}</title></path>`;
  });
}

function Budget({ scale, limit, total, end, now, show, width }) {
  if (!scale.showsLimit) return null;
  return html`<g><line class="chart-budget" x1=${LEFT} x2=${width - 8} y1=${scale.y(limit)} y2=${scale.y(limit)} />
    <text class="chart-text chart-budget-text" x=${LEFT + 6} y=${scale.y(limit) - 5}>budget ${show(limit)}</text>
    ${end === null ? null : html`<line class="chart-projection" x1=${scale.x(now)} y1=${scale.y(total)} x2=${scale.x(end)} y2=${scale.y(limit)} />`}</g>`;
}

/** Return the sentence about the budget, or an empty string. */
function describeBudget({ limit, total, show, exhaustedAt, now }) {
  if (limit === undefined) return "";
  if (total >= limit) return `The budget of ${show(limit)} is used up.`;
  const rest = `${show(total)} of the budget of ${show(limit)} used.`;
  return exhaustedAt ? `${rest} At the rate of the last minutes it will be used up in ${duration(exhaustedAt - now)}, at ${formatTime(exhaustedAt, exhaustedAt - now)}.` : rest;
}

function Legend({ series, measure, show }) {
  return html`<ul class="chart-legend">${series.map((one, place) => html`<li key=${one.name}><span class="chart-key" data-series=${place + 1}></span>
    <span>${revealLine(one.name)}</span> <span class="quiet">${show(one[measure].at(-1))}</span></li>`).reverse()}</ul>`;
}

/** The same numbers as a table, for those who cannot see the chart. */
function Numbers({ times, series, measure, show }) {
  const step = Math.max(1, Math.floor((times.length - 1) / ROWS));
  const places = times.map((_, place) => place).filter((place) => place % step === 0 || place === times.length - 1);
  return html`<details><summary>The chart as a table</summary><div class="table-wrap chart-numbers" tabindex="0" role="group" aria-label="Running totals"><table class="table">
    <thead><tr><th scope="col">Time</th>${series.map((one) => html`<th key=${one.name} scope="col" class="number">${revealLine(one.name)}</th>`)}<th scope="col" class="number">Total</th></tr></thead>
    <tbody>${places.map((place) => html`<tr key=${place}><td class="nowrap">${formatTime(times[place], times.at(-1) - times[0])}</td>
      ${series.map((one) => html`<td key=${one.name} class="number" data-label=${revealLine(one.name)}>${show(one[measure][place])}</td>`)}
      <td class="number" data-label="Total">${show(series.reduce((sum, one) => sum + one[measure][place], 0))}</td></tr>`)}</tbody></table></div></details>`;
}

function Chart({ history, measure, budget, exhaustedAt }) {
  const place = useRef(null);
  const width = useWidth(place);
  const [title, show, limitOf] = MEASURES[measure];
  const { times } = history;
  const series = history.series.filter((one) => one[measure].at(-1) > 0);
  const edges = stackSeries(series, measure);
  const total = edges.at(-1).at(-1);
  const limit = limitOf(budget);
  const now = times.at(-1);
  const isNear = limit !== undefined && exhaustedAt && exhaustedAt > now && exhaustedAt - now <= FARTHEST * (now - times[0]);
  const end = isNear ? exhaustedAt : null;
  const scale = makeScale({ times, total, limit, end, width });
  const told = describeBudget({ limit, total, show, exhaustedAt, now });
  return html`<div class="chart" ref=${place}>
      <svg width=${width} height=${HEIGHT + BOTTOM + TOP} role="img" aria-label=${`${title} by agent over time, ${show(total)} in total; the table below has the numbers`}>
        <g transform=${`translate(0 ${TOP})`}>
          <${Areas} edges=${edges} series=${series} times=${times} scale=${scale} show=${show} measure=${measure} />
          <${Axes} scale=${scale} show=${show} width=${width} />
          <${Budget} scale=${scale} limit=${limit} total=${total} end=${end} now=${now} show=${show} width=${width} /></g></svg></div>
    ${told ? html`<p class=${`budget-line ${total >= limit ? "tone-failed" : ""}`}>${told}</p>` : null}
    <${Legend} series=${series} measure=${measure} show=${show} />
    <${Numbers} times=${times} series=${series} measure=${measure} show=${show} />`;
}

export function CostChart({ history, budget = {}, exhaustedAt = null }) {
  const [chosen, choose] = useState("");
  const has = (measure) => history.series.some((one) => one[measure].at(-1) > 0);
  const known = Object.keys(MEASURES).filter(has);
  if (!known.length) return null;
  const key = known.includes(chosen) ? chosen : known[0];
  return html`<section class="card"><div class="row"><h2>Over time, by agent</h2><span class="gap"></span>
      <div class="choice" role="group" aria-label="What to show">${known.map((name) => html`<button type="button" key=${name}
        class="button small" aria-pressed=${name === key} onClick=${() => choose(name)}>${MEASURES[name][0]}</button>`)}</div></div>
    <${Chart} history=${history} measure=${key} budget=${budget} exhaustedAt=${exhaustedAt} /></section>`;
}
