// The elections of the run that is open, in figures.
const states = ["infected, elected", "infected, left out", "benign, left out", "benign, elected"];
const looks = [ // of each state
  { tone: "infected", fill: "infected", hatch: "card", symbol: "diamond" },
  { tone: "infected", fill: "infected-pale", hatch: "infected", symbol: "diamond-open" },
  { tone: "benign", fill: "benign-pale", hatch: "benign", symbol: "circle-open" },
  { tone: "benign", fill: "benign", hatch: "benign", symbol: "circle" },
];
const state = (entry, index) => (entry.malicious[index] ? (entry.elected[index] ? 0 : 1) : entry.elected[index] ? 3 : 2);
const isDropped = (entry, row) => Object.hasOwn(entry.dropped, entry.clients[row]);
const fate = (entry, row) => // for figures
  isDropped(entry, row) ? `${entry.malicious[row] ? "infected" : "benign"}, dropped: ${plain(entry.dropped[entry.clients[row]])}` : states[state(entry, row)];
const count = (entry, wanted) => entry.clients.filter((_, index) => wanted.includes(state(entry, index))).length;
const chosen = { run: -1, round: 0, fact: "", theme: "", compared: null }; // round and runs are places, not numbers or names
const run = () => opened.get(chosen.run);
const record = () => run().rounds[chosen.round];
const numbered = () => run().rounds.map((entry) => entry.round);
const lacks = (what, elsewhere) => `The record has no ${what}${elsewhere ? " of this round" : ""}.`; // what there was may not have been kept

function drawMap() {
  const entry = record();
  if (!entry.map) return nothing(find("map"), lacks("map of the updates", run().rounds.some((each) => each.map)));
  const traces = looks.map(({ symbol, tone }, wanted) => {
    const rows = entry.clients.map((_, index) => index).filter((index) => entry.map[index] && state(entry, index) === wanted);
    return {
      x: rows.map((row) => entry.map[row][0]), y: rows.map((row) => entry.map[row][1]), mode: "markers", type: "scatter",
      marker: { symbol, size: 10, color: colour(tone), line: { width: symbol.endsWith("open") ? 1.8 : 0.5, color: colour(tone) } },
      text: rows.map((row) => `${plain(entry.clients[row])}: ${states[wanted]}`), hovertemplate: "%{text}<extra></extra>",
    };
  });
  const bare = (title) => axis({ title, showticklabels: false, showgrid: true, nticks: 6 });
  const extra = { xaxis: bare("first direction"), yaxis: bare("second direction"), margin: { l: 28, r: 12, t: 8, b: 32 } };
  return draw(find("map"), traces, extra, `Map of ${entry.map.filter(Boolean).length} updates of round ${entry.round}.`);
}

function drawEvidence() {
  const entry = record();
  const values = entry.columns[chosen.fact];
  if (!values) return nothing(find("evidence"), lacks(chosen.fact || "number for each participant", chosen.fact));
  const ranking = entry.clients.map((_, row) => row).filter((row) => values[row] !== null).sort((a, b) => values[b] - values[a]);
  const ranked = ranking.map((row, rank) => ({ row, rank }));
  const traces = looks.map(({ tone, fill, hatch }, wanted) => {
    const bars = ranked.filter(({ row }) => state(entry, row) === wanted);
    return {
      type: "bar", x: bars.map(({ rank }) => rank + 1), y: bars.map(({ row }) => values[row]), width: 0.75,
      marker: {
        color: colour(fill), line: { width: 1, color: colour(tone) },
        pattern: { shape: tone === "infected" ? "/" : "", size: 5, solidity: 0.2, fgcolor: colour(hatch), bgcolor: colour(fill) },
      },
      text: bars.map(({ row }) => `${plain(entry.clients[row])}: ${digits(values[row])}, ${states[wanted]}`),
      textposition: "none", hovertemplate: "%{text}<extra></extra>",
    };
  });
  const extra = {
    barmode: "overlay", xaxis: axis({ title: "participants (infected are hatched)", showticklabels: false, showgrid: false }),
    yaxis: axis({ nticks: 6 }), margin: { l: 48, r: 12, t: 8, b: 32 }, shapes: border(entry, ranking),
  };
  return draw(find("evidence"), traces, extra, `${chosen.fact} of each participant of round ${entry.round}.`);
}

// A line between elected and left out, where the ranking parts them.
function border(entry, ranking) {
  const sides = ranking.map((row) => entry.elected[row]);
  const at = sides.findIndex((side, rank) => rank > 0 && side !== sides[rank - 1]);
  if (at < 0 || sides.slice(at).some((side) => side !== sides[at])) return [];
  return [{ type: "line", x0: at + 0.5, x1: at + 0.5, y0: 0, y1: 1, yref: "paper", line: { color: colour("ink"), width: 1.5, dash: "dash" } }];
}

function marker() {
  const x = record().round;
  return { type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: colour("soft"), width: 1, dash: "dot" } };
}

function frame() {
  const x = record().round;
  return { type: "rect", x0: x - 0.5, x1: x + 0.5, y0: 0, y1: 1, yref: "paper", line: { color: colour("ink"), width: 2 } };
}

function drawGrid() {
  const columns = run().rounds.map((entry) => entry.clients.map((_, row) => row).sort((a, b) => state(entry, a) - state(entry, b)));
  const height = Math.max(...columns.map((rows) => rows.length));
  const cells = (make) =>
    Array.from({ length: height }, (_, y) =>
      run().rounds.map((entry, x) => (y < columns[x].length ? make(entry, columns[x][y]) : null)));
  const tones = looks.map(({ fill }) => colour(fill));
  const trace = {
    type: "heatmap", x: numbered(), z: cells(state), zmin: -0.5, zmax: 3.5, showscale: false,
    colorscale: tones.flatMap((tone, step) => [[step / 4, tone], [(step + 1) / 4, tone]]),
    xgap: columns.length > 100 ? 0 : 2,
    text: cells((entry, row) => `Round ${entry.round}, ${plain(entry.clients[row])}: ${fate(entry, row)}`),
    hovertemplate: "%{text}<extra></extra>", hoverongaps: false,
  };
  const extra = {
    xaxis: roundAxis(numbered(), 0.5), yaxis: axis({ autorange: "reversed", showticklabels: false, showgrid: false, title: "participants" }),
    margin: { l: 28, r: 12, t: 8, b: 44 }, shapes: [frame()],
  };
  const infected = run().rounds.reduce((sum, entry) => sum + count(entry, [0]), 0);
  draw(find("grid"), [trace], extra, `Participants of ${columns.length} rounds; infected updates were elected ${infected} times.`);
  find("grid").removeAllListeners("plotly_click");
  find("grid").on("plotly_click", (event) => choose({ round: run().rounds.findIndex((entry) => entry.round === event.points[0].x) }));
}

function drawRates() {
  const lines = [["falsePositive", "infected", "infected elected", "solid"], ["falseNegative", "benign", "benign left out", "dash"]];
  const traces = lines.map(([field, tone, words, dash]) => ({
    ...over(run().rounds, field), mode: run().rounds.length > 1 ? "lines" : "markers", line: { color: colour(tone), width: 2.5, dash },
    marker: { size: 9, color: colour(tone) }, hovertemplate: `round %{x}, ${words}: %{y:.1%}<extra></extra>`,
  }));
  const yaxis = axis({ range: [-0.02, 1.02], tickformat: ".0%", nticks: 5 });
  const { target, defense } = runs[chosen.run];
  find("rates-note").textContent = target === null ? "" : `By design, ${defense} elects ${digits(100 * target)}% of the updates; those left out are not accused.`;
  draw(find("rates"), traces, { xaxis: roundAxis(numbered(), 0.5), yaxis, shapes: [marker()] }, "Infected elected and benign left out over rounds.");
}

function drawSeconds() {
  const traces = ["train", "defense", "evaluate"].map((stage, index) => ({
    type: "bar", x: numbered(), y: run().rounds.map((entry) => entry.seconds[index]),
    marker: { color: colour(stage) }, hovertemplate: `round %{x}, ${stage}: %{y:.3s} s<extra></extra>`,
  }));
  draw(find("seconds"), traces, { barmode: "stack", bargap: 0.25, xaxis: roundAxis(numbered(), 0.5), yaxis: axis({ nticks: 5, rangemode: "tozero" }) },
    "Seconds of training, defense and evaluation in each round.");
}

function drawMargins() {
  const leads = run().rounds.map((entry) => lead(entry));
  if (leads.every((each) => !each)) return nothing(find("margins"), "No round has an infected update and a number to compare.");
  const { tone } = runs[chosen.run], infected = run().rounds.filter((_, index) => leads[index] && leads[index].failed);
  const margin = {
    x: numbered(), y: leads.map((each) => (each && !each.failed ? each.share : null)), mode: "lines+markers",
    line: { color: colour(tone), width: 2 }, marker: { size: 5, color: colour(tone) },
    text: leads.map((each) => (each && !each.failed ? plain(`${digits(each.value)} by ${each.by}`) : "")), hovertemplate: "round %{x}: %{text}<extra></extra>",
  };
  const failed = {
    x: infected.map((entry) => entry.round), y: infected.map(() => 0), mode: "markers", marker: { symbol: "diamond", size: 10, color: colour("infected") },
    hovertemplate: "round %{x}: an infected update was elected<extra></extra>",
  };
  const yaxis = axis({ tickformat: ".2~%", nticks: 5, rangemode: "tozero", zeroline: true, zerolinecolor: colour("rule") });
  return draw(find("margins"), [margin, failed], { xaxis: roundAxis(numbered(), 0.5), yaxis, shapes: [marker()] }, "How far the first infected update stood behind the last elected one, over rounds.");
}
