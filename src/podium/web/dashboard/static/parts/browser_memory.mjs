// What this browser remembers: small values by name, in its local storage. Without storage, nothing is remembered.

import { useEffect, useState } from "../vendor.mjs";

const MOST_REMEMBERED = 50;

/** Return what was kept under a name, or `missing`. */
export function recall(name, missing) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? missing;
  } catch {
    return missing;
  }
}

/** Keep a value under a name; undefined forgets it. */
export function keep(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // The storage is full or not allowed, and the value lasts until the page is closed.
  }
}

/** Call `note` when another tab of this browser keeps something under a name. Return a function that ends this. */
export function watchOtherTabs(name, note) {
  const look = (event) => {
    if (event.key === name) note();
  };
  addEventListener("storage", look);
  return () => removeEventListener("storage", look);
}

/** A value under a name, and a function that changes it: `change(before => after)`. */
export function useRemembered(name, missing) {
  const [value, setValue] = useState(() => recall(name, missing));
  useEffect(() => watchOtherTabs(name, () => setValue(recall(name, missing))), [name]);
  const change = (make) => setValue((before) => {
    const after = make(recall(name, before));
    keep(name, after);
    return after;
  });
  return [value, change];
}

/** Return a copy of a table with one more row, the newest last, and without the oldest rows. */
export function addNewest(table, name, value) {
  const rows = Object.entries(table).filter(([other]) => other !== name);
  return Object.fromEntries([...rows, [name, value]].slice(-MOST_REMEMBERED));
}
