// How the person is notified: by this browser, by terminals, and by webhooks and commands. The last three are the setting
// "notify" of the command line.

import { html, useRef } from "../vendor.mjs";
import { post } from "../api.mjs";
import { say } from "../state.mjs";
import { EVENTS, askToNotify, canAskToNotify, canNotify, changeChoice, choice } from "./attention.mjs";
import { Button } from "./button.mjs";
import { useLoaded } from "./loaded.mjs";
import { Loading, ProblemBanner } from "./notices.mjs";
import { revealLine } from "./reveal.mjs";

const WORDS = {
  bell: ["Bell", "rings the terminal's bell"],
  title: ["Title", "shows the number of open requests in the title: (2) needs you"],
  desktop: ["Desktop", "shows a desktop notification in terminals that can; others ring"],
};

function InBrowser() {
  const isOn = canNotify.value && choice.value.isOn;
  const blocked = "Notification" in window ? "This browser blocks notifications of this page; its settings for the page can allow them."
    : "This browser cannot show notifications.";
  return html`<fieldset class="field-set"><legend>In this browser, while the page is in the background</legend>
    ${canAskToNotify.value ? html`<p><${Button} command=${askToNotify}>Notify me in this browser<//></p>`
      : !canNotify.value ? html`<p class="quiet">${blocked}</p>`
        : html`<label class="check"><input type="checkbox" checked=${choice.value.isOn} onChange=${(event) => changeChoice({ isOn: event.target.checked })} />Notify me in this browser</label>`}
    ${EVENTS.map(([event, word]) => html`<label class="check nested" key=${event}><input type="checkbox" checked=${choice.value[event]} disabled=${!isOn}
      onChange=${(change) => changeChoice({ [event]: change.target.checked })} />${word}</label>`)}</fieldset>`;
}

function InTerminals({ terminal, onChanged }) {
  // A second change may come before the first is saved, so changes are saved one after another, each with those before.
  const unsaved = useRef({});
  const saving = useRef(Promise.resolve());
  const change = (word, isOn) => {
    unsaved.current = { ...unsaved.current, [word]: isOn };
    const chosen = { ...terminal, ...unsaved.current };
    saving.current = saving.current.then(async () => {
      try {
        await post("/api/notifications", { words: Object.keys(chosen).filter((one) => chosen[one]) });
      } catch (problem) {
        unsaved.current = {};
        say(problem.message, true);
      }
      onChanged();
    });
  };
  return html`<fieldset class="field-set"><legend>In terminals that run or follow a run</legend>
    ${Object.entries(WORDS).map(([word, [name, what]]) => html`<label class="check" key=${word}><input type="checkbox" checked=${terminal[word]}
      onChange=${(event) => change(word, event.target.checked)} /><span>${name} <span class="quiet small">${what}</span></span></label>`)}</fieldset>`;
}

function Elsewhere({ found }) {
  const targets = [...found.webhooks, ...found.commands];
  const test = async () => {
    const { sent, problems } = await post("/api/notifications/test");
    if (problems.length) throw new Error(problems.join("; "));
    return `${sent} of ${targets.length} notified.`;
  };
  return html`<fieldset class="field-set"><legend>Webhooks and commands</legend>
    ${targets.length ? html`<ul class="list">${targets.map((one, number) => html`<li class="item mono small" key=${number}>${revealLine(one)}</li>`)}</ul>
      <p><${Button} busy="Sending…" command=${test}>Send a test notification<//></p>` : html`<p class="quiet">None.</p>`}
    <p class="quiet small">Only the file <code>${revealLine(found.file)}</code> on the server's machine can add one: a command runs outside the sandbox.
      Write its URL or <code>command: [notify-send, Podium]</code> below <code>notify:</code>.</p></fieldset>`;
}

export function NotificationSettings() {
  const { data, problem, reload } = useLoaded("/api/notifications", { isFixed: true });
  return html`<section class="stack"><h2>Notifications</h2>
    <p class="quiet small">When a run needs you, has finished or has failed. The title of this tab always has the number of open requests.</p>
    <div class="notify-ways"><${InBrowser} />
      ${data ? html`<${InTerminals} terminal=${data.terminal} onChanged=${reload.now} /><${Elsewhere} found=${data} />`
        : problem ? html`<${ProblemBanner} problem=${problem} onRetry=${reload} />` : html`<${Loading} what="the settings" />`}</div></section>`;
}
