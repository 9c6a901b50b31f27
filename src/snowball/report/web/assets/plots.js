// How every figure looks.
const config = { displayModeBar: false, responsive: true };
const strokes = { solid: "", dash: "6 4", dot: "2 4", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
const symbols = ["circle", "square", "triangle-up", "triangle-down", "cross"]; // of lines that look alike
const outlines = { square: "M13 1h8v8h-8z", "triangle-up": "M17 0l5 9H12z", "triangle-down": "M17 10l5-9H12z", cross: "M15 1h4v2h2v4h-2v2h-4v-2h-2v-4h2z" };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly reads tags and entities in every text; names come from strangers.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const onPaper = () => document.documentElement.dataset.paper === "yes"; // paper has its own width, and no script sees it

// Every defense has one colour and one kind of line; of several runs of a defense, marks tell all but the first apart.
function looksOf(entries) {
  const alike = new Map();
  return entries.map(({ tone, dash }) => {
    const place = alike.get(`${tone} ${dash}`) || 0;
    alike.set(`${tone} ${dash}`, place + 1);
    return { tone, dash, symbol: symbols[place % symbols.length], marked: place > 0 };
  });
}

const stroke = ({ tone, dash }) => ({ color: colour(tone), dash, width: dash === "solid" ? 3 : 2.25 });
const marks = ({ tone, symbol }, extra) => ({ symbol, color: colour(tone), size: 8, ...extra });

function axis(extra) {
  return {
    gridcolor: colour("line"), linecolor: colour("rule"), zeroline: false, automargin: true, fixedrange: true, ticks: "",
    tickfont: { size: 12, color: colour("soft") }, ...extra,
    title: { text: (extra && extra.title) || "", font: { size: 12, color: colour("soft") }, standoff: 8 },
  };
}

// From the first round to the last; with room on both sides for what is as wide as a round.
function roundAxis(numbers, room = 0) {
  const first = Math.min(...numbers), last = Math.max(...numbers), wider = first === last ? 0.5 : room;
  const dtick = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((wide) => last <= 10 * wide) || 1000;
  return axis({ title: "round", showgrid: false, showline: true, tick0: 0, dtick, range: [first - wider, last + wider] });
}

function layout(extra) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 48, r: 12, t: 8, b: 44 }, showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") }, hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("rule"), font: { color: colour("ink") } }, ...extra,
  };
}

function draw(place, traces, extra, words) {
  delete place.dataset.empty;
  place.setAttribute("aria-label", words);
  const size = onPaper() ? { width: place.clientWidth } : { autosize: true };
  return Plotly.react(place, traces, layout({ ...extra, ...size }), config);
}

// Words in place of a figure; a figure that was there is emptied and not purged, since it may not have settled yet.
function nothing(place, words) {
  if (place.data) Plotly.react(place, [], layout({}), config);
  place.dataset.empty = words;
  place.setAttribute("aria-label", words);
}

function shape(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function keyEntry(name, { tone, dash, symbol, marked }, title = "") {
  const drawing = shape("svg", { width: 34, height: 10, "aria-hidden": "true" });
  drawing.append(shape("line", { x1: 0, x2: 34, y1: 5, y2: 5, "stroke-dasharray": strokes[dash], "stroke-width": dash === "solid" ? 3 : 2.25 }));
  if (marked) drawing.append(shape("path", { d: outlines[symbol] || "" }));
  drawing.style.stroke = drawing.style.fill = `var(--${tone})`;
  const entry = Object.assign(element("li"), { title });
  entry.append(drawing, element("span", name));
  return entry;
}
