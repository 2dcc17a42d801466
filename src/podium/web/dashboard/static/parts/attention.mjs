// Ways to tell a person who looks elsewhere that something needs them or has ended: the title, the badge of the app, and
// notifications of the browser.

import { computed, effect, signal } from "../vendor.mjs";
import { overview, pageName, requests } from "../state.mjs";
import { go } from "../router.mjs";

const KEY = "podium-notify";
/** What the browser can notify about, in the words of the notifications of the command line. */
export const EVENTS = [["needs-input", "A run needs you"], ["finished", "A run has finished"], ["failed", "A run has failed"]];

const isSupported = "Notification" in window;
/** "default" before the person was asked, then "granted" or "denied". */
export const permission = signal(isSupported ? Notification.permission : "denied");

/** Whether this browser notifies, and about which events; kept in this browser. */
export const choice = signal(readChoice());

function readChoice() {
  const all = { isOn: true, ...Object.fromEntries(EVENTS.map(([event]) => [event, true])) };
  try {
    return { ...all, ...JSON.parse(localStorage.getItem(KEY)) };
  } catch {
    return all;
  }
}

export function changeChoice(change) {
  choice.value = { ...choice.value, ...change };
  localStorage.setItem(KEY, JSON.stringify(choice.value));
}

/** Whether the person has not been asked about notifications yet. */
export const canAskToNotify = computed(() => permission.value === "default");

/** Whether the browser could notify if the person wants it to. */
export const canNotify = computed(() => permission.value === "granted");

export async function askToNotify() {
  permission.value = await Notification.requestPermission();
  changeChoice({ isOn: permission.value === "granted" });
  return permission.value === "granted"
    ? "This browser notifies you; Settings says about what."
    : "Notifications stay off; the browser's settings for this page can turn them on.";
}

const wants = (event) => permission.peek() === "granted" && choice.peek().isOn && choice.peek()[event];

/** The ids of the requests that were open before, or null before the first list arrived. */
let known = null;

effect(() => {
  const name = pageName.value || "Podium";
  document.title = requests.value?.length ? `(${requests.value.length}) ${name}` : name;
});

effect(() => {
  const open = requests.value;
  if (!open) return;
  setBadge(open.length);
  const fresh = known ? open.filter((one) => !known.has(one.id)) : [];
  known = new Set(open.map((one) => one.id));
  if (fresh.length && document.visibilityState === "hidden" && wants("needs-input")) notifyOfRequests(fresh);
});

/** The ids of the runs that were active before, or null before the first overview arrived. */
let active = null;

effect(() => {
  const found = overview.value;
  if (!found) return;
  const ended = active ? found.ended.filter((one) => active.has(one.id)) : [];
  active = new Set(found.active.map((one) => one.id));
  if (document.visibilityState !== "hidden") return;
  // A worker that another run started is not reported: that run reports on it. Nor is a run that a person stopped.
  for (const run of ended.filter((one) => !one.parent && one.state !== "cancelled")) {
    const event = run.state === "succeeded" ? "finished" : "failed";
    if (wants(event)) notifyOfEnd(run, event);
  }
});

function setBadge(count) {
  if (!navigator.setAppBadge) return;
  const done = count ? navigator.setAppBadge(count) : navigator.clearAppBadge();
  done.catch(() => {}); // a browser that has no place for a badge rejects it
}

function show(title, body, tag, open) {
  const shown = new Notification(title, { body: body.slice(0, 200), tag, icon: "icon.svg" });
  shown.onclick = () => {
    focus();
    open();
    shown.close();
  };
}

function notifyOfRequests(fresh) {
  const [first] = fresh;
  const title = fresh.length > 1 ? `${fresh.length} requests need you` : `${first.agent} needs you`;
  show(title, first.text, "podium-requests", () => go("approvals", fresh.length > 1 ? "" : first.id));
}

function notifyOfEnd(run, event) {
  show(`${run.worker || run.agent} has ${event}`, run.request, `podium-run-${run.id}`, () => go("run", run.id));
}
