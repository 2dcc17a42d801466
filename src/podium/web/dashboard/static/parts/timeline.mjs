// The swim-lane timeline: one lane per agent, and lanes for votes and merges. Drag to zoom, Ctrl and wheel zooms too.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor.mjs";
import { clock, duration, plural } from "../format.mjs";
import { listLanes } from "../run_state.mjs";
import { serverNow } from "../state.mjs";
import { LANE, drawScene, findEntryAt, listTicks, readColours, timeAt } from "./run_draw.mjs";

const LEGEND = [
  ["thinking", "thinking"], ["tool", "using a tool"], ["waiting", "waiting for a person"], ["blocked", "blocked"],
  ["idle", "idle"],
];
/** Kind of marker, word, and its shape as on the canvas. */
const SIGNS = [
  ["plan", "plan", "M3 14V1l7 3-7 3"], ["handoff", "handoff", "M6 0v10M3 8l3 5 3-5Z"],
  ["decision", "decision", "M6 1l5 6-5 6-5-6Z"],
  ["proposal", "proposal", "M6 2l4 5-4 5-4-5Z"], ["ballot", "ballot", "M6 5a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z"],
  ["merge", "merge", "M1 2l10 5-10 5Z"], ["commit", "commit", "M6 3.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7Z"],
  ["message", "message", "M1 2h10v7H6l-3 3V9H1Z"], ["worker", "worker started", "M2 3h8v8H2Z"], ["error", "error", "M2 3l8 8M10 3l-8 8"],
];
const FILLED = new Set(["plan", "handoff", "decision", "ballot", "merge", "message", "worker"]);
/** The shortest span in seconds that can be shown. */
const SHORTEST = 0.02;

/** `at` is the entry up to which the run is shown, or null for live; `onOpen(seq)` opens an entry. */
export default function Timeline({ log, view, moment, at, onOpen }) {
  const [span, setSpan] = useState(null);
  const [isFollowing, setFollowing] = useState(true);
  const now = useNow(log, moment.isMoving);
  const whole = { from: view.started_at, to: Math.max(at === null ? now : log.activity.at, view.started_at + 0.1) };
  const shown = placeSpan(span, whole, isFollowing && at === null);
  const until = at === null ? now : view.at;
  const zoom = (next) => {
    const limited = next && limitSpan(next, whole);
    setSpan(limited);
    if (limited) setFollowing(Math.abs(limited.to - whole.to) < (limited.to - limited.from) * 0.02);
  };
  return html`<section class="run-timeline" aria-label="Timeline">
    <${Bar} span=${span} whole=${whole} shown=${shown} zoom=${zoom} isLive=${moment.isMoving}
      isFollowing=${isFollowing} setFollowing=${setFollowing} />
    <${Picture} log=${log} view=${view} shown=${shown} until=${until} seq=${at === null ? Infinity : at} zoom=${zoom} onOpen=${onOpen} />
    <${Legend} marked=${log.activity.marked} />
  </section>`;
}

/** What bars and markers mean; markers are listed only if there are any. */
function Legend({ marked }) {
  return html`<ul class="run-legend" aria-label="Legend">
    ${LEGEND.map(([kind, word]) => html`<li key=${kind}><i class=${`swatch ${kind}`}></i>${word}</li>`)}
    ${SIGNS.filter(([kind]) => marked[kind]).map(([kind, word, line]) => html`<li key=${kind}>
      <svg class=${`run-sign ${kind}`} viewBox="0 0 12 14" aria-hidden="true"><path d=${line}
        fill=${FILLED.has(kind) ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.5" /></svg>${word}</li>`)}
  </ul>`;
}

/** Return the time up to which the run has happened; while it is working, this moves on every second. */
function useNow(log, isWorking) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!isWorking) return undefined;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [isWorking]);
  return isWorking ? Math.max(serverNow(), log.activity.at) : log.activity.at;
}

function placeSpan(span, whole, isFollowing) {
  if (!span) return whole;
  const length = span.to - span.from;
  return isFollowing ? { from: whole.to - length, to: whole.to } : span;
}

function limitSpan({ from, to }, whole) {
  const length = Math.min(Math.max(to - from, SHORTEST), whole.to - whole.from);
  if (length >= whole.to - whole.from) return null;
  const start = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: start, to: start + length };
}

function Bar({ span, whole, shown, zoom, isLive, isFollowing, setFollowing }) {
  const scale = (factor) => {
    const middle = (shown.from + shown.to) / 2;
    const half = ((shown.to - shown.from) / 2) * factor;
    zoom({ from: middle - half, to: middle + half });
  };
  return html`<div class="run-bar">
    <h2>Timeline</h2>
    <span class="run-span">${clock(shown.from)} – ${clock(shown.to)} (${duration(shown.to - shown.from)})</span>
    <span class="run-gap"></span>
    ${isLive && html`<label class="run-follow"><input type="checkbox" checked=${isFollowing}
      onChange=${(event) => setFollowing(event.target.checked)} /> Follow live</label>`}
    <button type="button" class="button small" onClick=${() => scale(2)} disabled=${!span} aria-label="Zoom out">−</button>
    <button type="button" class="button small" onClick=${() => scale(0.5)} disabled=${whole.to - whole.from <= SHORTEST} aria-label="Zoom in">+</button>
    <button type="button" class="button small" onClick=${() => zoom(null)} disabled=${!span}>Whole run</button>
  </div>`;
}

function Picture({ log, view, shown, until, seq, zoom, onOpen }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const scene = useRef(null);
  const [size, setSize] = useState({ width: 0, height: 0, scroll: 0 });
  const [brush, setBrush] = useState(null);
  const lanes = listLanes(log.activity);
  const colours = useColours(box);
  useBoxSize(box, setSize);
  useLayoutEffect(() => {
    const ratio = devicePixelRatio || 1;
    const { width, height, scroll } = size;
    if (!width || !colours) return;
    fitCanvas(canvas.current, width, height, ratio);
    scene.current = { lanes, open: Object.values(log.activity.open), ...shown, until, seq, width, height, scroll, colours, ratio };
    drawScene(canvas.current.getContext("2d"), scene.current);
  });
  useWheel(box, scene, zoom);
  const pointer = followPointer({ canvas, scene, brush, setBrush, zoom, onOpen });
  const visible = lanes.slice(Math.floor(size.scroll / LANE), Math.ceil((size.scroll + size.height) / LANE));
  const first = Math.floor(size.scroll / LANE);
  return html`<div class="run-lanes-frame">
    <${Axis} shown=${shown} width=${size.width} />
    <div class="run-lanes" ref=${box} tabIndex="0" role="group" aria-label="Lanes; plus and minus zoom, arrows move"
      onKeyDown=${(event) => handleKey(event, shown, zoom)} style=${{ height: `${Math.min(Math.max(lanes.length, 1), 11) * LANE}px` }}>
      <div class="run-lanes-inner" style=${{ height: `${Math.max(lanes.length, 1) * LANE}px` }}>
        <ul class="run-labels">${visible.map((lane, place) => html`<li key=${lane.key} class=${lane.isAgent ? "" : "other"}
          style=${{ top: `${(first + place) * LANE}px` }} title=${lane.name}>${lane.name}</li>`)}</ul>
        <canvas ref=${canvas} role="img" aria-label=${describeLanes(log, lanes, view)} ...${pointer}></canvas>
        ${brush && html`<${Brush} ...${brush} />`}
      </div>
    </div>
    ${!lanes.length && html`<p class="quiet">A lane appears here for each agent that starts to work.</p>`}
  </div>`;
}

function Brush({ start, end }) {
  const left = `calc(var(--label-width) + ${Math.min(start, end)}px)`;
  return html`<div class="run-brush" style=${{ left, width: `${Math.abs(end - start)}px` }}></div>`;
}

function describeLanes({ activity }, lanes, view) {
  const errors = activity.marked.error ? `, ${plural(activity.marked.error, "error")}` : "";
  const agents = lanes.filter((lane) => lane.isAgent).length;
  return `${plural(agents, "agent")} in ${duration(activity.at - view.started_at)}${errors}. The log lists the same entries.`;
}

function Axis({ shown, width }) {
  const { step, ticks } = listTicks(shown.from, shown.to, Math.max(2, width / 110));
  const place = (at) => ((at - shown.from) / (shown.to - shown.from)) * width;
  const word = (at) => (step < 1 ? clock(at) + (at % 1).toFixed(step < 0.1 ? 2 : 1).slice(1) : clock(at));
  return html`<div class="run-axis" aria-hidden="true">${ticks.filter((at) => place(at) < width - 62).map((at) => html`<span key=${at}
    style=${{ left: `calc(var(--label-width) + ${place(at)}px)` }}>${word(at)}</span>`)}</div>`;
}

function fitCanvas(element, width, height, ratio) {
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (element.width !== wide) element.width = wide;
  if (element.height !== high) element.height = high;
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
}

function useColours(box) {
  const [colours, setColours] = useState(null);
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const read = () => setColours(readColours(box.current));
    read();
    scheme.addEventListener("change", read);
    return () => scheme.removeEventListener("change", read);
  }, []);
  return colours;
}

/** Measure the part of the lanes that is visible, whenever its size or scroll position changes. */
function useBoxSize(box, setSize) {
  useEffect(() => {
    const element = box.current;
    const measure = () => {
      const labels = parseFloat(getComputedStyle(element).getPropertyValue("--label-width")) || 0;
      const next = { width: Math.max(0, element.clientWidth - labels), height: element.clientHeight, scroll: element.scrollTop };
      setSize((old) => (old.width === next.width && old.height === next.height && old.scroll === next.scroll ? old : next));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
}

/** Zoom with Ctrl and the wheel, and move with Shift. The plain wheel scrolls the page, as everywhere. */
function useWheel(box, scene, zoom) {
  const latest = useRef(zoom);
  latest.current = zoom;
  useEffect(() => {
    const turn = (event) => {
      const now = scene.current;
      if (!now || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
      event.preventDefault();
      const length = now.to - now.from;
      const amount = event.deltaY || event.deltaX;
      if (event.shiftKey) {
        const move = (amount / now.width) * length;
        latest.current({ from: now.from + move, to: now.to + move });
        return;
      }
      const left = box.current.getBoundingClientRect().right - now.width;
      const share = Math.min(Math.max((event.clientX - left) / now.width, 0), 1);
      const next = length * Math.exp(amount / 400);
      const anchor = now.from + share * length;
      latest.current({ from: anchor - share * next, to: anchor + (1 - share) * next });
    };
    box.current.addEventListener("wheel", turn, { passive: false });
    return () => box.current?.removeEventListener("wheel", turn);
  }, []);
}

function handleKey(event, { from, to }, zoom) {
  const length = to - from;
  const moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5] };
  const move = moves[event.key];
  if (!move || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  zoom({ from: from + move[0] * length, to: to + move[1] * length });
}

/** Return the pointer handlers: a click opens an entry, dragging marks the span to zoom to. */
function followPointer({ canvas, scene, brush, setBrush, zoom, onOpen }) {
  const place = (event) => {
    const edge = canvas.current.getBoundingClientRect();
    return { x: event.clientX - edge.left, y: event.clientY - edge.top };
  };
  return {
    onPointerDown(event) {
      if (event.button !== 0) return;
      canvas.current.setPointerCapture(event.pointerId);
      const { x, y } = place(event);
      setBrush({ start: x, end: x, y });
    },
    onPointerMove(event) {
      if (brush) setBrush({ ...brush, end: place(event).x });
    },
    onPointerUp() {
      if (!brush) return;
      setBrush(null);
      const [left, right] = [Math.min(brush.start, brush.end), Math.max(brush.start, brush.end)];
      if (right - left > 6) zoom({ from: timeAt(scene.current, left), to: timeAt(scene.current, right) });
      else {
        const seq = findEntryAt(scene.current, brush.start, brush.y);
        if (seq) onOpen(seq);
      }
    },
    onPointerCancel: () => setBrush(null),
  };
}
