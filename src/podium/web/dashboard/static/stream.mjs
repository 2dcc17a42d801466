// One stream for the whole tab. It reconnects by itself, from the last cursor, so that no entry is missed.

import { signal } from "./vendor.mjs";
import { token } from "./api.mjs";

const FIRST_DELAY = 300;
const LONGEST_DELAY = 5000;
/** The server sends something at least every 15 s. */
const SILENCE = 40000;

/** "connecting", "live" or "reconnecting". */
export const connection = signal("connecting");

/**
 * Follow the server until `stop` is called.
 *
 * `follow(runs)` returns the ids of the runs whose entries are wanted. `on.entries(list)` gets their entries,
 * `on.changes({run: [kind]})` the other runs in which something happened, `on.mail()` says that somebody answered or sent
 * a message, `on.connected()` that the stream is open, and `on.reset()` that everything has to be loaded again, because
 * the server does not know the cursor.
 */
export function openStream({ runs, cursor, on }) {
  let last = cursor;
  let stopped = false;
  let abort = null;
  let delay = FIRST_DELAY;
  let timer = 0;

  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort && abort.abort(), SILENCE);
  };

  const read = async () => {
    abort = new AbortController();
    const query = new URLSearchParams({ client: "true", runs: runs.join(",") });
    const headers = { Authorization: `Bearer ${token.value}` };
    if (last !== null && last !== undefined) headers["Last-Event-ID"] = last;
    const response = await fetch(`/api/events?${query}`, { headers, signal: abort.signal });
    if (response.status === 422) {
      last = null;
      on.reset();
      return;
    }
    if (!response.ok) throw new Error(`the stream replied ${response.status}`);
    connection.value = "live";
    delay = FIRST_DELAY;
    heard();
    on.connected();
    for await (const event of parseEvents(response.body)) {
      heard();
      if (event.name === "entries") on.entries(JSON.parse(event.data));
      else if (event.name === "changes") on.changes(JSON.parse(event.data));
      else if (event.name === "mail") on.mail();
      if (event.id) last = event.id;
    }
  };

  const loop = async () => {
    let isFirst = true;
    while (!stopped && token.value) {
      try {
        await read();
      } catch (error) {
        if (stopped) return;
      }
      clearTimeout(timer);
      if (stopped) return;
      connection.value = isFirst && connection.value === "connecting" ? "connecting" : "reconnecting";
      isFirst = false;
      await new Promise((done) => setTimeout(done, delay));
      delay = Math.min(delay * 2, LONGEST_DELAY);
    }
  };

  loop();
  const wake = () => {
    delay = FIRST_DELAY;
    if (document.visibilityState === "visible" && connection.value === "reconnecting" && abort) abort.abort();
  };
  addEventListener("online", wake);
  document.addEventListener("visibilitychange", wake);
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      removeEventListener("online", wake);
      document.removeEventListener("visibilitychange", wake);
      if (abort) abort.abort();
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
      const event = { name: "comment", data: "", id: "" };
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("data: ")) event.data += line.slice(6);
        else if (line.startsWith("event: ")) event.name = line.slice(7);
        else if (line.startsWith("id: ")) event.id = line.slice(4);
      }
      text = text.slice(end + 2);
      yield event;
    }
  }
}
