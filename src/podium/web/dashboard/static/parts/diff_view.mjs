// A worker's diff for review: a list of its files with their changed lines, and below it each file. Files are drawn when
// they come near the screen, and long files in pieces, so that a diff of thousands of lines stays smooth.

import { html, useEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { count, plural } from "../format.mjs";
import { addNewest, useRemembered } from "./browser_memory.mjs";
import { Changed } from "./changed.mjs";
import { FileLines, useNear } from "./diff_lines.mjs";
import { Icon } from "./icons.mjs";
import { FileChoice } from "./partial_merge.mjs";
import { revealLine } from "./reveal.mjs";

const WIDE = matchMedia("(min-width: 900px)");

/** The files that the person has ticked as viewed, by path. A file whose changes are others than then is not viewed. */
function useViewed(run, files) {
  const [all, change] = useRemembered("podium-viewed", {});
  const digests = all[run] ?? {};
  const viewed = new Set(files.filter((file) => digests[file.path] === file.digest).map((file) => file.path));
  const toggle = (file) => change((before) => {
    const next = { ...before[run] };
    if (next[file.path] === file.digest) delete next[file.path];
    else next[file.path] = file.digest;
    return addNewest(before, run, next);
  });
  return [viewed, toggle];
}

/** Whether lines are side by side: only if this browser was told so and the window is wide enough. */
function useLayout() {
  const [layout, change] = useRemembered("podium-diff-layout", "unified");
  const [isWide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const note = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", note);
    return () => WIDE.removeEventListener("change", note);
  }, []);
  return { isSplit: isWide && layout === "split", isWide, choose: (name) => change(() => name) };
}

function LayoutChoice({ layout }) {
  if (!layout.isWide) return null;
  return html`<span class="choice" role="group" aria-label="Layout of the diff">
    <button type="button" class="button small" aria-pressed=${String(!layout.isSplit)} onClick=${() => layout.choose("unified")}>Unified</button>
    <button type="button" class="button small" aria-pressed=${String(layout.isSplit)} onClick=${() => layout.choose("split")}>Split</button></span>`;
}

function describeFile(file) {
  const facts = [];
  if (file.status !== "changed") facts.push(file.status);
  if (file.was) facts.push(`from ${revealLine(file.was)}`);
  if (file.old_mode && file.mode) facts.push(`mode ${file.old_mode} to ${file.mode}`);
  if (file.mode === "120000") facts.push("symbolic link");
  return facts.join(", ");
}

function File({ file, number, isViewed, onToggle, isSplit, anchors, review, choice }) {
  const place = useRef(null);
  const isNear = useNear(place);
  return html`<section class="diff-file" id=${`file-${number}`} ref=${place} aria-label=${revealLine(file.path)}>
    <header class="diff-head"><h3 class="mono">${revealLine(file.path)}</h3><span class="quiet small">${describeFile(file)}</span>
      <span class="gap"></span><${Changed} added=${file.added} removed=${file.removed} />
      <span class="diff-ticks"><${FileChoice} choice=${choice} file=${file} />
        <label class="check small"><input type="checkbox" checked=${isViewed} onChange=${onToggle} />Viewed</label></span></header>
    ${isViewed ? null : isNear ? html`<${FileLines} file=${file} isSplit=${isSplit} anchors=${anchors} review=${review} choice=${choice} />`
      : html`<p class="diff-note quiet">Loading the lines…</p>`}
  </section>`;
}

/** Return the folder of a path with its slash, and the name in it. */
function splitPath(path) {
  const at = path.lastIndexOf("/") + 1;
  return [path.slice(0, at), path.slice(at)];
}

function FileList({ files, viewed }) {
  const show = (number) => (event) => {
    event.preventDefault();
    document.getElementById(`file-${number}`).scrollIntoView({ block: "start" });
  };
  return html`<nav class="file-list" aria-label="Changed files"><ul>${files.map((file, number) => {
    const [folder, name] = splitPath(file.path);
    const isNew = folder && (number === 0 || splitPath(files[number - 1].path)[0] !== folder);
    return html`<li key=${number}>${isNew ? html`<span class="file-folder" dir="auto">${revealLine(folder)}</span>` : null}
      <a href=${location.hash} onClick=${show(number)} data-viewed=${viewed.has(file.path) ? "" : null} data-nested=${folder ? "" : null} title=${revealLine(file.path)}>
        ${viewed.has(file.path) ? html`<${Icon} name="check" /><span class="visually-hidden">viewed </span>` : null}
        <span class="file-name" dir="auto">${revealLine(name)}</span><${Changed} added=${file.added} removed=${file.removed} /></a></li>`;
  })}</ul></nav>`;
}

/** Say which tree is shown: the one that a merge of the whole branch brings, or a snapshot of unfinished work. */
function Tree({ diff }) {
  return html`<p class="small diff-tree"><span class="quiet">${diff.is_committed ? "Tree that is merged" : "Tree of the checkout, not on the branch yet"}</span> <code>${diff.tree}</code>
    <span class="quiet"> To comment on a line, press its number<span class="diff-shift">; with Shift, the comment reaches to that line</span>.</span></p>`;
}

/** `diff` is what GET /api/workers/{run}/diff returns, and `anchors` the ids of the comments by path and line. */
export function DiffView({ diff, run, anchors, review, choice, children }) {
  const { files } = diff;
  const [viewed, toggle] = useViewed(run, files);
  const layout = useLayout();
  const added = useMemo(() => files.reduce((sum, file) => sum + file.added, 0), [files]);
  const removed = useMemo(() => files.reduce((sum, file) => sum + file.removed, 0), [files]);
  if (!files.length) return html`<p class="quiet">No changes yet.</p>`;
  return html`<div class="stack">
    <div class="row"><span class="strong">${plural(files.length, "file")}</span><${Changed} added=${added} removed=${removed} />
      <span class="quiet small">${count(viewed.size)} of ${count(files.length)} viewed</span>
      ${diff.omitted ? html`<span class="quiet small">${plural(diff.omitted, "line")} not shown</span>` : null}<span class="gap"></span>
      <${LayoutChoice} layout=${layout} />${children}</div>
    <${Tree} diff=${diff} />
    <div class="diff-layout" data-split=${layout.isSplit ? "" : null}><${FileList} files=${files} viewed=${viewed} />
      <div class="stack diff-files">${files.map((file, number) => html`<${File} key=${`${number} ${file.path}`} file=${file} number=${number}
        isViewed=${viewed.has(file.path)} onToggle=${() => toggle(file)} isSplit=${layout.isSplit} anchors=${anchors.get(file.path)} review=${review} choice=${choice} />`)}</div></div></div>`;
}
