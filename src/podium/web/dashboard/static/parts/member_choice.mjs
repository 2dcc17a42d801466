// Choose agents as the members of a team, in the order in which they are ticked.

import { html, useState } from "../vendor.mjs";
import { Icon } from "./icons.mjs";
import { revealLine } from "./reveal.mjs";

const SOURCES = [["repo", "From this repository"], ["user", "Mine"], ["built-in", "Built-in"]];

function Candidate({ agent, place, onToggle }) {
  return html`<li><label class="check member-check"><input type="checkbox" value=${agent.name} checked=${place >= 0} onChange=${() => onToggle(agent.name)} />
    <span class="strong">${revealLine(agent.name)}</span><span class="quiet small lines-2">${revealLine(agent.description)}</span></label></li>`;
}

function Chosen({ name, place, count, onMove, onRemove }) {
  return html`<li class="chip"><span class="quiet small">${place + 1}</span><span>${revealLine(name)}</span>
    <button type="button" class="close" aria-label=${`Move ${name} forward`} disabled=${!place} onClick=${() => onMove(place, place - 1)}>‹</button>
    <button type="button" class="close" aria-label=${`Move ${name} back`} disabled=${place === count - 1} onClick=${() => onMove(place, place + 1)}>›</button>
    <button type="button" class="close" aria-label=${`Remove ${name}`} onClick=${() => onRemove(name)}><${Icon} name="close" /></button></li>`;
}

export function MemberChoice({ agents, chosen, onChange, isOrdered }) {
  const [text, setText] = useState("");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = agents.filter((one) => words.every((word) => `${one.name} ${one.description}`.toLowerCase().includes(word)));
  const toggle = (name) => onChange(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]);
  const move = (from, to) => {
    const next = [...chosen];
    next.splice(to, 0, ...next.splice(from, 1));
    onChange(next);
  };
  return html`<fieldset class="field-set"><legend>Members ${chosen.length ? html`<span class="quiet small">${chosen.length} chosen</span>` : null}</legend>
    ${chosen.length ? html`<ol class="chips" aria-label=${isOrdered ? "Members in the order in which they work" : "Chosen members"}>${chosen.map((name, place) => html`<${Chosen}
      key=${name} name=${name} place=${place} count=${chosen.length} onMove=${move} onRemove=${toggle} />`)}</ol>` : null}
    <input class="input" type="search" aria-label="Search the agents" placeholder="Search the agents" value=${text} onInput=${(event) => setText(event.target.value)} />
    <div class="member-list" tabindex="0" role="group" aria-label="Agents">${SOURCES.map(([source, title]) => {
      const here = found.filter((one) => one.source === source);
      return here.length ? html`<section key=${source}><h3 class="quiet small">${title}</h3>
        <ul>${here.map((one) => html`<${Candidate} key=${one.name} agent=${one} place=${chosen.indexOf(one.name)} onToggle=${toggle} />`)}</ul></section>` : null;
    })}${found.length ? null : html`<p class="quiet">No agent matches.</p>`}</div></fieldset>`;
}
