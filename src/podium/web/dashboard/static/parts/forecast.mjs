// How the branches of workers would merge, in sentences.

import { html } from "../vendor.mjs";
import { plural } from "../format.mjs";
import { Changed } from "./changed.mjs";
import { Icon } from "./icons.mjs";
import { revealLine } from "./reveal.mjs";

const MOST_FILES = 5;

function listFiles(files) {
  const few = files.slice(0, MOST_FILES).map(revealLine).join(", ");
  return files.length > MOST_FILES ? `${few} and ${files.length - MOST_FILES} more` : few;
}

function describeConflict(one) {
  const files = [...new Set(one.conflicts.flatMap((clash) => clash.files))];
  return `${files.length ? ` in ${listFiles(files)}` : ""}${one.through ? `, because of changes in ${revealLine(one.through)}` : ""}`;
}

function describeBranch(one, onto) {
  if (one.is_in) return `is already in ${revealLine(onto)}`;
  return one.merges ? `merges onto ${revealLine(onto)}` : `would conflict with ${revealLine(onto)}${describeConflict(one)}`;
}

function describePair(one) {
  const shared = one.files.length ? `both change ${listFiles(one.files)}` : "have no files in common";
  return `${shared}; they ${one.merges ? "would merge" : `would conflict${describeConflict(one)}`}`;
}

function Line({ isFine, children }) {
  return html`<li class="item row" data-tone=${isFine ? null : "needs"}><span class=${isFine ? "tone-well" : "tone-needs"}><${Icon} name=${isFine ? "check" : "hand"} /></span>
    <span class="grow">${children}</span></li>`;
}

export function Forecast({ forecast }) {
  if (!forecast) return html`<p class="quiet">No branch of a worker exists yet, so there is nothing to merge.</p>`;
  const changes = new Map(forecast.branches.map((one) => [one.branch, one]));
  return html`<ul class="list forecast">
    ${forecast.onto_target.map((one) => {
      const change = changes.get(one.first);
      return html`<${Line} key=${one.first} isFine=${one.merges || one.is_in}><code class="strong">${revealLine(one.first)}</code> ${describeBranch(one, forecast.onto)}
        ${change ? html`<span class="quiet small"> ${plural(change.files.length, "file")}, ${plural(change.commits.length, "commit")} <${Changed} added=${change.added} removed=${change.removed} /></span>` : null}<//>`;
    })}
    ${forecast.pairs.map((one) => html`<${Line} key=${`${one.first} ${one.second}`} isFine=${one.merges}>
      <code class="strong">${revealLine(one.first)}</code> and <code class="strong">${revealLine(one.second)}</code> ${describePair(one)}<//>`)}
  </ul>`;
}
