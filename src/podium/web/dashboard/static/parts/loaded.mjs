// Data of one screen, loaded from the API and loaded again when something changed in any run.

import { signal, useEffect, useMemo } from "../vendor.mjs";
import { get } from "../api.mjs";
import { changes } from "../state.mjs";

/**
 * Load `path`, and again while runs change, unless `isFixed`. An empty path loads nothing.
 *
 * `pause` is the shortest time between two loads, in milliseconds; it is longer for what the server has to compute.
 * Return `{data, problem, reload}`. The last data stays while newer data is on its way, so nothing jumps. `reload.now()`
 * does not wait for the end of the pause, and returns a promise.
 */
export function useLoaded(path, { isFixed = false, pause = 1000 } = {}) {
  const found = useMemo(() => signal({ data: null, problem: null }), [path]);
  const reload = useMemo(() => makeLoader(path, found, pause), [path]);
  const version = isFixed ? 0 : changes.value;
  useEffect(() => {
    reload();
  }, [reload, version]);
  useEffect(() => reload.stop, [reload]);
  return { ...found.value, reload };
}

function makeLoader(path, found, pause) {
  let timer = 0;
  let last = -pause;
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
    if (!isLoading) timer = setTimeout(load, Math.max(0, last + pause - performance.now()));
  };
  reload.now = () => {
    clearTimeout(timer);
    return load();
  };
  reload.stop = () => {
    clearTimeout(timer);
    abort.abort();
  };
  return reload;
}
