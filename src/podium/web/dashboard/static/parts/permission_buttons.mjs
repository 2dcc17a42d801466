// The answers to a permission request. Enter never presses a button that allows something.

import { html, useRef, useState } from "../vendor.mjs";
import { say } from "../state.mjs";
import { describeAnswer, sendAnswer, useGuard } from "./answering.mjs";
import { Button } from "./button.mjs";
import { Dialog } from "./dialog.mjs";
import { useKeys } from "./keys.mjs";

const DONE = {
  once: "Approved once", run: "Approved for this run", always: "Always allowed", deny: "Denied",
  deny_and_pause: "Denied, and the run pauses", abort: "Denied, and the run stops",
};

/** Other open requests that are the same to the byte, in what they do and in what is shown. */
function findIdentical(request, open) {
  const lines = request.lines.join("\n");
  return open.filter((one) => one.id !== request.id && one.same && one.same === request.same && one.lines.join("\n") === lines);
}

/** A function that sends one answer at a time, and none while another one is under way. */
function useAnswer(request, onAnswered) {
  const isUnderWay = useRef(false);
  return async (decision, more = {}) => {
    if (isUnderWay.current) return;
    isUnderWay.current = true;
    try {
      const done = await sendAnswer(request, { decision, ...more });
      say(describeAnswer(request, DONE[decision], done));
      onAnswered();
    } catch (problem) {
      say(problem.message, true);
    } finally {
      isUnderWay.current = false;
    }
  };
}

export function PermissionButtons({ request, open, isReady, onAnswered }) {
  const [dialog, setDialog] = useState("");
  const answer = useAnswer(request, onAnswered);
  const close = () => setDialog("");
  const allow = (decision) => () => answer(decision);
  const when = (act) => () => (isReady ? act() : undefined);
  useKeys({
    y: when(allow("once")), r: when(allow("run")), x: when(allow("deny_and_pause")),
    n: when(() => setDialog("deny")), a: when(() => setDialog("abort")),
    p: when(() => request.always && setDialog("always")),
  });
  const off = !isReady;
  return html`<div class="answers">
      <${Button} look="primary" noEnter disabled=${off} command=${allow("once")}>Approve once <kbd>y</kbd><//>
      <${Button} noEnter disabled=${off} command=${allow("run")}>For this run <kbd>r</kbd><//>
      ${request.always ? html`<${Button} noEnter disabled=${off} command=${() => setDialog("always")}>Always… <kbd>p</kbd><//>` : null}
      <${Button} look="danger" disabled=${off} command=${() => setDialog("deny")}>Deny with note <kbd>n</kbd><//>
      <${Button} look="danger" disabled=${off} command=${allow("deny_and_pause")}>Deny and pause <kbd>x</kbd><//>
      <${Button} look="danger" disabled=${off} command=${() => setDialog("abort")}>Deny and stop the run <kbd>a</kbd><//>
      <${Bulk} request=${request} open=${open} isReady=${isReady} onAnswered=${onAnswered} />
    </div>
    ${dialog === "always" ? html`<${AlwaysDialog} request=${request} answer=${answer} onClose=${close} />` : null}
    ${dialog === "deny" ? html`<${DenyDialog} title="Deny with a note" word="Deny" decision="deny" answer=${answer} onClose=${close} />` : null}
    ${dialog === "abort" ? html`<${DenyDialog} title="Deny and stop the run" word="Deny and stop the run" decision="abort" answer=${answer} onClose=${close}>
      The run ${request.run} ends and keeps its partial results.<//>` : null}`;
}

/** Approve several requests that are the same to the byte. */
function Bulk({ request, open, isReady, onAnswered }) {
  const same = [request, ...findIdentical(request, open)];
  if (same.length < 2) return null;
  const approveAll = async () => {
    const results = await Promise.allSettled(same.map((one) => sendAnswer(one, { decision: "once" })));
    const failed = results.filter((one) => one.status === "rejected");
    onAnswered();
    if (failed.length) throw new Error(`${same.length - failed.length} of ${same.length} requests approved once; ${failed[0].reason.message}`);
    return `${same.length} identical requests approved once.`;
  };
  return html`<${Button} noEnter busy="Approving…" disabled=${!isReady} command=${approveAll}>Approve all ${same.length} identical once<//>`;
}

function Examples({ title, texts }) {
  if (!texts.length) return null;
  return html`<section class="stack tight" aria-label=${title}><h3>${title}</h3>
    <ul class="stack tight">${texts.map((text) => html`<li key=${text} class="mono pre">${text}</li>`)}</ul></section>`;
}

function AlwaysDialog({ request, answer, onClose }) {
  const [everywhere, setEverywhere] = useState(false);
  const isGuarded = useGuard(request.always);
  const allow = async () => {
    await answer("always", { everywhere });
    onClose();
  };
  return html`<${Dialog} title="Always allow?" onClose=${onClose}>
    <p>Podium will save this rule. From then on, everything that it matches is done without asking:</p>
    <div class="block" data-part="rule">${request.always}</div>
    <${Examples} title="It allows, for example" texts=${request.always_covers} />
    <${Examples} title="It does not allow, for example" texts=${request.always_does_not_cover} />
    <label class="check"><input type="checkbox" checked=${everywhere} onChange=${(event) => setEverywhere(event.target.checked)} />
      In every repository, not only in this one</label>
    <p class="small quiet"><code>podium policy list</code> shows the saved rules, and <code>podium policy revoke</code> deletes one.</p>
    <div class="dialog-foot">
      <button type="button" class="button" data-first onClick=${onClose}>Cancel</button>
      <${Button} look="primary" noEnter disabled=${!isGuarded} command=${allow}>Save the rule and allow<//>
    </div>
  <//>`;
}

function DenyDialog({ title, word, decision, answer, onClose, children }) {
  const [comment, setComment] = useState("");
  const isGuarded = useGuard(title);
  const deny = async () => {
    await answer(decision, { comment: comment.trim() });
    onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${children ? html`<p>${children}</p>` : null}
    <label class="field">Note for the agent <span class="hint">optional; the agent reads it</span>
      <textarea data-first value=${comment} onInput=${(event) => setComment(event.target.value)}></textarea></label>
    <div class="dialog-foot">
      <button type="button" class="button" onClick=${onClose}>Cancel</button>
      <${Button} look="danger" disabled=${!isGuarded} command=${deny}>${word}<//>
    </div>
  <//>`;
}
