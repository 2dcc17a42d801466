// The review of a worker's changes: its diff, comments on lines, and merging a part of it.

import { html, useMemo, useRef } from "../vendor.mjs";
import { plural } from "../format.mjs";
import { collectLines } from "./diff_rows.mjs";
import { DiffView } from "./diff_view.mjs";
import { useLoaded } from "./loaded.mjs";
import { Loading, ProblemBanner } from "./notices.mjs";
import { ChoiceBar, ChoiceHint, useChoice } from "./partial_merge.mjs";
import { SendReview, useReview } from "./review_comments.mjs";
import { groupOf, isOver } from "./worker_badge.mjs";

/** Return the ids of the comments by path and by line, for those whose lines are in the diff as they were. */
function findAnchors(comments, files) {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const anchors = new Map();
  for (const one of comments) {
    const file = byPath.get(one.path);
    const lines = file && collectLines(file, one.side, one.first, one.last);
    if (!lines || lines.join("\n") !== (one.lines || []).join("\n")) continue;
    if (!anchors.has(one.path)) anchors.set(one.path, new Map());
    const name = `${one.side} ${one.last}`;
    const here = anchors.get(one.path);
    here.set(name, [...(here.get(name) ?? []), one.id]);
  }
  return anchors;
}

/** The diff to show: the newest one, but while a comment is being written the one that it is about. */
function useSteadyDiff(data, isWriting) {
  const shown = useRef(data);
  if (data && (!isWriting || !shown.current)) shown.current = data;
  return shown.current;
}

function ChoiceButton({ choice, diff }) {
  if (choice.isOn.value || !diff.files.length) return null;
  return html`<button type="button" class="button small" disabled=${!diff.is_committed} title=${diff.is_committed ? null : "Changes can be chosen when the worker has ended"}
    onClick=${() => { choice.isOn.value = true; }}>Merge a part…</button>`;
}

function CommentsLink({ review }) {
  const written = review.comments.value.filter((one) => one.text.trim()).length;
  if (!written) return null;
  const show = () => document.getElementById("review-send")?.scrollIntoView({ block: "start" });
  return html`<button type="button" class="button small" onClick=${show}>${plural(written, "comment")} to send</button>`;
}

function Review({ worker, diff, review, onReload }) {
  const choice = useChoice(diff.digest);
  const comments = review.comments.value;
  // Writing changes only the text of a comment, and then the lines need not be drawn again.
  const places = comments.map((one) => `${one.id} ${one.first} ${one.last}`).join(",");
  const anchors = useMemo(() => findAnchors(comments, diff.files), [places, diff]);
  const shown = useMemo(() => new Set([...anchors.values()].flatMap((lines) => [...lines.values()].flat())), [anchors]);
  return html`<${ChoiceHint} choice=${choice} branch=${worker.branch} />
    <${DiffView} diff=${diff} run=${worker.id} anchors=${anchors} review=${review} choice=${choice}>
      <${CommentsLink} review=${review} /><${ChoiceButton} choice=${choice} diff=${diff} /><//>
    <${SendReview} worker=${worker} review=${review} shown=${shown} group=${groupOf(worker)} />
    <${ChoiceBar} worker=${worker} choice=${choice} diff=${diff} onReload=${onReload} />`;
}

export function WorkerChanges({ worker }) {
  const hasChanges = !worker.reader && worker.base;
  const { data, problem, reload } = useLoaded(hasChanges ? `/api/workers/${worker.id}/diff` : "", { isFixed: isOver(worker), pause: 5000 });
  const review = useReview(worker.id);
  const diff = useSteadyDiff(data, Boolean(review.editing.value));
  if (!hasChanges) return html`<p class="quiet">${worker.reader ? "This worker is read-only and changes nothing." : "The worker never had a checkout, so it has no changes."}</p>`;
  return html`<${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${diff ? html`<${Review} worker=${worker} diff=${diff} review=${review} onReload=${reload.now} />` : problem ? null : html`<${Loading} what="the changes" />`}`;
}
