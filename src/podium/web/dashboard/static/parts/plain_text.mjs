// Text from agents with its hidden characters made visible, in the form that the command line uses.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u2800\u3164\uffa0\u180b-\u180f\ufe00-\ufe0f\u{e0000}-\u{10ffff}]/gu;
const LAYOUT = new Set([" ", "\n", "\t"]);

function escapeHidden(character) {
  if (LAYOUT.has(character)) return character;
  const code = character.codePointAt(0);
  const [letter, digits] = code <= 0xff ? ["x", 2] : code <= 0xffff ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}

/** Return a text with control characters, bidirectional overrides and invisible characters as their codes. */
export const plain = (text) => String(text).replace(HIDDEN, escapeHidden);
