// A run that is looked at: its state now, its state at an earlier entry, and its entries. What is no longer needed is
// forgotten, so that memory is bounded, and loaded again when somebody looks at it.

import { batch, signal } from "../vendor.mjs";
import { get } from "../api.mjs";
import { applyChanges } from "../changes.mjs";
import { findState } from "../run_state.mjs";
import { watchRun } from "../state.mjs";

/** How many entries are loaded together. */
export const CHUNK = 1000;
/** How many chunks of entries, and how many chunks of changes, stay in memory. */
const MOST_CHUNKS = 10;
/** The time in milliseconds between two updates of the page, however many entries are written. */
const PACE = 150;
/** How often in milliseconds a run is checked for what the stream cannot tell: that its process died. */
const CHECK = 15000;

export class RunLog {
  constructor(name) {
    this.id = name;
    /** The state of the run now, or null until it is loaded: see views/run_state/. */
    this.live = signal(null);
    /** The run's state as the server last derived it. */
    this.served = signal("");
    this.problem = signal("");
    this.entries = new Chunks((after, until) => this.fetchEntries(after, until));
    this.replay = new Chunks((after, until) => this.fetchChanges(after, until));
    this.timer = 0;
    this.fetching = null;
    this.isClosed = false;
  }

  get view() { return this.live.value.view; }

  get activity() { return this.live.value.activity; }

  /** The number of the last entry. */
  get last() { return this.view.seq; }

  get address() { return `/api/runs/${encodeURIComponent(this.id)}`; }

  /** Load the run, then follow it until `close`. */
  async open() {
    try {
      await this.load();
    } catch (problem) {
      this.problem.value = problem.message;
      return;
    }
    if (this.isClosed) return;
    this.stopWatching = watchRun(this.id, () => this.catchUpSoon());
    this.checkTimer = setInterval(() => this.view.ended || this.catchUp(), CHECK);
    this.catchUp();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    clearInterval(this.checkTimer);
    if (this.stopWatching) this.stopWatching();
  }

  async load() {
    const { run, state, document } = await get(`${this.address}/state`);
    this.id = run;
    this.show(document, state);
  }

  show(document, served) {
    batch(() => {
      this.live.value = document;
      this.served.value = served;
    });
  }

  catchUpSoon() {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      this.catchUp();
    }, PACE);
  }

  /** Load what changed after the last entry. If that is being done, it is repeated, as it may have begun too early. */
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
    const { state, has_more: isFarBehind, changes } = await get(`${this.address}/changes?after=${this.last}`);
    if (isFarBehind) await this.load();
    else this.show(changes.length ? applyChanges(this.live.value, changes.flat()) : this.live.value, state);
  }

  // Entries

  fetchEntries(after, until) {
    return get(`${this.address}/entries?after=${after}&until=${until}`).then((page) => page.entries);
  }

  /** Return the entry with this number if it is in memory. */
  peekEntry(seq) {
    return this.entries.peek(seq);
  }

  /** Load the entry with this number. */
  async readEntry(seq) {
    await this.entries.load(seq);
    return this.entries.peek(seq);
  }

  // Replay

  /** Return the changes of some entries and, before them, the whole document. */
  async fetchChanges(after, until) {
    const wanted = [get(`${this.address}/changes?after=${after}&until=${until}`)];
    if (after && after % CHUNK === 0) wanted.push(get(`${this.address}/state?at=${after}`));
    const [{ changes }, base] = await Promise.all(wanted);
    if (base) changes[0].unshift([[], "set", base.document]);
    return changes;
  }

  /** Return the view after the entry with this number, or a promise of it. */
  viewAt(seq) {
    if (seq >= this.last) return this.view;
    const found = this.replay.peekUntil(seq);
    return found ? replayView(found) : this.replay.load(seq).then(() => replayView(this.replay.peekUntil(seq)));
  }
}

/** Return the view after these changes, which begin with a whole document. What agents do over time is not replayed. */
function replayView(changes) {
  return applyChanges({}, changes.flat().filter(([place]) => place[0] !== "activity")).view;
}

/** Lists of one item for each entry, loaded in chunks. The items of a live run's last chunk are loaded as they appear. */
class Chunks {
  constructor(fetch) {
    this.fetch = fetch;
    this.chunks = new Map();
    this.loading = new Map();
  }

  /** Return the items of a chunk up to an entry, or undefined if they are not in memory. */
  peekUntil(seq) {
    const [number, count] = placeOf(seq);
    const found = this.chunks.get(number);
    return found?.length >= count ? found.slice(0, count) : undefined;
  }

  peek(seq) {
    const [number, count] = placeOf(seq);
    return this.chunks.get(number)?.[count - 1];
  }

  /** Load a chunk, at least up to an entry that exists. */
  async load(seq) {
    const [number, count] = placeOf(seq);
    while (!(this.chunks.get(number)?.length >= count)) {
      if (!this.loading.has(number)) {
        this.loading.set(number, this.loadMore(number).finally(() => this.loading.delete(number)));
      }
      await this.loading.get(number);
    }
  }

  async loadMore(number) {
    const known = this.chunks.get(number) ?? [];
    const more = await this.fetch(number * CHUNK + known.length, (number + 1) * CHUNK);
    if (!more.length) throw new Error("the entry does not exist");
    this.chunks.delete(number);
    this.chunks.set(number, [...known, ...more]);
    if (this.chunks.size > MOST_CHUNKS) this.chunks.delete(this.chunks.keys().next().value);
  }
}

/** Return the number of the chunk of an entry, and how many items of the chunk there are up to the entry. */
function placeOf(seq) {
  const number = Math.floor((seq - 1) / CHUNK);
  return [number, seq - number * CHUNK];
}

/** Return the run's state: the outcome, "paused", "limit" (it waits for a limit), "running", "resumable" (no process works on it) or "queued". */
export function findRunState(log) {
  const { view } = log;
  const state = findState(view);
  if (state === "paused" && view.wakes_at) return "limit";
  return state === "running" && ["resumable", "queued"].includes(log.served.value) ? log.served.value : state;
}
