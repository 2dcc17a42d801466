// What screens ask about the state of a run. `view` and `activity` are the parts of the document that the server sends
// (views/run_state/tree.py and views/run_state/activity.py).

const VOTES = "/Votes";
const MERGES = "/Merges";

/** Return the item of a mapping with this key, or undefined. Keys may be words that every JavaScript object knows. */
export const find = (mapping, key) => (key !== null && key !== undefined && Object.hasOwn(mapping, key) ? mapping[key] : undefined);

/** Return the operations below each operation, by path. */
function mapChildren(view) {
  const below = new Map();
  for (const node of Object.values(view.nodes)) {
    if (node.parent === null) continue;
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push(node);
  }
  return below;
}

/** Return an operation and everything below it, parents first, each with its depth. */
export function walk(view, path) {
  const below = mapChildren(view);
  const found = [];
  const waiting = path === null ? [] : [{ node: view.nodes[path], depth: 0 }];
  while (waiting.length) {
    const one = waiting.pop();
    found.push(one);
    for (const node of (below.get(one.node.path) ?? []).toReversed()) waiting.push({ node, depth: one.depth + 1 });
  }
  return found;
}

/** Return the usage of an operation and of everything below it. Amounts of zero may be missing. */
export function totalUsage(view, path) {
  const total = { input_tokens: 0, output_tokens: 0, usd: 0, unpriced: 0, rehearsed_input_tokens: 0, rehearsed_output_tokens: 0 };
  for (const { node } of walk(view, path)) {
    for (const [name, amount] of Object.entries(node.own_usage)) total[name] = (total[name] ?? 0) + amount;
  }
  return total;
}

/** Return the requests that wait for a person at the time `now`, oldest first, as entries. */
export function listOpenRequests({ requests }, now) {
  const isExpired = ({ action }) => action?.expires_at > 0 && action.expires_at < now;
  return Object.values(requests.unanswered).filter(({ event }) => !requests.abandoned.includes(event.id) && !isExpired(event));
}

/** Return the outcome, or "paused" or "running". Whether a process works on the run is not on the timeline. */
export const findState = (view) => view.ended?.outcome ?? (view.paused ? "paused" : "running");

export const describeFailure = (failure) => (failure ? `${failure.where || failure.agent}: ${failure.message}` : null);

/** Return the first operation if it has answered, or null. */
export function findAnswered(view) {
  const root = view.first === null ? null : view.nodes[view.first];
  return root?.outcome === "succeeded" ? root : null;
}

/** Return the lanes in the order in which they are drawn: agents as they appeared, then votes and merges. */
export function listLanes({ lanes }) {
  const agents = Object.values(lanes).filter(({ key }) => !key.startsWith("/")).map((lane) => ({ ...lane, name: lane.key, isAgent: true }));
  const others = [VOTES, MERGES].map((key) => find(lanes, key)).filter(Boolean).map((lane) => ({ ...lane, name: lane.key.slice(1), isAgent: false }));
  return [...agents, ...others];
}

/** Return the tool calls of an operation, in order. */
export const listCalls = ({ operations }, path) => Object.values(find(operations, path)?.calls ?? {});

/** Return the tool call that an entry begins or ends, or undefined. */
export const findCall = (activity, { operation, seq }) => listCalls(activity, operation).find((call) => call.seq === seq || call.end_seq === seq);

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
