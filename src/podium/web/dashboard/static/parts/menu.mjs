// A button that opens a short list of commands. Arrow keys move in it, Escape and a click elsewhere close it.

import { html, useEffect, useRef, useState } from "../vendor.mjs";
import { Icon } from "./icons.mjs";

/** `choices` is a list of [word, command]. */
export function Menu({ label, choices }) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef(null);
  const close = (returnsFocus) => {
    setOpen(false);
    if (returnsFocus) place.current.querySelector("button").focus();
  };
  useEffect(() => {
    if (!isOpen) return undefined;
    place.current.querySelector("[role=menuitem]").focus();
    const closeOutside = (event) => { if (!place.current.contains(event.target)) close(false); };
    document.addEventListener("pointerdown", closeOutside);
    return () => document.removeEventListener("pointerdown", closeOutside);
  }, [isOpen]);
  const handleKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const items = [...place.current.querySelectorAll("[role=menuitem]")];
    if (event.key === "Escape") close(true);
    else if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else if (event.key === "Tab") return close(false);
    else return undefined;
    event.preventDefault();
    event.stopPropagation();
    return undefined;
  };
  const choose = (command) => () => {
    close(true);
    command();
  };
  return html`<span class="menu" ref=${place}>
    <button type="button" class="close" aria-haspopup="menu" aria-expanded=${isOpen} aria-label=${label} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>
    ${isOpen ? html`<span class="menu-list" role="menu" aria-label=${label} onKeyDown=${handleKey}>${choices.map(([word, command]) => html`<button key=${word} type="button"
      role="menuitem" class="menu-item" tabindex="-1" onClick=${choose(command)}>${word}</button>`)}</span>` : null}</span>`;
}
