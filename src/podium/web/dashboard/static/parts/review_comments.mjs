// Comments on lines of a worker's diff. They are kept in this browser until they are sent, all in one message.

import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { plural } from "../format.mjs";
import { go } from "../router.mjs";
import { keep, recall, watchOtherTabs } from "./browser_memory.mjs";
import { Button } from "./button.mjs";
import { collectLines } from "./diff_rows.mjs";
import { reveal, revealLine } from "./reveal.mjs";
import { isOver } from "./worker_badge.mjs";

const IN_LIST = "list ";

/** Return the comments on a worker's diff that were not sent yet, with what can be done with them. */
export function useReview(run) {
  const review = useMemo(() => makeReview(run), [run]);
  useEffect(() => watchOtherTabs(review.name, review.reload), [review]);
  return review;
}

function makeReview(run) {
  const name = `podium-review ${run}`;
  const comments = signal(recall(name, []));
  /** The id of the comment that is being written, after IN_LIST if that happens in the list, or an empty string. */
  const editing = signal("");
  const change = (make) => {
    comments.value = make(recall(name, comments.peek()));
    keep(name, comments.value.length ? comments.value : undefined);
  };
  const update = (id, fields) => change((all) => all.map((one) => (one.id === id ? { ...one, ...fields } : one)));
  const remove = (id) => change((all) => all.filter((one) => one.id !== id));
  /** End writing; a comment without text is gone. */
  const finish = () => {
    const id = editing.peek().replace(IN_LIST, "");
    editing.value = "";
    change((all) => all.filter((one) => one.id !== id || one.text.trim()));
  };
  return {
    name, comments, editing, update, remove, finish,
    reload: () => { comments.value = recall(name, []); },
    /** Write a comment on a line, or let the comment that is being written reach from its lines to this one. */
    open(file, side, line, extends_) {
      const current = comments.peek().find((one) => one.id === editing.peek());
      if (extends_ && current && current.path === file.path && current.side === side) {
        this.reach(file, current, Math.min(current.first, line), Math.max(current.last, line));
        return;
      }
      finish();
      const id = crypto.randomUUID();
      const lines = collectLines(file, side, line, line);
      change((all) => [...all, { id, path: file.path, side, first: line, last: line, lines, text: "" }]);
      editing.value = id;
    },
    /** Let a comment be about the lines from `first` to `last`, if the diff shows all of them. */
    reach(file, comment, first, last) {
      const lines = collectLines(file, comment.side, first, last);
      if (lines) update(comment.id, { first, last, lines });
    },
  };
}

export function describeLines(comment) {
  const lines = comment.first === comment.last ? `line ${comment.first}` : `lines ${comment.first} to ${comment.last}`;
  return comment.side === "old" ? `${lines} before the change` : lines;
}

/** A comment next to its lines: the text that is being written, or the text with buttons. */
export function CommentBox({ review, id, file }) {
  const comment = review.comments.value.find((one) => one.id === id);
  if (!comment) return null;
  if (review.editing.value === id) return html`<${CommentForm} key=${id} review=${review} comment=${comment} file=${file} />`;
  return html`<div class="review-comment"><p class="quiet small">Comment on ${describeLines(comment)}</p><p class="pre">${reveal(comment.text)}</p>
    <div class="row"><button type="button" class="button small" onClick=${() => { review.finish(); review.editing.value = id; }}>Edit</button>
      <button type="button" class="button small plain" onClick=${() => review.remove(id)}>Remove</button></div></div>`;
}

function CommentForm({ review, comment, file }) {
  const field = useRef(null);
  // At once and not after the next paint: what is typed must reach the field.
  useLayoutEffect(() => { field.current.focus({ preventScroll: true }); }, []);
  const press = (event) => {
    if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      review.finish();
    }
  };
  const { id, side, first, last } = comment;
  const above = file && collectLines(file, side, first - 1, last);
  return html`<div class="review-comment" data-editing>
    <label class="field"><span>Comment on ${describeLines(comment)}</span>
      <textarea ref=${field} rows="3" value=${comment.text} onKeyDown=${press} onInput=${(event) => review.update(id, { text: event.target.value })}></textarea></label>
    <div class="row"><button type="button" class="button small primary" onClick=${review.finish}>Done</button>
      ${file ? html`<button type="button" class="button small" disabled=${!above} onClick=${() => review.reach(file, comment, first - 1, last)}>Include the line above</button>` : null}
      <button type="button" class="button small plain" onClick=${() => { review.editing.value = ""; review.remove(id); }}>Remove</button></div></div>`;
}

/** A comment in the list. It can be edited there, because its file can be folded or have other lines by now. */
function Pending({ comment, review, isShown }) {
  const edit = () => {
    review.finish();
    review.editing.value = IN_LIST + comment.id;
  };
  return html`<li class="item"><div class="row"><code class="strong">${revealLine(comment.path)}</code><span class="quiet small">${describeLines(comment)}${isShown ? "" : ", on an earlier version"}</span>
      <span class="gap"></span><button type="button" class="button small" onClick=${edit}>Edit</button>
      <button type="button" class="button small plain" onClick=${() => review.remove(comment.id)}>Remove</button></div>
    <pre class="block review-quote">${reveal((comment.lines || []).join("\n"))}</pre>
    ${review.editing.value === IN_LIST + comment.id ? html`<${CommentForm} review=${review} comment=${comment} />` : html`<p class="pre">${reveal(comment.text)}</p>`}</li>`;
}

const DESTINATIONS = {
  working: "The worker gets them with its next model call.",
  needs: "The worker gets them with its next model call, after you have answered its request.",
  resting: "The worker is not running. It gets them when you resume it.",
};

/** All comments that were not sent yet, and a button that sends them in one message. `shown` are the ids in the diff. */
export function SendReview({ worker, review, shown, group }) {
  const [note, setNote] = useState("");
  const key = useRef(crypto.randomUUID());
  const isListed = (one) => one.text.trim() || review.editing.value === IN_LIST + one.id;
  const comments = review.comments.value.filter(isListed);
  if (!comments.length) return null;
  const isEnded = isOver(worker);
  const send = async () => {
    review.finish();
    const written = review.comments.peek().filter((one) => one.text.trim());
    const body = {
      note, continues: isEnded,
      comments: written.map(({ path, side, first, last, lines, text }) => ({ path, side, first, last, text, lines: lines || [] })),
    };
    const sent = await post(`/api/workers/${worker.id}/review`, body, { key: key.current }).catch((problem) => {
      // If the reply was lost, the same key is sent again, so that the worker gets the comments once.
      if (problem.status) key.current = crypto.randomUUID();
      throw problem;
    });
    key.current = crypto.randomUUID();
    for (const one of written) review.remove(one.id);
    setNote("");
    if (sent.run !== worker.id) go("workers", sent.run);
    return sent;
  };
  return html`<section class="card review-send" id="review-send" aria-label="Comments to send"><h3>${plural(comments.length, "comment")} to send</h3>
    <ul class="list">${comments.map((one) => html`<${Pending} key=${one.id} comment=${one} review=${review} isShown=${shown.has(one.id)} />`)}</ul>
    <label class="field">Note <span class="hint">optional, before the comments</span>
      <textarea rows="2" value=${note} onInput=${(event) => setNote(event.target.value)}></textarea></label>
    <p class="quiet small">${isEnded ? `This worker has ended. A new worker with the same agent continues on a new branch, which starts with the changes from ${revealLine(worker.branch)}.`
      : DESTINATIONS[group]}</p>
    <div class="row"><${Button} look="primary" busy="Sending…" command=${send}>${isEnded ? "Start a worker with" : "Send"} ${plural(comments.length, "comment")}<//></div></section>`;
}
