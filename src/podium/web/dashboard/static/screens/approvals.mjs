// Requests that wait for a person: the list on the left, the whole request on the right. On phones one after the other.

import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor.mjs";
import { address, go, replace, route } from "../router.mjs";
import { findClosing, listOpen, useClosedRequests } from "../parts/answering.mjs";
import { KindBadge } from "../parts/badge.mjs";
import { Icon } from "../parts/icons.mjs";
import { Empty, Loading } from "../parts/notices.mjs";
import { focusHeading, RequestDetail } from "../parts/request_detail.mjs";
import { Age } from "../parts/time.mjs";

const wideScreen = matchMedia("(min-width: 900px)");
const isWide = signal(wideScreen.matches);
wideScreen.addEventListener("change", (event) => { isWide.value = event.matches; });

/** All rows, oldest first: open requests, and those that were closed elsewhere and not dismissed yet. */
function listRows(open, closed) {
  const rows = [...open.map((request) => ({ request, closing: null })), ...closed.map((one) => ({ request: one.request, closing: one }))];
  return rows.sort((a, b) => a.request.asked_at - b.request.asked_at);
}

export default function Approvals() {
  const open = listOpen();
  const { closed, dismiss } = useClosedRequests();
  const id = route.value.id;
  if (!open) return html`<h1>Approvals</h1><${Loading} what="the requests" />`;
  const rows = listRows(open, closed);
  const chosen = rows.find((row) => row.request.id === id);
  // On a phone nothing is chosen before the person taps it: a request that nobody sees must not count as shown.
  const row = chosen || (!id && isWide.value ? rows[0] : null);
  const next = () => {
    const others = rows.filter((one) => one !== row && !one.closing);
    const after = others.find((one) => one.request.asked_at >= row.request.asked_at) || others[0];
    go("approvals", after && (id || !isWide.value) ? after.request.id : "");
  };
  const drop = () => { dismiss(row.request.id); next(); };
  return html`<div class="approvals" data-detail=${row || id ? "" : null}>
    <section class="approvals-list" aria-label="Requests">
      <div class="screen-head"><h1>Approvals</h1><span class="quiet small">${open.length ? `${open.length} waiting` : ""}</span></div>
      ${rows.length ? html`<ul class="list">${rows.map((one) => html`<${Row} key=${one.request.id} row=${one} isHere=${one === row} />`)}</ul>`
        : html`<${Empty} title="Nothing waits for you.">Requests for permission, questions, and plans, decisions and reviews
            to approve appear here as soon as an agent asks.<//>`}
    </section>
    <section class="approvals-detail" aria-label="Request">
      ${row ? html`<${RequestDetail} key=${row.request.id} row=${row} open=${open} hasRoute=${Boolean(id)} onAnswered=${next} onDismiss=${drop} />` : null}
      ${id && !row ? html`<${Missing} id=${id} />` : null}
    </section>
  </div>`;
}

function Row({ row: { request, closing }, isHere }) {
  // Beside the list, the focused request is the one that is shown, so that a key never answers another one.
  const select = () => { if (isWide.value && !isHere) replace("approvals", request.id); };
  const read = () => requestAnimationFrame(focusHeading);
  const item = useRef(null);
  // If the page shows another request, the focus in the list follows, for the same reason.
  useLayoutEffect(() => {
    const focused = document.activeElement;
    if (isHere && isWide.value && focused !== item.current && focused?.closest(".approvals-list [data-item]")) item.current.focus();
  }, [isHere]);
  return html`<li><a ref=${item} class="item stack tight" data-item href=${address("approvals", request.id)} aria-current=${isHere ? "true" : null}
      onFocus=${select} onClick=${read}>
    <span class="row"><${KindBadge} kind=${request.kind} /><span class="gap"></span>
      <span class="small quiet nowrap">${closing ? "closed" : html`<${Age} at=${request.asked_at} before="waiting " />`}</span></span>
    <span class=${`lines-2 ${request.kind === "permission" ? "mono" : ""}`}>${request.text}</span>
    <span class="small quiet">${request.agent}${request.worker ? html` · <${Icon} name="branch" /> ${request.worker}` : null}</span>
  </a></li>`;
}

/** A link to a request that is not open: why it is not. */
function Missing({ id }) {
  const [text, setText] = useState("");
  useEffect(() => {
    findClosing(id).then((found) => setText(found || "This request is loading…"));
  }, [id]);
  return html`<div class="stack">
    <div class="notice" data-tone="quiet"><${Icon} name="check" /><span class="grow pre">${text || "Looking for the request…"}</span></div>
    <p><a href=${address("approvals")}>Back to the open requests</a></p></div>`;
}
