// Draws a figure as SVG. It has two axes and series of points, of lines through points, or of boxes; each mark may say
// words and have runs behind it. Sizes are in pixels.
const labelHeight = 16, titleHeight = 20, slant = 0.5; // of a turned label, the sine
const plotted = new Map(); // what each place shows: its figure, its marks and its width
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  if (plotted.has(target) && plotted.get(target).width !== target.clientWidth) render(target);
}));
const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The start of a text that has room for it.
function shorten(text, room) {
  if (widthOf(text) <= room) return text;
  let end = text.length;
  while (end > 1 && widthOf(`${text.slice(0, end)}…`) > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

function draw(place, figure, words) {
  delete place.dataset.empty;
  place.setAttribute("aria-label", words);
  plotted.set(place, { figure, marks: [], read: -1 });
  render(place);
  resized.observe(place);
  listenToMarks(place);
}

// Every figure in the width that its place has now.
function drawAgain() {
  for (const place of plotted.keys()) render(place);
}

// Words in place of a figure.
function nothing(place, words) {
  plotted.delete(place);
  place.replaceChildren();
  place.removeAttribute("tabindex");
  place.setAttribute("role", "img");
  place.dataset.empty = words;
  place.setAttribute("aria-label", words);
}

// The marks beside or around a round are drawn again alone: they move, and nothing else does.
function drawShapes(place, shapes) {
  const plot = plotted.get(place);
  if (!plot) return;
  plot.figure.shapes = shapes;
  if (plot.frame) plot.overlay.replaceChildren(...shapes.map((each) => paintShape(each, plot.frame)));
}

// The room of the axes' labels, and the box that is left for marks.
function frameOf({ x, y, labels, scale }, width, height) {
  const names = y.bare ? [] : y.ticks.map(({ text }) => widthOf(text));
  const left = (y.title ? titleHeight : 0) + (y.bare ? 8 : Math.min(Math.max(0, ...names), 0.4 * width) + 10);
  const right = width - (labels ? 56 : scale ? 64 : 14);
  const isTurned = x.named && x.ticks.some(({ text }) => widthOf(text) > (right - left) / x.ticks.length - 6);
  const longest = Math.min(Math.max(0, ...x.ticks.map(({ text }) => widthOf(text))), 110);
  const under = (x.title ? titleHeight : 0) + (x.bare ? 6 : isTurned ? longest * slant + labelHeight : labelHeight + 4);
  const top = 8, bottom = height - under;
  return { width, height, left, right, top, bottom, isTurned, placeX: (value) => left + x.shareOf(value) * (right - left), placeY: (value) => bottom - y.shareOf(value) * (bottom - top) };
}

function render(place) {
  const plot = plotted.get(place), { clientWidth: width, clientHeight: height } = place, { figure } = plot;
  if (!width || !height) return; // it is hidden, and drawn once it is seen
  const points = figure.series.flatMap((series) => series.points || []), boxes = figure.series.flatMap((series) => series.boxes || []);
  const spreads = points.flatMap(({ y, spread }) => (spread ? [y - spread, y + spread] : []));
  const x = fitAxis(figure.x, figure.x.range ? [] : [...points.map((each) => each.x), ...boxes.flatMap(({ x0, x1 }) => [x0, x1])]);
  const y = fitAxis(figure.y, figure.y.range ? [] : [...points.map((each) => each.y ?? NaN), ...spreads, ...boxes.flatMap(({ y0, y1 }) => [y0, y1])]);
  const frame = frameOf({ ...figure, x, y }, width, height);
  const drawing = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const overlay = shape("g", { class: "overlay" }), focus = shape("path", { class: "focus" });
  const painted = figure.series.map((series, number) => paintSeries(series, frame, `${place.id}-${number}`));
  overlay.append(...(figure.shapes || []).map((each) => paintShape(each, frame)));
  drawing.append(paintAxis(x, y, frame), ...painted.map(({ group }) => group), overlay, ...(figure.labels || []).map((each) => paintEnd(each, frame)));
  if (figure.scale) drawing.append(paintScale(figure.scale, frame, place.id));
  drawing.append(focus);
  place.replaceChildren(drawing);
  Object.assign(plot, { width, frame, overlay, focus, marks: painted.flatMap(({ marks }, series) => marks.map((mark) => ({ ...mark, series }))) });
}

function write(text, x, y, anchor, more = {}) {
  const made = shape("text", { x: pixel(x), y: pixel(y), "text-anchor": anchor, ...more });
  made.textContent = text;
  return made;
}

// Of labels side by side, as many as do not touch.
function thin(ticks, place) {
  let end = -Infinity;
  return ticks.filter(({ at, text }) => {
    const middle = place(at), half = widthOf(text) / 2;
    if (middle - half < end + 4) return false;
    end = middle + half;
    return true;
  });
}

function paintAxis(x, y, frame) {
  const { left, right, top, bottom, placeX, placeY, isTurned } = frame, group = shape("g", { class: "axes" });
  const grid = [...(y.grid ? y.ticks.map(({ at }) => `M${left} ${pixel(placeY(at))}H${right}`) : []), ...(x.grid ? x.ticks.map(({ at }) => `M${pixel(placeX(at))} ${top}V${bottom}`) : [])];
  group.append(shape("path", { class: "grid", d: grid.join("") }));
  if (x.line) group.append(shape("path", { class: "line", d: `M${left} ${bottom}H${right}` }));
  if (y.zero && y.range[0] < 0) group.append(shape("path", { class: "line", d: `M${left} ${pixel(placeY(0))}H${right}` }));
  if (!y.bare) group.append(...y.ticks.map(({ at, text }) => write(shorten(text, 0.4 * frame.width), left - 8, placeY(at) + 4, "end", { class: "y tick" })));
  const every = Math.ceil((16 * x.ticks.length) / (right - left)); // turned names that have room
  if (!x.bare && isTurned) group.append(...x.ticks.filter((_, index) => index % every === 0).map(({ at, text }) => {
    const across = pixel(placeX(at) + 4), down = bottom + 14;
    return write(shorten(text, 110), across, down, "end", { class: "x tick", transform: `rotate(-30 ${across} ${down})` });
  }));
  else if (!x.bare) group.append(...thin(x.ticks, placeX).map(({ at, text }) => write(text, placeX(at), bottom + labelHeight, "middle", { class: "x tick" })));
  const middle = (left + right) / 2;
  if (x.title) group.append(write(shorten(x.title, 2 * Math.min(middle, frame.width - middle)), middle, frame.height - 6, "middle", { class: "title" }));
  if (y.title) group.append(write(shorten(y.title, bottom - top + 30), 12, (top + bottom) / 2, "middle", { class: "title", transform: `rotate(-90 12 ${(top + bottom) / 2})` }));
  return group;
}

const painters = { line: paintLine, points: paintPoints, boxes: paintBoxes };

function paintSeries(series, frame, id) {
  const group = shape("g", { class: `series ${series.kind}` }), marks = painters[series.kind](group, series, frame, id);
  group.dataset.marks = marks.length;
  return { group, marks };
}

const placePoint = (point, { placeX, placeY }) => (point.y === null ? null : { ...point, left: placeX(point.x), top: placeY(point.y) });

function paintLine(group, series, frame) {
  const { points, tone, dash, width, symbol = "circle", radius = 4, bare = false, few = false } = series;
  const placed = points.map((point) => placePoint(point, frame)), marks = placed.filter(Boolean);
  const path = placed.map((mark, index) => (mark ? `${placed[index - 1] ? "L" : "M"}${pixel(mark.left)} ${pixel(mark.top)}` : ""));
  group.append(shape("path", { d: path.join(""), fill: "none", "stroke-width": width, "stroke-dasharray": strokes[dash], "stroke-linejoin": "round" }));
  group.style.stroke = colour(tone);
  paintWhiskers(group, marks, frame);
  const every = few ? Math.ceil(marks.length / 8) : 1;
  const shown = bare ? [] : marks.filter((_, index) => index % every === 0);
  if (shown.length) group.append(shape("path", { d: shown.map((mark) => symbolPath(symbol, mark.left, mark.top, radius)).join(""), style: `fill:${colour(tone)}`, "stroke-width": 0 }));
  return marks;
}

function paintPoints(group, series, frame) {
  const { points, tone, symbol = "circle", radius = 5, open = false } = series, marks = points.map((point) => placePoint(point, frame)).filter(Boolean);
  group.append(shape("path", { d: marks.map((mark) => symbolPath(symbol, mark.left, mark.top, radius)).join(""), "stroke-width": open ? 1.8 : 0.5 }));
  group.style.stroke = colour(tone);
  group.style.fill = open ? "none" : colour(tone);
  return marks;
}

function paintWhiskers(group, marks, { placeY }) {
  const known = marks.filter(({ spread }) => spread);
  const path = known.map(({ left, y, spread }) => {
    const [low, high] = [placeY(y - spread), placeY(y + spread)].map(pixel), middle = pixel(left);
    return `M${middle} ${low}V${high}M${middle - 3} ${low}h6M${middle - 3} ${high}h6`;
  });
  if (known.length) group.append(shape("path", { class: "whiskers", d: path.join("") }));
}

// One path per colour: elections have thousands of cells.
function paintBoxes(group, series, frame, id) {
  const { boxes, tone, edge, hatch, gap = [0, 0] } = series, marks = boxes.map((box) => placeBox(box, gap, frame));
  const alike = new Map();
  for (const mark of marks) {
    const fill = hatch ? `url(#${id}-hatch)` : mark.fill || colour(tone);
    alike.set(fill, (alike.get(fill) || "") + boxPath(mark));
  }
  if (hatch) group.append(makeHatch(`${id}-hatch`, tone, hatch));
  for (const [fill, d] of alike) group.append(shape("path", { d, style: `fill:${fill};stroke:${edge ? colour(edge) : "none"}` }));
  for (const mark of marks) {
    if (mark.text && widthOf(mark.text) < mark.width - 4) group.append(write(mark.text, mark.left + mark.width / 2, mark.top + mark.height / 2 + 5, "middle", { class: mark.pale ? "label pale" : "label" }));
  }
  paintReach(group, marks, frame);
  return marks;
}

function placeBox(box, [across, down], { placeX, placeY }) {
  const [left, right] = [placeX(box.x0), placeX(box.x1)].sort((a, b) => a - b), [top, bottom] = [placeY(box.y0), placeY(box.y1)].sort((a, b) => a - b);
  return { ...box, left: left + across / 2, top: top + down / 2, width: Math.max(0.1, right - left - across), height: Math.max(0.1, bottom - top - down) };
}

// The spread of lengths from left to right.
function paintReach(group, marks, { placeX }) {
  const known = marks.filter(({ spread }) => spread);
  const path = known.map(({ x1, spread, top, height }) => {
    const [low, high] = [placeX(x1 - spread), placeX(x1 + spread)].map(pixel), middle = pixel(top + height / 2);
    return `M${low} ${middle}H${high}M${low} ${middle - 3}v6M${high} ${middle - 3}v6`;
  });
  if (known.length) group.append(shape("path", { class: "whiskers", d: path.join("") }));
}

function makeHatch(id, tone, hatch) {
  const pattern = shape("pattern", { id, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("rect", { width: 4, height: 4, style: `fill:${colour(tone)}` }), shape("rect", { width: 1, height: 4, style: `fill:${colour(hatch)}` }));
  return pattern;
}

// A line from top to bottom, or a box around what stands between two numbers.
function paintShape({ x0, x1, tone, dash, width }, { placeX, top, bottom }) {
  const [left, right] = [placeX(x0), placeX(x1)].map(pixel);
  const made = shape("path", { d: left === right ? `M${left} ${top}V${bottom}` : `M${left} ${top}H${right}V${bottom}H${left}z`, fill: "none", "stroke-width": width, "stroke-dasharray": strokes[dash] || "" });
  made.style.stroke = colour(tone);
  return made;
}

function paintEnd({ y, text, tone }, { right, placeY }) {
  const made = write(text, right + 6, placeY(y) + 4, "start", { class: "end" });
  made.style.fill = colour(tone);
  return made;
}

// What the colours of a heat map mean, beside it.
function paintScale({ top, unit, tones }, { right, top: high, bottom }, id) {
  const group = shape("g", { class: "scale" }), fade = shape("linearGradient", { id: `${id}-scale`, x1: 0, x2: 0, y1: 1, y2: 0 });
  fade.append(...tones.map((tone, index) => shape("stop", { offset: index / (tones.length - 1), style: `stop-color:${colour(tone)}` })));
  const ticks = ticksOf({ range: [0, top], most: 5, unit }).map(({ at, text }) => write(text, right + 28, bottom - (at / top) * (bottom - high) + 4, "start"));
  group.append(fade, shape("rect", { x: right + 12, y: high, width: 12, height: bottom - high, fill: `url(#${id}-scale)` }), ...ticks);
  return group;
}
