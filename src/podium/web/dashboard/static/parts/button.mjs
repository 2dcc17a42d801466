// A button that sends a command: disabled while the command is under way, and then it says what happened.

import { html, useRef, useState } from "../vendor.mjs";
import { say } from "../state.mjs";

/**
 * `command` is called once for each click and returns a promise. What it resolves to is shown: a text, or an object with
 * a `text`; nothing is shown for undefined. `busy` is the word while it is under way. `look` is "primary", "danger",
 * "plain" or several of them. With `noEnter`, the Enter key does not press the button; Space does.
 */
export function Button({ command, look = "", busy = "", disabled = false, noEnter = false, children, ...rest }) {
  const [isBusy, setBusy] = useState(false);
  // A second click can arrive before the button is drawn as disabled.
  const isUnderWay = useRef(false);
  const press = async (event) => {
    event.preventDefault();
    if (isUnderWay.current || disabled) return;
    isUnderWay.current = true;
    setBusy(true);
    try {
      const done = await command(event);
      const text = typeof done === "string" ? done : done && done.text;
      if (text) say(text);
    } catch (problem) {
      if (problem.name !== "AbortError") say(problem.message, true);
    } finally {
      isUnderWay.current = false;
      setBusy(false);
    }
  };
  const guardEnter = (event) => {
    if (noEnter && event.key === "Enter") event.preventDefault();
  };
  return html`<button type="button" class=${`button ${look}`} disabled=${disabled || isBusy} onClick=${press}
    onKeyDown=${guardEnter} ...${rest}>${isBusy && busy ? busy : children}</button>`;
}
