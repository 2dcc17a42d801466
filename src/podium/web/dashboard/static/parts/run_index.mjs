// What the run screen looks up besides the view: lanes with segments and markers, tool calls, and messages.
//
// The index only grows, and everything in it has the number of its entry. The screen at a past moment is the index up to
// that entry.

/** What an agent does, by importance: where several happen in one pixel, the last of these is drawn. */
export const IDLE = 1;
export const THINKING = 2;
export const TOOL = 3;
export const BLOCKED = 4;
export const WAITING = 5;

export const VOTES = "Votes";
export const MERGES = "Merges";

const STREAMED = new Set(["text_streamed", "reasoning_streamed"]);
/** How many chat messages are kept. */
const MOST_MESSAGES = 500;

class Lane {
  constructor(name, isAgent) {
    this.name = name;
    this.isAgent = isAgent;
    this.starts = [];
    this.ends = [];
    this.states = [];
    this.seqs = [];
    this.longest = 0;
    this.markers = [];
  }

  addSegment(state, start, end, seq) {
    this.starts.push(start);
    this.ends.push(end);
    this.states.push(state);
    this.seqs.push(seq);
    this.longest = Math.max(this.longest, end - start);
  }
}

export class RunIndex {
  constructor() {
    this.agentLanes = [];
    this.lanesByName = new Map();
    /** The operations that have not ended, by path: what each does, and since when. */
    this.open = new Map();
    this.agents = new Map();
    this.stepOwners = new Map();
    this.asked = new Map();
    /** Tool calls by operation, in order. */
    this.tools = new Map();
    this.toolsBySeq = new Map();
    /** The permission request for an action, by the scope of the action. */
    this.permissions = new Map();
    /** The workers that operations started, by operation. */
    this.workers = new Map();
    this.messages = [];
    /** The numbers of the entries that are more than a piece of streamed text. */
    this.notable = [];
    this.errors = 0;
    /** The kinds of markers that occur. */
    this.marked = new Set();
    this.firstAt = 0;
    this.lastAt = 0;
  }

  /** The lanes in the order in which they are drawn: agents as they appeared, then votes and merges. */
  get lanes() {
    const others = [VOTES, MERGES].map((name) => this.lanesByName.get(`/${name}`)).filter(Boolean);
    return [...this.agentLanes, ...others];
  }

  addAll(entries) {
    for (const entry of entries) this.add(entry);
  }

  add(entry) {
    const { event, at, seq } = entry;
    if (!this.firstAt) this.firstAt = at;
    if (!STREAMED.has(event.type)) this.notable.push(seq);
    const change = CHANGES[event.type];
    if (change) change(this, entry, event, this.open.get(entry.operation));
    const mark = MARKS[event.type];
    if (mark) mark(this, entry, event);
    this.lastAt = at;
  }

  agentLane(name) {
    let lane = this.lanesByName.get(name);
    if (!lane) {
      lane = new Lane(name, true);
      this.lanesByName.set(name, lane);
      this.agentLanes.push(lane);
    }
    return lane;
  }

  /** Return the lane for what belongs to no single agent. A slash keeps it apart from an agent of the same name. */
  otherLane(name) {
    const key = `/${name}`;
    if (!this.lanesByName.has(key)) this.lanesByName.set(key, new Lane(name, false));
    return this.lanesByName.get(key);
  }

  laneOf(operation) {
    const name = this.agents.get(operation ?? "");
    return name === undefined ? this.agentLanes[0] : this.agentLane(name);
  }

  startOperation(path, agent, at, seq) {
    this.agents.set(path, agent);
    const lane = this.agentLane(agent);
    const now = { state: IDLE, since: at, seq, isInTurn: false, isRetrying: false, isBlocked: false };
    this.open.set(path, { lane, ...now, tools: new Set(), asked: new Set() });
  }

  /** Close the current segment of an operation if what it does has changed. */
  settle(op, at, seq) {
    const state = op.asked.size ? WAITING : op.isBlocked ? BLOCKED : op.tools.size ? TOOL
      : !op.isInTurn ? IDLE : op.isRetrying ? BLOCKED : THINKING;
    if (state === op.state) return;
    op.lane.addSegment(op.state, op.since, at, op.seq);
    op.state = state;
    op.since = at;
    op.seq = seq;
  }

  closeBelow(path, at) {
    for (const [key, op] of this.open) {
      if (path !== "" && key !== path && !key.startsWith(`${path}/`)) continue;
      op.lane.addSegment(op.state, op.since, at, op.seq);
      this.open.delete(key);
    }
  }

  /** Nothing works from `at` on: the run paused, or its process died. Requests go on waiting. */
  stopWork(at, seq) {
    for (const op of this.open.values()) {
      op.isInTurn = false;
      op.tools.clear();
      this.settle(op, at, seq);
    }
  }

  mark(lane, entry, kind, to) {
    if (!lane) return;
    if (kind === "error") this.errors += 1;
    this.marked.add(kind);
    lane.markers.push({ at: entry.at, seq: entry.seq, kind, to });
  }

  addMessage(message) {
    this.messages.push(message);
    if (this.messages.length > MOST_MESSAGES * 2) this.messages = this.messages.slice(-MOST_MESSAGES);
  }
}

function work(index, op, { at, seq }, changes) {
  if (!op) return;
  Object.assign(op, changes);
  index.settle(op, at, seq);
}

function setStepBlocked(index, { at, seq }, step, isBlocked) {
  const owner = index.stepOwners.get(step);
  if (owner === undefined) return;
  const key = `/step/${step}`;
  if (isBlocked && !index.open.has(key)) {
    index.startOperation(key, owner, at, seq);
    index.open.get(key).isBlocked = true;
    index.settle(index.open.get(key), at, seq);
  } else if (!isBlocked) index.closeBelow(key, at);
}

const CHANGES = {
  operation_started: (index, entry, event) => index.startOperation(entry.operation, event.agent, entry.at, entry.seq),
  operation_ended: (index, entry) => index.closeBelow(entry.operation, entry.at),
  run_ended: (index, entry) => index.closeBelow("", entry.at),
  run_paused: (index, entry) => index.stopWork(entry.at, entry.seq),
  run_resumed: (index, entry) => index.stopWork(index.lastAt, entry.seq),
  turn_started: (index, entry, event, op) => work(index, op, entry, { isInTurn: true, isRetrying: false }),
  turn_resumed: (index, entry, event, op) => work(index, op, entry, { isInTurn: true, isRetrying: false }),
  call_failed: (index, entry, event, op) => work(index, op, entry, { isRetrying: (event.wait ?? null) !== null }),
  text_streamed: (index, entry, event, op) => op?.isRetrying && work(index, op, entry, { isRetrying: false }),
  model_replied: (index, entry, event, op) => op?.isRetrying && work(index, op, entry, { isRetrying: false }),
  turn_ended(index, entry, event, op) {
    work(index, op, entry, { isInTurn: false });
    const agent = index.agents.get(entry.operation);
    if (event.text) index.addMessage({ seq: entry.seq, at: entry.at, agent, by: agent, text: event.text, isPerson: false });
  },
  tool_called(index, entry, event, op) {
    const { tool, arguments: given } = event.action;
    const call = { seq: entry.seq, at: entry.at, endSeq: Infinity, endAt: 0, id: event.id, tool, brief: briefArguments(given), isError: false };
    if (!index.tools.has(entry.operation)) index.tools.set(entry.operation, []);
    index.tools.get(entry.operation).push(call);
    index.toolsBySeq.set(entry.seq, call);
    if (!op) return;
    op.tools.add(call);
    index.settle(op, entry.at, entry.seq);
  },
  tool_answered(index, entry, event, op) {
    const call = index.tools.get(entry.operation)?.findLast((one) => one.id === event.id && one.endSeq === Infinity);
    if (!call) return;
    Object.assign(call, { endSeq: entry.seq, endAt: entry.at, isError: Boolean(event.is_error) });
    index.toolsBySeq.set(entry.seq, call);
    if (!op) return;
    op.tools.delete(call);
    index.settle(op, entry.at, entry.seq);
  },
  permission_asked(index, entry, event, op) {
    index.permissions.set(entry.scope, entry.seq);
    ask(index, entry, event, op);
  },
  question_asked: ask,
  permission_answered: answer,
  question_answered: answer,
  message_received(index, entry, event) {
    const files = (event.attachments ?? []).map((one) => one.name);
    index.addMessage({ seq: entry.seq, at: entry.at, agent: event.to, by: event.by || "you", text: event.text, isPerson: true, files });
  },
  worker_sent(index, entry, event) {
    const before = index.workers.get(entry.operation) ?? [];
    index.workers.set(entry.operation, [...before, { seq: entry.seq, run: event.run, branch: event.branch }]);
  },
  plan_step_started(index, entry, event) {
    index.stepOwners.set(event.step, event.owner);
  },
  plan_step_handed_over(index, entry, event) {
    setStepBlocked(index, entry, event.step, false);
    if (!event.refused) index.stepOwners.set(event.step, event.receiver);
  },
  plan_step_blocked: (index, entry, event) => setStepBlocked(index, entry, event.step, true),
  plan_step_unblocked: (index, entry, event) => setStepBlocked(index, entry, event.step, false),
  plan_step_completed: (index, entry, event) => setStepBlocked(index, entry, event.step, false),
  plan_step_failed: (index, entry, event) => setStepBlocked(index, entry, event.step, false),
};

function ask(index, entry, event, op) {
  if (!op) return;
  index.asked.set(event.id, op);
  op.asked.add(event.id);
  index.settle(op, entry.at, entry.seq);
}

function answer(index, entry, event) {
  const op = index.asked.get(event.id);
  if (!op) return;
  index.asked.delete(event.id);
  op.asked.delete(event.id);
  index.settle(op, entry.at, entry.seq);
}

const onOwnLane = (kind) => (index, entry) => index.mark(index.laneOf(entry.operation), entry, kind);
const onVotes = (kind) => (index, entry) => index.mark(index.otherLane(VOTES), entry, kind);
const onMerges = (kind) => (index, entry) => index.mark(index.otherLane(MERGES), entry, kind);
const drawArrow = (index, entry, from, to) => index.mark(index.agentLane(from), entry, "handoff", index.agentLane(to));
const ifFailed = (index, entry, event) => event.failure && index.mark(index.laneOf(entry.operation), entry, "error");

const MARKS = {
  plan_committed: onOwnLane("plan"),
  team_planned: (index, entry, event) => event.assignments.length && index.mark(index.laneOf(entry.operation), entry, "plan"),
  handed_off: (index, entry, event) => drawArrow(index, entry, event.sender, event.receiver),
  routed: (index, entry, event) => drawArrow(index, entry, index.agents.get(entry.operation) ?? event.agent, event.agent),
  plan_step_handed_over: (index, entry, event) => !event.refused && drawArrow(index, entry, event.sender, event.receiver),
  decision_proposed: onVotes("proposal"),
  ballot_cast: onVotes("ballot"),
  voted: onVotes("ballot"),
  decision_committed: onVotes("decision"),
  discussion_ended: onVotes("decision"),
  work_committed: onMerges("commit"),
  work_ended: (index, entry, event) => event.commit && index.mark(index.otherLane(MERGES), entry, "merge"),
  message_received: (index, entry, event) => index.lanesByName.has(event.to) && index.mark(index.agentLane(event.to), entry, "message"),
  worker_sent: onOwnLane("worker"),
  operation_ended: ifFailed,
  turn_ended: ifFailed,
  call_failed: onOwnLane("error"),
  iteration_failed: onOwnLane("error"),
  plan_step_failed: onOwnLane("error"),
  action_refused: onOwnLane("error"),
  tool_answered: (index, entry, event) => event.is_error && index.mark(index.laneOf(entry.operation), entry, "error"),
};

/** Return the arguments of a tool call on one short line: the value if there is one, otherwise names and values. */
export function briefArguments(given = {}) {
  const parts = Object.entries(given).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  const line = parts.length === 1 ? parts[0][1] : parts.map(([name, value]) => `${name}: ${value}`).join("  ");
  const flat = line.slice(0, 400).replace(/\s+/g, " ");
  return flat.length > 160 ? `${flat.slice(0, 159)}…` : flat;
}

/** Return how many items of a list in order of `seq` are at or before this entry. */
export function countUntil(list, seq, read = (one) => one.seq) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (read(list[middle]) <= seq) low = middle + 1;
    else high = middle;
  }
  return low;
}
