// Small drawings next to a word. They are hidden from screen readers, which read the word.

import { html } from "../vendor.mjs";

const LINES = {
  now: "M8 2v6l4 2M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Z",
  runs: "M2 4h12M2 8h12M2 12h8",
  approvals: "M8 1.8 13.5 4v4c0 3.2-2.3 5.4-5.5 6.4C4.8 13.4 2.5 11.2 2.5 8V4L8 1.8ZM5.6 8l1.8 1.8L10.6 6.4",
  plan: "M3 2.5h4v4H3zM9 9.5h4v4H9zM5 6.5v5h4",
  decisions: "M8 2v3M8 5 3.5 9M8 5l4.5 4M3.5 9v4M12.5 9v4M2 13h3M11 13h3",
  workers: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM1.8 13c.2-2.4 1.6-3.8 3.7-3.8S9 10.6 9.2 13M10.8 7a1.9 1.9 0 1 0-.6-3.7M11 9.3c1.8.1 3 1.4 3.2 3.7",
  cost: "M8 1.5v13M11 4.5C10.4 3.5 9.3 3 8 3 6.3 3 5 3.9 5 5.4c0 3.3 6.2 1.7 6.2 5 0 1.5-1.4 2.6-3.2 2.6-1.5 0-2.7-.6-3.3-1.7",
  teams: "M8 5.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM3.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM12.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM8 5.5V8M8 8H3.5v2.5M8 8h4.5v2.5",
  settings: "M2 4.5h6M12 4.5h2M2 11.5h2M8 11.5h6M10 2.7a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6ZM6 9.7a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6Z",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  pin: "M6 2h4l-.5 4.5L12 9H4l2.5-2.5L6 2ZM8 9v5",
  opened: "M3.5 6 8 10.5 12.5 6",
  closed: "M6 3.5 10.5 8 6 12.5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.5 10.5 14 14",
  plus: "M8 3v10M3 8h10",
  back: "M9.5 3 4.5 8l5 5",
  bell: "M4 11V7a4 4 0 1 1 8 0v4l1.5 1.5h-11L4 11ZM6.8 14.5h2.4",
  hand: "M8 1.8 14.5 13.5h-13L8 1.8ZM8 6v3.5M8 11.6v.1",
  question: "M5 5.2a3 3 0 1 1 4.3 2.7C8.4 8.3 8 8.9 8 9.8v.5M8 13.5v.1",
  play: "M4.5 2.8v10.4L13 8 4.5 2.8Z",
  pause: "M5 3v10M11 3v10",
  clock: "M8 4.5V8l2.5 1.5M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Z",
  check: "M2.8 8.5 6.5 12l6.7-8",
  cross: "M4 4l8 8M12 4l-8 8",
  stop: "M3.5 3.5h9v9h-9z",
  resume: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  branch: "M4.5 5.5v5M4.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM4.5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11.5 6.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11.5 6.5c0 2.5-4 2.5-7 4",
  dot: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5Z",
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
  return html`<svg class="icon" viewBox="0 0 10 10" aria-hidden="true"><circle cx="5" cy="5" r="4.5" fill="currentColor" /></svg>`;
}
