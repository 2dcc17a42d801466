// Small drawings next to a word. They are hidden from screen readers, which read the word.

import { html } from "../vendor.mjs";

const LINES = {
  now: "M8 2v6l4 2M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Z",
  runs: "M2 4h12M2 8h12M2 12h8",
  approvals: "M8 1.8 13.5 4v4c0 3.2-2.3 5.4-5.5 6.4C4.8 13.4 2.5 11.2 2.5 8V4L8 1.8ZM5.6 8l1.8 1.8L10.6 6.4",
  plan: "M3 2.5h4v4H3zM9 9.5h4v4H9zM5 6.5v5h4",
  decisions: "M8 2v3M8 5 3.5 9M8 5l4.5 4M3.5 9v4M12.5 9v4M2 13h3M11 13h3",
  workers: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM1.8 13c.2-2.4 1.6-3.8 3.7-3.8S9 10.600 9.200 13M10.800 7a1.900 1.900 0 1 0-.6-3.700M11 9.300c1.800.1 3 1.400 3.200 3.700",
  cost: "M8 1.500v13M11 4.500C10.400 3.500 9.300 3 8 3 6.300 3 5 3.900 5 5.400c0 3.300 6.200 1.700 6.200 5 0 1.500-1.400 2.600-3.200 2.600-1.500 0-2.700-.6-3.300-1.700",
  teams: "M8 5.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM3.500 14.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM12.500 14.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM8 5.500V8M8 8H3.500v2.500M8 8h4.500v2.500",
  settings: "M2 4.500h6M12 4.500h2M2 11.500h2M8 11.500h6M10 2.700a1.800 1.800 0 1 0 0 3.600 1.800 1.800 0 0 0 0-3.600ZM6 9.700a1.800 1.800 0 1 0 0 3.600 1.800 1.800 0 0 0 0-3.600Z",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  search: "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9ZM10.500 10.500 14 14",
  plus: "M8 3v10M3 8h10",
  back: "M9.500 3 4.500 8l5 5",
  bell: "M4 11V7a4 4 0 1 1 8 0v4l1.500 1.500h-11L4 11ZM6.800 14.500h2.400",
  hand: "M8 1.800 14.500 13.500h-13L8 1.800ZM8 6v3.500M8 11.600v.1",
  question: "M5.500 5.500A2.500 2.500 0 1 1 8 8.300V10M8 12.600v.1",
  play: "M4.500 2.800v10.400L13 8 4.500 2.800Z",
  pause: "M5 3v10M11 3v10",
  clock: "M8 4.500V8l2.500 1.500M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13Z",
  check: "M2.800 8.500 6.500 12l6.700-8",
  cross: "M4 4l8 8M12 4l-8 8",
  stop: "M3.500 3.500h9v9h-9z",
  resume: "M13 8a5 5 0 1 1-1.500-3.600M13 2v3h-3",
  branch: "M4.500 5.500v5M4.500 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3ZM4.500 13.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3ZM11.500 6.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3ZM11.500 6.500c0 2.500-4 2.500-7 4",
  dot: "M8 5.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Z",
};

const FILLED = new Set(["play", "stop", "dot"]);

/** An icon by name. An unknown name draws a dot. */
export function Icon({ name }) {
  const filled = FILLED.has(name);
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false"
    fill=${filled ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.6"
    stroke-linecap="round" stroke-linejoin="round"><path d=${LINES[name] || LINES.dot} /></svg>`;
}

/** A filled disc, the mark of the connection. */
export function Disc() {
  return html`<svg class="icon" viewBox="0 0 10 10" aria-hidden="true"><circle cx="5" cy="5" r="4.500" fill="currentColor" /></svg>`;
}
