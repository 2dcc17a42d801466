// One stream for all tabs of a browser that have the same token. The tab with the lock reads it and passes everything on
// to the others. When that tab closes, the browser gives the lock to another one, which continues from the last cursor.

import { signal } from "./vendor.mjs";
import { token } from "./api.mjs";
import { openStream } from "./stream.mjs";

/** How long a tab may hear nothing from the one that reads the stream, which sends something at least every 15 s. */
const SILENCE = 45000;

/** "connecting", "live" or "reconnecting". */
export const connection = signal("connecting");

/** Return whether this browser can share a stream between tabs. If not, every tab reads its own. */
const canShare = () => Boolean(navigator.locks && globalThis.BroadcastChannel && crypto.subtle);

/**
 * This tab's part in the stream.
 *
 * `on.changes({run: [kind]})` gets the runs in which something happened, and `on.mail()` says that somebody answered or
 * sent a message. `on.connected()` says that the stream is open and that something may have happened before that: what
 * is shown has to be loaded again.
 */
export class TabStream {
  constructor(on) {
    this.on = on;
    this.tab = crypto.randomUUID();
    this.cursor = null;
    /** Whether something may have happened that this tab has not received. */
    this.isBehind = true;
    /** This tab's stream, if it is the tab that reads. */
    this.stream = null;
    this.isLive = false;
    /** The reading tab and the number of its last message, to notice one that is missing. */
    this.reader = "";
    this.number = 0;
    this.join();
  }

  async join() {
    if (!canShare()) {
      this.connect();
      return;
    }
    this.name = await nameStream(token.value);
    if (this.isStopped) return;
    this.channel = new BroadcastChannel(this.name);
    this.channel.onmessage = ({ data }) => this.hear(data);
    this.send({ kind: "ask" });
    this.expectMessage();
    this.waitForLock({});
  }

  stop() {
    this.isStopped = true;
    this.disconnect();
    clearTimeout(this.silence);
    if (!this.channel) return;
    this.channel.close();
    this.channel = null;
    this.waiting.abort();
    if (this.release) this.release();
  }

  send(message) {
    if (this.channel) this.channel.postMessage({ ...message, tab: this.tab });
  }

  /** Read the stream as soon as no other tab does, or at once with `steal`. */
  async waitForLock({ steal = false }) {
    const waiting = new AbortController();
    this.waiting = waiting;
    try {
      await navigator.locks.request(this.name, steal ? { steal } : { signal: waiting.signal }, () => {
        if (waiting.signal.aborted) return undefined;
        clearTimeout(this.silence);
        this.connect();
        return new Promise((release) => { this.release = release; });
      });
    } catch (error) {
      // Another tab has taken the lock, or this one no longer waits for it.
    }
    if (waiting !== this.waiting || this.isStopped) return;
    this.disconnect();
    this.expectMessage();
    this.waitForLock({});
  }

  /** Take the lock if the tab that has it stays silent, because the browser has suspended it. */
  expectMessage() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      this.waiting.abort();
      this.waitForLock({ steal: true });
    }, SILENCE);
  }

  connect() {
    this.disconnect();
    this.stream = openStream({ cursor: this.cursor, tell: (message) => this.pass(message) });
  }

  disconnect() {
    if (this.stream) this.stream.stop();
    this.stream = null;
    this.isLive = false;
  }

  /** Handle a message of this tab's stream, and pass it on to the other tabs. */
  pass(message) {
    if (message.kind === "connected") this.isLive = true;
    if (message.kind === "lost") this.isLive = false;
    const numbered = { ...message, number: ++this.number };
    this.send(numbered);
    this.handle(numbered);
  }

  hear(message) {
    // A tab that is new, or has missed a message, asks whether the stream is open.
    if (message.kind === "ask" && this.isLive) this.pass({ kind: "connected", isFresh: false });
    else if (message.kind === "retry") this.stream?.retry();
    else if (message.kind !== "ask" && !this.stream) this.receive(message);
  }

  /** Handle a message that another tab has passed on. */
  receive(message) {
    this.expectMessage();
    if (message.tab !== this.reader || message.number !== this.number + 1) {
      this.isBehind = true;
      if (message.kind !== "connected") this.send({ kind: "ask" });
    }
    this.reader = message.tab;
    this.number = message.number;
    this.handle(message);
    // The browser slows down the clocks of hidden tabs, so a visible one says when to try again.
    if (message.kind === "lost" && document.visibilityState === "visible") {
      setTimeout(() => this.send({ kind: "retry" }), message.delay);
    }
  }

  handle(message) {
    if (message.cursor) this.cursor = message.cursor;
    if (message.kind === "connected") this.noteConnected(message);
    else if (message.kind === "lost") this.noteLost();
    else if (message.kind === "changes") this.on.changes(JSON.parse(message.data));
    else if (message.kind === "mail") this.on.mail();
  }

  noteConnected({ isFresh }) {
    connection.value = "live";
    this.wasLost = false;
    if (!(this.isBehind || isFresh)) return;
    this.isBehind = false;
    this.on.connected();
  }

  /** A first attempt that fails is no lost connection yet. */
  noteLost() {
    if (connection.value === "live" || this.wasLost) connection.value = "reconnecting";
    this.wasLost = true;
    this.isBehind = true;
  }
}

/** Return the name of the lock and the channel of the tabs with this token, without the token in it. */
async function nameStream(secret) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret));
  return `podium-stream-${[...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
