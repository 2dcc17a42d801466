// Text from agents for lists and tables: hidden characters as escapes, on one line where there is one line.

import { plain } from "./plain_text.mjs";

/** Return a text with hidden characters as escapes, such as \\u202e. Line breaks and tabs stay. */
export const reveal = (text) => plain(String(text ?? "").replaceAll("\r", "\\r"));

/** Return a name on one line, with line breaks and hidden characters as escapes. */
export const revealLine = (text) => reveal(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");

/** Return the beginning of a long text for a list: white space becomes single spaces. */
export const revealSummary = (text) => reveal(text).replace(/\s+/g, " ");
