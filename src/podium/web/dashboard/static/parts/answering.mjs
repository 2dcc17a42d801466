// Sending answers, and what became of requests that somebody else answered.

import { signal, useEffect, useRef, useState } from "../vendor.mjs";
import { get, post } from "../api.mjs";
import { requests, serverNow } from "../state.mjs";

/** Milliseconds before a request that just appeared can be answered, so that a stray key or tap decides nothing. */
export const GUARD = 500;
const MOST_CLOSED = 20;

const DECISIONS = {
  once: "Approved once", run: "Approved for the run", always: "Always allowed", deny: "Denied",
  deny_and_pause: "Denied, and the run paused,", abort: "Denied, and the run stopped,", answered: "Answered",
};

/** The ids of the requests that were answered on this page. */
const answeredHere = signal(new Set());

/** The open requests without those that were answered here a moment ago, or null before they are loaded. */
export function listOpen() {
  return requests.value && requests.value.filter((one) => !answeredHere.value.has(one.id));
}

/** Answer a request. The answer holds for exactly what the person saw. */
export async function sendAnswer(request, answer) {
  const shown = request.kind === "permission" ? request.action_id : request.digest;
  const done = await post(`/api/requests/${encodeURIComponent(request.id)}/answer`, { shown, ...answer });
  answeredHere.value = new Set([...answeredHere.value, request.id]);
  return done;
}

/** Say what an answer did. An answer to a run that nobody works on waits for the run. */
export function describeAnswer(request, what, done = {}) {
  const saved = done.saved_rule ? ` The rule ${done.saved_rule} is saved.` : "";
  const stands = { running: "", paused: "paused", waiting: "waiting for a limit" }[request.state] ?? "interrupted";
  const later = stands && ` The run is ${stands}; the answer counts when it resumes.`;
  return `${what}: ${request.text.slice(0, 80)}.${saved}${later}`;
}

/** Return the sentence about a request that cannot be answered any more. */
function describeClosing(problem) {
  const found = /was already answered: (\w+) by (.*)$/s.exec(problem.message);
  return found && DECISIONS[found[1]] ? `${DECISIONS[found[1]]} by ${found[2]}` : problem.message;
}

/** Return why a request is closed, or an empty string if it is open. */
export async function findClosing(id) {
  try {
    await get(`/api/requests/${encodeURIComponent(id)}`);
    return "";
  } catch (problem) {
    return describeClosing(problem);
  }
}

/** The requests that were closed elsewhere while the screen was shown: [{request, text, at}], until they are dismissed. */
export function useClosedRequests() {
  const [closed, setClosed] = useState([]);
  const before = useRef(new Map());
  const open = requests.value;
  useEffect(() => {
    if (!open) return;
    const here = new Map(open.map((one) => [one.id, one]));
    for (const [id, request] of before.current) {
      if (here.has(id) || answeredHere.value.has(id)) continue;
      const one = { request, text: "Closed elsewhere", at: serverNow() };
      setClosed((list) => [...list, one].slice(-MOST_CLOSED));
      findClosing(id).then((text) => {
        if (text) setClosed((list) => list.map((other) => (other === one ? { ...one, text } : other)));
      });
    }
    before.current = here;
  }, [open]);
  const dismiss = (id) => setClosed((list) => list.filter((one) => one.request.id !== id));
  return { closed: closed.filter((one) => !(open || []).some((other) => other.id === one.request.id)), dismiss };
}

/** Whether a component that appeared or whose `content` changed is older than GUARD. */
export function useGuard(content) {
  const [guarded, setGuarded] = useState(null);
  useEffect(() => {
    const timer = setTimeout(() => setGuarded(content), GUARD);
    return () => clearTimeout(timer);
  }, [content]);
  return guarded === content;
}

/**
 * Whether `content` has been shown to its end. `end` goes to an element after the last line: it must have been in sight,
 * which it is at once if everything fits, and otherwise when the person has scrolled to it.
 */
export function useShownToEnd(content) {
  const end = useRef(null);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const bottom = document.querySelector(".nav").getBoundingClientRect();
    const covered = bottom.top > 0 ? innerHeight - bottom.top : 0;
    const margin = `-${parseInt(style.getPropertyValue("--bar"), 10)}px 0px -${Math.round(covered)}px 0px`;
    const observer = new IntersectionObserver((seen) => {
      if (seen.some((one) => one.isIntersecting)) setShown(content);
    }, { rootMargin: margin });
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [content]);
  return { end, isShown: shown === content };
}
