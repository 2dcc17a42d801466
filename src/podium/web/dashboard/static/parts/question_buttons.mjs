// The answers to a question: its choices as buttons, and a field for free text.

import { html, useRef, useState } from "../vendor.mjs";
import { say } from "../state.mjs";
import { describeAnswer, sendAnswer } from "./answering.mjs";
import { Button } from "./button.mjs";
import { useKeys } from "./keys.mjs";

const MOST_KEYS = 9;

/**
 * Return the text that stands for a choice. Its number is exact even if the choice has hidden characters, which are shown
 * escaped; but if a choice is a number itself, the choice is sent.
 */
function textOfChoice(choices, at) {
  return choices.some((choice) => /^\s*\d+\s*$/.test(choice)) ? choices[at] : String(at + 1);
}

export function QuestionButtons({ request, isReady, onAnswered }) {
  const [text, setText] = useState("");
  const isUnderWay = useRef(false);
  const answer = async (words, shown) => {
    if (isUnderWay.current || !isReady) return;
    isUnderWay.current = true;
    try {
      const done = await sendAnswer(request, { text: words });
      say(describeAnswer(request, `Answered "${shown.slice(0, 60)}"`, done));
      onAnswered();
    } catch (problem) {
      say(problem.message, true);
    } finally {
      isUnderWay.current = false;
    }
  };
  const choose = (at) => () => answer(textOfChoice(request.choices, at), request.choices[at]);
  useKeys(Object.fromEntries(request.choices.slice(0, MOST_KEYS).map((_, at) => [String(at + 1), choose(at)])));
  const takesText = request.kind !== "decision" || !request.choices.length;
  return html`${request.choices.length ? html`<div class="answers">${request.choices.map((choice, at) => html`<${Button} key=${at} noEnter
      disabled=${!isReady} command=${choose(at)}><span class="choice">${choice}</span>${at < MOST_KEYS ? html` <kbd>${at + 1}</kbd>` : null}<//>`)}</div>` : null}
    ${takesText ? html`<div class="free-text"><label class="field">${request.choices.length ? "Or in your own words" : "Your answer"}
        <textarea rows="2" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <${Button} look=${request.choices.length ? "" : "primary"} busy="Sending…" disabled=${!isReady || !text.trim()}
        command=${() => answer(text, text)}>Send<//></div>` : null}`;
}
