// An entry of a timeline as one line of text, in the words of `podium logs`.

import { count, iso, plural } from "../format.mjs";
import { briefArguments } from "./run_index.mjs";

const LONGEST = 160;

const clip = (text, most = LONGEST) => {
  const flat = String(text).slice(0, most * 3).replace(/\s+/g, " ").trim();
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
};
const quote = (text) => `"${clip(text)}"`;
const by = (name, channel) => (name ? ` by ${name}${channel ? ` (${channel})` : ""}` : "");
const decided = (decision) => (["once", "run", "always"].includes(decision) ? `allowed (${decision})` : "denied");
const failure = (one) => (one ? `: ${clip(one.message)}` : "");
const list = (names, otherwise = "nobody") => (names?.length ? names.join(", ") : otherwise);
const because = (reason) => (reason ? `: ${quote(reason)}` : "");
const also = (word, names) => (names?.length ? `; ${word}: ${names.join(", ")}` : "");
const limits = (budget) => Object.entries(budget ?? {}).map(([name, value]) => `${value} ${name.replace("_", " ")}`).join(", ");

/** Return the name of the agent that an operation's path ends with: `legal` for `lead/advice:legal#1`. */
export function agentOf(operation = "") {
  const segment = operation.slice(operation.lastIndexOf("/") + 1);
  const [, named = ""] = /:(.*)#[^#]*$/.exec(segment) ?? [];
  return named || segment;
}

const LINES = {
  run_started: (e) => `${e.forked_from ? `forked from run ${e.forked_from}` : "started"}; request to ${e.agent}: ${quote(e.request.text)}`,
  run_resumed: (e) => `resumed by process ${e.pid} on ${e.host}`,
  run_paused: (e) => (e.until ? `waiting for ${clip(e.reason ?? "a limit")} until ${iso(e.until)}` : "paused"),
  run_ended: (e) => `${e.outcome}${failure(e.failure)}`,
  stop_asked: (e) => `stop requested${by(e.by)}`,
  pause_asked: (e) => `pause requested${by(e.by)}; current steps finish first`,
  budget_changed: (e) => `budget changed${by(e.by)} to ${limits(e.budget)}`,
  message_received: (e) => `message for ${e.to}${by(e.by)}: ${quote(e.text)}${(e.attachments ?? []).map((one) => `, with ${one.name}`).join("")}`,
  messages_delivered: (e) => `received ${plural(e.ids.length, "message")}`,
  permission_asked: (e) => `asks for permission: ${e.action.tool} ${briefArguments(e.action.arguments)}; ${clip(e.reason)}`,
  permission_answered: (e) => `request ${e.id}: ${decided(e.decision)}${by(e.by, e.channel)}${e.comment ? `: ${clip(e.comment)}` : ""}`,
  question_asked: (e) => `asks you: ${quote(e.text)}`,
  question_answered: (e) => `question ${e.id}: answered${by(e.by, e.channel)}: ${quote(e.text)}`,
  action_began: (e) => `${e.action.tool} starts; allowed by ${e.allowed_by}`,
  action_refused: (e) => `${e.action.tool} refused: ${clip(e.reason)}`,
  step_ended: (e) => `step ${clip(e.name)} done`,
  hook_ran: (e) => `hook ${e.event} ${e.outcome}${because(e.reason)} (${clip(e.hook)})`,
  status_reported: (e) => `reports: ${clip(e.text)}`,
  message_sent: (e) => `sends to ${e.to}: ${quote(e.text)}`,
  message_acknowledged: (e) => `message ${e.id} was ${e.is_delivered === false ? "not " : ""}delivered to ${e.to}`,
  checkout_saved: (e) => `files saved ${e.moment === "before" ? "before the first change" : "at the end"}`,
  memory_changed: (e) => `changed its memory ${e.path}: ${clip(e.diff)}`,
  operation_started: (e) => (e.trigger === "request" ? "started" : `started (${e.trigger})`),
  operation_ended: (e) => `${e.outcome}${e.unproved ? `, unproved: ${e.unproved}` : ""}${failure(e.failure)}`,
  turn_started: (e) => `calling ${e.engine}`,
  turn_resumed: () => "resuming its turn, which the previous process did not finish",
  turn_ended: (e) => (e.failure ? `turn failed${failure(e.failure)}` : e.text?.trim() ? `says ${quote(e.text)}` : "turn ended without text"),
  limit_reached: (e) => `waiting for the limit of ${e.provider ? `${e.provider}:` : ""}${e.model} until ${iso(e.until)}`,
  agent_session_opened: (e) => `opened a session with ${e.engine}${e.version ? ` ${e.version}` : ""}`,
  session_revived: (e) => `asked again in a new engine session: ${clip(e.reason)}`,
  text_streamed: (e) => `streams ${quote(e.text)}`,
  reasoning_streamed: (e) => `reasons ${quote(e.text)}`,
  text_superseded: () => "discards its text; the model is called again",
  model_replied: (e) => `model call completed${e.text?.trim() ? `: ${quote(e.text)}` : e.calls?.length ? ` with ${plural(e.calls.length, "tool call")}` : ""}`,
  call_failed: (e) => `model call failed: ${clip(e.message)}${e.wait == null ? "" : `; retrying in ${e.wait} s`}`,
  model_asked_again: (e) => `asked again: ${clip(e.reason)}`,
  call_cut: () => "model call cancelled",
  context_compacted: (e) => `summarised the first ${plural(e.replaced, "message")} of its conversation`,
  tool_called: (e) =>
    `uses ${e.action.tool} ${briefArguments(e.action.arguments)}${e.is_from_text && !e.is_emulated ? " (the model wrote this call as text)" : ""}`,
  tool_answered: (e) => `${e.is_error ? "tool error" : "tool answered"}: ${clip(e.text)}`,
  advised: (e) => `advised by ${list(e.heard)}${also("unavailable", e.unavailable?.map((one) => one.agent))}`,
  changes_expected: () => "must change files",
  route_refused: (e) => `chose ${e.chosen || "no agent"}; the valid destinations are ${list(e.destinations)}`,
  routed: (e) => `${e.is_fallback ? "falls back to" : "chooses"} ${e.agent}: ${quote(e.reason ?? "")}`,
  handed_off: (e) => `hands off to ${e.receiver}`,
  team_planned: (e) => `plans iteration ${e.iteration ?? 1} for ${list([...new Set(e.assignments.map((one) => one.worker))], "no workers")}`,
  evaluated: (e) => `iteration ${e.iteration} scored ${e.score}${by(e.by)}: ${e.is_complete ? "complete" : e.held_back || "not complete"}`,
  checked: (e) => `checks ${e.passed ? "passed" : "failed"}: ${clip(e.commands.join(", "))}`,
  adjustment_proposed: (e) => `${e.is_applied ? "applies" : "proposes"}: ${clip(e.text)}`,
  member_changed: (e) => `changed${by(e.by)}: ${e.member} uses ${e.model ? `model ${e.model}` : "a new prompt"} starting with its next operation`,
  iteration_failed: (e) => `iteration ${e.iteration} failed: ${clip(e.message)}`,
  reflect_ended: (e) => `ends after ${plural(e.iterations, "iteration")}: ${e.end.replaceAll("_", " ")}`,
  candidate_chosen: (e) => `${e.winner} was chosen by ${e.by}${because(e.reason)}`,
  work_restored: (e) => (e.branch ? `the chosen work was merged into ${e.branch}` : `the files at ${e.commit.slice(0, 12)} are in the checkout now`),
  broadcast: (e) => `${e.author} says in round ${e.round}: ${quote(e.text)}`,
  voted: (e) => `${e.author} is ${e.ready ? "ready" : "not ready"} to conclude${because(e.reason)}`,
  round_ended: (e) => `round ${e.round} ended${also("missing", e.missing)}`,
  discussion_ended: (e) => `the discussion ended after ${plural(e.rounds, "round")}: ${e.by.replaceAll("_", " ")}`,
  worker_placed: (e) => `works on ${e.branch}, from ${e.base.slice(0, 12)}`,
  work_committed: (e) => !e.files?.length ? `nothing changed on ${e.branch}` : `${plural(e.files?.length ?? 0, "file")} changed on ${e.branch} at ${e.commit.slice(0, 12)} (+${e.added ?? 0} -${e.removed ?? 0})`,
  work_pushed: (e) => `pushed ${e.commit.slice(0, 12)} to ${e.ref}`,
  push_failed: (e) => `not pushed: ${e.reason}; the next step will try again`,
  work_moved: (e) => `continues on ${e.host} in ${e.path}, ${e.commit ? `with the files of ${e.commit.slice(0, 12)}` : "from the start, because nothing was pushed"}${e.unpushed?.length ? `; not pushed: ${e.unpushed.join(", ")}` : ""}`,
  worker_sent: (e) => `starts a worker (run ${e.run})${e.branch ? ` on ${e.branch}` : ""}`,
  worker_returned: (e) => `worker run ${e.run} ${e.outcome}${e.error ? `: ${clip(e.error)}` : ""}`,
  noticed: (e) => `notice: ${clip(e.text)}`,
  team_formed: (e) => `team formed: ${list(e.members.map((one) => (one.role ? `${one.name} (${one.role})` : one.name)))}${also("no member for", e.missing)}`,
  work_state_changed: (e) => `work: ${e.state.replaceAll("_", " ")}`,
  plan_drafted: (e) => `plan ${e.version} drafted by ${e.by}: ${plural(e.plan.steps?.length ?? 0, "step")}`,
  plan_refused: (e) => `plan by ${e.by} refused: ${clip(e.problems.join("; "))}`,
  plan_reviewed: (e) => `${e.reviewer} ${e.verdict === "accept" ? "accepts" : "asks for changes to"} the plan${because(e.reason)}`,
  plan_committed: (e) => `plan ${e.version} committed${by(e.by)}: ${list((e.plan.steps ?? []).map((one) => `${one.id} (${one.owner})`), "no steps")}`,
  plan_step_started: (e) => `step ${e.step} started by ${e.owner}${e.attempt > 1 ? `, attempt ${e.attempt}` : ""}`,
  handover_asked: (e) => `wants to hand the step over to ${e.to}: ${quote(e.reason)}`,
  blocker_raised: (e) => `needs a decision: ${quote(e.topic)}`,
  plan_step_handed_over: (e) => (e.refused
    ? `handover of step ${e.step} to ${e.receiver} refused: ${clip(e.refused)}`
    : `step ${e.step} handed over from ${e.sender} to ${e.receiver}: ${quote(e.reason)}`),
  plan_step_blocked: (e) => `step ${e.step} blocked: ${quote(e.reason)}`,
  plan_step_unblocked: (e) => `step ${e.step} continues`,
  plan_step_submitted: (e) => `step ${e.step} submitted by ${e.author}${e.branch ? ` on ${e.branch}` : ""}`,
  plan_step_reviewed: (e) => `step ${e.step} ${e.passed ? "accepted" : "not accepted"} by ${e.reviewer}`,
  plan_step_reopened: (e) => `step ${e.step} reopened: ${quote(e.reason)}`,
  plan_step_completed: (e) => `step ${e.step} done`,
  plan_step_failed: (e) => `step ${e.step} failed: ${quote(e.reason)}`,
  artifact_stored: (e) => `${e.kind} stored: ${e.name} (${count(e.size)} bytes)`,
  snapshot_taken: (e) => `snapshot ${e.name} taken`,
  work_ended: (e) => `work ended: ${plural(e.done.length, "step")} done${also("not done", e.undone?.map((one) => one.step))}${e.branch ? `; result on ${e.branch}` : ""}`,
  decision_proposed: (e) => `proposes a decision (${e.id}): ${quote(e.topic)} ${e.options.join(" | ")}`,
  ballot_cast: (e) => `${e.voter} ${e.option ? `votes for ${e.option}` : "abstains"}${because(e.reason)}`,
  ballot_refused: (e) => `the ballot of ${e.voter} was refused: ${clip(e.reason)}`,
  vote_closed: (e) => `the vote on ${e.decision} is closed: ${e.why}`,
  decision_committed: (e) => `decided (${e.decision}): ${e.option}; ${e.how}`,
};

export const TOLD_KINDS = Object.freeze(Object.keys(LINES));

/** Return an entry as one line. */
export function describeEvent(event) {
  const write = LINES[event.type];
  return write ? write(event) : event.type.replaceAll("_", " ");
}

/** Return the agent or the run that an entry is about. */
export const subjectOf = (entry) => (entry.operation ? agentOf(entry.operation) : "run");
