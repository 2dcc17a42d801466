// A long list of rows of one height, of which only the visible ones are in the page.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor.mjs";

const MARGIN = 6;

/** `renderRow(place)` draws a row. The list is at most `mostRows` high. With `sticksToEnd`, a list that is scrolled to its end stays there as it grows. */
export function VirtualList({ count, height, renderRow, label, className = "", sticksToEnd = false, showPlace = -1, mostRows = 16 }) {
  const box = useRef(null);
  const isAtEnd = useRef(sticksToEnd);
  const [seen, setSeen] = useState({ top: 0, size: 400 });
  useEffect(() => {
    const element = box.current;
    const measure = () => {
      isAtEnd.current = sticksToEnd && element.scrollTop + element.clientHeight >= element.scrollHeight - height;
      setSeen((old) => (old.top === element.scrollTop && old.size === element.clientHeight ? old : { top: element.scrollTop, size: element.clientHeight }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [height, sticksToEnd]);
  useLayoutEffect(() => {
    if (isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [count]);
  useLayoutEffect(() => {
    const element = box.current;
    if (showPlace < 0) return;
    if (showPlace * height < element.scrollTop) element.scrollTop = showPlace * height;
    const below = (showPlace + 1) * height - element.clientHeight;
    if (below > element.scrollTop) element.scrollTop = below;
  }, [showPlace]);
  const first = Math.max(0, Math.floor(seen.top / height) - MARGIN);
  const last = Math.min(count, Math.ceil((seen.top + seen.size) / height) + MARGIN);
  const rows = [];
  for (let place = first; place < last; place += 1) rows.push(renderRow(place));
  return html`<div class=${`run-virtual ${className}`} ref=${box} tabIndex="0" role="list" aria-label=${label}
    style=${{ height: `${Math.min(Math.max(count, 1), mostRows) * height + 2}px` }}>
    <div class="run-virtual-space" style=${{ height: `${count * height}px` }}>
      <div class="run-virtual-rows" style=${{ top: `${first * height}px` }}>${rows}</div>
    </div>
  </div>`;
}
