// All runs by group, newest first, with filters. The filters are in the address, so that a link shows the same list.

import { html, useEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { go, route } from "../router.mjs";
import { serverNow } from "../state.mjs";
import { count, plural } from "../format.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { revealLine } from "../parts/reveal.mjs";
import { RunSections } from "../parts/run_sections.mjs";

const DELAY = 200;
const PAGE = 200;
/** The shortest time between two loads of the list, in milliseconds. */
const PAUSE = 500;
const STATES = [
  ["", "every state"], ["running", "running"], ["paused", "paused"], ["waiting", "waits for a limit"], ["queued", "queued"], ["resumable", "can resume"],
  ["succeeded", "succeeded"], ["failed", "failed"], ["cancelled", "stopped"], ["timed_out", "timed out"],
];
/** How long ago a run may have started, in seconds. */
const PERIODS = [["", "any time"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"], ["2592000", "last 30 days"]];
/** The filters as they are in the address. */
const FILTERS = ["text", "state", "agent", "group", "period", "needs", "archived"];

const readFilters = () => Object.fromEntries(FILTERS.map((name) => [name, route.value.query.get(name) || ""]));

/** Return the query of the API for filters as they are in the address. */
function makeQuery(filters, limit) {
  const query = new URLSearchParams({ limit });
  for (const name of ["text", "state", "agent", "group"]) if (filters[name]) query.set(name, filters[name]);
  if (filters.needs) query.set("needs_person", "true");
  if (filters.archived) query.set("archived", "true");
  if (filters.period) query.set("since", String(Math.floor(serverNow() - Number(filters.period))));
  return query;
}

/** The runs that match, loaded again when something changes; `more` loads the next page too. */
function useRuns(filters) {
  const [limit, setLimit] = useState(PAGE);
  const last = useRef(null);
  const path = useMemo(() => `/api/runs?${makeQuery(filters, limit)}`, [JSON.stringify(filters), limit]);
  const { data, problem, reload } = useLoaded(path, { pause: PAUSE });
  // What was found for the filters before stays until the new list is there, so that nothing jumps.
  if (data) last.current = data;
  return { found: last.current, problem, more: () => setLimit(limit + PAGE), reload: reload.now };
}

export default function Runs() {
  const { query } = route.value;
  const filters = readFilters();
  const { found, problem, more, reload } = useRuns(filters);
  return html`<div class="screen-head"><h1>Runs</h1>
      <span class="quiet small">${found ? plural(found.total, "run") : ""}</span></div>
    <${Filters} filters=${filters} found=${found} hasFocus=${query.has("search")} />
    <${ProblemBanner} problem=${problem} />
    ${found ? html`<${Found} found=${found} filters=${filters} more=${more} reload=${reload} />` : html`<${Loading} what="the runs" />`}`;
}

function Choice({ label, value, choices, onChange }) {
  return html`<select class="input" aria-label=${label} value=${value} data-set=${value ? "" : null} onChange=${(event) => onChange(event.target.value)}>
    ${choices.map(([one, word]) => html`<option key=${one} value=${one}>${word}</option>`)}</select>`;
}

function Filters({ filters, found, hasFocus }) {
  const field = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    if (hasFocus && field.current) field.current.focus();
  }, [hasFocus]);
  const set = (change) => {
    // A search that is still to come must not undo this change, nor one that was made since then.
    clearTimeout(timer.current);
    const wanted = { ...readFilters(), text: field.current.value, ...change };
    go("runs", "", Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)));
  };
  const search = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set({}), DELAY);
  };
  const clear = () => {
    field.current.value = "";
    go("runs");
  };
  const agents = [...new Set([...(found ? found.agents : []), ...(filters.agent ? [filters.agent] : [])])];
  const groups = found ? found.groups : [];
  const tick = (name) => (event) => set({ [name]: event.target.checked ? "1" : "" });
  return html`<div class="toolbar" role="search">
    <input class="input search" id="search" type="search" ref=${field} aria-label="Search the runs" autocomplete="off"
      placeholder="Search id, agent, request or folder" defaultValue=${filters.text} onInput=${search} />
    <${Choice} label="State" value=${filters.state} choices=${STATES} onChange=${(state) => set({ state })} />
    <${Choice} label="Agent" value=${filters.agent} choices=${[["", "every agent"], ...agents.map((one) => [one, revealLine(one)])]} onChange=${(agent) => set({ agent })} />
    ${groups.length > 1 || filters.group ? html`<${Choice} label="Group" value=${filters.group}
      choices=${[["", "every group"], ...groups.map((one) => [one.id, revealLine(one.name)])]} onChange=${(group) => set({ group })} />` : null}
    <${Choice} label="Started" value=${filters.period} choices=${PERIODS} onChange=${(period) => set({ period })} />
    <span class="toolbar-checks"><label class="check"><input type="checkbox" checked=${Boolean(filters.needs)} onChange=${tick("needs")} />needs you</label>
    <label class="check"><input type="checkbox" checked=${Boolean(filters.archived)} onChange=${tick("archived")} />archived too</label></span>
    ${Object.values(filters).some(Boolean) ? html`<button type="button" class="button small plain" onClick=${clear}>Clear the filters</button>` : null}
  </div>`;
}

function Found({ found, filters, more, reload }) {
  const hidden = found.archived ? html`<p class="quiet small">${plural(found.archived, "archived run")} not shown.</p>` : null;
  if (!found.runs.length) {
    return Object.values(filters).some(Boolean)
      ? html`<${Empty} title="No run matches.">Change the search or the filters.<//>${hidden}`
      : html`<${Empty} title="No runs yet." command=${'podium run plan-build-review "add a healthcheck"'}>
          Every run is listed here with its state, request, cost and duration.<//>${hidden}`;
  }
  const rest = found.total - found.runs.length;
  return html`<${RunSections} found=${found} onChanged=${reload} />
    ${rest > 0 ? html`<p class="row after-list"><button type="button" class="button" onClick=${more}>Show more (${count(rest)} left)</button></p>` : null}
    ${hidden}`;
}
