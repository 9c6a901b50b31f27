// Accuracy over rounds, of a few runs at a time: a hundred lines would say nothing.
const over = (rounds, field) => ({ x: rounds.map((each) => each.round), y: rounds.map((each) => each[field]) });
const lastOf = (y) => y.filter((each) => each !== null).at(-1);

// The last number beside each line, as far apart as letters are high.
function endLabels(drawn) {
  const ends = drawn.map(({ look, y }) => ({ tone: look.tone, last: lastOf(y) })).sort((a, b) => a.last - b.last);
  ends.forEach((end, rank) => { end.at = rank ? Math.max(end.last, ends[rank - 1].at + 0.07) : end.last; });
  const over = Math.max(0, ...ends.map(({ at }) => at - 1));
  return ends.map(({ tone, last, at }) => ({ tone, y: at - over, text: percent(last) }));
}

function drawCurve(id, field, title, shown, looks) {
  const drawn = shown.map((place, index) => ({ look: looks[index], place, ...over(opened.get(place).rounds, field) })).filter(({ y }) => y.some((each) => each !== null));
  const why = shown.length ? "there was no attack or no round yet" : "no run is chosen";
  if (!drawn.length) return nothing(find(id), `${title}: nothing to show, ${why}.`);
  const series = drawn.map(({ look, place, x, y }) => ({
    kind: "line", ...look, bare: x.length > 1 && !look.marked, few: true,
    points: x.map((round, index) => ({ x: round, y: y[index], words: () => `${runs[place].name}, round ${round}: ${percent(y[index])}` })),
  }));
  const ends = drawn.map(({ place, y }) => `${runs[place].name} ends at ${percent(lastOf(y))}`);
  const x = roundAxis(shown.flatMap((place) => opened.get(place).rounds.map((each) => each.round)));
  const labels = drawn.length <= 5 ? endLabels(drawn) : undefined;
  return draw(find(id), { series, x, y: axis({ range: [0, 1.02], unit: "%" }), labels }, `${title}: ${ends.join(", ")}.`);
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
