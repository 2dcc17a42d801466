// Save something that the API returns as a file. A link would not send the token.

import { token } from "../api.mjs";

/** Load `path` and let the browser save it as `name`. It is never shown, because agents wrote it. */
export async function saveFile(path, name) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${token.value}` } });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail || `the server replied ${response.status}`);
  }
  const place = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = place;
  link.download = name;
  link.click();
  URL.revokeObjectURL(place);
  return `Saved ${name}.`;
}
