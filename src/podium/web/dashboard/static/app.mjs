// The frame around the screens: navigation, top bar, sign-in, messages, dialogs and keys.

import { html, render, signal, useEffect, useState } from "./vendor.mjs";
import { signInFromAddress, token } from "./api.mjs";
import { address, go, route } from "./router.mjs";
import { say } from "./state.mjs";
import { CommandBar } from "./parts/command_bar.mjs";
import { isChoosingPlace, onKey } from "./parts/keys.mjs";
import { KeyHelp, KeyHint } from "./parts/key_help.mjs";
import { Navigation, TopBar } from "./parts/frame.mjs";
import { ProblemBanner } from "./parts/notices.mjs";
import { StartRun } from "./parts/start_run.mjs";
import { Toasts } from "./parts/toasts.mjs";
import { openDialog } from "./parts/open_dialog.mjs";
import "./parts/attention.mjs";
import SignIn from "./screens/sign_in.mjs";

/** The screens by name; each module's default export is a component. They are loaded when they are first shown. */
const SCREENS = {
  now: () => import("./screens/now.mjs"),
  runs: () => import("./screens/runs.mjs"),
  run: () => import("./screens/run.mjs"),
  approvals: () => import("./screens/approvals.mjs"),
  plans: () => import("./screens/plans.mjs"),
  decisions: () => import("./screens/decisions.mjs"),
  workers: () => import("./screens/workers.mjs"),
  cost: () => import("./screens/cost.mjs"),
  teams: () => import("./screens/teams.mjs"),
  settings: () => import("./screens/settings.mjs"),
};

/** The components that were loaded, by name. */
const loaded = signal({});

function Screen({ name }) {
  const [problem, setProblem] = useState(null);
  const load = () => {
    setProblem(null);
    SCREENS[name]().then(
      (module) => { loaded.value = { ...loaded.value, [name]: module.default }; },
      () => setProblem(`The screen "${name}" could not be loaded. Reload the page to try again.`),
    );
  };
  useEffect(() => {
    if (SCREENS[name] && !loaded.value[name]) load();
    else setProblem(null);
  }, [name]);
  const Component = loaded.value[name];
  if (!SCREENS[name]) return html`<p>There is no screen "${name}". <a href=${address("now")}>Go to Now</a></p>`;
  if (Component) return html`<${Component} />`;
  return problem ? html`<${ProblemBanner} problem=${problem} />` : html`<p class="quiet" role="status">Loading the screen…</p>`;
}

function Dialogs() {
  const close = () => { openDialog.value = ""; };
  if (openDialog.value === "keys") return html`<${KeyHelp} onClose=${close} />`;
  if (openDialog.value === "commands") return html`<${CommandBar} onClose=${close} />`;
  if (openDialog.value === "start") return html`<${StartRun} onClose=${close} />`;
  return null;
}

function App() {
  if (!token.value) return html`<${SignIn} /><${Toasts} />`;
  const name = route.value.screen;
  return html`<a class="skip" href="#main" onClick=${skipToMain}>Skip to content</a>
    <div class="frame">
      <${Navigation} />
      <div class="page">
        <${TopBar} />
        <main class="main" id="main" tabindex="-1" data-screen=${name}><${Screen} name=${name} key=${name} /></main>
      </div>
    </div>
    <${Toasts} />
    ${isChoosingPlace.value ? html`<${KeyHint} />` : null}
    <${Dialogs} />`;
}

function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** Focus the search field of the list of runs, from any screen. */
function focusSearch() {
  const field = document.getElementById("search");
  if (field) field.focus();
  else go("runs", "", { search: "1" });
}

onKey("?", () => { openDialog.value = "keys"; });
onKey("/", focusSearch);
onKey("ctrl-k", () => { if (token.value && !document.querySelector("dialog[open]")) openDialog.value = "commands"; });

/** Sign in if the address has a code, and go on to the first screen. The code does not stay in the address. */
async function useCode() {
  if (!/[#&]code=/.test(location.hash)) return;
  await signInFromAddress().catch((problem) => say(problem.message, true));
  go("now");
}

// An address that is pasted into an open tab changes only the part after #, which does not load the page again.
addEventListener("hashchange", useCode);
useCode().then(() => {
  const place = document.getElementById("app");
  place.replaceChildren();
  render(html`<${App} />`, place);
});
