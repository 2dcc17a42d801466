// Merge branches of workers: choose them, look at the result with its tree, and only then move the target to it.

import { html, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { count, plural } from "../format.mjs";
import { Button } from "./button.mjs";
import { Changed } from "./changed.mjs";
import { Dialog } from "./dialog.mjs";
import { Icon } from "./icons.mjs";
import { ProblemBanner } from "./notices.mjs";
import { reveal, revealLine } from "./reveal.mjs";

function BranchChoice({ choices, left, onToggle }) {
  if (!choices.length) return html`<p class="quiet">No branch can be merged yet. A branch appears here when its worker is complete, or when its team has delivered a result.</p>`;
  return html`<fieldset class="stack branches"><legend class="strong">Branches, in the order in which they are merged</legend>
    ${choices.map((one) => html`<label class="check" key=${one.branch}><input type="checkbox" value=${one.branch} checked=${!left.has(one.branch)} onChange=${() => onToggle(one.branch)} />
      <code>${revealLine(one.branch)}</code><${Changed} added=${one.added} removed=${one.removed} /><span class="quiet small clip">${revealLine(one.text)}</span></label>`)}</fieldset>`;
}

function Skipped({ lines }) {
  if (!lines.length) return null;
  return html`<details><summary>Not listed: ${count(lines.length)}</summary>
    <ul class="list">${lines.map((line) => html`<li class="item small quiet" key=${line}>${reveal(line)}</li>`)}</ul></details>`;
}

function LeftOut({ one }) {
  return html`<li class="item"><span class="row"><span class="tone-needs"><${Icon} name="hand" /></span><code class="strong">${revealLine(one.branch)}</code>
      <span>left out: ${revealLine(one.why || one.reason)}</span></span>
    ${one.files.length ? html`<p class="quiet small">${one.files.map(revealLine).join(", ")}</p>` : null}
    ${one.output ? html`<details><summary>Output</summary><pre class="block">${reveal(one.output)}</pre></details>` : null}</li>`;
}

function ChangedFiles({ changes }) {
  return html`<details><summary>${plural(changes.files.length, "changed file")} <${Changed} added=${changes.added} removed=${changes.removed} /></summary>
    <ul class="list">${changes.files.map((file) => html`<li class="item row small" key=${file.path}><code>${revealLine(file.path)}</code>
      ${file.was ? html`<span class="quiet">from ${revealLine(file.was)}</span>` : null}<span class="gap"></span>
      ${file.binary ? html`<span class="quiet">binary</span>` : html`<${Changed} added=${file.added} removed=${file.removed} />`}</li>`)}</ul></details>`;
}

function ConfirmMove({ merge, onClose, onMoved }) {
  const move = async () => {
    const { target, base, commit, tree } = merge;
    const { notices } = await post("/api/merges/apply", { target, base, commit, tree });
    onMoved();
    return [`${target} is now at ${commit.slice(0, 12)}.`, ...notices].join(" ");
  };
  return html`<${Dialog} title=${`Move ${revealLine(merge.target)} to this tree?`} onClose=${onClose}>
    <p>The branch <code>${revealLine(merge.target)}</code> moves from <code>${merge.base.slice(0, 12)}</code> to <code>${merge.commit.slice(0, 12)}</code>,
      with ${plural(merge.changes.files.length, "changed file")}. Nothing moves if the branch has changed since this preview.</p>
    <dl class="facts"><dt>Tree</dt><dd><code>${merge.tree}</code></dd></dl>
    <div class="dialog-foot"><button type="button" class="button" data-first onClick=${onClose}>Cancel</button>
      <${Button} look="primary" busy="Moving…" noEnter command=${move}>Move ${revealLine(merge.target)}<//></div><//>`;
}

/** The result of a merge, with its tree, and the button that moves the target to it. */
export function Preview({ merge }) {
  const [isAsking, setAsking] = useState(false);
  const [isMoved, setMoved] = useState(false);
  const notices = merge.notices || [];
  return html`<section class="card" aria-label="Result of the merge"><h2>Result</h2>
    ${notices.map((text, number) => html`<p class="quiet small pre" key=${number}>${reveal(text)}</p>`)}
    ${merge.coupled.length ? html`<p>Merged onto <code>${revealLine(merge.target)}</code>: ${merge.coupled.map((one) => `${one.is_part ? "a part of " : ""}${revealLine(one.branch)}`).join(", ")}</p>`
      : html`<p>Nothing was merged; <code>${revealLine(merge.target)}</code> stays as it is.</p>`}
    ${merge.coupled.length ? html`<p class="quiet small">${merge.checks.length ? `Checks that passed: ${merge.checks.map(revealLine).join(", ")}` : "No checks were run."}</p>` : null}
    ${merge.left_out.length ? html`<ul class="list">${merge.left_out.map((one) => html`<${LeftOut} key=${one.branch} one=${one} />`)}</ul>` : null}
    ${merge.coupled.length ? html`<${ChangedFiles} changes=${merge.changes} />
      <dl class="facts"><dt>Tree</dt><dd><code>${merge.tree}</code></dd><dt>Commit</dt><dd><code>${merge.commit}</code></dd></dl>
      ${isMoved ? html`<p class="notice" data-tone="well"><${Icon} name="check" />${revealLine(merge.target)} has this tree now.</p>`
        : html`<div class="row"><button type="button" class="button primary" onClick=${() => setAsking(true)}>Move ${revealLine(merge.target)} to this tree</button></div>`}` : null}
    ${isAsking ? html`<${ConfirmMove} merge=${merge} onClose=${() => setAsking(false)} onMoved=${() => { setMoved(true); setAsking(false); }} />` : null}
  </section>`;
}

export function MergePanel({ choices, skipped, onto }) {
  const form = useRef(null);
  const [merge, setMerge] = useState(null);
  const [problem, setProblem] = useState(null);
  const [left, setLeft] = useState(new Set());
  const branches = choices.map((one) => one.branch).filter((branch) => !left.has(branch));
  // A second click can come before the first is drawn, so each starts from the latest choice.
  const toggle = (branch) => setLeft((before) => {
    const next = new Set(before);
    if (!next.delete(branch)) next.add(branch);
    return next;
  });
  const preview = async () => {
    const fields = new FormData(form.current);
    const checks = fields.get("checks").split("\n").map((line) => line.trim()).filter(Boolean);
    setProblem(null);
    setMerge(null);
    try {
      setMerge(await post("/api/merges", { branches, checks, onto: fields.get("onto").trim() }));
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<section class="stack"><h2>Merge</h2>
    <form class="form card" ref=${form} onSubmit=${(event) => event.preventDefault()}>
      <${BranchChoice} choices=${choices} left=${left} onToggle=${toggle} /><${Skipped} lines=${skipped} />
      <div class="pair"><label class="field">Onto<input name="onto" autocomplete="off" spellcheck=${false} placeholder=${onto || "the branch that is checked out"} /></label>
        <label class="field">Checks <span class="hint">one command a line, run after each merge, besides those of the settings</span>
          <textarea name="checks" rows="2" spellcheck=${false} placeholder="make test"></textarea></label></div>
      <p class="quiet small">The merge is made on a separate branch. The target does not move until you say so.</p>
      <div class="row"><${Button} look="primary" busy="Merging and checking…" disabled=${!branches.length} command=${preview}>Preview the merge<//></div>
    </form>
    <${ProblemBanner} problem=${problem} />
    ${merge ? html`<${Preview} key=${merge.commit || "none"} merge=${merge} />` : null}</section>`;
}
