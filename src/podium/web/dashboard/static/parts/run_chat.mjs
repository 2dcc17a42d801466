// Chat with an agent of the run: the messages to it, its replies, and a box to write the next message.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor.mjs";
import { post } from "../api.mjs";
import { clock, count } from "../format.mjs";
import { Button } from "./button.mjs";
import { LongText } from "./run_operation.mjs";

const SHOWN = 50;

/** Return the names of the agents that can receive messages, the run's first agent first. */
export function listRecipients(view) {
  const names = new Set([view.started.agent]);
  for (const agent of view.started.agents ?? []) names.add(agent.name);
  return [...names];
}

export default function Chat({ log, view, at, agent, onAgent }) {
  const box = useRef(null);
  const until = at ?? Infinity;
  const said = log.activity.messages.filter((one) => one.agent === agent && one.seq <= until).slice(-SHOWN);
  const last = said.at(-1)?.seq;
  useLayoutEffect(() => {
    box.current.scrollTop = box.current.scrollHeight;
  }, [last, agent]);
  return html`<div class="run-chat">
    <label class="run-chat-agent">Chat with <select class="input" value=${agent} onChange=${(event) => onAgent(event.target.value)}>
      ${listRecipients(view).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    <ol class="run-chat-list" ref=${box} tabIndex="0" aria-label=${`Messages of ${agent}`}>
      ${said.map((one) => html`<li key=${one.seq} class=${one.is_person ? "person" : "agent"}>
        <p class="quiet small">${one.by}, ${clock(one.at)}${(one.files ?? []).map((name) => `, with ${name}`).join("")}</p>
        <${LongText} text=${one.text} /></li>`)}
      ${!said.length && html`<li class="empty">The messages to ${agent} and its replies appear here.</li>`}
    </ol>
    ${log.view.ended ? html`<p class="quiet">The run has ended, so its agents cannot receive messages. Fork or retry it to continue.</p>`
      : html`<${Composer} log=${log} agent=${agent} />`}
  </div>`;
}

function Composer({ log, agent }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState([]);
  const field = useRef(null);
  const picker = useRef(null);
  useEffect(() => { field.current.focus({ preventScroll: true }); }, []);
  const send = async () => {
    const given = await Promise.all(files.map(readFile));
    const done = await post(`/api/runs/${log.id}/messages`, { text, agent, files: given });
    setText("");
    setFiles([]);
    return done;
  };
  const addFiles = (list) => setFiles([...files, ...list]);
  return html`<div class="run-composer" onDragOver=${(event) => event.preventDefault()}
      onDrop=${(event) => { event.preventDefault(); addFiles(event.dataTransfer.files); }}>
    <textarea class="input" ref=${field} rows="3" aria-label=${`Message to ${agent}`} placeholder=${`Message to ${agent}; it is delivered with its next model call`}
      value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    ${files.length > 0 && html`<ul class="run-files">${files.map((file, place) => html`<li key=${`${file.name} ${place}`}>
      ${file.name} <span class="quiet">${count(file.size)} bytes</span>
      <button type="button" class="button small plain" aria-label=${`Remove ${file.name}`}
        onClick=${() => setFiles(files.filter((one) => one !== file))}>Remove</button></li>`)}</ul>`}
    <div class="row"><input type="file" multiple hidden ref=${picker}
        onChange=${(event) => { addFiles(event.target.files); event.target.value = ""; }} />
      <button type="button" class="button" onClick=${() => picker.current.click()}>Attach files</button><span class="gap"></span>
      <${Button} look="primary" busy="Sending…" disabled=${!text.trim()} command=${send}>Send<//></div>
  </div>`;
}

function readFile(file) {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done({ name: file.name, data: reader.result.slice(reader.result.indexOf(",") + 1) });
    reader.onerror = () => fail(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
