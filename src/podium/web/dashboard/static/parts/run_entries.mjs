// The log: every entry of the run on one line. Only the visible lines are in the page.

import { html, useEffect, useState } from "../vendor.mjs";
import { clock, count, iso } from "../format.mjs";
import { countUntil } from "../run_state.mjs";
import { VirtualList } from "./run_virtual.mjs";

const ROW = 30;
const LONGEST_PIECE = 200;

/** Return the agent that an entry is about, by the end of its operation's path (`legal` for `lead/advice:legal#1`), or "run". */
export function subjectOf({ operation }) {
  if (!operation) return "run";
  const segment = operation.slice(operation.lastIndexOf("/") + 1);
  return /:(.*)#[^#]*$/.exec(segment)?.[1] || segment;
}

/** Return the sentence that the server sends with an entry. Pieces of streamed text have none and are shown themselves. */
export const sentenceOf = ({ text, event }) => text ?? event.text?.slice(0, LONGEST_PIECE) ?? event.type.replaceAll("_", " ");

export default function Entries({ log, at, opened, onOpen }) {
  const [showsText, setShowsText] = useState(false);
  const { notable } = log.activity;
  const until = at ?? log.last;
  const total = showsText ? until : countUntil(notable, until, (seq) => seq);
  const seqAt = (place) => (showsText ? place + 1 : notable[place]);
  const place = opened ? (showsText ? opened - 1 : countUntil(notable, opened, (seq) => seq) - 1) : -1;
  return html`<div class="run-log">
    <label class="check small"><input type="checkbox" checked=${showsText} onChange=${(event) => setShowsText(event.target.checked)} /> Show streamed text</label>
    <${VirtualList} count=${total} height=${ROW} className="run-entries" sticksToEnd=${true} showPlace=${place}
      label=${total === 1 ? "1 entry" : `${count(total)} entries`}
      renderRow=${(one) => html`<${Line} key=${seqAt(one)} log=${log} seq=${seqAt(one)} isOpen=${seqAt(one) === opened} onOpen=${onOpen} />`} />
  </div>`;
}

function Line({ log, seq, isOpen, onOpen }) {
  const entry = log.peekEntry(seq);
  const [, redraw] = useState(0);
  useEffect(() => {
    let isWanted = true;
    if (!entry) log.readEntry(seq).then(() => isWanted && redraw(seq), () => {});
    return () => { isWanted = false; };
  }, [seq, !entry]);
  return html`<div role="listitem" class="run-entry"><button type="button" data-item aria-current=${isOpen ? "true" : null} onClick=${() => onOpen(seq)}>
    <span class="quiet run-entry-seq">${seq}</span>
    <time class="quiet" dateTime=${entry ? iso(entry.at) : null} title=${entry ? iso(entry.at) : null}>${entry ? clock(entry.at) : ""}</time>
    <strong class="clip">${entry ? subjectOf(entry) : ""}</strong><span class="clip run-entry-text">${entry ? sentenceOf(entry) : "Loading…"}</span>
  </button></div>`;
}
