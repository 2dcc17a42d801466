// The list of runs in the sections of podium ps: one for each group, which can be closed, renamed, pinned and archived.

import { html, signal, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { address } from "../router.mjs";
import { count, duration, plural } from "../format.mjs";
import { say } from "../state.mjs";
import { StateBadge, listedState } from "./badge.mjs";
import { Button } from "./button.mjs";
import { Value, isNumber } from "./columns.mjs";
import { Dialog } from "./dialog.mjs";
import { Icon } from "./icons.mjs";
import { Menu } from "./menu.mjs";
import { plain } from "./plain_text.mjs";
import { revealLine, revealSummary } from "./reveal.mjs";
import { Elapsed } from "./time.mjs";

const KEY = "podium-closed-groups";
/** The ids of the groups whose runs are hidden; kept in this browser. */
const closed = signal(new Set(JSON.parse(localStorage.getItem(KEY) || "[]")));

function toggle(id) {
  const next = new Set(closed.value);
  if (!next.delete(id)) next.add(id);
  closed.value = next;
  localStorage.setItem(KEY, JSON.stringify([...next]));
}

/** Where a group comes from: its team and the last part of its folder. */
function describeOrigin(group) {
  const folder = group.repo.split("/").filter(Boolean).pop() || "";
  if (group.kind === "team") return `team ${group.team}${folder ? ` in ${folder}` : ""}`;
  return group.kind === "repo" && folder !== group.name ? folder : "";
}

/** The commands for a group or a run. `target` is its id in the API. */
function useArranging(target, onChanged) {
  const [isNaming, setNaming] = useState(false);
  const change = (body) => async () => {
    try {
      say((await post(`/api/groups/${encodeURIComponent(target)}`, body)).text);
      onChanged();
    } catch (problem) {
      say(problem.message, true);
    }
  };
  return { change, isNaming, setNaming };
}

function listChoices(thing, { change, setNaming }) {
  return [
    ["Rename…", () => setNaming(true)],
    thing.pinned ? ["Unpin", change({ pinned: false })] : ["Pin to the top", change({ pinned: true })],
    thing.archived ? ["Show again", change({ archived: false })] : ["Archive", change({ archived: true })],
  ];
}

function RenameDialog({ what, name, change, onClose }) {
  const [text, setText] = useState(name);
  const save = (value) => async () => {
    await change({ name: value })();
    onClose();
  };
  return html`<${Dialog} title=${`Rename ${what}`} onClose=${onClose}>
    <label class="field">Name<input data-first maxlength="80" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <div class="dialog-foot"><${Button} command=${save(null)}>Restore the original name<//>
      <${Button} look="primary" busy="Renaming…" disabled=${!text.trim()} command=${save(text)}>Rename<//></div><//>`;
}

/** The columns that have a place of their own; the others follow them. */
const ORDER = ["state", "id", "usage", "seconds", "started_at"];

function sortColumns(columns) {
  const place = ({ name }) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return [...columns].sort((one, other) => place(one) - place(other));
}

export function RunSections({ found, onChanged }) {
  const byId = new Map(found.runs.map((one) => [one.id, one]));
  const columns = sortColumns(found.columns);
  const sections = found.groups.map((group) => ({ group, runs: group.listed.map((id) => byId.get(id)).filter(Boolean) })).filter((one) => one.runs.length);
  return html`<div class="table-wrap"><table class="table runs-table">
    <thead><tr>${columns.map((one) => html`<th key=${one.name} scope="col" class=${isNumber(one) ? "number" : null}>${one.heading}</th>`)}
      <th><span class="visually-hidden">Commands</span></th></tr></thead>
    ${sections.map(({ group, runs }) => html`<${Section} key=${group.id} group=${group} runs=${runs} columns=${columns} hasHead=${sections.length > 1} onChanged=${onChanged} />`)}</table></div>`;
}

function Section({ group, runs, columns, hasHead, onChanged }) {
  const isClosed = hasHead && closed.value.has(group.id);
  return html`<tbody data-group=${group.id}>
    ${hasHead ? html`<${SectionHead} group=${group} width=${columns.length + 1} shown=${runs.length} isClosed=${isClosed} onChanged=${onChanged} />` : null}
    ${isClosed ? null : runs.map((one) => html`<${RunRow} key=${one.id} run=${one} columns=${columns} onChanged=${onChanged} />`)}</tbody>`;
}

function Flags({ thing }) {
  return html`${thing.pinned ? html`<span class="flag"><${Icon} name="pin" />pinned</span>` : null}${thing.archived ? html`<span class="flag">archived</span>` : null}`;
}

function SectionHead({ group, width, shown, isClosed, onChanged }) {
  const arranging = useArranging(group.id, onChanged);
  const name = revealLine(group.name);
  const number = group.count > shown ? `${count(shown)} of ${plural(group.count, "run")}` : plural(group.count, "run");
  return html`<tr class="section-row"><th colspan=${width} scope="rowgroup"><span class="section-head">
    <button type="button" class="section-toggle" aria-expanded=${!isClosed} onClick=${() => toggle(group.id)}>
      <${Icon} name=${isClosed ? "closed" : "opened"} /><span class="strong">${name}</span></button>
    <span class="quiet small clip">${revealLine(describeOrigin(group))}</span><${Flags} thing=${group} />
    <span class="gap"></span><span class="quiet small nowrap">${number}</span>
    <${Menu} label=${`Commands for the group ${name}`} choices=${listChoices(group, arranging)} /></span>
    ${arranging.isNaming ? html`<${RenameDialog} what=${`the group ${name}`} name=${group.name} change=${arranging.change} onClose=${() => arranging.setNaming(false)} />` : null}</th></tr>`;
}

/** The cells that show more than the value of their column. */
const CELLS = {
  state: ({ run }) => html`<td class="nowrap"><${StateBadge} state=${listedState(run, run.waiting)} />
    ${run.waiting ? html` <a class="count" aria-label=${`${plural(run.waiting, "open request")}`} href=${address("approvals")}>${run.waiting}</a>` : null}</td>`,
  id: ({ run }) => html`<td class="main-cell"><a href=${address("run", run.id)} data-item class="strong">${plain(run.agent)}</a>
    <span class="quiet small mono"> ${run.id}</span>${run.workers ? html`<span class="quiet small"> ${plural(run.workers, "worker")}</span>` : null} <${Flags} thing=${run} />
    ${run.forked_from ? html`<span class="quiet small"> fork of ${run.forked_from}</span>` : null}
    <div class="quiet lines-2">${run.name ? html`<span class="run-name">${plain(run.name)}</span> ` : null}${revealSummary(run.request)}</div></td>`,
  seconds: ({ run, column }) => html`<td class="number" data-label=${column.heading}>${run.state === "running" ? html`<${Elapsed} since=${run.started_at} />` : duration(run.seconds)}</td>`,
};

function Cell({ run, column }) {
  const kind = [isNumber(column) && "number", column.kind === "age" && "quiet"].filter(Boolean).join(" ");
  return html`<td class=${kind || null} data-label=${column.heading}><${Value} column=${column} row=${run} /></td>`;
}

function RunRow({ run, columns, onChanged }) {
  const arranging = useArranging(run.id, onChanged);
  return html`<tr data-run=${run.id}>
    ${columns.map((one) => html`<${CELLS[one.name] || Cell} key=${one.name} run=${run} column=${one} />`)}
    <td class="menu-cell"><${Menu} label=${`Commands for run ${run.id}`} choices=${listChoices(run, arranging)} />
      ${arranging.isNaming ? html`<${RenameDialog} what=${`run ${run.id}`} name=${run.name || revealSummary(run.request).slice(0, 80)} change=${arranging.change} onClose=${() => arranging.setNaming(false)} />` : null}</td>
  </tr>`;
}
