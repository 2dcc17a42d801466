// The rows of a file's diff, below each other or side by side, and the lines that a comment can be about.

import { count } from "../format.mjs";

/** Return the rows of one table: a heading for each hunk, and its lines. */
export function listUnifiedRows(file) {
  return file.hunks.flatMap((hunk, number) => [makeHeading(hunk, number), ...hunk.lines]);
}

/** Return rows with an old line on the left and a new line on the right: `{left, right}`; either can be null. */
export function listSplitRows(file) {
  return file.hunks.flatMap((hunk, number) => [makeHeading(hunk, number), ...pairLines(hunk.lines)]);
}

function makeHeading(hunk, number) {
  return { hunk: number, line: hunk.new, heading: `line ${count(hunk.new)}${hunk.heading ? `  ${hunk.heading}` : ""}` };
}

/** Put removed lines and the added lines that follow them next to each other. */
function pairLines(lines) {
  const rows = [];
  let left = [];
  let right = [];
  const flush = () => {
    for (let at = 0; at < Math.max(left.length, right.length); at += 1) {
      rows.push({ left: left[at] ?? null, right: right[at] ?? null });
    }
    left = [];
    right = [];
  };
  let before = " ";
  for (const line of lines) {
    // The note about a missing line break belongs to the line before it.
    const mark = line.mark === "\\" ? before : line.mark;
    if (mark === "-") {
      if (right.length) flush();
      left.push(line);
    } else if (mark === "+") {
      right.push(line);
    } else {
      flush();
      rows.push({ left: line, right: line });
    }
    before = mark;
  }
  flush();
  return rows;
}

/** Return the side by which a line is named: "old" for a removed line, "new" for all others. */
export const sideOf = (line) => (line.mark === "-" ? "old" : "new");

/** Return the lines from `first` to `last` of one side, or null if the diff does not show all of them. */
export function collectLines(file, side, first, last) {
  const found = new Map();
  for (const hunk of file.hunks) {
    for (const line of hunk.lines) {
      if (line[side] >= first && line[side] <= last) found.set(line[side], line.text);
    }
  }
  return found.size === last - first + 1 ? [...found.values()] : null;
}
