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
  return `${series.name}${at}: ${inUnit(figure, series.y[index])}${spread}${lacks}`;
}

// The powers of ten that logarithmic bars go from and to, in all panels alike: else their lengths would mean nothing.
function decades(figure) {
  const series = figure.panels.flatMap((panel) => panel.series);
  const low = Math.floor(Math.log10(Math.min(...series.flatMap(({ y }) => y.filter((value) => value > 0)))) - 0.1);
  const high = Math.log10(Math.max(...series.flatMap(({ y, spread }) => y.map((value, index) => value + spread[index]))));
  return [10 ** low, 10 ** (high + 0.05 * (high - low))];
}

// All panels of a figure show the same range, so that they can be compared.
function sharedRange(figure) {
  const series = figure.panels.flatMap((panel) => panel.series);
  const known = series.flatMap(({ y, spread }) => y.flatMap((value, index) => (value === null ? [] : [value - spread[index], value + spread[index]])));
  const room = 0.05 * (Math.max(...known) - Math.min(...known)) || 0.05;
  const low = Math.min(...known) > 0.5 && figure.unit === "%" ? Math.min(...known) - room : 0, high = Math.max(...known) + room;
  return figure.unit === "%" ? [Math.max(low, 0) - (low > 0 ? 0 : 0.02 * high), Math.min(high, 1.02)] : [low, high];
}

function valueAxis(figure, more) {
  const range = figure.logarithmic.includes("y") ? { log: true } : { range: sharedRange(figure) };
  return axis({ title: figure.y, unit: figure.unit, ...range, ...more });
}

function settingAxis(figure, values) {
  const all = [...new Set(values)], more = { title: figure.x, line: true };
  if (isNamed(all)) return nameAxis(all, more);
  const ticks = all.length <= 12 ? { ticks: all.sort((one, other) => one - other).map((at) => ({ at, text: digits(at) })) } : {};
  return axis({ ...more, grid: false, log: figure.logarithmic.includes("x"), ...ticks });
}

const markOf = (figure, series, index) => ({ runs: series.runs[index], words: () => pointWords(figure, series, index) });

function drawLines(figure, panel) {
  const overRounds = figure.kind !== "lines", looks = seriesLooks(figure);
  const xs = figure.panels.flatMap((each) => each.series.flatMap((series) => series.x)), names = isNamed(xs) ? [...new Set(xs)] : null;
  const series = panel.series.map((each) => {
    const look = looks.get(each.name);
    const points = each.x.map((x, index) => ({
      x: names ? names.indexOf(x) : x, y: each.y[index], spread: overRounds ? null : each.spread[index], ...markOf(figure, each, index),
    }));
    return { kind: "line", ...look, bare: overRounds && each.x.length > 1 && !look.marked, few: overRounds, points };
  });
  return { series, x: overRounds ? roundAxis(xs) : settingAxis(figure, xs), y: valueAxis(figure) };
}

function drawBars(figure, panel) {
  const [series] = panel.series, range = figure.logarithmic.includes("y") ? decades(figure) : sharedRange(figure);
  const boxes = series.x.map((x, index) => ({
    x0: range[0], x1: series.y[index] ?? range[0], y0: index - 0.325, y1: index + 0.325, spread: series.spread[index],
    fill: colour(Object.hasOwn(figure.tones, x) ? figure.tones[x] : "plain"), ...markOf(figure, series, index),
  }));
  const x = axis({ title: figure.y, unit: figure.unit, range, log: figure.logarithmic.includes("y") });
  return { series: [{ kind: "boxes", boxes }], x, y: nameAxis(series.x, { reversed: true }) };
}

const heatTones = ["heat-low", "heat-middle", "heat-high"];
const maxPaleShare = 0.65; // of the scale: darker cells have light letters

function mixHeat(share) {
  const [from, to] = share < 0.5 ? [0, 1] : [1, 2], part = Math.min(100, Math.round(200 * (share - from / 2)));
  return `color-mix(in srgb, ${colour(heatTones[to])} ${part}%, ${colour(heatTones[from])})`;
}

function drawHeat(figure, panel) {
  const xs = [...new Set(panel.series.flatMap((series) => series.x))];
  const boxes = panel.series.flatMap((series, row) => series.x.map((x, index) => {
    const column = xs.indexOf(x), share = series.y[index] / figure.top;
    return {
      x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5, fill: mixHeat(share), text: inUnit(figure, series.y[index]),
      pale: share > maxPaleShare, known: series.y[index] !== null, ...markOf(figure, series, index),
    };
  })).filter(({ known }) => known);
  const x = nameAxis(xs, { title: figure.x }), y = nameAxis(panel.series.map((series) => series.name), { title: figure.y });
  return { series: [{ kind: "boxes", boxes, gap: [3, 3] }], x, y, scale: { top: figure.top, unit: figure.unit, tones: heatTones } };
}

function drawScatter(figure, panel) {
  const series = panel.series.map((each) => {
    const { symbol, tone, open } = looks[states.indexOf(each.name)];
    return { kind: "points", tone, symbol, open, points: each.x.map((x, index) => ({ x, y: each.y[index], runs: each.runs[index], words: () => each.name })) };
  });
  return { series, x: axis({ title: figure.x, bare: true }), y: axis({ title: figure.y, bare: true }) };
}

const kinds = { lines: drawLines, curves: drawLines, distances: drawLines, bars: drawBars, heat: drawHeat, scatter: drawScatter };

function follow(mark, box) {
  if (mark.runs.length === 1) location.hash = linkTo(mark.runs[0]);
  else if (mark.runs.length) offer(mark.runs, "Runs behind this mark", box);
}

function listKey(figure) {
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
  find(`figure-${place}-key`).replaceChildren(...listKey(figure));
  figure.panels.forEach((panel, index) => {
    const names = panel.series.map((each) => each.name).filter(Boolean).join(", ");
    const words = [figure.title, panel.title, figure.value, names].filter(Boolean).join("; ");
    draw(find(`figure-${place}-${index}`), { ...kinds[figure.kind](figure, panel), choose: follow }, words);
  });
}
