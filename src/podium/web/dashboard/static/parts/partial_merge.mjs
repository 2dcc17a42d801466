// Merge a part of a worker's changes: choose files and hunks in its diff, and look at the result before the target moves.

import { html, signal, useEffect, useMemo, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { plural } from "../format.mjs";
import { Button } from "./button.mjs";
import { Preview } from "./merge_panel.mjs";
import { ProblemBanner } from "./notices.mjs";
import { revealLine } from "./reveal.mjs";

/** Return the choice of files and hunks, empty again when the diff is another one. */
export function useChoice(digest) {
  return useMemo(makeChoice, [digest]);
}

function makeChoice() {
  const isOn = signal(false);
  /** The chosen hunks by path: a set of numbers, or "all" for a file that is taken as a whole. */
  const chosen = signal(new Map());
  const set = (path, value) => {
    const next = new Map(chosen.peek());
    if (value === "all" || value?.size) next.set(path, value);
    else next.delete(path);
    chosen.value = next;
  };
  return {
    isOn, chosen,
    /** Return "all", "some" or "none". */
    stateOf(file) {
      const found = chosen.value.get(file.path);
      if (!found) return "none";
      return found === "all" || found.size === file.hunks.length ? "all" : "some";
    },
    hasHunk(file, number) {
      const found = chosen.value.get(file.path);
      return found === "all" || Boolean(found?.has(number));
    },
    toggleFile(file) {
      set(file.path, this.stateOf(file) === "all" ? null : "all");
    },
    toggleHunk(file, number) {
      const found = chosen.peek().get(file.path);
      const next = new Set(found === "all" ? file.hunks.keys() : found);
      if (!next.delete(number)) next.add(number);
      set(file.path, next.size === file.hunks.length ? "all" : next);
    },
    stop() {
      isOn.value = false;
      chosen.value = new Map();
    },
  };
}

/** The box before a file: ticked, empty, or in between if only some hunks are chosen. */
export function FileChoice({ choice, file }) {
  const box = useRef(null);
  const state = choice.isOn.value ? choice.stateOf(file) : "none";
  useEffect(() => {
    if (box.current) box.current.indeterminate = state === "some";
  });
  if (!choice.isOn.value) return null;
  return html`<label class="check small"><input type="checkbox" ref=${box} checked=${state === "all"} onChange=${() => choice.toggleFile(file)} />
    ${file.is_whole ? "Take the whole file" : "Take the file"}</label>`;
}

export function HunkChoice({ choice, file, number, line }) {
  if (!choice.isOn.value || file.is_whole) return null;
  return html`<label class="check small hunk-choice"><input type="checkbox" checked=${choice.hasHunk(file, number)} onChange=${() => choice.toggleHunk(file, number)} />
    Take this hunk<span class="visually-hidden"> at line ${line}</span></label>`;
}

/** Say how much is chosen, such as "2 files chosen, 1 of them in part". */
function describeChoice(choice, files) {
  const states = files.map((file) => choice.stateOf(file)).filter((state) => state !== "none");
  const parts = states.filter((state) => state === "some").length;
  const which = !parts ? "" : parts === states.length ? ", in part" : `, ${parts} of them in part`;
  return `${plural(states.length, "file")} chosen${which}`;
}

/** What to do in the diff while a part of it is being chosen. */
export function ChoiceHint({ choice, branch }) {
  if (!choice.isOn.value) return null;
  return html`<p class="notice" data-tone="quiet"><span>Tick the files and hunks to merge. The rest stays on <code>${revealLine(branch)}</code> and can be merged later.</span></p>`;
}

/** The bar that counts what is chosen and previews the merge, and below it the result. */
export function ChoiceBar({ worker, choice, diff, onReload }) {
  const form = useRef(null);
  const result = useRef(null);
  const [merge, setMerge] = useState(null);
  const [problem, setProblem] = useState(null);
  const chosen = choice.chosen.value;
  useEffect(() => { result.current?.scrollIntoView({ block: "start" }); }, [merge, problem]);
  useEffect(() => setMerge(null), [chosen]);
  if (!choice.isOn.value) return null;
  const preview = async () => {
    const fields = new FormData(form.current);
    const files = [...chosen].map(([path, hunks]) => ({ path, hunks: hunks === "all" ? null : [...hunks].sort((one, two) => one - two) }));
    const checks = fields.get("checks").split("\n").map((line) => line.trim()).filter(Boolean);
    setProblem(null);
    setMerge(null);
    try {
      setMerge(await post(`/api/workers/${worker.id}/merges`, { shown: diff.digest, files, checks, onto: fields.get("onto").trim() }));
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<form class="choice-bar card" ref=${form} aria-label="Merge a part" onSubmit=${(event) => event.preventDefault()}>
      <div class="row"><span class="strong" role="status">${describeChoice(choice, diff.files)}</span><span class="gap"></span>
        <button type="button" class="button" onClick=${() => choice.stop()}>Cancel</button>
        <${Button} look="primary" busy="Merging and checking…" disabled=${!chosen.size} command=${preview}>Preview the merge<//></div>
      <details><summary>Target and checks</summary><div class="pair">
        <label class="field">Onto<input name="onto" autocomplete="off" spellcheck=${false} placeholder="the branch that is checked out" /></label>
        <label class="field">Checks <span class="hint">one command a line, besides those of the settings</span>
          <textarea name="checks" rows="2" spellcheck=${false} placeholder="make test"></textarea></label></div></details></form>
    <div class="stack" ref=${result}><${ProblemBanner} problem=${problem} onRetry=${problem?.status === 422 ? onReload : undefined} />
      ${merge ? html`<${Preview} key=${merge.commit || "none"} merge=${merge} />` : null}</div>`;
}
