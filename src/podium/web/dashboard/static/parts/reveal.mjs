// Characters that a person cannot see, or that change the order of what is shown, as escapes.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;
const SHORT = { "\r": "\\r", "\u001b": "\\x1b", "\u0000": "\\0" };

/** Return a text with hidden characters as escapes, such as \u202e. Line breaks and tabs stay. */
export function reveal(text) {
  return String(text ?? "").replace(HIDDEN, escapeCharacter);
}

/** Return a text on one line, with hidden characters as escapes. */
export function revealLine(text) {
  return reveal(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

function escapeCharacter(one) {
  const code = one.codePointAt(0);
  if (SHORT[one]) return SHORT[one];
  if (code < 256) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
