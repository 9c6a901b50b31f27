// Accuracy over rounds, of a few runs at a time: a hundred lines would say nothing.
const over = (rounds, field) => ({ x: rounds.map((each) => each.round), y: rounds.map((each) => each[field]) });
const lastOf = (y) => y.filter((each) => each !== null).at(-1);

// The last number beside each line, as far apart as letters are high.
function endLabels(drawn) {
  const ends = drawn.map(({ look, x, y }) => ({ look, x: x.at(-1), y: lastOf(y) })).sort((a, b) => a.y - b.y);
  ends.forEach((end, rank) => { end.at = rank ? Math.max(end.y, ends[rank - 1].at + 0.07) : end.y; });
  const over = Math.max(0, ...ends.map(({ at }) => at - 1));
  return ends.map(({ look, y, at }) => ({
    x: 1, xref: "paper", xanchor: "left", xshift: 6, y: at - over, yanchor: "middle", showarrow: false, text: percent(y), font: { size: 13, color: colour(look.tone) },
  }));
}

function drawCurve(id, field, title, shown, looks) {
  const drawn = shown.map((place, index) => ({ look: looks[index], place, ...over(opened.get(place).rounds, field) })).filter(({ y }) => y.some((each) => each !== null));
  const why = shown.length ? "there was no attack or no round yet" : "no run is chosen";
  if (!drawn.length) return nothing(find(id), `${title}: nothing to show, ${why}.`);
  const traces = drawn.map(({ look, place, x, y }) => ({
    x, y, name: plain(runs[place].name), mode: x.length > 1 ? (look.marked ? "lines+markers" : "lines") : "markers",
    line: stroke(look), marker: marks(look, { maxdisplayed: 8 }), cliponaxis: false,
    text: x.map(() => plain(runs[place].name)), hovertemplate: "%{text}, round %{x}: %{y:.1%}<extra></extra>",
  }));
  const ends = drawn.map(({ place, y }) => `${runs[place].name} ends at ${percent(lastOf(y))}`);
  const yaxis = axis({ range: [0, 1.02], tickformat: ".0%", nticks: 6 });
  const labels = drawn.length <= 5 ? { annotations: endLabels(drawn), margin: { l: 48, r: 56, t: 8, b: 44 } } : {};
  const xaxis = roundAxis(shown.flatMap((place) => opened.get(place).rounds.map((each) => each.round)));
  return draw(find(id), traces, { xaxis, yaxis, ...labels }, `${title}: ${ends.join(", ")}.`);
}

// Runs that differ in their defense are called by it.
function shortNames(shown) {
  const defenses = shown.map((place) => runs[place].defense);
  return new Set(defenses).size === shown.length && !defenses.includes("–") ? defenses : shown.map((place) => runs[place].name);
}

function drawCurves(shown) {
  const looks = looksOf(shown.map((place) => runs[place])), names = shortNames(shown);
  find("run-key").replaceChildren(...shown.map((place, index) => keyEntry(names[index], looks[index], runs[place].name)));
  drawCurve("main-curve", "main", "Main accuracy", shown, looks);
  drawCurve("backdoor-curve", "backdoor", "Backdoor accuracy", shown, looks);
}
