// A modal dialog. The browser's own element keeps the focus inside and closes on Escape.

import { html, useEffect, useRef } from "../vendor.mjs";
import { Icon } from "./icons.mjs";

/** Show `children` in a dialog until `onClose` is called. Focus returns to where it was. */
export function Dialog({ title, onClose, children, className = "" }) {
  const place = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    place.current.showModal();
    const first = place.current.querySelector("[data-first]");
    if (first) first.focus();
    return () => {
      if (before && before.isConnected) before.focus();
    };
  }, []);
  const closeOutside = (event) => {
    if (event.target === place.current) onClose();
  };
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog class=${`dialog ${className}`} ref=${place} aria-label=${title} onCancel=${cancel} onClick=${closeOutside}>
    <div class="dialog-head"><h2>${title}</h2>
      <button type="button" class="close" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></div>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}
