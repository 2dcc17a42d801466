// One run: its tree of operations, its timeline, its answer, its log, and the chat with its agents, now or at any entry.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { describeFailure, find, findAnswered, findState, listOpenRequests } from "../run_state.mjs";
import { pageName, replayedAt, serverNow } from "../state.mjs";
import { Loading, ProblemBanner } from "../parts/notices.mjs";
import Chat from "../parts/run_chat.mjs";
import Entries from "../parts/run_entries.mjs";
import EntryDrawer from "../parts/entry_drawer.mjs";
import Operation, { LongText } from "../parts/run_operation.mjs";
import OperationTree from "../parts/operation_tree.mjs";
import Replay from "../parts/run_replay.mjs";
import { revealLine, revealSummary } from "../parts/reveal.mjs";
import RunHeader from "../parts/run_header.mjs";
import { RunLog, findRunState } from "../parts/run_log.mjs";
import Timeline from "../parts/timeline.mjs";

export default function RunScreen() {
  const { id } = route.value;
  if (!id) return html`<p class="empty">Choose a run from <a href=${address("runs")}>the list of runs</a>.</p>`;
  return html`<${OpenedRun} key=${id} id=${id} />`;
}

function OpenedRun({ id }) {
  const [log] = useState(() => new RunLog(id));
  useEffect(() => {
    log.open();
    return () => log.close();
  }, []);
  if (log.problem.value) return html`<${ProblemBanner} problem=${log.problem.value} />`;
  if (!log.live.value) return html`<${Loading} what="the run" />`;
  return html`<${LoadedRun} log=${log} live=${log.view} />`;
}

const readNumber = (name) => {
  const value = Number(route.value.query.get(name));
  return Number.isInteger(value) && value > 0 ? value : null;
};

/** Keep the moment and the opened entry in the address, so that a link or a reload shows the same. */
function usePlace(log) {
  const [place, setPlace] = useState({ at: readNumber("at"), entry: readNumber("entry") });
  useEffect(() => setPlace({ at: readNumber("at"), entry: readNumber("entry") }), [route.value]);
  const move = (next) => {
    setPlace(next);
    const query = Object.fromEntries(Object.entries(next).filter(([, value]) => value !== null));
    history.replaceState(null, "", address("run", log.id, query));
  };
  return [place, move];
}

/** Return the view at an entry. While its changes are loading, the view before stays. */
function useViewAt(log, live, at) {
  const [replayed, setReplayed] = useState(live);
  const wanted = useRef(at);
  wanted.current = at;
  useEffect(() => {
    if (at === null) return;
    const found = log.viewAt(at);
    if (found instanceof Promise) found.then((view) => wanted.current === at && setReplayed(view), () => {});
    else setReplayed(found);
  }, [at]);
  return at === null ? live : replayed;
}

/**
 * Describe the moment that is shown: the run's state then, the requests that waited and for which operations, the time of
 * its last entry, and whether time goes on because an agent works now.
 */
function describeMoment(log, view, at) {
  const runState = at === null ? findRunState(log) : findState(view);
  const requests = listOpenRequests(view, at === null ? serverNow() : view.at);
  const waiting = new Set(requests.map((entry) => entry.operation));
  return { runState, requests, waiting, at: view.at, isMoving: at === null && runState === "running" };
}

/** Name the page after the run, and say in the bar when it shows a moment of the past. */
function usePageName({ agent, request }, shownAt) {
  useEffect(() => {
    pageName.value = `${revealLine(agent)}: ${revealSummary(request.text).slice(0, 60)}`;
    return () => { pageName.value = ""; };
  }, []);
  useEffect(() => {
    replayedAt.value = shownAt;
    return () => { replayedAt.value = 0; };
  }, [shownAt]);
}

function LoadedRun({ log, live }) {
  const [place, move] = usePlace(log);
  const at = place.at === null || place.at > log.last ? null : place.at;
  const view = useViewAt(log, live, at);
  const moment = describeMoment(log, view, at);
  usePageName(live.started, at === null ? 0 : view.at);
  const [selected, select] = useState(null);
  const [tab, setTab] = useState(route.value.query.get("tab") === "chat" ? "chat" : "operation");
  const [agent, setAgent] = useState(live.started.agent);
  const path = find(view.nodes, selected) ? selected : view.first;
  const open = (entry) => move({ ...place, entry });
  const choose = (next) => {
    select(next);
    setTab("operation");
  };
  const chat = () => {
    const chosen = find(view.nodes, path)?.agent;
    if ((live.started.agents ?? []).some((one) => one.name === chosen)) setAgent(chosen);
    setTab("chat");
  };
  return html`<div class="run">
    <${RunHeader} log=${log} view=${view} moment=${moment} at=${at} onMessage=${chat} />
    <${Outcome} view=${view} />
    <${Timeline} log=${log} view=${view} moment=${moment} at=${at} onOpen=${open} />
    <${Replay} log=${log} view=${view} moment=${moment} at=${at} onMove=${(next) => move({ ...place, at: next })} />
    <div class="run-columns">
      <section class="run-column" aria-label="Operations"><h2>Operations</h2>
        <${OperationTree} view=${view} moment=${moment} selected=${path} onSelect=${choose} /></section>
      <section class="run-column run-detail" aria-label="Details">
        <${Tabs} tab=${tab} setTab=${setTab} />
        ${tab === "operation" && html`<${Operation} log=${log} view=${view} moment=${moment} path=${path} at=${at} onOpen=${open} />`}
        ${tab === "log" && html`<${Entries} log=${log} at=${at} opened=${place.entry} onOpen=${open} />`}
        ${tab === "chat" && html`<${Chat} log=${log} view=${live} at=${at} agent=${agent} onAgent=${setAgent} />`}
      </section>
    </div>
    ${place.entry !== null && place.entry <= log.last && html`<${EntryDrawer} log=${log} seq=${place.entry} at=${at} onOpen=${open}
      onClose=${() => open(null)} onReplay=${(seq) => move({ at: seq, entry: seq })} />`}
  </div>`;
}

const TABS = [["operation", "Operation"], ["log", "Log"], ["chat", "Chat"]];

function Tabs({ tab, setTab }) {
  return html`<div class="tabs" role="tablist">${TABS.map(([name, word]) => html`<button key=${name} type="button" role="tab" class="tab"
    aria-selected=${name === tab} onClick=${() => setTab(name)}>${word}</button>`)}</div>`;
}

/** The answer if there is one, otherwise why there is none and what the agents had contributed. */
function Outcome({ view }) {
  const answered = findAnswered(view);
  const failure = describeFailure(view.ended?.failure);
  const parts = view.ended?.parts ?? [];
  return html`${view.notices.map((text, place) => html`<p class="notice" data-tone="quiet" key=${place}>${text}</p>`)}
    ${answered?.unproved && html`<p class="notice">Unproved: ${answered.unproved}</p>`}
    ${answered && html`<section class="run-answer" aria-label="Answer"><h2>Answer</h2>
      <${LongText} text=${answered.text || "The agent answered without text."} /></section>`}
    ${failure && html`<p class="problem" role="alert">${failure}</p>`}
    ${!answered && parts.length > 0 && html`<section class="run-answer" aria-label="Partial results"><h2>Partial results</h2>
      <ul class="stack">${parts.slice(0, 50).map((part, place) => html`<li key=${place}><strong>${part.agent}</strong>
        ${" "}<span class="quiet">${part.outcome.replace("_", " ")}</span>
        ${part.text ? html`<${LongText} text=${part.text} />` : html`<p class="quiet">${describeFailure(part.failure) ?? "no text"}</p>`}</li>`)}</ul></section>`}`;
}
