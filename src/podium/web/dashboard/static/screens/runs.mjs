// All runs, newest first, with filters. The filters are in the address, so that a link shows the same list.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { get } from "../api.mjs";
import { address, go, route } from "../router.mjs";
import { changes } from "../state.mjs";
import { count, duration, plural } from "../format.mjs";
import { StateBadge } from "../parts/badge.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { plain } from "../parts/plain_text.mjs";
import { Age, Elapsed } from "../parts/time.mjs";

const DELAY = 200;
const STATES = [
  ["", "every state"], ["running", "running"], ["paused", "paused"], ["queued", "queued"], ["resumable", "can resume"],
  ["succeeded", "succeeded"], ["failed", "failed"], ["cancelled", "stopped"], ["timed_out", "timed out"],
];

/** The runs that match, loaded again when something changes; `more` loads the next page. */
function useRuns(text, state) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState(null);
  const shown = useRef(0);
  const load = async (offset, signal) => {
    const query = new URLSearchParams({ text, state, offset });
    try {
      const page = await get(`/api/runs?${query}`, { signal });
      setProblem(null);
      return page;
    } catch (error) {
      if (error.name !== "AbortError") setProblem(error);
      return null;
    }
  };
  const tick = changes.value;
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const page = await load(0, abort.signal);
      if (page) setFound((before) => mergePages(page, before, shown.current));
    }, found ? DELAY : 0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, state, tick]);
  const more = async () => {
    const page = await load(found.runs.length);
    if (!page) return;
    const runs = [...found.runs, ...page.runs];
    shown.current = runs.length;
    setFound({ ...page, runs });
  };
  return { found, problem, more };
}

/** The first page again, and after it what the person had already loaded below it. */
function mergePages(page, before, shown) {
  if (!before || shown <= page.runs.length) return page;
  const ids = new Set(page.runs.map((one) => one.id));
  return { ...page, runs: [...page.runs, ...before.runs.filter((one) => !ids.has(one.id))] };
}

export default function Runs() {
  const { query } = route.value;
  const text = query.get("text") || "";
  const state = query.get("state") || "";
  const { found, problem, more } = useRuns(text, state);
  return html`<div class="screen-head"><h1>Runs</h1>
      <span class="quiet small">${found ? plural(found.total, "run") : ""}</span></div>
    <${Filters} text=${text} state=${state} hasFocus=${query.has("search")} />
    <${ProblemBanner} problem=${problem} />
    ${found ? html`<${Found} found=${found} hasFilter=${Boolean(text || state)} more=${more} />` : html`<${Loading} what="the runs" />`}`;
}

function Filters({ text, state, hasFocus }) {
  const field = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    if (hasFocus && field.current) field.current.focus();
  }, [hasFocus]);
  const set = (change) => {
    const wanted = { text: field.current.value, state, ...change };
    go("runs", "", Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)));
  };
  const search = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set({}), DELAY);
  };
  return html`<div class="toolbar" role="search">
    <input class="input search" id="search" type="search" ref=${field} aria-label="Search the runs" autocomplete="off"
      placeholder="Search id, agent, request or folder" defaultValue=${text} onInput=${search} />
    <select class="input" aria-label="State" value=${state} onChange=${(event) => set({ state: event.target.value })}>
      ${STATES.map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select>
  </div>`;
}

function Found({ found, hasFilter, more }) {
  if (!found.runs.length) {
    return hasFilter
      ? html`<${Empty} title="No run matches.">Change the search or the state.<//>`
      : html`<${Empty} title="No runs yet." command=${'podium run plan-build-review "add a healthcheck"'}>
          Every run is listed here with its state, request and duration.<//>`;
  }
  const rest = found.total - found.runs.length;
  return html`<div class="table-wrap"><table class="table">
      <thead><tr><th scope="col">State</th><th scope="col">Run</th><th scope="col">Folder</th>
        <th scope="col" class="number">Entries</th><th scope="col" class="number">Duration</th>
        <th scope="col" class="number">Started</th></tr></thead>
      <tbody>${found.runs.map((one) => html`<${RunRow} key=${one.id} run=${one} />`)}</tbody></table></div>
    ${rest > 0 ? html`<p class="row"><button type="button" class="button" onClick=${more}>Show more (${count(rest)} left)</button></p>` : null}`;
}

function RunRow({ run }) {
  const folder = run.repo.split("/").filter(Boolean).pop() || "";
  return html`<tr>
    <td><${StateBadge} state=${run.state} /></td>
    <td class="main-cell"><a href=${address("run", run.id)} data-item class="strong">${plain(run.agent)}</a>
      <span class="quiet small mono"> ${run.id}</span>
      ${run.forked_from ? html`<span class="quiet small"> fork of ${run.forked_from}</span>` : null}
      <div class="quiet lines-2">${plain(run.request)}</div></td>
    <td class="quiet" title=${plain(run.repo)}>${plain(folder)}</td>
    <td class="number" data-label="Entries">${count(run.entries)}</td>
    <td class="number" data-label="Duration">${run.state === "running" ? html`<${Elapsed} since=${run.started_at} />` : duration(run.seconds)}</td>
    <td class="number quiet"><${Age} at=${run.started_at} after=" ago" /></td>
  </tr>`;
}
