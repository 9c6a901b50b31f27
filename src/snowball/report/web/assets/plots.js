// How every figure looks.
const config = { displayModeBar: false, responsive: true };
const dashes = ["solid", "dash", "dot", "dashdot"];
const strokes = { solid: "", dash: "6 4", dot: "2 4", dashdot: "7 3 2 3" };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly reads tags and entities in every text; names come from strangers.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const onPaper = () => document.documentElement.dataset.paper === "yes"; // paper has its own width, and no script sees it
const dashOf = (index) => dashes[(index + Math.floor(index / 12)) % 4]; // with six colours, 24 lines that differ
const line = (index) => ({ color: colour(`run-${(index % 6) + 1}`), dash: dashOf(index), width: 2.5 });

function axis(extra) {
  return {
    gridcolor: colour("line"), linecolor: colour("rule"), zeroline: false, automargin: true, fixedrange: true, ticks: "",
    tickfont: { size: 12, color: colour("soft") }, ...extra,
    title: { text: (extra && extra.title) || "", font: { size: 12, color: colour("soft") }, standoff: 8 },
  };
}

function roundAxis(numbers) {
  const last = Math.max(...numbers);
  const dtick = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((wide) => last <= 10 * wide) || 1000;
  return axis({ title: "round", showgrid: false, showline: true, tick0: 0, dtick });
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

function keyEntry(index, name, tone = `run-${(index % 6) + 1}`, dash = dashOf(index)) {
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [key, value] of Object.entries({ width: 34, height: 10, "aria-hidden": "true" })) drawing.setAttribute(key, value);
  for (const [key, value] of Object.entries({ x1: 0, x2: 34, y1: 5, y2: 5 })) stroke.setAttribute(key, value);
  stroke.setAttribute("stroke-dasharray", strokes[dash]);
  stroke.style.stroke = `var(--${tone})`;
  drawing.append(stroke);
  const entry = element("li");
  entry.append(drawing, element("span", name));
  return entry;
}
