// Ways to tell a person who looks elsewhere that something needs them: the title, the badge of the app, a notification.

import { computed, effect, signal } from "../vendor.mjs";
import { requests } from "../state.mjs";
import { go } from "../router.mjs";

const permission = signal("Notification" in window ? Notification.permission : "denied");

/** Whether the person has not been asked about notifications yet. */
export const canAskToNotify = computed(() => permission.value === "default");

export async function askToNotify() {
  permission.value = await Notification.requestPermission();
  return permission.value === "granted"
    ? "This browser notifies you when something needs you."
    : "Notifications stay off; the browser's settings for this page can turn them on.";
}

/** The ids of the requests that were open before, or null before the first list arrived. */
let known = null;

effect(() => {
  const open = requests.value;
  if (!open) return;
  document.title = open.length ? `(${open.length}) Podium` : "Podium";
  setBadge(open.length);
  const fresh = known ? open.filter((one) => !known.has(one.id)) : [];
  known = new Set(open.map((one) => one.id));
  if (fresh.length && document.visibilityState === "hidden" && permission.peek() === "granted") notify(fresh);
});

function setBadge(count) {
  if (!navigator.setAppBadge) return;
  const done = count ? navigator.setAppBadge(count) : navigator.clearAppBadge();
  done.catch(() => {}); // a browser that has no place for a badge rejects it
}

function notify(fresh) {
  const [first] = fresh;
  const title = fresh.length > 1 ? `${fresh.length} requests need you` : `${first.agent} needs you`;
  const shown = new Notification(title, { body: first.text.slice(0, 200), tag: "podium-requests", icon: "icon.svg" });
  shown.onclick = () => {
    focus();
    go("approvals", fresh.length > 1 ? "" : first.id);
    shown.close();
  };
}
