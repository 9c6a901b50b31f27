// Accuracy over rounds, of a few runs at a time: a hundred lines would say nothing.
const over = (rounds, field) => ({ x: rounds.map((each) => each.round), y: rounds.map((each) => each[field]) });

function drawCurve(id, field, title, shown) {
  const drawn = shown.map((place, index) => ({ index, place, ...over(opened.get(place).rounds, field) })).filter(({ y }) => y.some((each) => each !== null));
  const why = shown.length ? "there was no attack or no round yet" : "no run is chosen";
  if (!drawn.length) return nothing(find(id), `${title}: nothing to show, ${why}.`);
  const traces = drawn.map(({ index, place, x, y }) => ({
    x, y, name: plain(runs[place].name), mode: x.length > 1 ? "lines" : "markers", line: line(index), marker: { size: 9, color: line(index).color },
    text: x.map(() => plain(runs[place].name)), hovertemplate: "%{text}, round %{x}: %{y:.1%}<extra></extra>",
  }));
  const ends = drawn.map(({ place, y }) => `${runs[place].name} ends at ${percent(y[y.length - 1])}`);
  const yaxis = axis({ range: [0, 1.02], tickformat: ".0%", nticks: 6 });
  return draw(find(id), traces, { xaxis: roundAxis(drawn.flatMap(({ x }) => x)), yaxis }, `${title}: ${ends.join(", ")}.`);
}

function drawCurves(shown) {
  find("run-key").replaceChildren(...shown.map((place, index) => keyEntry(index, runs[place].name)));
  drawCurve("main-curve", "main", "Main accuracy", shown);
  drawCurve("backdoor-curve", "backdoor", "Backdoor accuracy", shown);
}
