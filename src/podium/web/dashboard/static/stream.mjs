// The stream of the server's events. It reconnects by itself, from the last cursor, so that no entry is missed.

import { token } from "./api.mjs";

const FIRST_DELAY = 300;
const LONGEST_DELAY = 5000;
/** The server sends something at least every 15 s. */
const SILENCE = 40000;

/**
 * Read the server's events after `cursor`, or from now on without one, until `stop` is called.
 *
 * `tell` gets messages: `connected`, with `isFresh` if the stream has begun without a cursor; `lost`, with the `delay`
 * before the next attempt; and what the server sends: `changes`, `mail` and `comment`, with the `data` as text and the
 * `cursor` from which to continue.
 */
export function openStream({ cursor, tell }) {
  let last = cursor;
  let stopped = false;
  let isOpen = false;
  let abort = null;
  let delay = FIRST_DELAY;
  let silence = 0;
  let retryNow = () => {};

  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), SILENCE);
  };

  const read = async () => {
    abort = new AbortController();
    const query = new URLSearchParams({ client: "true", runs: "" });
    const headers = { Authorization: `Bearer ${token.value}` };
    if (last !== null) headers["Last-Event-ID"] = last;
    heard();
    const response = await fetch(`/api/events?${query}`, { headers, signal: abort.signal });
    if (response.status === 422) {
      // The server does not know the cursor, because its store was replaced.
      last = null;
      return;
    }
    if (!response.ok) throw new Error(`the stream replied ${response.status}`);
    delay = FIRST_DELAY;
    isOpen = true;
    tell({ kind: "connected", isFresh: last === null });
    for await (const event of parseEvents(response.body)) {
      if (stopped) return;
      heard();
      if (event.cursor) last = event.cursor;
      tell(event);
    }
  };

  const loop = async () => {
    while (!stopped && token.value) {
      try {
        await read();
      } catch (error) {
        // The connection was lost or refused.
      }
      isOpen = false;
      clearTimeout(silence);
      if (stopped) return;
      tell({ kind: "lost", delay });
      await new Promise((done) => {
        retryNow = done;
        setTimeout(done, delay);
      });
      delay = Math.min(delay * 2, LONGEST_DELAY);
    }
  };

  const wake = () => {
    if (document.visibilityState !== "visible" || isOpen) return;
    delay = FIRST_DELAY;
    abort.abort();
    retryNow();
  };
  addEventListener("online", wake);
  document.addEventListener("visibilitychange", wake);
  loop();
  return {
    /** Try again now, if the stream waits before the next attempt. */
    retry: () => retryNow(),
    stop() {
      stopped = true;
      clearTimeout(silence);
      removeEventListener("online", wake);
      document.removeEventListener("visibilitychange", wake);
      abort.abort();
      retryNow();
    },
  };
}

/** Yield the server-sent events of a response body. */
async function* parseEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = { kind: "comment", data: "", cursor: "" };
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("data: ")) event.data += line.slice(6);
        else if (line.startsWith("event: ")) event.kind = line.slice(7);
        else if (line.startsWith("id: ")) event.cursor = line.slice(4);
      }
      text = text.slice(end + 2);
      yield event;
    }
  }
}
