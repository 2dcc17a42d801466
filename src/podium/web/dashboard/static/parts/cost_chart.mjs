// What runs used over time: one bar for each span of time, with one segment for each run that began in it.

import { html, useState } from "../vendor.mjs";
import { count, money } from "../format.mjs";
import { revealLine } from "./reveal.mjs";

const HEIGHT = 180;
const LEFT = 64;
const BOTTOM = 26;
/** The width of all bars together, unless there are too many or too few for it. */
const WIDTH = 860;
const WIDEST_BAR = 72;
const NARROWEST_BAR = 26;
const MOST_BARS = 24;
/** More segments than these in one bar would be too thin to see; the smallest are drawn as one. */
const MOST_SEGMENTS = 12;
/** The spans of time that a bar can stand for, in seconds. */
const SPANS = [60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400];

const MEASURES = {
  money: ["Money", (usage) => usage.usd, (value) => money(value)],
  tokens: ["Tokens", (usage) => usage.input_tokens + usage.output_tokens, (value) => count(Math.round(value))],
  rehearsed: ["Rehearsed tokens", (usage) => usage.rehearsed_input_tokens + usage.rehearsed_output_tokens, (value) => count(Math.round(value))],
};

/** Return the bars from the oldest to the newest: `{at, total, segments: [{name, value}]}`. */
function makeBars(runs, measure) {
  const used = runs.filter((run) => measure(run.usage) > 0);
  if (!used.length) return { bars: [], span: SPANS[0] };
  const times = used.map((run) => run.started_at);
  const range = Math.max(...times) - Math.min(...times);
  const span = SPANS.find((one) => range / one < MOST_BARS - 1) || Math.ceil(range / MOST_BARS);
  const first = Math.floor(Math.min(...times) / span) * span;
  const last = Math.floor(Math.max(...times) / span) * span;
  const bars = Array.from({ length: Math.round((last - first) / span) + 1 }, (_, place) => ({ at: first + place * span, total: 0, segments: [] }));
  for (const run of used) {
    const bar = bars[Math.floor((run.started_at - first) / span)];
    bar.total += measure(run.usage);
    bar.segments.push({ name: `${run.id} ${revealLine(run.agent)}`, value: measure(run.usage) });
  }
  for (const bar of bars) bar.segments = joinSmallest(bar.segments);
  return { bars, span };
}

function joinSmallest(segments) {
  const sorted = segments.toSorted((one, other) => other.value - one.value);
  if (sorted.length <= MOST_SEGMENTS) return sorted;
  const small = sorted.slice(MOST_SEGMENTS - 1);
  return [...sorted.slice(0, MOST_SEGMENTS - 1), { name: `${small.length} other runs`, value: small.reduce((sum, one) => sum + one.value, 0) }];
}

/** Return a round number that is at least `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((one) => one >= value * 0.999999);
}

function formatTime(at, span) {
  const date = new Date(at * 1000);
  return span < 86400 ? date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

function Bar({ bar, x, width, top, show }) {
  let y = HEIGHT;
  return html`<g>${bar.segments.map((one, number) => {
    const height = (one.value / top) * HEIGHT;
    y -= height;
    return html`<rect key=${number} class="chart-segment" data-even=${number % 2 ? null : ""} x=${x + 4} y=${y} width=${width - 8} height=${Math.max(0.5, height)}>
      <title>${one.name}: ${show(one.value)}</title></rect>`;
  })}</g>`;
}

function Chart({ bars, span, show, title }) {
  const top = roundUp(Math.max(...bars.map((bar) => bar.total)));
  const slot = Math.min(WIDEST_BAR, Math.max(NARROWEST_BAR, WIDTH / bars.length));
  const width = LEFT + Math.max(bars.length * slot, WIDTH / 2);
  const every = Math.ceil(60 / slot);
  return html`<div class="chart" tabindex="0" role="group" aria-label=${`${title} over time`}>
    <svg width=${width} height=${HEIGHT + BOTTOM + 10} role="img" aria-label=${`${title} of runs by the time at which they started; the table below has the numbers`}>
      <g transform="translate(0 8)">
      ${[0, 0.5, 1].map((part) => html`<g key=${part}><line class="chart-grid" x1=${LEFT} x2=${width} y1=${HEIGHT * (1 - part)} y2=${HEIGHT * (1 - part)} />
        <text class="chart-text" x=${LEFT - 8} y=${HEIGHT * (1 - part) + 4} text-anchor="end">${show(top * part)}</text></g>`)}
      ${bars.map((bar, place) => html`<${Bar} key=${bar.at} bar=${bar} x=${LEFT + place * slot} width=${slot} top=${top} show=${show} />`)}
      ${bars.map((bar, place) => (place % every ? null : html`<text key=${bar.at} class="chart-text" x=${LEFT + place * slot + 4} y=${HEIGHT + 18}>${formatTime(bar.at, span)}</text>`))}
      </g></svg></div>`;
}

export function CostChart({ runs, usage }) {
  const has = Object.fromEntries(Object.entries(MEASURES).map(([key, [, measure]]) => [key, measure(usage) > 0]));
  const [chosen, choose] = useState("");
  const key = chosen || Object.keys(MEASURES).find((one) => has[one]);
  if (!key) return null;
  const [title, measure, show] = MEASURES[key];
  return html`<section class="card"><div class="row"><h2>Over time</h2><span class="gap"></span>
      <div class="choice" role="group" aria-label="What to show">${Object.entries(MEASURES).map(([name, [word]]) => (has[name] ? html`<button type="button" key=${name}
        class="button small" aria-pressed=${name === key} onClick=${() => choose(name)}>${word}</button>` : null))}</div></div>
    <${Chart} ...${makeBars(runs, measure)} show=${show} title=${title} /></section>`;
}
