// What every screen shares: the overview and the open requests, loaded again when the stream says that they changed.

import { batch, effect, signal } from "./vendor.mjs";
import { get, token } from "./api.mjs";
import { TabStream } from "./tab_stream.mjs";

/** What GET /api/overview returns, or null before it is loaded. */
export const overview = signal(null);
/** The open requests, oldest first, each as GET /api/requests returns it, or null before they are loaded. */
export const requests = signal(null);
/** What GET /api/session returns, or null. */
export const session = signal(null);
/** Raised by one whenever anything changed in any run; screens that load lists of their own depend on it. */
export const changes = signal(0);
/** A sentence to show for a short time, such as the result of a command, or null: {text, isProblem}. */
export const message = signal(null);
/** What the page is about, for its title; empty for the whole product. */
export const pageName = signal("");
/** The time of the moment that is replayed, in seconds, or 0 if the page shows what is true now. */
export const replayedAt = signal(0);
/** The server's clock minus this browser's, in seconds. */
export const clockOffset = signal(0);

/** The current time of the server, in seconds. */
export const serverNow = () => Date.now() / 1000 + clockOffset.value;

const REFRESH = 250;
const NEEDS_REQUESTS = new Set([
  "permission_asked", "permission_answered", "question_asked", "question_answered", "run_ended", "run_resumed",
  "operation_ended", "turn_ended", "action_refused",
]);

let stream = null;
let watched = { run: "", onNews: null };
let refreshTimer = 0;
/** Whether the lists are being loaded, and whether something has changed since that began. */
let isLoading = false;
let hasChanged = false;
let wantsRequests = true;

export function say(text, isProblem = false) {
  message.value = { text, isProblem };
}

/** Call `onNews` when something has happened in a run, or may have. Return a function that ends this. */
export function watchRun(run, onNews) {
  watched = { run, onNews };
  return () => {
    if (watched.onNews === onNews) watched = { run: "", onNews: null };
  };
}

function openStream() {
  stream = new TabStream({
    changes(byRun) {
      if (watched.onNews && Object.hasOwn(byRun, watched.run)) watched.onNews();
      noteKinds(Object.values(byRun).flat());
    },
    mail() {
      noteKinds(["permission_answered"]);
    },
    connected() {
      if (watched.onNews) watched.onNews();
      noteKinds(["permission_asked"]);
    },
  });
}

function noteKinds(kinds) {
  wantsRequests ||= kinds.some((kind) => NEEDS_REQUESTS.has(kind));
  hasChanged = true;
  if (!refreshTimer && !isLoading) refreshTimer = setTimeout(refresh, REFRESH);
}

/** Load the overview, and the requests if they may have changed. */
export async function refresh() {
  clearTimeout(refreshTimer);
  refreshTimer = 0;
  isLoading = true;
  hasChanged = false;
  const both = wantsRequests;
  wantsRequests = false;
  try {
    const [found, open] = await Promise.all([get("/api/overview"), both ? get("/api/requests") : null]);
    batch(() => {
      clockOffset.value = found.now - Date.now() / 1000;
      overview.value = found;
      if (open) requests.value = open.requests;
      changes.value += 1;
    });
  } catch (problem) {
    wantsRequests ||= both;
    if (token.value && problem.status) say(problem.message, true);
  }
  isLoading = false;
  // What happened while the lists were loaded may not be in them.
  if (hasChanged && !refreshTimer) refreshTimer = setTimeout(refresh, REFRESH);
}

/** Load everything when somebody signs in, and forget it when they sign out. */
effect(() => {
  if (stream) stream.stop();
  stream = null;
  if (!token.value) return;
  wantsRequests = true;
  refresh();
  get("/api/session").then((found) => { session.value = found; }).catch(() => {});
  openStream();
});
