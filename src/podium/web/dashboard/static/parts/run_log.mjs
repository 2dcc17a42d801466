// The entries of one run: loaded, followed live, folded into views, and kept in chunks so that memory is bounded.

import { batch, signal } from "../vendor.mjs";
import { get } from "../api.mjs";
import { EMPTY_VIEW, applyAll, findState } from "../run_view.mjs";
import { watchRun } from "../state.mjs";
import { RunIndex } from "./run_index.mjs";

/** How many entries lie between two snapshots of the view. */
export const CHUNK = 1000;
/** How many chunks of entries stay in memory; older ones are loaded again when somebody looks at them. */
const MOST_CHUNKS = 20;
/** How many entries of a burst are folded at once, and how many milliseconds of folding pass before the page may draw. */
const SLICE = 1000;
const BUSY = 40;
/** The time in milliseconds between two updates of the page, however many entries arrive. */
const PACE = 150;
/** How often in milliseconds a run is checked for what the stream cannot tell: that its process died. */
const CHECK = 15000;

const pause = () => new Promise((done) => setTimeout(done, 0));

export class RunLog {
  constructor(name) {
    this.id = name;
    this.view = signal(EMPTY_VIEW);
    /** The run's state as the server last derived it. */
    this.served = signal("");
    this.problem = signal("");
    this.isLoaded = signal(false);
    this.index = new RunIndex();
    this.chunks = new Map();
    this.snapshots = [EMPTY_VIEW];
    this.last = 0;
    this.pending = [];
    this.timer = 0;
    this.fetching = null;
    this.isClosed = false;
  }

  /** Load the run, then follow it until `close`. */
  async open() {
    try {
      await this.fetchNew();
    } catch (problem) {
      this.problem.value = problem.message;
      return;
    }
    if (this.isClosed) return;
    this.isLoaded.value = true;
    this.stopWatching = watchRun(this.id, (list) => this.receive(list), () => this.catchUp());
    this.checkTimer = setInterval(() => this.view.value.ended || this.catchUp(), CHECK);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    clearInterval(this.checkTimer);
    if (this.stopWatching) this.stopWatching();
  }

  /** Load the entries after the last one. If they are being loaded, that is repeated, as it may have begun too early. */
  catchUp() {
    this.needsMore = true;
    this.fetching ||= this.fetchAll()
      .catch(() => {}) // the stream is reconnecting, and asks again
      .finally(() => { this.fetching = null; });
    return this.fetching;
  }

  async fetchAll() {
    while (this.needsMore && !this.isClosed) {
      this.needsMore = false;
      await this.fetchNew();
    }
  }

  async fetchNew() {
    for (let hasMore = true; hasMore && !this.isClosed;) {
      const page = await get(`/api/runs/${encodeURIComponent(this.id)}/entries?after=${this.last}`);
      this.id = page.run;
      hasMore = page.has_more;
      await this.addSlowly(page.entries);
      this.served.value = page.state;
    }
  }

  /** Add many entries, with pauses in which the page can draw and react. */
  async addSlowly(entries) {
    let since = performance.now();
    for (let start = 0; start < entries.length && !this.isClosed; start += SLICE) {
      if (performance.now() - since > BUSY) {
        await pause();
        since = performance.now();
      }
      this.add(entries.slice(start, start + SLICE));
    }
  }

  receive(list) {
    for (const entry of list) if (entry.run === this.id) this.pending.push(entry);
    this.timer ||= setTimeout(() => this.flush(), PACE);
  }

  flush() {
    const some = this.pending.splice(0, SLICE);
    this.timer = this.pending.length ? setTimeout(() => this.flush(), PACE) : 0;
    this.add(some);
  }

  /** Add entries. Known ones are skipped; if some are missing before them, they are loaded. */
  add(entries) {
    const first = entries.findIndex((entry) => entry.seq > this.last);
    if (first < 0) return;
    let end = first;
    while (end < entries.length && entries[end].seq === this.last + 1 + end - first) end += 1;
    if (end < entries.length) {
      this.pending = [];
      this.catchUp();
    }
    this.append(entries.slice(first, end));
  }

  append(entries) {
    let view = this.view.peek();
    for (let start = 0; start < entries.length;) {
      const part = entries.slice(start, start + CHUNK - (this.last % CHUNK));
      const number = Math.floor(this.last / CHUNK);
      view = applyAll(view, part);
      this.index.addAll(part);
      this.keepChunk(number, [...(this.chunks.get(number) ?? []), ...part]);
      this.last += part.length;
      if (this.last % CHUNK === 0) this.snapshots[this.last / CHUNK] = view;
      start += part.length;
    }
    batch(() => {
      this.view.value = view;
      if (this.isLoaded.value && entries.length) this.served.value = "running";
    });
  }

  keepChunk(number, entries) {
    this.chunks.delete(number);
    this.chunks.set(number, entries);
    if (this.chunks.size <= MOST_CHUNKS) return;
    const newest = Math.floor(this.last / CHUNK);
    const oldest = [...this.chunks.keys()].find((one) => one < newest && one !== number);
    if (oldest !== undefined) this.chunks.delete(oldest);
  }

  /** Return a chunk of entries, or a promise of it if it has to be loaded. */
  readChunk(number) {
    const found = this.chunks.get(number);
    if (found) return found;
    const range = `after=${number * CHUNK}&until=${(number + 1) * CHUNK}`;
    return get(`/api/runs/${encodeURIComponent(this.id)}/entries?${range}`).then((page) => {
      this.keepChunk(number, page.entries);
      return page.entries;
    });
  }

  /** Return the entry with this number if it is in memory. */
  peekEntry(seq) {
    return this.chunks.get(Math.floor((seq - 1) / CHUNK))?.[(seq - 1) % CHUNK];
  }

  /** Load the entry with this number. */
  async readEntry(seq) {
    return (await this.readChunk(Math.floor((seq - 1) / CHUNK)))[(seq - 1) % CHUNK];
  }

  /** Return the view after the entry with this number, or a promise of it. */
  viewAt(seq) {
    if (seq >= this.last) return this.view.peek();
    const number = Math.floor(seq / CHUNK);
    const fold = (entries) => applyAll(this.snapshots[number], entries.slice(0, seq - number * CHUNK));
    if (seq % CHUNK === 0) return this.snapshots[number];
    const chunk = this.readChunk(number);
    return chunk instanceof Promise ? chunk.then(fold) : fold(chunk);
  }
}

/** Return the run's state: the outcome, "paused", "limit" (it waits for a limit), "running", "resumable" (no process works on it) or "queued". */
export function findRunState(log) {
  const view = log.view.value;
  const state = findState(view);
  if (state === "paused" && view.wakesAt) return "limit";
  return state === "running" && ["resumable", "queued"].includes(log.served.value) ? log.served.value : state;
}
