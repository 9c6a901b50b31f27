// The sweeps' figures, each of several panels that share a key; a mark leads to the runs behind it.
const pairLooks = {
  "both benign": { tone: "benign", dash: "solid" }, "benign and infected": { tone: "between", dash: "dash" }, "both infected": { tone: "infected", dash: "dot" },
};
let figures = [];

// The namesake comes first.
const seriesNames = (figure) => [...new Set(figure.panels.flatMap((panel) => panel.series.map((series) => series.name)))].sort((one, other) => (other === "snowball") - (one === "snowball"));

function seriesLooks(figure) {
  const names = seriesNames(figure), all = figure.panels.flatMap((panel) => panel.series);
  const looks = looksOf(names.map((name) => (figure.kind === "distances" && pairLooks[name]) || all.find((series) => series.name === name)));
  return new Map(names.map((name, index) => [name, looks[index]]));
}
const inUnit = (figure, value) => (value === null ? "–" : figure.unit === "%" ? percent(value) : `${digits(value)}${figure.unit && ` ${figure.unit}`}`);
const isNamed = (values) => values.some((value) => typeof value === "string");

function pointWords(figure, series, index) {
  const spread = series.spread[index] === null ? "" : ` ± ${inUnit(figure, series.spread[index])}`;
  const lacks = series.missing[index] ? `, ${series.missing[index]} runs are not there` : "";
  const at = figure.x && `, ${figure.x} ${series.x[index]}`;
  return plain(`${series.name}${at}: ${inUnit(figure, series.y[index])}${spread}${lacks}`);
}

// The powers of ten that logarithmic bars go from and to, in all panels alike: else their lengths would mean nothing.
function decades(figure) {
  const series = figure.panels.flatMap((panel) => panel.series);
  const low = Math.floor(Math.log10(Math.min(...series.flatMap(({ y }) => y.filter((value) => value > 0)))) - 0.1);
  const high = Math.log10(Math.max(...series.flatMap(({ y, spread }) => y.map((value, index) => value + spread[index]))));
  return [low, high + 0.05 * (high - low)];
}

// All panels of a figure show the same range, so that they can be compared.
function sharedRange(figure) {
  const series = figure.panels.flatMap((panel) => panel.series);
  const known = series.flatMap(({ y, spread }) => y.flatMap((value, index) => (value === null ? [] : [value - spread[index], value + spread[index]])));
  const room = 0.05 * (Math.max(...known) - Math.min(...known)) || 0.05;
  const low = Math.min(...known) > 0.5 && figure.unit === "%" ? Math.min(...known) - room : 0, high = Math.max(...known) + room;
  return figure.unit === "%" ? [Math.max(low, 0) - (low > 0 ? 0 : 0.02 * high), Math.min(high, 1.02)] : [low, high];
}

function valueAxis(figure, title) {
  const range = figure.logarithmic.includes("y") ? { type: "log" } : { range: sharedRange(figure) };
  return axis({ title, tickformat: figure.unit === "%" ? ".2~%" : "", nticks: 6, ...range });
}

function settingAxis(figure, values) {
  const ticks = [...new Set(values)];
  const few = ticks.length <= 12;
  const named = isNamed(ticks);
  return axis({
    title: plain(figure.x), showgrid: false, showline: true,
    ...(named ? { type: "category" } : figure.logarithmic.includes("x") ? { type: "log" } : {}),
    ...(few ? { tickmode: "array", tickvals: ticks, ticktext: ticks.map(plain) } : {}),
  });
}

const hover = (figure, series) => ({ text: series.x.map((_, index) => pointWords(figure, series, index)), hovertemplate: "%{text}<extra></extra>", customdata: series.runs });
const whiskers = (series, color) => ({ type: "data", array: series.spread.map((each) => each ?? 0), color, thickness: 1.2, width: 3 });

function lines(figure, panel) {
  const overRounds = figure.kind !== "lines", looks = seriesLooks(figure);
  const traces = panel.series.map((series) => {
    const look = looks.get(series.name), bare = overRounds && series.x.length > 1 && !look.marked;
    return {
      ...hover(figure, series), x: series.x, y: series.y, mode: bare ? "lines" : "lines+markers",
      line: stroke(look), marker: marks(look, overRounds ? { maxdisplayed: 8 } : {}), ...(overRounds ? {} : { error_y: whiskers(series, colour(look.tone)) }),
    };
  });
  const xs = figure.panels.flatMap((each) => each.series.flatMap((series) => series.x));
  return [traces, { xaxis: overRounds ? roundAxis(xs) : settingAxis(figure, xs), yaxis: valueAxis(figure, plain(figure.y)) }];
}

function bars(figure, panel) {
  const [series] = panel.series;
  const numbers = valueAxis(figure, plain(figure.y));
  if (numbers.type === "log") Object.assign(numbers, { range: decades(figure), dtick: 1 });
  const trace = {
    ...hover(figure, series), type: "bar", orientation: "h", x: series.y, y: series.x.map(plain), textposition: "none",
    marker: { color: series.x.map((x) => colour(Object.hasOwn(figure.tones, x) ? figure.tones[x] : "plain")), line: { width: 0 } }, error_x: whiskers(series, colour("ink")),
  };
  return [[trace], { xaxis: numbers, yaxis: axis({ type: "category", autorange: "reversed", showgrid: false }), bargap: 0.35 }];
}

function heat(figure, panel) {
  const xs = [...new Set(panel.series.flatMap((series) => series.x))];
  const cell = (series, x, make) => (series.x.includes(x) ? make(series, series.x.indexOf(x)) : null);
  const table = (make) => panel.series.map((series) => xs.map((x) => cell(series, x, make)));
  const trace = {
    type: "heatmap", x: xs.map((x) => plain(x)), y: panel.series.map((series) => plain(series.name)), z: table((series, index) => series.y[index]),
    text: table((series, index) => inUnit(figure, series.y[index])), texttemplate: "%{text}", textfont: { size: 14 },
    hovertext: table((series, index) => pointWords(figure, series, index)), hovertemplate: "%{hovertext}<extra></extra>", hoverongaps: false,
    customdata: table((series, index) => series.runs[index]), xgap: 3, ygap: 3, zmin: 0, zmax: figure.top,
    colorscale: [[0, colour("heat-low")], [0.5, colour("heat-middle")], [1, colour("heat-high")]],
    colorbar: { thickness: 12, outlinewidth: 0, nticks: 5, tickformat: figure.unit === "%" ? ".0%" : "", tickfont: { size: 12, color: colour("soft") } },
  };
  const sides = { type: "category", showgrid: false };
  return [[trace], { xaxis: axis({ ...sides, title: plain(figure.x) }), yaxis: axis({ ...sides, title: plain(figure.y) })}];
}

function scatter(figure, panel) {
  const traces = panel.series.map((series) => {
    const { symbol, tone } = looks[states.indexOf(series.name)];
    return { ...hover(figure, series), text: series.x.map(() => series.name), type: "scatter", mode: "markers", x: series.x, y: series.y, marker: { symbol, size: 9, color: colour(tone), line: { width: 1.5, color: colour(tone) } } };
  });
  const bare = (title) => axis({ title, showticklabels: false, nticks: 6 });
  return [traces, { xaxis: bare(plain(figure.x)), yaxis: bare(plain(figure.y)), margin: { l: 28, r: 12, t: 8, b: 32 } }];
}

const kinds = { lines, curves: lines, distances: lines, bars, heat, scatter };

function follow(event) {
  const [point] = event.points;
  const places = [point.customdata].flat(2).filter((place) => place !== null);
  const { clientX, clientY } = event.event;
  if (places.length === 1) location.hash = linkTo(places[0]);
  else if (places.length) offer(places, "Runs behind this mark", { left: clientX, top: clientY, bottom: clientY });
}

function markKey(figure) {
  const names = seriesNames(figure);
  if (names.length < 2 || figure.kind === "heat") return [];
  if (figure.kind !== "scatter") return [...seriesLooks(figure)].map(([name, look]) => keyEntry(name, look));
  const classes = { "benign, elected": "benign elected", "benign, left out": "benign", "infected, elected": "infected elected", "infected, left out": "infected" };
  return names.map((name) => {
    const entry = element("li");
    entry.append(element("span", undefined, `mark ${classes[name] || ""}`), element("span", name));
    return entry;
  });
}

function drawFigure(figure, place) {
  find(`figure-${place}-key`).replaceChildren(...markKey(figure));
  figure.panels.forEach((panel, index) => {
    const target = find(`figure-${place}-${index}`);
    const [traces, extra] = kinds[figure.kind](figure, panel);
    const names = panel.series.map((each) => each.name).filter(Boolean).join(", ");
    draw(target, traces, extra, [figure.title, panel.title, figure.value, names].filter(Boolean).join("; "));
    target.removeAllListeners("plotly_click");
    target.on("plotly_click", follow);
  });
}
