// Ctrl-K: go to a screen, open a run by its id or its text, or start a run.

import { html, useEffect, useState } from "../vendor.mjs";
import { get } from "../api.mjs";
import { go } from "../router.mjs";
import { Dialog } from "./dialog.mjs";
import { PLACES } from "./frame.mjs";
import { Icon } from "./icons.mjs";
import { openDialog } from "./open_dialog.mjs";
import { plain } from "./plain_text.mjs";
import { StateBadge } from "./badge.mjs";

const DELAY = 150;
const MOST = 8;

const COMMANDS = [
  { word: "Start a run", icon: "plus", run: () => { openDialog.value = "start"; } },
  ...PLACES.map(([screen, word, icon]) => ({ word: `Go to ${word}`, icon, run: () => go(screen) })),
  { word: "Show the keys", icon: "question", run: () => { openDialog.value = "keys"; } },
];

/** The runs whose id, agent, request or folder contains the text, found a moment after the last key. */
function useFoundRuns(text) {
  const [runs, setRuns] = useState([]);
  useEffect(() => {
    if (!text) {
      setRuns([]);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      get(`/api/runs?text=${encodeURIComponent(text)}`, { signal: abort.signal })
        .then((found) => setRuns(found.runs.slice(0, MOST)), () => {});
    }, DELAY);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return runs;
}

function listCommands(text, runs) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = COMMANDS.filter((one) => words.every((word) => one.word.toLowerCase().includes(word)));
  return [...matching, ...runs.map((one) => ({ run: () => go("run", one.id), found: one }))];
}

function Command({ command, isChosen, onChoose, number }) {
  const { word, icon, found } = command;
  return html`<div class="command" role="option" id=${`command-${number}`} aria-selected=${isChosen} onClick=${onChoose}>
    ${found
      ? html`<${StateBadge} state=${found.state} /><span class="clip"><span class="strong">${plain(found.agent)}</span> ${plain(found.request)}</span>`
      : html`<${Icon} name=${icon} /><span>${word}</span>`}</div>`;
}

export function CommandBar({ onClose }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const found = useFoundRuns(text.trim());
  const commands = listCommands(text.trim(), found);
  const at = Math.min(chosen, Math.max(0, commands.length - 1));
  const choose = (command) => {
    onClose();
    command.run();
  };
  const handleKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setChosen((at + step + commands.length) % Math.max(1, commands.length));
    else if (event.key === "Enter" && !event.isComposing) {
      // Enter can come before the last letter is drawn, so the list is made again for what is in the field.
      const current = event.target.value === text ? commands : listCommands(event.target.value.trim(), found);
      const command = current[event.target.value === text ? at : 0];
      if (command) choose(command);
    } else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Search and commands" className="top" onClose=${onClose}>
    <input class="input" data-first role="combobox" aria-expanded="true" aria-controls="commands" autocomplete="off"
      aria-activedescendant=${commands.length ? `command-${at}` : null} aria-label="A screen, a command, or a run's id or text"
      placeholder="A screen, a command, or a run's id or text" value=${text} onKeyDown=${handleKey}
      onInput=${(event) => { setText(event.target.value); setChosen(0); }} />
    <div class="command-list" role="listbox" id="commands" aria-label="Results">
      ${commands.map((one, number) => html`<${Command} key=${number} number=${number} command=${one} isChosen=${number === at}
        onChoose=${() => choose(one)} />`)}
    </div>
    ${commands.length ? null : html`<p class="quiet">Nothing matches "${text}".</p>`}
  <//>`;
}
