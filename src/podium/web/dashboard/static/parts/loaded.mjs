// Data of one screen, loaded from the API and loaded again when something changed in any run.

import { signal, useEffect, useMemo } from "../vendor.mjs";
import { get } from "../api.mjs";
import { changes } from "../state.mjs";

/** The shortest time between two loads of the same data, in milliseconds. */
const PAUSE = 1000;

/**
 * Load `path`, and again at most once a second while runs change, unless `isFixed`. An empty path loads nothing.
 *
 * Return `{data, problem, reload}`. The last data stays while newer data is on its way, so nothing jumps.
 */
export function useLoaded(path, { isFixed = false } = {}) {
  const found = useMemo(() => signal({ data: null, problem: null }), [path]);
  const reload = useMemo(() => makeLoader(path, found), [path]);
  const version = isFixed ? 0 : changes.value;
  useEffect(() => {
    reload();
  }, [reload, version]);
  useEffect(() => reload.stop, [reload]);
  return { ...found.value, reload };
}

function makeLoader(path, found) {
  let timer = 0;
  let last = -PAUSE;
  let isLoading = false;
  let isWanted = false;
  const abort = new AbortController();

  const load = async () => {
    timer = 0;
    last = performance.now();
    isLoading = true;
    isWanted = false;
    try {
      found.value = { data: await get(path, { signal: abort.signal }), problem: null };
    } catch (problem) {
      if (problem.name !== "AbortError") found.value = { ...found.peek(), problem };
    }
    isLoading = false;
    if (isWanted) reload();
  };

  const reload = () => {
    if (!path || abort.signal.aborted || timer) return;
    isWanted = isLoading;
    if (!isLoading) timer = setTimeout(load, Math.max(0, last + PAUSE - performance.now()));
  };
  reload.stop = () => {
    clearTimeout(timer);
    abort.abort();
  };
  return reload;
}
