// Keys. One listener for the whole page, so that a key never does two things.

import { signal, useLayoutEffect } from "../vendor.mjs";
import { go } from "../router.mjs";

/** The screens by the key that follows g. */
export const SCREEN_BY_KEY = {
  n: "now", r: "runs", a: "approvals", p: "plans", d: "decisions", w: "workers", c: "cost", t: "teams", s: "settings",
};

/** Whether g was pressed and the next key chooses a screen. It waits for that key, however long it takes. */
export const isChoosingPlace = signal(false);

const screenKeys = [];
const frameKeys = new Map();

/** Let the frame handle a key on every screen. */
export function onKey(key, handle) {
  frameKeys.set(key, handle);
}

/** Handle keys as long as a component is shown: `{y: () => …}`. A handler that returns false leaves the key alone. */
export function useKeys(handlers) {
  // At once and not after the next paint: a key must never meet the handlers of what was shown before.
  useLayoutEffect(() => {
    screenKeys.push(handlers);
    return () => {
      screenKeys.splice(screenKeys.indexOf(handlers), 1);
    };
  });
}

const isTyping = (element) => element && (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName));

/** Move the focus to the next or the previous item of the screen's list, and return whether there is one. */
export function moveFocus(step) {
  const items = [...document.querySelectorAll("main [data-item]")].filter((one) => one.getClientRects().length);
  if (!items.length) return false;
  const focused = items.indexOf(document.activeElement);
  const here = focused >= 0 ? focused : items.findIndex((one) => one.getAttribute("aria-current") === "true");
  const next = here < 0 ? (step > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, here + step));
  items[next].focus();
  items[next].scrollIntoView({ block: "nearest" });
  return true;
}

function choosePlace(event) {
  isChoosingPlace.value = false;
  const place = SCREEN_BY_KEY[event.key];
  if (place) go(place);
  event.preventDefault();
}

function handle(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && frameKeys.has("ctrl-k")) {
    event.preventDefault();
    frameKeys.get("ctrl-k")();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (isChoosingPlace.value) {
    if (event.key !== "Shift") choosePlace(event);
    return;
  }
  const handlers = [frameKeys.get(event.key), ...screenKeys.map((keys) => keys[event.key]).reverse()].filter(Boolean);
  // A key that is held down must not answer one request after the other.
  if (event.repeat && event.key !== "j" && event.key !== "k") return;
  if (handlers.some((one) => one(event) !== false)) event.preventDefault();
}

document.addEventListener("keydown", handle);
document.addEventListener("pointerdown", () => {
  isChoosingPlace.value = false;
});

onKey("g", () => {
  isChoosingPlace.value = true;
});
onKey("j", () => moveFocus(1));
onKey("k", () => moveFocus(-1));
