// Draw lanes on a canvas. Each pixel column of a lane shows the most important state in its time span, so the work for
// a picture depends on its width and not on the number of entries.

/** What an agent does, by importance: where several happen in one pixel, the last of these is drawn. */
const IDLE = 1;
const THINKING = 2;
const TOOL = 3;
const BLOCKED = 4;
const WAITING = 5;
const RANKS = {
  starting: IDLE, idle: IDLE, workers: IDLE, thinking: THINKING, tool: TOOL, retrying: BLOCKED, blocked: BLOCKED, waiting: WAITING,
};

const endOf = ([, , end]) => end;
const timeOf = ([, at]) => at;

export const LANE = 30;
/** The width in pixels within which markers of one kind are drawn as one. */
const MARKER_GAP = 9;

/** Height of a segment's bar and its place in the lane, by state: what an agent does is readable without colour. */
const BARS = {
  [IDLE]: { top: 14, height: 2 },
  [THINKING]: { top: 10, height: 10 },
  [TOOL]: { top: 6, height: 18 },
  [BLOCKED]: { top: 9, height: 12 },
  [WAITING]: { top: 4, height: 22 },
};

/** Read the colours from the style sheet, so that dark and light have their own. */
export function readColours(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(`--lane-${name}`).trim();
  const names = ["idle", "thinking", "tool", "waiting", "blocked", "line", "mark", "error", "decision", "paper", "now"];
  return Object.fromEntries(names.map((name) => [name, read(name)]));
}

/**
 * Draw the visible lanes. `scene` has: lanes, open (operations that have not ended), from, to, until (the last moment that
 * has happened), seq (the last entry that has happened), width, height, scroll, colours, ratio.
 */
export function drawScene(context, scene) {
  const { width, height, ratio, lanes, scroll } = scene;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const first = Math.max(0, Math.floor(scroll / LANE));
  const last = Math.min(lanes.length, Math.ceil((scroll + height) / LANE));
  for (let number = first; number < last; number += 1) {
    drawLane(context, scene, lanes[number], number * LANE - scroll);
  }
  const places = new Map(lanes.map(({ key }, number) => [key, number]));
  for (let number = 0; number < lanes.length; number += 1) drawMarkers(context, scene, places, number, first, last);
  drawNow(context, scene);
}

const xOf = (scene, at) => ((at - scene.from) / (scene.to - scene.from)) * scene.width;

function drawLane(context, scene, lane, top) {
  context.fillStyle = scene.colours.line;
  context.fillRect(0, top + LANE - 1, scene.width, 1);
  const columns = fillColumns(scene, lane);
  for (let start = 0; start < columns.length;) {
    let end = start + 1;
    while (end < columns.length && columns[end] === columns[start]) end += 1;
    if (columns[start]) drawBar(context, scene, columns[start], start, end - start, top);
    start = end;
  }
}

/** Return the state in each pixel column of a lane. */
export function fillColumns(scene, lane) {
  const columns = new Uint8Array(Math.max(1, Math.ceil(scene.width)));
  const cover = (state, start, end) => {
    if (start > scene.until || end < scene.from || start > scene.to) return;
    const left = Math.max(0, Math.floor(xOf(scene, start)));
    const right = Math.min(columns.length - 1, Math.floor(xOf(scene, Math.min(end, scene.until))));
    for (let x = left; x <= right; x += 1) if (columns[x] < state) columns[x] = state;
  };
  for (let place = findFirst(lane.segments, scene.from, endOf); place < lane.segments.length; place += 1) {
    const [doing, start, end, seq] = lane.segments[place];
    if (end - lane.longest > scene.to) break;
    if (seq <= scene.seq) cover(RANKS[doing], start, end);
  }
  for (const op of scene.open) {
    if (op.agent === lane.key && op.seq <= scene.seq) cover(RANKS[op.doing], op.since, scene.until);
  }
  return columns;
}

/** Return the place of the first item of which `read` returns at least `wanted`, in a list in this order. */
function findFirst(list, wanted, read) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (read(list[middle]) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawBar(context, { colours }, state, x, width, top) {
  const bar = BARS[state];
  const y = top + bar.top;
  if (state === WAITING) {
    drawHatched(context, colours, x, y, width, bar.height);
    return;
  }
  context.fillStyle = { [IDLE]: colours.idle, [THINKING]: colours.thinking, [TOOL]: colours.tool, [BLOCKED]: colours.blocked }[state];
  if (state === BLOCKED && width > 3) {
    context.fillRect(x, y, width, 2);
    context.fillRect(x, y + bar.height - 2, width, 2);
    context.fillRect(x, y, 2, bar.height);
    context.fillRect(x + width - 2, y, 2, bar.height);
  } else context.fillRect(x, y, width, bar.height);
}

function drawHatched(context, colours, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.globalAlpha = 0.25;
  context.fillStyle = colours.waiting;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  context.strokeStyle = colours.waiting;
  context.lineWidth = 2;
  context.beginPath();
  // The lines start at multiples of 7 px of the page, so that they do not move when the bar grows.
  for (let at = Math.floor((x - height) / 7) * 7; at < x + width; at += 7) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function drawMarkers(context, scene, places, number, first, last) {
  const lane = scene.lanes[number];
  const isVisible = number >= first && number < last;
  const drawn = new Map();
  for (let place = findFirst(lane.markers, scene.from, timeOf); place < lane.markers.length; place += 1) {
    const [kind, at, seq, to] = lane.markers[place];
    if (at > scene.to || seq > scene.seq) break;
    const target = to ? places.get(to) : -1;
    if (!isVisible && !(target >= first && target < last)) continue;
    const x = xOf(scene, at);
    const key = `${kind}${target}`;
    if (drawn.has(key) && x - drawn.get(key) < MARKER_GAP) continue;
    drawn.set(key, x);
    const y = number * LANE - scene.scroll + LANE / 2;
    if (target >= 0) drawArrow(context, scene, x, y, target * LANE - scene.scroll + LANE / 2);
    else DRAW[kind]?.(context, scene.colours, x, y);
  }
}

function drawArrow(context, { colours }, x, from, to) {
  const tip = to > from ? to - 6 : to + 6;
  const back = to > from ? tip - 6 : tip + 6;
  context.strokeStyle = colours.mark;
  context.fillStyle = colours.mark;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, from, 2.5, 0, Math.PI * 2);
  context.fill();
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, tip);
  context.stroke();
  fillShape(context, colours.mark, colours.paper, [[x, tip], [x - 4, back], [x + 4, back]]);
}

function fillShape(context, colour, edge, points) {
  context.beginPath();
  points.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
  context.lineWidth = 2;
  context.strokeStyle = edge;
  context.stroke();
  context.fillStyle = colour;
  context.fill();
}

const bubble = (x, y) => [[x - 6, y - 10], [x + 6, y - 10], [x + 6, y - 2], [x, y - 2], [x - 3, y + 2], [x - 3, y - 2], [x - 6, y - 2]];

const diamond = (x, y, r) => [[x, y - r], [x + r, y], [x, y + r], [x - r, y]];

function fillDot(context, colour, edge, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, Math.PI * 2);
  context.lineWidth = 2;
  context.strokeStyle = edge;
  context.stroke();
  context.fillStyle = colour;
  context.fill();
}

function strokeCross(context, colour, edge, x, y) {
  for (const [width, style] of [[5, edge], [2, colour]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 4, y - 4);
    context.lineTo(x + 4, y + 4);
    context.moveTo(x + 4, y - 4);
    context.lineTo(x - 4, y + 4);
    context.stroke();
  }
}

/** How each kind of marker is drawn: kinds differ in shape, not only in colour. */
const DRAW = {
  plan: (context, c, x, y) => fillShape(context, c.mark, c.paper, [[x - 1, y + 10], [x - 1, y - 10], [x + 9, y - 6], [x + 1, y - 2], [x + 1, y + 10]]),
  decision: (context, c, x, y) => fillShape(context, c.decision, c.paper, diamond(x, y, 8)),
  proposal: (context, c, x, y) => fillShape(context, c.paper, c.decision, diamond(x, y, 6)),
  ballot: (context, c, x, y) => fillDot(context, c.decision, c.paper, x, y, 3),
  merge: (context, c, x, y) => fillShape(context, c.mark, c.paper, [[x - 7, y - 6], [x + 7, y], [x - 7, y + 6]]),
  commit: (context, c, x, y) => fillDot(context, c.paper, c.mark, x, y, 4),
  error: (context, c, x, y) => strokeCross(context, c.error, c.paper, x, y),
  message: (context, c, x, y) => fillShape(context, c.mark, c.paper, bubble(x, y)),
  worker: (context, c, x, y) => fillShape(context, c.mark, c.paper, [[x - 5, y - 5], [x + 5, y - 5], [x + 5, y + 5], [x - 5, y + 5]]),
};

function drawNow(context, scene) {
  const x = Math.round(xOf(scene, scene.until)) + 0.5;
  if (x < 0 || x > scene.width) return;
  context.strokeStyle = scene.colours.now;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, scene.height);
  context.stroke();
}

/** Return the number of the entry at a point of the picture: the nearest marker, otherwise the segment there, or 0. */
export function findEntryAt(scene, x, y) {
  const lane = scene.lanes[Math.floor((y + scene.scroll) / LANE)];
  if (!lane) return 0;
  let best = { gap: 8, seq: 0 };
  for (let place = findFirst(lane.markers, timeAt(scene, x - 8), timeOf); place < lane.markers.length; place += 1) {
    const [, at, seq] = lane.markers[place];
    const gap = Math.abs(xOf(scene, at) - x);
    if (xOf(scene, at) > x + 8 || seq > scene.seq) break;
    if (gap < best.gap) best = { gap, seq };
  }
  return best.seq || findSegmentAt(scene, lane, x);
}

export const timeAt = (scene, x) => scene.from + (x / scene.width) * (scene.to - scene.from);

function findSegmentAt(scene, lane, x) {
  const [start, end] = [timeAt(scene, Math.floor(x)), timeAt(scene, Math.floor(x) + 1)];
  let best = { state: 0, seq: 0 };
  const offer = (state, since, until, seq) => {
    if (since <= end && until >= start && state > best.state && seq <= scene.seq) best = { state, seq };
  };
  for (let place = findFirst(lane.segments, start, endOf); place < lane.segments.length && endOf(lane.segments[place]) - lane.longest <= end; place += 1) {
    const [doing, since, until, seq] = lane.segments[place];
    offer(RANKS[doing], since, until, seq);
  }
  for (const op of scene.open) if (op.agent === lane.key) offer(RANKS[op.doing], op.since, scene.until, op.seq);
  return best.seq;
}

/** Return the times at which to draw a tick, at a distance that people count in. */
export function listTicks(from, to, most) {
  const steps = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const step = steps.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most / 86400) * 86400;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return { step, ticks };
}
