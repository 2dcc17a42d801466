// Shown when nobody is signed in: what to do, and a field for the code.

import { html, useState } from "../vendor.mjs";
import { signIn } from "../api.mjs";
import { Button } from "../parts/button.mjs";
import { ProblemBanner } from "../parts/notices.mjs";

/** The code itself, or the code in an address that was pasted as a whole. */
function findCode(text) {
  const found = /code=([\w-]+)/.exec(text);
  return found ? found[1] : text.trim();
}

export default function SignIn() {
  const [text, setText] = useState("");
  const [remember, setRemember] = useState(false);
  const [problem, setProblem] = useState(null);
  const send = () => signIn(findCode(text), remember).catch((error) => { setProblem(error); });
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) send();
  };
  return html`<main class="sign-in">
    <h1><img src="icon.svg" alt="" />Podium</h1>
    <p class="quiet">Open the address that <code>podium serve</code> prints, or paste it here. Its code works once;
      press Enter in that terminal for another one.</p>
    <form class="form" onSubmit=${submit}>
      <label class="field">Address or code
        <input value=${text} autocomplete="off" spellcheck=${false} onInput=${(event) => setText(event.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${remember} onChange=${(event) => setRemember(event.target.checked)} />
        Stay signed in on this device</label>
      <${ProblemBanner} problem=${problem} />
      <${Button} look="primary" busy="Signing in…" disabled=${!text.trim()} command=${send}>Sign in<//>
    </form>
  </main>`;
}
