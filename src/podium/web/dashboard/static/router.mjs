// Addresses within the page: #/now, #/run/ID?at=40. The part after # never reaches a server.

import { signal } from "./vendor.mjs";

export const route = signal(parseAddress());

addEventListener("hashchange", () => {
  route.value = parseAddress();
});

function parseAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [screen, ...rest] = path.split("/").map(decodeURIComponent);
  return { screen: screen || "now", id: rest.join("/"), query: new URLSearchParams(query) };
}

/** Return the address of a screen, for a link. */
export function address(screen, id = "", query = {}) {
  const tail = new URLSearchParams(query).toString();
  const place = id ? `/${id.split("/").map(encodeURIComponent).join("/")}` : "";
  return `#/${screen}${place}${tail ? `?${tail}` : ""}`;
}

/** Go somewhere without a step back to where the page is now. */
export function replace(screen, id = "", query = {}) {
  history.replaceState(history.state, "", address(screen, id, query));
  route.value = parseAddress();
}

export function go(screen, id = "", query = {}) {
  location.hash = address(screen, id, query);
}
