// A diff: a list of its files with their changed lines, and below it each file. Files are drawn when they come near the
// screen, and long files in pieces, so that a diff of thousands of lines stays smooth.

import { html, useEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { count, plural } from "../format.mjs";
import { Changed } from "./changed.mjs";
import { Icon } from "./icons.mjs";
import { reveal, revealLine } from "./reveal.mjs";

/** The number of rows that are drawn at once. */
const PIECE = 400;
const ROW_HEIGHT = 20;

/** The paths of the files that the person has ticked, kept for this tab. `key` names the diff. */
function useViewed(key) {
  const place = `podium-viewed ${key}`;
  const [viewed, setViewed] = useState(() => new Set(JSON.parse(sessionStorage.getItem(place) || "[]")));
  const toggle = (path) => setViewed((before) => {
    const next = new Set(before);
    if (!next.delete(path)) next.add(path);
    sessionStorage.setItem(place, JSON.stringify([...next]));
    return next;
  });
  return [viewed, toggle];
}

/** Whether an element is near the visible part of the page; once it was, it stays so. */
function useNear(place) {
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

function Row({ row }) {
  if (row.heading !== undefined) {
    return html`<tr class="diff-hunk"><td colspan="3"></td><td>${revealLine(row.heading)}</td></tr>`;
  }
  const word = MARK_WORDS[row.mark];
  return html`<tr data-mark=${row.mark}><td class="diff-number">${row.old}</td><td class="diff-number">${row.new}</td>
    <td class="diff-mark">${row.mark}${word ? html`<span class="visually-hidden"> ${word}</span>` : null}</td>
    <td class="diff-text">${reveal(row.text)}${row.cut ? html`<span class="quiet"> … ${count(row.cut)} more characters</span>` : null}</td></tr>`;
}

/** A piece of a file, with the height of its rows kept free until it is near. */
function Piece({ rows }) {
  const place = useRef(null);
  const isNear = useNear(place);
  return html`<tbody ref=${place}>${isNear ? rows.map((row, number) => html`<${Row} key=${number} row=${row} />`)
    : html`<tr><td colspan="4" style=${{ height: `${rows.length * ROW_HEIGHT}px` }}></td></tr>`}</tbody>`;
}

function listRows(file) {
  return file.hunks.flatMap((hunk) => [{ heading: `line ${count(hunk.new)}${hunk.heading ? `  ${hunk.heading}` : ""}` }, ...hunk.lines]);
}

function FileLines({ file }) {
  const rows = useMemo(() => listRows(file), [file]);
  const pieces = useMemo(() => Array.from({ length: Math.ceil(rows.length / PIECE) }, (_, at) => rows.slice(at * PIECE, (at + 1) * PIECE)), [rows]);
  if (file.binary) return html`<p class="diff-note quiet">Binary file; its content is not shown.</p>`;
  return html`${rows.length ? html`<div class="diff-scroll" tabindex="0" role="group" aria-label=${`Changed lines of ${revealLine(file.path)}`}>
      <table class="diff"><caption class="visually-hidden">Old line, new line, mark and text</caption>${pieces.map((piece, at) => html`<${Piece} key=${at} rows=${piece} />`)}</table></div>`
    : file.omitted ? null : html`<p class="diff-note quiet">No lines changed.</p>`}
    ${file.omitted ? html`<p class="diff-note quiet">${plural(file.omitted, "more line")} not shown; podium workers diff shows all.</p>` : null}`;
}

function describeFile(file) {
  const facts = [];
  if (file.status !== "changed") facts.push(file.status);
  if (file.was) facts.push(`from ${revealLine(file.was)}`);
  if (file.old_mode && file.mode) facts.push(`mode ${file.old_mode} to ${file.mode}`);
  if (file.mode === "120000") facts.push("symbolic link");
  return facts.join(", ");
}

function File({ file, number, isViewed, onToggle }) {
  const place = useRef(null);
  const isNear = useNear(place);
  return html`<section class="diff-file" id=${`file-${number}`} ref=${place} aria-label=${revealLine(file.path)}>
    <header class="diff-head"><h3 class="mono">${revealLine(file.path)}</h3><span class="quiet small">${describeFile(file)}</span>
      <span class="gap"></span><${Changed} added=${file.added} removed=${file.removed} />
      <label class="check small"><input type="checkbox" checked=${isViewed} onChange=${onToggle} />Viewed</label></header>
    ${isViewed ? null : isNear ? html`<${FileLines} file=${file} />` : html`<p class="diff-note quiet">Loading the lines…</p>`}
  </section>`;
}

function FileList({ files, viewed }) {
  const show = (number) => (event) => {
    event.preventDefault();
    document.getElementById(`file-${number}`).scrollIntoView({ block: "start" });
  };
  return html`<nav class="file-list" aria-label="Changed files"><ul>${files.map((file, number) => html`<li key=${number}>
    <a href=${location.hash} onClick=${show(number)} data-viewed=${viewed.has(file.path) ? "" : null}>
      ${viewed.has(file.path) ? html`<${Icon} name="check" /><span class="visually-hidden">viewed </span>` : null}
      <span class="file-name" dir="auto">${revealLine(file.path)}</span><${Changed} added=${file.added} removed=${file.removed} /></a></li>`)}</ul></nav>`;
}

/** `diff` is what parse_diff returns: `{files, omitted}`. `name` identifies it for the ticks. */
export function DiffView({ diff, name }) {
  const [viewed, toggle] = useViewed(name);
  const { files } = diff;
  const added = files.reduce((sum, file) => sum + file.added, 0);
  const removed = files.reduce((sum, file) => sum + file.removed, 0);
  if (!files.length) return html`<p class="quiet">No changes yet.</p>`;
  return html`<div class="stack">
    <p class="row"><span class="strong">${plural(files.length, "file")}</span><${Changed} added=${added} removed=${removed} />
      <span class="quiet small">${count(files.filter((file) => viewed.has(file.path)).length)} of ${count(files.length)} viewed</span>
      ${diff.omitted ? html`<span class="quiet small">${plural(diff.omitted, "line")} not shown</span>` : null}</p>
    <div class="diff-layout"><${FileList} files=${files} viewed=${viewed} />
      <div class="stack diff-files">${files.map((file, number) => html`<${File} key=${`${number} ${file.path}`} file=${file} number=${number}
        isViewed=${viewed.has(file.path)} onToggle=${() => toggle(file.path)} />`)}</div></div></div>`;
}
