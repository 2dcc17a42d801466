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
 * `nodes` are `{id, content}`, `edges` are `{from, to, label, isQuiet}`. The drawing scrolls inside its own frame.
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
        ${drawing.lines.map((line) => html`<g key=${line.key}>
          <path class="graph-line" d=${line.path} data-quiet=${line.isQuiet ? "" : null} marker-end="url(#arrow-end)" />
          ${line.label ? html`<text class="graph-label" x=${line.x} y=${line.y}>${line.label}</text>` : null}</g>`)}
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
  const { places, layers, rows } = layOut(nodes.map((node) => node.id), edges);
  const boxes = new Map();
  for (const [id, { layer, row }] of places) {
    const x = isNarrow ? row * (size.width + GAP.across) : layer * (size.width + GAP.along);
    const y = isNarrow ? layer * (size.height + GAP.along) : row * (size.height + GAP.across);
    boxes.set(id, { x: x + MARGIN, y: y + MARGIN });
  }
  const [along, across] = isNarrow ? [rows, layers] : [layers, rows];
  const width = along * size.width + (along - 1) * (isNarrow ? GAP.across : GAP.along) + 2 * MARGIN;
  const height = across * size.height + (across - 1) * (isNarrow ? GAP.along : GAP.across) + 2 * MARGIN;
  const lines = edges.filter(({ from, to }) => boxes.has(from) && boxes.has(to) && from !== to)
    .map((edge, number) => ({ key: number, ...edge, ...drawLine(boxes.get(edge.from), boxes.get(edge.to), size, isNarrow) }));
  return { boxes, lines, width: Math.max(width, 0), height: Math.max(height, 0) };
}

/** Return the path of an arrow and the place of its label. An arrow that points back leaves and arrives below the boxes. */
function drawLine(from, to, { width, height }, isNarrow) {
  const start = isNarrow ? { x: from.x + width / 2, y: from.y + height } : { x: from.x + width, y: from.y + height / 2 };
  const end = isNarrow ? { x: to.x + width / 2, y: to.y } : { x: to.x, y: to.y + height / 2 };
  const bend = isNarrow ? Math.max(24, (end.y - start.y) / 2) : Math.max(24, (end.x - start.x) / 2);
  const [first, second] = isNarrow
    ? [`${start.x} ${start.y + bend}`, `${end.x} ${end.y - bend}`]
    : [`${start.x + bend} ${start.y}`, `${end.x - bend} ${end.y}`];
  return {
    path: `M${start.x} ${start.y}C${first} ${second} ${end.x} ${end.y}`,
    x: (start.x + end.x) / 2,
    y: (start.y + end.y) / 2 - 5,
  };
}
