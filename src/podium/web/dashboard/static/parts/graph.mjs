// A drawing of a directed graph: boxes of the same size in layers, and arrows between them.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { layOut } from "./layered_layout.mjs";

const GAP = { along: 64, across: 18 };
const MARGIN = 14;
/** Below this width the layers are below each other. */
const NARROW = 620;

/** The width of an element, kept up to date. */
function useWidth(place) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([one]) => setWidth(one.contentRect.width));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/**
 * `nodes` are `{id, content}`, `edges` are `{from, to}`. The drawing scrolls inside its own frame.
 * Screen readers get `label`; the same facts are in text elsewhere on the screen or in the boxes.
 */
export function Graph({ nodes, edges, label, size = { width: 208, height: 76 } }) {
  const place = useRef(null);
  const isNarrow = useWidth(place) < NARROW;
  const drawing = measureDrawing(nodes, edges, size, isNarrow);
  return html`<div class="graph" ref=${place} role="group" aria-label=${label} tabindex="0">
    <div class="graph-sheet" style=${{ width: `${drawing.width}px`, height: `${drawing.height}px` }}>
      <svg width=${drawing.width} height=${drawing.height} aria-hidden="true">
        <defs><marker id="arrow-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path class="graph-head" d="M0 0.500 7.500 4 0 7.500Z" /></marker></defs>
        ${drawing.lines.map((line, number) => html`<path class="graph-line" key=${number} d=${line} marker-end="url(#arrow-end)" />`)}
      </svg>
      ${nodes.map((node) => {
        const box = drawing.boxes.get(node.id);
        return html`<div class="graph-node" key=${node.id} style=${{ left: `${box.x}px`, top: `${box.y}px`, width: `${size.width}px`, height: `${size.height}px` }}>
          ${node.content}</div>`;
      })}
    </div>
  </div>`;
}

function measureDrawing(nodes, edges, size, isNarrow) {
  const { places, layers, rows, edges: routed } = layOut(nodes.map((node) => node.id), edges);
  const findBox = ({ layer, row }) => {
    const x = isNarrow ? row * (size.width + GAP.across) : layer * (size.width + GAP.along);
    const y = isNarrow ? layer * (size.height + GAP.along) : row * (size.height + GAP.across);
    return { x: x + MARGIN, y: y + MARGIN };
  };
  const boxes = new Map([...places].map(([id, place]) => [id, findBox(place)]));
  const [along, across] = isNarrow ? [rows, layers] : [layers, rows];
  const width = along * size.width + (along - 1) * (isNarrow ? GAP.across : GAP.along) + 2 * MARGIN;
  const height = across * size.height + (across - 1) * (isNarrow ? GAP.along : GAP.across) + 2 * MARGIN;
  const lines = routed.filter(({ from, to }) => boxes.has(from) && boxes.has(to) && from !== to)
    .map(({ from, to, via }) => drawLine([boxes.get(from), ...via.map(findBox), boxes.get(to)], size, isNarrow));
  return { boxes, lines, width: Math.max(width, 0), height: Math.max(height, 0) };
}

/** Return the path of an arrow from the first box to the last, straight through the places of the boxes in between. */
function drawLine(boxes, { width, height }, isNarrow) {
  const enter = ({ x, y }) => (isNarrow ? { x: x + width / 2, y } : { x, y: y + height / 2 });
  const leave = ({ x, y }) => (isNarrow ? { x: x + width / 2, y: y + height } : { x: x + width, y: y + height / 2 });
  return boxes.slice(1).map((box, number) => {
    const start = leave(boxes[number]);
    const end = enter(box);
    const bend = Math.max(24, (isNarrow ? end.y - start.y : end.x - start.x) / 2);
    const [first, second] = isNarrow
      ? [`${start.x} ${start.y + bend}`, `${end.x} ${end.y - bend}`]
      : [`${start.x + bend} ${start.y}`, `${end.x - bend} ${end.y}`];
    return `${number ? "L" : "M"}${start.x} ${start.y}C${first} ${second} ${end.x} ${end.y}`;
  }).join("");
}
