// The current time, and ages that count by themselves.

import { html, signal } from "../vendor.mjs";
import { serverNow } from "../state.mjs";
import { age, duration, iso } from "../format.mjs";

/** The server's time in seconds, updated every second. */
export const now = signal(serverNow());

setInterval(() => {
  now.value = serverNow();
}, 1000);

/** How long ago something happened, such as "3m". */
export function Age({ at, before = "", after = "" }) {
  const seconds = Math.max(0, now.value - at);
  return html`<time datetime=${iso(at)} title=${iso(at)}>${before}${age(seconds)}${after}</time>`;
}

/** How long something has been going on. */
export function Elapsed({ since }) {
  return html`<span>${duration(Math.max(0, now.value - since))}</span>`;
}

/** How long until a run continues by itself, such as "continues in 4h 12m". */
export function Countdown({ until }) {
  const left = Math.max(0, until - now.value);
  return html`<time datetime=${iso(until)} title=${iso(until)}>${left ? `continues in ${duration(left)}` : "continues now"}</time>`;
}
