// The sweeps' figures, each of several panels that share a key; a mark leads to the runs behind it.
const apart3 = { "both benign": "benign", "benign and infected": "evaluate", "both infected": "infected" };
let figures = [];

// The namesake comes first, so that its line is whole.
const seriesNames = (figure) => [...new Set(figure.panels.flatMap((panel) => panel.series.map((series) => series.name)))].sort((one, other) => (other === "snowball") - (one === "snowball"));
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

function valueAxis(figure, title, values) {
  const known = values.filter((value) => value !== null);
  return axis({
    title, tickformat: figure.unit === "%" ? ".2~%" : "", nticks: 6,
    ...(figure.logarithmic.includes("y") ? { type: "log" } : { rangemode: Math.min(...known) > 0.5 ? "normal" : "nonnegative" }),
  });
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

function lines(figure, panel, names) {
  const overRounds = figure.kind !== "lines";
  const traces = panel.series.map((series) => {
    const look = figure.kind === "distances" ? { color: colour(apart3[series.name]), dash: dashes[Object.keys(apart3).indexOf(series.name)], width: 2.5 } : line(names.indexOf(series.name));
    return {
      ...hover(figure, series), x: series.x, y: series.y, mode: overRounds && series.x.length > 1 ? "lines" : "lines+markers",
      line: look, marker: { size: 8, color: look.color }, ...(overRounds ? {} : { error_y: whiskers(series, look.color) }),
    };
  });
  const xs = panel.series.flatMap((series) => series.x), ys = panel.series.flatMap((series) => series.y);
  return [traces, { xaxis: overRounds ? roundAxis(xs) : settingAxis(figure, xs), yaxis: valueAxis(figure, plain(figure.y), ys) }];
}

function bars(figure, panel) {
  const [series] = panel.series;
  const numbers = valueAxis(figure, plain(figure.y), series.y);
  if (numbers.type === "log") Object.assign(numbers, { range: decades(figure), dtick: 1 });
  const trace = {
    ...hover(figure, series), type: "bar", orientation: "h", x: series.y, y: series.x.map(plain), textposition: "none",
    marker: { color: colour("benign"), line: { width: 0 } }, error_x: whiskers(series, colour("ink")),
  };
  return [[trace], { xaxis: numbers, yaxis: axis({ type: "category", autorange: "reversed", showgrid: false }), bargap: 0.35 }];
}

function heat(figure, panel) {
  const xs = [...new Set(panel.series.flatMap((series) => series.x))];
  const cell = (series, x, make) => (series.x.includes(x) ? make(series, series.x.indexOf(x)) : null);
  const table = (make) => panel.series.map((series) => xs.map((x) => cell(series, x, make)));
  const trace = {
    type: "heatmap", x: xs.map((x) => plain(x)), y: panel.series.map((series) => plain(series.name)), z: table((series, index) => series.y[index]),
    text: table((series, index) => inUnit(figure, series.y[index])), texttemplate: "%{text}", textfont: { size: 12, color: colour("ink") },
    hovertext: table((series, index) => pointWords(figure, series, index)), hovertemplate: "%{hovertext}<extra></extra>", hoverongaps: false,
    customdata: table((series, index) => series.runs[index]), showscale: false, xgap: 2, ygap: 2,
    colorscale: [[0, colour("card")], [1, colour("heat")]], ...(figure.unit === "%" ? { zmin: 0, zmax: 1 } : {}),
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
  if (["lines", "curves"].includes(figure.kind)) return names.map((name, index) => keyEntry(index, name));
  const marks = { "benign, elected": "benign elected", "benign, left out": "benign", "infected, elected": "infected elected", "infected, left out": "infected" };
  return names.map((name, index) => {
    if (figure.kind === "distances") return keyEntry(index, name, apart3[name], dashes[Object.keys(apart3).indexOf(name)]);
    const entry = element("li");
    entry.append(element("span", undefined, `mark ${marks[name] || ""}`), element("span", name));
    return entry;
  });
}

function drawFigure(figure, place) {
  find(`figure-${place}-key`).replaceChildren(...markKey(figure));
  figure.panels.forEach((panel, index) => {
    const target = find(`figure-${place}-${index}`);
    const [traces, extra] = kinds[figure.kind](figure, panel, seriesNames(figure));
    const names = panel.series.map((each) => each.name).filter(Boolean).join(", ");
    draw(target, traces, extra, [figure.title, panel.title, figure.value, names].filter(Boolean).join("; "));
    target.removeAllListeners("plotly_click");
    target.on("plotly_click", follow);
  });
}
