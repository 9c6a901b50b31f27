// The elections of the run that is open, in figures.
const states = ["infected, elected", "infected, left out", "benign, left out", "benign, elected"];
const looks = [ // of each state
  { tone: "infected", fill: "infected", hatch: "card", symbol: "diamond", open: false },
  { tone: "infected", fill: "infected-pale", hatch: "infected", symbol: "diamond", open: true },
  { tone: "benign", fill: "benign-pale", symbol: "circle", open: true },
  { tone: "benign", fill: "benign", symbol: "circle", open: false },
];
const state = (entry, index) => (entry.malicious[index] ? (entry.elected[index] ? 0 : 1) : entry.elected[index] ? 3 : 2);
const isDropped = (entry, row) => Object.hasOwn(entry.dropped, entry.clients[row]);
const fate = (entry, row) => // for figures
  isDropped(entry, row) ? `${entry.malicious[row] ? "infected" : "benign"}, dropped: ${entry.dropped[entry.clients[row]]}` : states[state(entry, row)];
const count = (entry, wanted) => entry.clients.filter((_, index) => wanted.includes(state(entry, index))).length;
const chosen = { run: -1, round: 0, fact: "", theme: "", compared: null }; // round and runs are places, not numbers or names
const run = () => opened.get(chosen.run);
const record = () => run().rounds[chosen.round];
const numbered = () => run().rounds.map((entry) => entry.round);
const lacks = (what, elsewhere) => `The record has no ${what}${elsewhere ? " of this round" : ""}.`; // what there was may not have been kept

function drawMap() {
  const entry = record();
  if (!entry.map) return nothing(find("map"), lacks("map of the updates", run().rounds.some((each) => each.map)));
  const series = looks.map(({ symbol, tone, open }, wanted) => {
    const rows = entry.clients.map((_, index) => index).filter((index) => entry.map[index] && state(entry, index) === wanted);
    const points = rows.map((row) => ({ x: entry.map[row][0], y: entry.map[row][1], words: () => `${entry.clients[row]}: ${states[wanted]}` }));
    return { kind: "points", tone, symbol, open, points };
  });
  const bare = (title) => axis({ title, bare: true });
  return draw(find("map"), { series, x: bare("first direction"), y: bare("second direction") }, `Map of ${entry.map.filter(Boolean).length} updates of round ${entry.round}.`);
}

function drawEvidence() {
  const entry = record();
  const values = entry.columns[chosen.fact];
  if (!values) return nothing(find("evidence"), lacks(chosen.fact || "number for each participant", chosen.fact));
  const ranking = entry.clients.map((_, row) => row).filter((row) => values[row] !== null).sort((a, b) => values[b] - values[a]);
  const ranked = ranking.map((row, rank) => ({ row, rank }));
  const series = looks.map(({ tone, fill, hatch }, wanted) => {
    const bars = ranked.filter(({ row }) => state(entry, row) === wanted);
    const boxes = bars.map(({ row, rank }) => ({
      x0: rank + 0.625, x1: rank + 1.375, y0: 0, y1: values[row], words: () => `${entry.clients[row]}: ${digits(values[row])}, ${states[wanted]}`,
    }));
    return { kind: "boxes", tone: fill, edge: tone, hatch, boxes };
  });
  const x = axis({ title: "participants (infected are hatched)", bare: true, grid: false, range: [0, ranking.length + 1] });
  return draw(find("evidence"), { series, x, y: axis({ zero: true }), shapes: border(entry, ranking) }, `${chosen.fact} of each participant of round ${entry.round}.`);
}

// A line between elected and left out, where the ranking parts them.
function border(entry, ranking) {
  const sides = ranking.map((row) => entry.elected[row]);
  const at = sides.findIndex((side, rank) => rank > 0 && side !== sides[rank - 1]);
  if (at < 0 || sides.slice(at).some((side) => side !== sides[at])) return [];
  return [{ x0: at + 0.5, x1: at + 0.5, tone: "ink", width: 1.5, dash: "dash" }];
}

function atRound() {
  const at = record().round;
  return { x0: at, x1: at, tone: "soft", width: 1, dash: "dot" };
}

function aroundRound() {
  const at = record().round;
  return { x0: at - 0.5, x1: at + 0.5, tone: "ink", width: 2, dash: "solid" };
}

// The participants of each round, infected on top; each state is one series, and so one colour.
function drawGrid() {
  const columns = run().rounds.map((entry) => entry.clients.map((_, row) => row).sort((a, b) => state(entry, a) - state(entry, b)));
  const height = Math.max(...columns.map((rows) => rows.length));
  const cells = columns.flatMap((rows, position) => rows.map((row, level) => ({ entry: run().rounds[position], row, level, position })));
  const series = looks.map(({ fill }, wanted) => ({
    kind: "boxes", tone: fill, gap: [columns.length > 100 ? 0 : 2, 0],
    boxes: cells.filter(({ entry, row }) => state(entry, row) === wanted).map(({ entry, row, level, position }) => ({
      x0: entry.round - 0.5, x1: entry.round + 0.5, y0: level, y1: level + 1, position, words: () => `Round ${entry.round}, ${entry.clients[row]}: ${fate(entry, row)}`,
    })),
  }));
  const y = axis({ title: "participants", bare: true, grid: false, range: [0, height], reversed: true });
  const infected = run().rounds.reduce((sum, entry) => sum + count(entry, [0]), 0);
  const figure = { series, x: roundAxis(numbered(), 0.5), y, shapes: [aroundRound()], choose: ({ position }) => choose({ round: position }) };
  draw(find("grid"), figure, `Participants of ${columns.length} rounds; infected updates were elected ${infected} times.`);
}

function drawRates() {
  const lines = [["falsePositive", "infected", "infected elected", "solid"], ["falseNegative", "benign", "benign left out", "dash"]];
  const series = lines.map(([field, tone, words, dash]) => ({
    kind: "line", tone, dash, width: 2.5, bare: run().rounds.length > 1,
    points: run().rounds.map((entry) => ({ x: entry.round, y: entry[field], words: () => `round ${entry.round}, ${words}: ${percent(entry[field])}` })),
  }));
  const { target, defense } = runs[chosen.run];
  find("rates-note").textContent = target === null ? "" : `By design, ${defense} elects ${digits(100 * target)}% of the updates; those left out are not accused.`;
  draw(find("rates"), { series, x: roundAxis(numbered(), 0.5), y: axis({ range: [-0.02, 1.02], unit: "%", most: 5 }), shapes: [atRound()] }, "Infected elected and benign left out over rounds.");
}

function drawSeconds() {
  const tops = run().rounds.map(() => 0); // of the stages before
  const series = ["train", "defense", "evaluate"].map((stage, index) => ({
    kind: "boxes", tone: stage,
    boxes: run().rounds.map((entry, position) => {
      const y0 = tops[position], seconds = entry.seconds[index] || 0;
      tops[position] += seconds;
      return { x0: entry.round - 0.375, x1: entry.round + 0.375, y0, y1: y0 + seconds, words: () => `round ${entry.round}, ${stage}: ${digits(seconds)} s` };
    }),
  }));
  draw(find("seconds"), { series, x: roundAxis(numbered(), 0.5), y: axis({ zero: true, most: 5 }) }, "Seconds of training, defense and evaluation in each round.");
}

function drawMargins() {
  const leads = run().rounds.map((entry) => lead(entry));
  if (leads.every((each) => !each)) return nothing(find("margins"), "No round has an infected update and a number to compare.");
  const { tone } = runs[chosen.run];
  const margin = {
    kind: "line", tone, dash: "solid", width: 2, radius: 2.5,
    points: run().rounds.map(({ round }, index) => {
      const each = leads[index] && !leads[index].failed ? leads[index] : null;
      return { x: round, y: each && each.share, words: () => `round ${round}: ${digits(each.value)} by ${each.by}` };
    }),
  };
  const failed = run().rounds.filter((_, index) => leads[index] && leads[index].failed);
  const diamonds = {
    kind: "points", tone: "infected", symbol: "diamond", points: failed.map(({ round }) => ({ x: round, y: 0, words: () => `round ${round}: an infected update was elected` })),
  };
  const y = axis({ unit: "%", most: 5, zero: true });
  return draw(find("margins"), { series: [margin, diamonds], x: roundAxis(numbered(), 0.5), y, shapes: [atRound()] }, "How far the first infected update stood behind the last elected one, over rounds.");
}
