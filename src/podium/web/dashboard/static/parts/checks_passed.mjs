// How many of the checks on a run's work have passed, in words.

import { html } from "../vendor.mjs";
import { plural } from "../format.mjs";

export function ChecksPassed({ checks }) {
  if (!checks.length) return null;
  const passed = checks.filter((one) => one.passed).length;
  return html`<span class=${passed === checks.length ? "" : "tone-failed"}>${passed} of ${plural(checks.length, "check")} passed</span>`;
}
