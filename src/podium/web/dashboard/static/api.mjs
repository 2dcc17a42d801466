// Calls to the API. The token is kept for this tab, or for this browser if the person asked to be remembered.

import { signal } from "./vendor.mjs";

const KEY = "podium-token";

/** The token, or an empty string if nobody is signed in. */
export const token = signal(sessionStorage.getItem(KEY) || localStorage.getItem(KEY) || "");

/** An error response: `status` is 0 if the server could not be reached, `message` is the sentence to show. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Exchange the one-time code in the address for a token, and remove the code from the address and the history. */
export async function signInFromAddress() {
  const found = /[#&]code=([\w-]+)/.exec(location.hash);
  if (!found) return;
  const remember = /[#&]remember=1/.test(location.hash);
  history.replaceState(null, "", location.pathname);
  await signIn(found[1], remember);
}

export async function signIn(code, remember) {
  const given = await send("POST", "/api/login", { code, remember, name: describeBrowser() });
  keepToken(given.token, remember);
}

export async function signOut() {
  await post("/api/session/end").catch(() => {});
  forgetToken();
}

function keepToken(value, remember) {
  (remember ? localStorage : sessionStorage).setItem(KEY, value);
  token.value = value;
}

function forgetToken() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  token.value = "";
}

function describeBrowser() {
  const name = /(Firefox|Edg|Chrome|Safari)\//.exec(navigator.userAgent);
  const place = /(Android|iPhone|iPad|Windows|Mac OS|Linux)/.exec(navigator.userAgent);
  return `${name ? name[1].replace("Edg", "Edge") : "browser"}${place ? ` on ${place[1]}` : ""}`;
}

export const get = (path, options) => send("GET", path, undefined, options);

/** Send a command. Give the same `key` again to repeat a command whose reply was lost. */
export const post = (path, body = {}, { key = crypto.randomUUID() } = {}) => send("POST", path, body, { key });

export const remove = (path) => send("DELETE", path);

async function send(method, path, body, { key, signal } = {}) {
  const headers = {};
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the server does not answer; is podium serve still running?");
  }
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/api/login") forgetToken();
  throw new Problem(response.status, problem.detail || `the server replied ${response.status}`);
}
