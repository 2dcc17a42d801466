// The changed lines of one file, drawn in pieces, below each other or side by side, with comments between them.

import { Fragment, html, useEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { count, plural } from "../format.mjs";
import { listSplitRows, listUnifiedRows, sideOf } from "./diff_rows.mjs";
import { HunkChoice } from "./partial_merge.mjs";
import { CommentBox } from "./review_comments.mjs";
import { reveal, revealLine } from "./reveal.mjs";

/** The number of rows that are drawn at once. */
const PIECE = 400;
const ROW_HEIGHT = 20;

/** Whether an element is near the visible part of the page; once it was, it stays so. */
export function useNear(place) {
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver(([one]) => {
      if (!one.isIntersecting) return;
      setNear(true);
      observer.disconnect();
    }, { rootMargin: "600px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return isNear;
}

const MARK_WORDS = { "+": "added", "-": "removed" };

/** The sign of a line, which is also the button for a comment on it. Only the first button of a file is a tab stop. */
function Mark({ line, isFirst }) {
  const word = MARK_WORDS[line.mark];
  const said = word ? html`<span class="visually-hidden"> ${word}</span>` : null;
  if (line.mark === "\\") return html`<td class="diff-mark"></td>`;
  const side = sideOf(line);
  return html`<td class="diff-mark">${line.mark}${said}<button type="button" class="diff-comment" tabindex=${isFirst ? 0 : -1}
    data-side=${side} data-line=${line[side]} aria-label=${`Comment on line ${line[side]}${side === "old" ? " before the change" : ""}`}></button></td>`;
}

/** Return the text of a line, with its keywords, strings and so on as elements if the server knows its language. */
function drawText({ text, syntax }) {
  if (!syntax) return reveal(text);
  let at = 0;
  const parts = syntax.map(([first, end, kind]) => {
    const before = reveal(text.slice(at, first));
    at = end;
    return html`${before}<span class=${`syntax-${kind}`}>${reveal(text.slice(first, end))}</span>`;
  });
  return [...parts, reveal(text.slice(at))];
}

function Text({ line }) {
  return html`<td class="diff-text">${drawText(line)}${line.cut ? html`<span class="quiet"> … ${count(line.cut)} more characters</span>` : null}</td>`;
}

function UnifiedRow({ line, isFirst }) {
  return html`<tr data-mark=${line.mark}><td class="diff-number">${line.old}</td><td class="diff-number">${line.new}</td>
    <${Mark} line=${line} isFirst=${isFirst} /><${Text} line=${line} /></tr>`;
}

/** One side of a row; `number` is "old" for the left side and "new" for the right one. */
function Half({ line, number, hasButton, isFirst }) {
  if (!line) return html`<td class="diff-none" data-side=${number} colspan="3"></td>`;
  return html`<td class="diff-number" data-side=${number} data-mark=${line.mark}>${line[number]}</td>
    ${hasButton ? html`<${Mark} line=${line} isFirst=${isFirst} />` : html`<td class="diff-mark"></td>`}<${Text} line=${line} />`;
}

function SplitRow({ row, isFirst }) {
  // An unchanged line is on both sides; its comments belong to the new side.
  const isSame = row.left === row.right;
  return html`<tr class="diff-split-row" data-left=${row.left?.mark} data-right=${row.right?.mark}>
    <${Half} line=${row.left} number="old" hasButton=${!isSame} isFirst=${isFirst} />
    <${Half} line=${row.right} number="new" hasButton=${true} isFirst=${isFirst && isSame} /></tr>`;
}

/** The comments that stand below a row, in a row of their own. */
function Comments({ ids, width, review, file }) {
  return html`<tr class="diff-comments"><td colspan=${width}>${ids.map((id) => html`<div key=${id} id=${`comment-${id}`}><${CommentBox} review=${review} id=${id} file=${file} /></div>`)}</td></tr>`;
}

const namesOf = (row, isSplit) => (isSplit ? [row.left, row.right] : [row]).filter(Boolean).map((line) => `${sideOf(line)} ${line[sideOf(line)]}`);

/** A piece of a file, with the height of its rows kept free until it is near. */
function Piece({ rows, isSplit, isFirst, file, anchors, review, choice }) {
  const place = useRef(null);
  const isNear = useNear(place);
  const width = isSplit ? 6 : 4;
  // The same elements as before are not compared again, so writing a comment does not draw all lines anew.
  const drawn = useMemo(() => isNear && rows.map((row, number) => {
    if (row.heading !== undefined) {
      return html`<tr class="diff-hunk" key=${number}><td colspan=${width}><span class="diff-heading"><span class="grow">${revealLine(row.heading)}</span>
        <${HunkChoice} choice=${choice} file=${file} number=${row.hunk} line=${row.line} /></span></td></tr>`;
    }
    const ids = [...new Set(namesOf(row, isSplit))].flatMap((name) => anchors?.get(name) ?? []);
    // The first row of a file is a heading, so its first line is the second row.
    const isTabStop = isFirst && number === 1;
    return html`<${Fragment} key=${number}>${isSplit ? html`<${SplitRow} row=${row} isFirst=${isTabStop} />` : html`<${UnifiedRow} line=${row} isFirst=${isTabStop} />`}
      ${ids.length ? html`<${Comments} ids=${ids} width=${width} review=${review} file=${file} />` : null}<//>`;
  }), [rows, isNear, anchors, isSplit]);
  return html`<tbody ref=${place}>${drawn || html`<tr><td colspan=${width} style=${{ height: `${rows.length * ROW_HEIGHT}px` }}></td></tr>`}</tbody>`;
}

/** Move the focus to the comment button of the line above or below. */
function moveBetweenLines(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const button = event.target.closest(".diff-comment");
  if (!step || !button) return;
  const buttons = [...event.currentTarget.querySelectorAll(".diff-comment")];
  const next = buttons[buttons.indexOf(button) + step];
  event.preventDefault();
  next?.focus();
}

export function FileLines({ file, isSplit, anchors, review, choice }) {
  const rows = useMemo(() => (isSplit ? listSplitRows(file) : listUnifiedRows(file)), [file, isSplit]);
  const pieces = useMemo(() => Array.from({ length: Math.ceil(rows.length / PIECE) }, (_, at) => rows.slice(at * PIECE, (at + 1) * PIECE)), [rows]);
  if (file.binary) return html`<p class="diff-note quiet">Binary file; its content is not shown.</p>`;
  const comment = (event) => {
    const button = event.target.closest(".diff-comment");
    if (button) review.open(file, button.dataset.side, Number(button.dataset.line), event.shiftKey);
  };
  return html`${rows.length ? html`<div class="diff-scroll" tabindex="0" role="group" aria-label=${`Changed lines of ${revealLine(file.path)}`}>
      <table class=${`diff ${isSplit ? "diff-split" : ""}`} onClick=${comment} onKeyDown=${moveBetweenLines}>
        <caption class="visually-hidden">${isSplit ? "Old line, its text, new line, its text" : "Old line, new line, mark and text"}</caption>
        ${isSplit ? html`<colgroup><col class="number" /><col class="mark" /><col /><col class="number" /><col class="mark" /><col /></colgroup>` : null}
        ${pieces.map((piece, at) => html`<${Piece} key=${`${isSplit} ${at}`} rows=${piece} isSplit=${isSplit} isFirst=${at === 0} file=${file} anchors=${anchors} review=${review} choice=${choice} />`)}</table></div>`
    : file.omitted ? null : html`<p class="diff-note quiet">No lines changed.</p>`}
    ${file.omitted ? html`<p class="diff-note quiet">${plural(file.omitted, "more line")} not shown; use podium workers diff to see all lines.</p>` : null}`;
}
