// Text from agents with its hidden characters made visible, in the form that the command line uses.

import { HIDDEN } from "./hidden_characters.mjs";

const LAYOUT = new Set([" ", "\n", "\t"]);

function escapeHidden(character) {
  if (LAYOUT.has(character)) return character;
  const code = character.codePointAt(0);
  const [letter, digits] = code <= 0xff ? ["x", 2] : code <= 0xffff ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}

/** Return a text with control characters, bidirectional overrides, invisible characters and marks over others as their codes. */
export const plain = (text) => String(text).replace(HIDDEN, escapeHidden);
