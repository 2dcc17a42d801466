// The page of a file that replays one run without a server: see replay_file.py. It answers what the run screen asks.

import { html, render } from "./vendor.mjs";
import { applyChanges } from "./changes.mjs";
import RunScreen from "./screens/run.mjs";

const { schema, run, state, changes, entries, hashes } = JSON.parse(document.getElementById("run").textContent);

/** Return the state of the run after an entry. */
const findDocument = (at) => applyChanges({}, changes.slice(0, at || changes.length).flat());

/** Return what the API answers to a request for the run. */
function answer({ pathname, searchParams }) {
  const [, wanted, what, seq] = /^\/api\/runs\/([^/]+)\/(\w+)(?:\/(\d+))?$/.exec(pathname) ?? [];
  if (wanted !== run) return null;
  const after = Number(searchParams.get("after"));
  const until = Number(searchParams.get("until")) || changes.length;
  if (what === "state") return { document: findDocument(Number(searchParams.get("at"))) };
  if (what === "changes") return { after, has_more: false, changes: changes.slice(after, until) };
  if (what === "entries" && seq) return { entry: entries[seq - 1], hash: hashes[seq], previous_hash: hashes[seq - 1] };
  if (what === "entries") return { has_more: false, entries: entries.slice(after, until) };
  return null;
}

globalThis.fetch = async (path) => {
  const found = answer(new URL(path, "http://file/"));
  const body = found ? { schema, run, state, ...found } : { detail: "this page is a file; it shows one run" };
  return new Response(JSON.stringify(body), { status: found ? 200 : 404 });
};

if (!location.hash.startsWith("#/run/")) location.replace(`#/run/${run}`);
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#/run/")) history.back(); // the other screens need a server
});
render(html`<main class="main" id="main" data-screen="run"><${RunScreen} /></main>`, document.getElementById("app"));
