// Navigation and top bar. On phones the navigation is a bar at the bottom, with the less frequent screens behind More.

import { effect, html, signal, useState } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { replayedAt, requests } from "../state.mjs";
import { connection } from "../tab_stream.mjs";
import { clock, plural } from "../format.mjs";
import { canAskToNotify, askToNotify } from "./attention.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";
import { Disc, Icon } from "./icons.mjs";
import { openDialog } from "./open_dialog.mjs";

/** Screen, word, icon, and whether it stays in the bar on phones. */
export const PLACES = [
  ["now", "Now", "now", true],
  ["runs", "Runs", "runs", true],
  ["approvals", "Approvals", "approvals", true],
  ["plans", "Plans", "plan", false],
  ["decisions", "Decisions", "decisions", false],
  ["workers", "Workers", "workers", true],
  ["cost", "Cost", "cost", false],
  ["teams", "Teams", "teams", false],
  ["settings", "Settings", "settings", false],
];

function PlaceLink({ place: [screen, word, icon, isFirst], onClick }) {
  const here = route.value.screen === screen || (screen === "runs" && route.value.screen === "run");
  const waiting = screen === "approvals" && requests.value ? requests.value.length : 0;
  return html`<a class="nav-link" href=${address(screen)} data-place=${isFirst || onClick ? "first" : "more"}
    aria-current=${here ? "page" : null} onClick=${onClick}>
    <${Icon} name=${icon} /><span>${word}</span>
    ${waiting ? html`<span class="count" aria-label=${`${waiting} waiting`}>${waiting}</span>` : null}</a>`;
}

export function Navigation() {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  return html`<nav class="nav" aria-label="Screens">
    <a class="brand" href=${address("now")}><img src="icon.svg" alt="" />Podium</a>
    ${PLACES.map((place) => html`<${PlaceLink} key=${place[0]} place=${place} />`)}
    <button type="button" class="nav-link nav-more" aria-haspopup="dialog" onClick=${() => setOpen(true)}>
      <${Icon} name="more" /><span>More</span></button>
    <div class="nav-end">
      <button type="button" class="nav-link" onClick=${() => { openDialog.value = "keys"; }}><kbd>?</kbd><span>Keys</span></button>
    </div>
    ${isOpen ? html`<${Dialog} title="Screens" onClose=${close} className="sheet">
      <div>${PLACES.filter((place) => !place[3]).map((place) => html`<${PlaceLink} key=${place[0]} place=${place} onClick=${close} />`)}</div>
    <//>` : null}
  </nav>`;
}

/** When the connection was lost, in seconds, or 0. */
const lostAt = signal(0);

effect(() => {
  if (connection.value !== "reconnecting") lostAt.value = 0;
  else if (!lostAt.peek()) lostAt.value = Date.now() / 1000;
});

function Connection() {
  const word = lostAt.value ? `reconnecting since ${clock(lostAt.value)}`
    : replayedAt.value ? `replay at ${clock(replayedAt.value)}` : connection.value;
  return html`<span class="connection" data-state=${replayedAt.value && !lostAt.value ? "replay" : connection.value}><${Disc} /><span id="connection">${word}</span></span>`;
}

function NeedsYou() {
  const waiting = requests.value ? requests.value.length : 0;
  const text = waiting ? `${plural(waiting, "request")} ${waiting === 1 ? "needs" : "need"} you` : "nothing needs you";
  return html`<span class="needs-you" data-count=${waiting || null} aria-live="polite" role="status">
    ${waiting ? html`<a class="needs-you" data-count=${waiting} href=${address("approvals")}>${text}</a>` : text}</span>`;
}

export function TopBar() {
  return html`<header class="bar">
    <${NeedsYou} />
    <span class="gap"></span>
    <${Connection} />
    ${canAskToNotify.value ? html`<${Button} look="small wide-only" command=${askToNotify}><${Icon} name="bell" />Notify me<//>` : null}
    <button type="button" class="button small" aria-label="Search and commands" title="Search and commands (Ctrl-K)"
      onClick=${() => { openDialog.value = "commands"; }}><${Icon} name="search" /><kbd>Ctrl K</kbd></button>
  </header>`;
}
