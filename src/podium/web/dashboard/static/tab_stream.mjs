// One stream for all tabs of a browser that have the same token. The tab with the lock reads it and passes everything on
// to the others. When that tab closes, the browser gives the lock to another one, which continues from the last cursor.

import { signal } from "./vendor.mjs";
import { token } from "./api.mjs";
import { openStream } from "./stream.mjs";

/** How long to collect the wishes of several tabs before the stream is opened again for other runs. */
const GATHER = 50;
/** How long a tab may hear nothing from the one that reads the stream, which sends something at least every 15 s. */
const SILENCE = 45000;

/** "connecting", "live" or "reconnecting". */
export const connection = signal("connecting");

/** Return whether this browser can share a stream between tabs. If not, every tab reads its own. */
const canShare = () => Boolean(navigator.locks && globalThis.BroadcastChannel && crypto.subtle);

/**
 * This tab's part in the stream.
 *
 * `on.entries(list)` gets the entries of the runs that this tab follows, `on.changes({run: [kind]})` the other runs in
 * which something happened, and `on.mail()` says that somebody answered or sent a message. `on.connected()` says that
 * the stream is open and that something may have happened before that: what is shown has to be loaded again.
 */
export class TabStream {
  constructor(on) {
    this.on = on;
    this.tab = crypto.randomUUID();
    this.runs = [];
    this.cursor = null;
    /** Whether something may have happened that this tab has not received. */
    this.isBehind = true;
    /** This tab's stream and its runs, if it is the tab that reads, and the runs that the other tabs follow. */
    this.stream = null;
    this.streamed = [];
    this.wanted = new Map();
    this.isLive = false;
    /** The reading tab and the number of its last message, to notice one that is missing. */
    this.reader = "";
    this.number = 0;
    this.leave = () => this.send({ kind: "leave" });
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
    addEventListener("pagehide", this.leave);
    this.send({ kind: "want", runs: this.runs });
    this.expectMessage();
    this.waitForLock({});
  }

  stop() {
    this.isStopped = true;
    this.disconnect();
    clearTimeout(this.silence);
    if (!this.channel) return;
    removeEventListener("pagehide", this.leave);
    this.leave();
    this.channel.close();
    this.channel = null;
    this.waiting.abort();
    if (this.release) this.release();
  }

  /** Follow these runs from now on, instead of those before. */
  follow(runs) {
    this.runs = runs;
    this.isBehind = true;
    if (this.stream) this.adjustSoon();
    else this.send({ kind: "want", runs });
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
        this.wanted.clear();
        this.send({ kind: "ask" });
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
    this.streamed = this.findRuns();
    this.stream = openStream({ runs: this.streamed, cursor: this.cursor, tell: (message) => this.pass(message) });
  }

  disconnect() {
    clearTimeout(this.adjusting);
    this.adjusting = 0;
    if (this.stream) this.stream.stop();
    this.stream = null;
    this.isLive = false;
  }

  findRuns() {
    return [...new Set([...this.runs, ...[...this.wanted.values()].flat()])].sort();
  }

  /** Open the stream again if tabs follow other runs now, or say that it is open. */
  adjustSoon() {
    this.adjusting ||= setTimeout(() => {
      this.adjusting = 0;
      if (this.findRuns().join() !== this.streamed.join()) this.connect();
      else if (this.isLive) this.pass({ kind: "connected", isFresh: false });
    }, GATHER);
  }

  /** Handle a message of this tab's stream, and pass it on to the other tabs. */
  pass(message) {
    if (message.kind === "connected") this.isLive = true;
    if (message.kind === "lost") this.isLive = false;
    const numbered = { ...message, runs: this.streamed, number: ++this.number };
    this.send(numbered);
    this.handle(numbered);
  }

  hear(message) {
    if (message.kind === "ask") this.send({ kind: "want", runs: this.runs });
    else if (message.kind === "retry") this.stream?.retry();
    else if (message.kind === "want" || message.kind === "leave") this.noteWish(message);
    else if (!this.stream) this.receive(message);
  }

  noteWish({ kind, tab, runs }) {
    if (!this.stream) return;
    if (kind === "want") this.wanted.set(tab, runs);
    else this.wanted.delete(tab);
    this.adjustSoon();
  }

  /** Handle a message that another tab has passed on. */
  receive(message) {
    this.expectMessage();
    if (message.tab !== this.reader || message.number !== this.number + 1) {
      this.isBehind = true;
      if (message.kind !== "connected") this.send({ kind: "want", runs: this.runs });
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
    else if (message.kind === "entries") this.takeEntries(JSON.parse(message.data));
    else if (message.kind === "changes") this.on.changes(JSON.parse(message.data));
    else if (message.kind === "mail") this.on.mail();
  }

  noteConnected({ runs, isFresh }) {
    connection.value = "live";
    this.wasLost = false;
    if (!(this.isBehind || isFresh) || !this.runs.every((run) => runs.includes(run))) return;
    this.isBehind = false;
    this.on.connected();
  }

  /** A first attempt that fails is no lost connection yet. */
  noteLost() {
    if (connection.value === "live" || this.wasLost) connection.value = "reconnecting";
    this.wasLost = true;
    this.isBehind = true;
  }

  takeEntries(list) {
    const own = list.filter((entry) => this.runs.includes(entry.run));
    if (own.length) this.on.entries(own);
    if (own.length === list.length) return;
    const kinds = {};
    for (const { run, event } of list) if (!this.runs.includes(run)) (kinds[run] ||= []).push(event.type);
    this.on.changes(kinds);
  }
}

/** Return the name of the lock and the channel of the tabs with this token, without the token in it. */
async function nameStream(secret) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret));
  return `podium-stream-${[...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
