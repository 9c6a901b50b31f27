"use strict";
(() => {
  const runs = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const config = { displayModeBar: false, responsive: true };
  const dashes = ["solid", "dash", "dot", "dashdot"];
  const strokes = { solid: "", dash: "6 4", dot: "2 4", dashdot: "7 3 2 3" };
  const states = ["infected, elected", "infected, left out", "benign, left out", "benign, elected"];
  const looks = [ // of each state
    { tone: "infected", fill: "infected", hatch: "card", symbol: "diamond" },
    { tone: "infected", fill: "infected-pale", hatch: "infected", symbol: "diamond-open" },
    { tone: "benign", fill: "benign-pale", hatch: "benign", symbol: "circle-open" },
    { tone: "benign", fill: "benign", hatch: "benign", symbol: "circle" },
  ];
  const chosen = { run: 0, round: 0, fact: "", theme: "" }; // round and run are positions, not numbers or names

  const run = () => runs[chosen.run];
  const record = () => run().rounds[chosen.round];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)}%`);
  const state = (entry, index) => (entry.malicious[index] ? (entry.elected[index] ? 0 : 1) : entry.elected[index] ? 3 : 2);
  const count = (entry, wanted) => entry.clients.filter((_, index) => wanted.includes(state(entry, index))).length;
  const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));
  // Plotly reads tags and entities in every text; names come from strangers.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const line = (index) => ({ color: colour(`run-${(index % 6) + 1}`), dash: dashes[index % 4], width: 2.5 });

  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function axis(extra) {
    return {
      gridcolor: colour("line"), linecolor: colour("rule"), zeroline: false, automargin: true, fixedrange: true, ticks: "",
      tickfont: { size: 12, color: colour("soft") }, ...extra,
      title: { text: (extra && extra.title) || "", font: { size: 12, color: colour("soft") }, standoff: 8 },
    };
  }

  function roundAxis(shown) {
    const last = Math.max(...shown.flatMap((each) => each.rounds.map((entry) => entry.round)));
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

  function draw(id, traces, extra, words) {
    const place = find(id);
    if (place.firstElementChild && place.firstElementChild.className === "empty") place.replaceChildren();
    place.setAttribute("aria-label", words);
    return Plotly.react(place, traces, layout(extra), config);
  }

  function nothing(id, words) {
    Plotly.purge(find(id));
    find(id).setAttribute("aria-label", words);
    find(id).replaceChildren(element("p", words, "empty"));
  }

  function rounds(entry, field) {
    return { x: entry.rounds.map((each) => each.round), y: entry.rounds.map((each) => each[field]) };
  }

  function drawCurve(id, field, title) {
    const drawn = runs.map((each, index) => ({ index, ...rounds(each, field) })).filter((each) => each.y.some((y) => y !== null));
    if (!drawn.length) return nothing(id, `${title}: nothing to show, there was no attack or no round yet.`);
    const traces = drawn.map(({ index, x, y }) => ({
      x, y, name: plain(runs[index].name), mode: x.length > 1 ? "lines" : "markers", line: line(index), marker: { size: 9, color: line(index).color },
      text: x.map(() => plain(runs[index].name)), hovertemplate: "%{text}, round %{x}: %{y:.1%}<extra></extra>",
    }));
    const ends = drawn.map(({ index, y }) => `${runs[index].name} ends at ${percent(y[y.length - 1])}`);
    const yaxis = axis({ range: [0, 1.02], tickformat: ".0%", nticks: 6 });
    return draw(id, traces, { xaxis: roundAxis(runs), yaxis }, `${title}: ${ends.join(", ")}.`);
  }

  function drawMap() {
    const entry = record();
    if (!entry.map) return nothing("map", "This run keeps no map of its updates.");
    const traces = looks.map(({ symbol, tone }, wanted) => {
      const rows = entry.clients.map((_, index) => index).filter((index) => state(entry, index) === wanted);
      return {
        x: rows.map((row) => entry.map[row][0]), y: rows.map((row) => entry.map[row][1]), mode: "markers", type: "scatter",
        marker: { symbol, size: 10, color: colour(tone), line: { width: symbol.endsWith("open") ? 1.8 : 0.5, color: colour(tone) } },
        text: rows.map((row) => `${plain(entry.clients[row])}: ${states[wanted]}`), hovertemplate: "%{text}<extra></extra>",
      };
    });
    const bare = (title) => axis({ title, showticklabels: false, showgrid: true, nticks: 6 });
    const extra = { xaxis: bare("first direction"), yaxis: bare("second direction"), margin: { l: 28, r: 12, t: 8, b: 32 } };
    return draw("map", traces, extra, `Map of ${entry.clients.length} updates of round ${entry.round}.`);
  }

  function drawEvidence() {
    const entry = record();
    const values = entry.columns[chosen.fact];
    if (!values) return nothing("evidence", "This defense gives no number for each participant.");
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
      yaxis: axis({ nticks: 6 }), margin: { l: 48, r: 12, t: 8, b: 32 },
    };
    return draw("evidence", traces, extra, `${chosen.fact} of each participant of round ${entry.round}.`);
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
      type: "heatmap", x: run().rounds.map((entry) => entry.round), z: cells(state), zmin: -0.5, zmax: 3.5, showscale: false,
      colorscale: tones.flatMap((tone, step) => [[step / 4, tone], [(step + 1) / 4, tone]]),
      xgap: columns.length > 100 ? 0 : 2,
      text: cells((entry, row) => `Round ${entry.round}, ${plain(entry.clients[row])}: ${states[state(entry, row)]}`),
      hovertemplate: "%{text}<extra></extra>", hoverongaps: false,
    };
    const extra = {
      xaxis: roundAxis([run()]), yaxis: axis({ autorange: "reversed", showticklabels: false, showgrid: false, title: "participants" }),
      margin: { l: 28, r: 12, t: 8, b: 44 }, shapes: [frame()],
    };
    const infected = run().rounds.reduce((sum, entry) => sum + count(entry, [0]), 0);
    draw("grid", [trace], extra, `Participants of ${columns.length} rounds; infected updates were elected ${infected} times.`);
    find("grid").removeAllListeners("plotly_click");
    find("grid").on("plotly_click", (event) => choose({ round: run().rounds.findIndex((entry) => entry.round === event.points[0].x) }));
  }

  function drawRates() {
    const lines = [["falsePositive", "infected", "infected elected", "solid"], ["falseNegative", "benign", "benign left out", "dash"]];
    const traces = lines.map(([field, tone, words, dash]) => ({
      ...rounds(run(), field), mode: run().rounds.length > 1 ? "lines" : "markers", line: { color: colour(tone), width: 2.5, dash },
      marker: { size: 9, color: colour(tone) }, hovertemplate: `round %{x}, ${words}: %{y:.1%}<extra></extra>`,
    }));
    const yaxis = axis({ range: [-0.02, 1.02], tickformat: ".0%", nticks: 5 });
    draw("rates", traces, { xaxis: roundAxis([run()]), yaxis, shapes: [marker()] }, "Infected elected and benign left out over rounds.");
  }

  function drawSeconds() {
    const traces = ["train", "defense", "evaluate"].map((stage, index) => ({
      type: "bar", x: run().rounds.map((entry) => entry.round), y: run().rounds.map((entry) => entry.seconds[index]),
      marker: { color: colour(stage) }, hovertemplate: `round %{x}, ${stage}: %{y:.3s} s<extra></extra>`,
    }));
    draw("seconds", traces, { barmode: "stack", bargap: 0.25, xaxis: roundAxis([run()]), yaxis: axis({ nticks: 5, rangemode: "tozero" }) },
      "Seconds of training, defense and evaluation in each round.");
  }

  const picked = { votes: "Votes", score: "Score", margin: "Lead over the runner-up" };

  function step(entry, row) {
    if (!entry.elected[row]) return "left out";
    const order = entry.columns.order && entry.columns.order[row];
    if (!order) return order === 0 ? "seated first" : "elected";
    return `step ${order}`;
  }

  function fillPicks() {
    const entry = record();
    const columns = Object.keys(picked).filter((name) => entry.columns[name]);
    const rank = (row) => (entry.elected[row] ? (entry.columns.order || [])[row] || 0 : Infinity);
    const votes = (row) => (entry.columns.votes || [])[row] || 0;
    const rows = entry.clients.map((_, row) => row);
    rows.sort((a, b) => (rank(a) === rank(b) ? votes(b) - votes(a) : rank(a) - rank(b)));
    const head = element("tr");
    for (const name of ["Elected", "Client", "Truth", ...columns.map((column) => picked[column])]) {
      head.append(Object.assign(element("th", name), { scope: "col" }));
    }
    const body = rows.map((row) => {
      const made = element("tr", undefined, `${entry.malicious[row] ? "infected" : ""} ${entry.elected[row] ? "" : "out"}`.trim());
      made.append(element("td", step(entry, row)), element("td", entry.clients[row]), element("td", entry.malicious[row] ? "◆ infected" : "benign"));
      made.append(...columns.map((name) => element("td", digits(entry.columns[name][row]))));
      return made;
    });
    find("picks").tHead.replaceChildren(head);
    find("picks").tBodies[0].replaceChildren(...body);
    find("numbers").textContent = Object.entries(entry.numbers).map(([name, value]) => `${name} ${digits(value)}`).join(" · ");
  }

  function describe() {
    const entry = record();
    const infected = count(entry, [0, 1]);
    const among = infected ? `, among them ${count(entry, [0])} of ${infected} infected` : "; none was infected";
    const backdoor = entry.backdoor === null ? "" : `, backdoor ${percent(entry.backdoor)}`;
    find("round-words").textContent =
      `${count(entry, [0, 3])} of ${entry.clients.length} elected${among}. Main accuracy ${percent(entry.main)}${backdoor}.`;
    find("round").max = run().rounds.length - 1;
    find("round").value = chosen.round;
    find("round").setAttribute("aria-valuetext", `Round ${entry.round}`);
    find("round-number").textContent = `${entry.round} of ${run().rounds[run().rounds.length - 1].round}`;
    find("previous").disabled = chosen.round === 0;
    find("next").disabled = chosen.round === run().rounds.length - 1;
  }

  function offerFacts() {
    const names = [...new Set(run().rounds.flatMap((entry) => Object.keys(entry.columns)))];
    if (!names.includes(chosen.fact)) chosen.fact = names.includes("votes") ? "votes" : names[0] || "";
    find("fact").replaceChildren(...names.map((name) => Object.assign(element("option", name), { value: name })));
    find("fact").value = chosen.fact;
    find("fact").hidden = !names.length;
  }

  function drawRound() {
    describe();
    drawMap();
    drawEvidence();
    fillPicks();
  }

  function drawRun() {
    const empty = !run().rounds.length;
    find("controls").querySelector(".round").hidden = empty;
    if (empty) return drawEmptyRun();
    chosen.round = Math.min(Math.max(chosen.round, 0), run().rounds.length - 1);
    offerFacts();
    drawRound();
    drawGrid();
    drawRates();
    drawSeconds();
  }

  function drawEmptyRun() {
    find("round-words").textContent = "This run has no round to show yet.";
    for (const id of ["map", "evidence", "grid", "rates", "seconds"]) nothing(id, "No round yet.");
    find("fact").hidden = true;
    find("numbers").textContent = "";
    find("picks").tHead.replaceChildren();
    find("picks").tBodies[0].replaceChildren();
  }

  function drawAll() {
    drawCurve("main-curve", "main", "Main accuracy");
    drawCurve("backdoor-curve", "backdoor", "Backdoor accuracy");
    drawRun();
  }

  function offerRuns() {
    runs.forEach((each, index) => {
      const label = element("label", undefined, "choice");
      const input = Object.assign(element("input"), { type: "radio", name: "run", value: String(index), checked: index === chosen.run });
      label.append(input, element("span", each.name));
      find("run-choice").append(label);
      find("run-key").append(keyEntry(index));
    });
  }

  function keyEntry(index) {
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of Object.entries({ width: 34, height: 10, "aria-hidden": "true" })) drawing.setAttribute(name, value);
    for (const [name, value] of Object.entries({ x1: 0, x2: 34, y1: 5, y2: 5 })) stroke.setAttribute(name, value);
    stroke.setAttribute("stroke-dasharray", strokes[dashes[index % 4]]);
    stroke.style.stroke = `var(--run-${(index % 6) + 1})`;
    drawing.append(stroke);
    const entry = element("li");
    entry.append(drawing, element("span", runs[index].name));
    return entry;
  }

  function paint() {
    const dark = chosen.theme ? chosen.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    find("theme").setAttribute("aria-pressed", String(dark));
  }

  // The address names what is on show, so that a view can be linked to: #run=snowball&round=7&fact=votes&theme=dark
  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const index = runs.findIndex((each) => each.name === asked.get("run"));
    if (index >= 0) chosen.run = index;
    const position = run().rounds.findIndex((entry) => String(entry.round) === asked.get("round"));
    chosen.round = position >= 0 ? position : run().rounds.length - 1;
    chosen.fact = asked.get("fact") || chosen.fact;
    chosen.theme = ["light", "dark"].includes(asked.get("theme")) ? asked.get("theme") : "";
  }

  function writeAddress() {
    const shown = new URLSearchParams({ run: run().name });
    if (run().rounds.length) shown.set("round", record().round);
    if (chosen.fact) shown.set("fact", chosen.fact);
    if (chosen.theme) shown.set("theme", chosen.theme);
    history.replaceState(null, "", `#${shown}`);
  }

  function choose(change) {
    const otherRun = "run" in change && change.run !== chosen.run;
    const number = run().rounds.length ? record().round : 0;
    Object.assign(chosen, change);
    if (otherRun) {
      const same = run().rounds.findIndex((entry) => entry.round === number);
      chosen.round = same >= 0 ? same : run().rounds.length - 1;
      drawRun();
    } else {
      drawRound();
      Plotly.relayout("grid", { shapes: [frame()] });
      Plotly.relayout("rates", { shapes: [marker()] });
    }
    writeAddress();
  }

  function listen() {
    find("controls").addEventListener("submit", (event) => event.preventDefault());
    find("run-choice").addEventListener("change", (event) => choose({ run: Number(event.target.value) }));
    find("round").addEventListener("input", (event) => choose({ round: Number(event.target.value) }));
    find("previous").addEventListener("click", () => choose({ round: Math.max(0, chosen.round - 1) }));
    find("next").addEventListener("click", () => choose({ round: Math.min(run().rounds.length - 1, chosen.round + 1) }));
    find("fact").addEventListener("change", (event) => choose({ fact: event.target.value }));
    find("theme").addEventListener("click", () => {
      chosen.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      paint();
      drawAll();
      writeAddress();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); drawAll(); });
    addEventListener("hashchange", () => {
      readAddress();
      find("run-choice").querySelectorAll("input")[chosen.run].checked = true;
      paint();
      drawAll();
    });
  }

  find("round").min = 0;
  chosen.run = Math.max(0, runs.findIndex((each) => each.rounds.some((entry) => Object.keys(entry.columns).length)));
  readAddress();
  paint();
  offerRuns();
  listen();
  drawAll();
  document.documentElement.dataset.ready = "yes";
})();
