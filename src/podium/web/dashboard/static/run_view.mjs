// The view of a run, built from its timeline: the same fold as views/run_view.py, which a test compares with this one.
//
// A view is never changed. `applyAll` returns a new view that shares with the old one what did not change, so old views
// can be kept as snapshots at almost no cost.

/** @import { Entry, Usage } from "./event_kinds.mjs" */

const USAGE_FIELDS = [
  "input_tokens", "output_tokens", "cached_tokens", "written_tokens", "usd", "calls", "unpriced", "estimated",
  "tool_calls", "seconds", "rehearsed_calls", "rehearsed_input_tokens", "rehearsed_output_tokens",
];

export const NO_USAGE = Object.freeze(Object.fromEntries(USAGE_FIELDS.map((name) => [name, 0])));

/** The view before the first entry. */
export const EMPTY_VIEW = Object.freeze({
  run: "", started: null, startedAt: 0, at: 0, seq: 0, root: null, ended: null, isPaused: false, wakesAt: 0, isAborted: false,
  notices: [], refusals: [], unanswered: new Map(), abandoned: new Set(), nodes: new Map(), teams: new Map(), budget: null,
});

/** Return the view after the next entry. @param {Entry} entry */
export const apply = (view, entry) => applyAll(view, [entry]);

/** Return the view after the next entries. @param {Entry[]} entries */
export function applyAll(view, entries) {
  if (!entries.length) return view;
  const draft = new Draft(view);
  for (const entry of entries) draft.apply(entry);
  return draft.next;
}

/** A view that is being built. Each node is copied before its first change. */
class Draft {
  constructor(view) {
    this.next = { ...view, nodes: new Map(view.nodes) };
    this.own = new Set();
    this.ownChildren = new Set();
  }

  node(path) {
    const found = this.next.nodes.get(path);
    if (!found || this.own.has(path)) return found;
    const copy = { ...found };
    this.next.nodes.set(path, copy);
    this.own.add(path);
    return copy;
  }

  apply(entry) {
    const { next } = this;
    next.at = entry.at;
    next.seq = entry.seq;
    const change = RUN_CHANGES[entry.event.type];
    if (change) change(this, entry, entry.event);
    else {
      const changeNode = NODE_CHANGES[entry.event.type];
      const node = changeNode && this.node(entry.operation);
      if (node) changeNode(node, entry.event, entry, this);
    }
    applyToRequests(next, entry);
  }

  startNode(entry, event) {
    const path = entry.operation;
    const node = {
      path, agent: event.agent, trigger: event.trigger, request: event.request.text, started: entry.at, ended: null,
      outcome: null, text: "", data: null, parts: [], failure: null, engine: "", activity: "starting", status: "",
      judgedText: "", hasDispatched: false, ownUsage: NO_USAGE, children: [], mode: null, members: new Map(), parent: null,
    };
    this.next.nodes.set(path, node);
    this.own.add(path);
    this.ownChildren.add(path);
    let name = node.agent;
    const parent = this.findParent(path);
    if (parent === null) this.next.root = path;
    else {
      this.addChild(parent, path);
      node.parent = parent;
      if (node.trigger === "member") name = this.next.nodes.get(parent).members.get(name) ?? name;
    }
    const team = this.next.teams.get(name);
    if (team) {
      node.mode = team.mode;
      node.members = mapMemberNames(team);
    }
  }

  addChild(parent, path) {
    const node = this.node(parent);
    if (!this.ownChildren.has(parent)) {
      node.children = [...node.children];
      this.ownChildren.add(parent);
    }
    node.children.push(path);
  }

  findParent(path) {
    for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
      const above = path.slice(0, end);
      if (this.next.nodes.has(above)) return above;
    }
    return null;
  }

  /** Mark the unfinished operations of a subtree as ended. Those without an outcome count as cancelled. */
  endSubtree(path, at) {
    for (const below of walk(this.next, path)) {
      if (below.ended !== null) continue;
      const node = this.node(below.path);
      node.ended = at;
      node.outcome = node.outcome || "cancelled";
      node.activity = node.outcome;
    }
  }
}

const RUN_CHANGES = {
  run_started({ next }, entry, event) {
    next.run = entry.run;
    next.started = event;
    next.startedAt = entry.at;
    next.budget = event.settings?.budget ?? null;
    next.teams = new Map((event.agents || []).filter((agent) => agent.team).map((agent) => [agent.name, agent.team]));
  },
  run_paused({ next }, entry, event) {
    next.isPaused = true;
    next.wakesAt = event.until || 0;
  },
  run_resumed({ next }) {
    next.isPaused = false;
    next.wakesAt = 0;
  },
  run_ended(draft, entry, event) {
    draft.next.ended = event;
    if (draft.next.root !== null) draft.endSubtree(draft.next.root, entry.at);
  },
  noticed({ next }, entry, event) { next.notices = [...next.notices, event.text]; },
  operation_started: (draft, entry, event) => draft.startNode(entry, event),
  permission_answered(draft, entry, event) {
    continueAfterAnswer(draft, event);
    if (event.decision === "abort") draft.next.isAborted = true;
  },
  question_answered: (draft, entry, event) => continueAfterAnswer(draft, event),
  action_refused({ next }, entry, event) {
    next.refusals = [...next.refusals, { tool: event.action.tool, reason: event.reason }];
  },
  budget_changed({ next }, entry, event) { next.budget = { ...next.budget, ...event.budget }; },
};

function continueAfterAnswer(draft, event) {
  const asked = draft.next.unanswered.get(event.id);
  const node = asked && draft.node(asked.operation);
  if (node) node.activity = "thinking";
}

const addUsage = (node, event) => {
  if (event.usage) node.ownUsage = sumUsage(node.ownUsage, event.usage);
  if (node.waitsForLimit) {
    node.activity = "thinking";
    node.waitsForLimit = false;
  }
};

const NODE_CHANGES = {
  operation_ended(node, event, entry, draft) {
    node.outcome = event.outcome;
    node.failure = event.failure ?? null;
    node.data = event.data ?? null;
    node.parts = event.parts ?? [];
    node.unproved = event.unproved ?? "";
    if (event.text) {
      node.text = event.text;
      node.judgedText = "";
    }
    draft.endSubtree(node.path, entry.at);
  },
  turn_started(node, event) {
    node.engine = event.engine;
    node.text = "";
    node.activity = "thinking";
  },
  turn_resumed(node) { node.text = ""; },
  text_superseded(node) { node.text = ""; },
  session_revived(node) {
    node.text = "";
    node.activity = "starting again";
  },
  text_streamed(node, event) {
    node.text += event.text;
    node.activity = "answering";
  },
  turn_ended(node, event) {
    node.text = event.text || node.text;
    node.activity = event.failure ? "failed" : "done";
  },
  model_replied: addUsage,
  call_failed: addUsage,
  call_cut: addUsage,
  worker_returned: addUsage,
  limit_reached(node, event) {
    node.activity = `waiting for the limit of ${event.provider ? `${event.provider}:` : ""}${event.model}`;
    node.waitsForLimit = true;
  },
  tool_called(node, event) { node.activity = `using ${event.action.tool}`; },
  action_began(node, event) { node.activity = `using ${event.action.tool}`; },
  permission_asked(node, event) { node.activity = `waiting for permission to use ${event.action.tool}`; },
  question_asked(node) { node.activity = "waiting for an answer"; },
  team_planned(node, event) { node.hasDispatched = event.assignments.length > 0; },
  evaluated(node) { if (node.hasDispatched) node.judgedText = node.text; },
  status_reported(node, event) { node.status = event.text; },
  tool_answered(node) { node.activity = "thinking"; },
};

/** The kinds of entries that change more than the position of a view. */
export const FOLDED_KINDS = Object.freeze([...Object.keys(RUN_CHANGES), ...Object.keys(NODE_CHANGES)]);

function applyToRequests(next, entry) {
  const { event } = entry;
  switch (event.type) {
    case "permission_asked":
    case "question_asked":
      next.unanswered = new Map(next.unanswered).set(event.id, entry);
      break;
    case "permission_answered":
    case "question_answered":
      next.unanswered = new Map(next.unanswered);
      next.unanswered.delete(event.id);
      break;
    case "operation_ended":
      abandon(next, (asked) => `${asked.operation ?? ""}/`.startsWith(`${entry.operation ?? ""}/`));
      break;
    case "run_ended":
      abandon(next, () => true);
      break;
  }
}

function abandon(next, isAbandoned) {
  const ids = [...next.unanswered].filter(([, asked]) => isAbandoned(asked)).map(([id]) => id);
  if (ids.length) next.abandoned = new Set([...next.abandoned, ...ids]);
}

/** Return the agents of a team's members, by member name, in order. */
function mapMemberNames(team) {
  const names = new Map();
  for (const member of team.members || []) {
    const wanted = member.name || member.agent;
    let name = wanted;
    for (let number = 2; names.has(name); number += 1) name = `${wanted}-${number}`;
    names.set(name, member.agent);
  }
  return names;
}

/** @param {Usage} left @param {Usage} right */
export function sumUsage(left, right) {
  const total = {};
  for (const name of USAGE_FIELDS) total[name] = left[name] + (right[name] || 0);
  return total;
}

/** Yield an operation and everything below it, parents first. */
export function* walk(view, path) {
  const waiting = [path];
  while (waiting.length) {
    const node = view.nodes.get(waiting.pop());
    yield node;
    for (let index = node.children.length - 1; index >= 0; index -= 1) waiting.push(node.children[index]);
  }
}

/** Return the usage of an operation and of everything below it. */
export function totalUsage(view, path) {
  if (path === null) return NO_USAGE;
  const node = view.nodes.get(path);
  return node.children.reduce((total, child) => sumUsage(total, totalUsage(view, child)), node.ownUsage);
}

/** Return the requests that wait for a person at the time `now`, oldest first, as entries. */
export function listOpenRequests(view, now) {
  const isExpired = ({ action }) => action?.expires_at > 0 && action.expires_at < now;
  return [...view.unanswered.values()].filter(({ event }) => !view.abandoned.has(event.id) && !isExpired(event));
}

/** Return the outcome, or "paused" or "running". Whether a process works on the run is not on the timeline. */
export const findState = (view) => view.ended?.outcome ?? (view.isPaused ? "paused" : "running");

export const describeFailure = (failure) => (failure ? `${failure.where || failure.agent}: ${failure.message}` : null);

/** Return the first operation if it has answered, or null. */
export function findAnswered(view) {
  const root = view.root === null ? null : view.nodes.get(view.root);
  return root?.outcome === "succeeded" ? root : null;
}

/** Return the view as JSON fields, the same as views/run_view_fields.py. */
export function runViewFields(view) {
  const answered = findAnswered(view);
  return {
    run: view.run, agent: view.started?.agent ?? "", request: view.started?.request.text ?? "",
    started_at: view.startedAt, at: view.at, seq: view.seq, state: findState(view), is_aborted: view.isAborted,
    text: answered?.text ?? "", error: describeFailure(view.ended?.failure),
    unproved: (view.ended?.outcome === "succeeded" && answered?.unproved) || null,
    parts: view.ended?.parts?.length ? view.ended.parts : answered?.parts ?? [],
    notices: view.notices, refusals: view.refusals,
    requests: listOpenRequests(view, view.at).map(openRequestFields),
    usage: totalUsage(view, view.root),
    root: view.root === null ? null : operationFields(view, view.root),
  };
}

function openRequestFields({ event, operation, seq, at }) {
  const isPermission = event.type === "permission_asked";
  return {
    id: event.id, kind: isPermission ? "permission" : event.kind ?? "question", operation: operation ?? "", seq, at,
    tool: isPermission ? event.action.tool : "", text: isPermission ? "" : event.text,
  };
}

function operationFields(view, path) {
  const node = view.nodes.get(path);
  return {
    path, agent: node.agent, trigger: node.trigger, request: node.request, started: node.started, ended: node.ended,
    outcome: node.outcome, activity: node.activity, status: node.status, engine: node.engine, text: node.text,
    draft: node.judgedText || node.text, data: node.data, parts: node.parts, failure: describeFailure(node.failure),
    mode: node.mode, members: [...node.members.keys()], own_usage: node.ownUsage, usage: totalUsage(view, path),
    children: node.children.map((child) => operationFields(view, child)),
  };
}
