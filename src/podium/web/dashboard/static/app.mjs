// The frame around the screens: navigation, sign-in, messages and keys.

import { html, render } from "./vendor.mjs";
import { signInFromAddress, token } from "./api.mjs";
import { route } from "./router.mjs";
import { say } from "./state.mjs";

/** The screens by name; each module's default export is a component. */
const SCREENS = {};

function App() {
  const Screen = SCREENS[route.value.screen];
  return html`<main>${token.value && Screen ? html`<${Screen} />` : html`<p>Sign in.</p>`}</main>`;
}

signInFromAddress().catch((problem) => say(problem.message, true)).finally(() => render(html`<${App} />`, document.getElementById("app")));
