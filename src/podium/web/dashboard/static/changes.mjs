// Documents that change: the server says what to set, to add or to drop at which place (see core/edits.py).

/** Return a copy without a prototype, so that no key of it, such as an agent's name, means anything but itself. */
const copyOf = (value) => (Array.isArray(value) ? [...value] : Object.assign(Object.create(null), value));

/**
 * Return the document after these changes. The one before stays as it was, and shares with the new one what did not
 * change.
 */
export function applyChanges(document, changes) {
  const own = new Set();
  const take = (value) => {
    if (own.has(value)) return value;
    const copy = copyOf(value);
    own.add(copy);
    return copy;
  };
  const next = take(document);
  for (const [place, kind, value] of changes) {
    if (!place.length) {
      Object.assign(next, value);
      continue;
    }
    const key = place[place.length - 1];
    let target = next;
    for (let depth = 0; depth < place.length - 1; depth += 1) {
      target = target[place[depth]] = take(target[place[depth]]);
    }
    if (kind === "set") target[key] = Object.assign(take(target[key] ?? {}), value);
    else if (kind === "drop") delete target[key];
    else if (typeof value === "string") target[key] += value;
    else {
      target[key] = take(target[key]);
      for (const item of value) target[key].push(item);
    }
  }
  return next;
}
