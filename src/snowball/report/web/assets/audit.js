"use strict";
(() => {
  const { clients, rounds, states } = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const top = 22, tall = 18;
  const wide = rounds.length <= 60 ? 16 : rounds.length <= 250 ? 9 : 5;
  const chosen = { client: 0, round: -1, theme: "" }; // places, not numbers or names
  const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));
  const shapes = { // of each state, in a cell of w by h at x, y
    elected: (x, y, w, h) => `M${x} ${y}h${w}v${h}h${-w}z`,
    left_out: (x, y, w, h) => `M${x} ${y + h}v${-h}l${w} ${h}z`,
    dropped: (x, y, w, h) => `M${x} ${y + h / 2 - 4}l${w} 8m0 -8l${-w} 8`,
    unjudged: (x, y, w, h) => `M${x + 0.6} ${y + 1.6}h${w - 1.2}v${h - 3.2}h${1.2 - w}z`,
    silent: (x, y, w, h) => `M${x + w / 4} ${y + h / 2 - 1}h${w / 2}v2h${-w / 2}z`,
  };
  shapes.failed = shapes.dropped;
  const look = (state) => (state === "failed" ? "dropped" : state);

  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function drawn(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const stateOf = (entry, client) => Object.keys(entry.states).find((state) => entry.states[state].includes(client));

  function sample(state) {
    const holder = drawn("svg", { width: 12, height: 12, "aria-hidden": "true" });
    holder.append(drawn("path", { class: look(state), d: shapes[state](0, 0, 12, 12) }));
    return holder;
  }

  function drawGrid() {
    const width = Math.max(rounds.length * wide, 40), height = top + clients.length * tall;
    const paths = Object.fromEntries(Object.keys(shapes).map((state) => [state, []]));
    const kept = [], marks = [];
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => each * wide >= 44) || 1000;
    rounds.forEach((entry, column) => {
      const x = column * wide;
      if (entry.kept !== null) kept.push(`M${x} ${top}h${wide}v${height - top}h${-wide}z`);
      if (column === 0 || entry.round % step === 0) marks.push(drawn("text", { x: x + 1, y: 15 }, String(entry.round)));
      for (const [state, places] of Object.entries(entry.states)) {
        for (const place of places) paths[state].push(shapes[state](x + 1, top + place * tall + 1, wide - 2, tall - 2));
      }
    });
    const grid = find("grid");
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) grid.setAttribute(name, value);
    grid.setAttribute("aria-label", `What ${rounds.length} rounds were for ${clients.length} clients; the table below has the numbers.`);
    const title = drawn("title", {}, "");
    const layers = Object.entries(paths).map(([state, parts]) => drawn("path", { class: look(state), d: parts.join("") }));
    grid.replaceChildren(title, drawn("path", { class: "kept-column", d: kept.join("") }), ...marks, ...layers,
      drawn("rect", { class: "chosen-row", x: 0.75, width: Math.max(0, width - 1.5), height: tall }));
    grid.addEventListener("mousemove", (event) => { title.textContent = wordsAt(event); });
    grid.addEventListener("click", (event) => {
      const [client, round] = cell(event);
      if (client in clients) choose({ client, round: round in rounds ? round : -1 });
    });
  }

  function cell(event) {
    const box = find("grid").getBoundingClientRect();
    return [Math.floor((event.clientY - box.top - top) / tall), Math.floor((event.clientX - box.left) / wide)];
  }

  function wordsAt(event) {
    const [client, round] = cell(event);
    if (!(client in clients) || !(round in rounds)) return "";
    const state = stateOf(rounds[round], client);
    return `Round ${rounds[round].round}, ${clients[client]}: ${state ? states[state] : "not asked"}`;
  }

  function words(entry, client, state) {
    const out = state === "left_out";
    const said = out && entry.monitored ? "would have been left out, but was averaged" : states[state];
    const charge = out && entry.charge ? `: ${entry.charge}` : "";
    const faults = entry.dropped.filter(([place]) => place === client).map(([, reason, detail]) => `${reason}: ${detail || "–"}`).join("; ");
    const more = ["dropped", "failed"].includes(state) ? `, ${faults}` : `; a reply was dropped, ${faults}`;
    const kept = entry.kept === null ? "" : `; the old model was kept: ${entry.kept || "–"}`;
    return `${said}${charge}${faults ? more : ""}${kept}`;
  }

  function numbers(entry, client) {
    const elected = entry.states.elected || [];
    const judged = [...elected, ...(entry.states.left_out || [])];
    const place = judged.indexOf(client);
    const found = new Map();
    for (const [name, values] of Object.entries(entry.facts)) {
      const range = place >= elected.length && Object.hasOwn(entry.ranges, name) ? entry.ranges[name] : [];
      if (place >= 0 && values[place] !== null) found.set(name, [values[place], range]);
    }
    return found;
  }

  function numberCell(found) {
    const made = element("td", found ? digits(found[0]) : "");
    const ends = found ? [...new Set(found[1].map(digits))] : [];
    if (ends.length) made.append(element("small", ends.join(" to ")));
    return made;
  }

  function drawHistory() {
    const lines = rounds.map((entry, place) => ({ entry, place, state: stateOf(entry, chosen.client) })).filter(({ state }) => state);
    const found = lines.map(({ entry }) => numbers(entry, chosen.client));
    const columns = [...new Set(found.flatMap((each) => [...each.keys()]))];
    const head = element("tr");
    for (const name of ["Round", "What happened", ...columns, "Time"]) head.append(Object.assign(element("th", name), { scope: "col" }));
    const body = lines.map(({ entry, place, state }, index) => {
      const made = element("tr", undefined, place === chosen.round ? "found" : "");
      const what = element("td");
      what.append(sample(state), words(entry, chosen.client, state));
      made.append(element("th", String(entry.round)), what, ...columns.map((name) => numberCell(found[index].get(name))), element("td", entry.time));
      return made;
    });
    find("moments").tHead.replaceChildren(head);
    find("moments").tBodies[0].replaceChildren(...body);
    const count = (...wanted) => lines.filter(({ state }) => wanted.includes(state)).length;
    find("client-words").textContent = clients.length === 0 ? "The audit names no client." :
      `Elected in ${count("elected")} rounds, left out in ${count("left_out")}, dropped or failed in ${count("dropped", "failed")}, ` +
      `silent in ${count("silent")}; no part in ${rounds.length - lines.length} of ${rounds.length}.`;
    const marked = find("moments").querySelector(".found");
    if (marked) marked.parentElement.parentElement.parentElement.scrollTop = marked.offsetTop - 60;
  }

  function mark() {
    find("client").value = String(chosen.client);
    [...find("names").children].forEach((each, place) => each.setAttribute("aria-pressed", String(place === chosen.client)));
    find("grid").querySelector(".chosen-row").setAttribute("y", top + chosen.client * tall);
  }

  function choose(change) {
    Object.assign(chosen, { round: -1 }, change);
    mark();
    drawHistory();
    writeAddress();
  }

  // The address names what is on show, so that a view can be linked to: #client=site-7&round=31&theme=dark
  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    chosen.client = Math.max(0, clients.indexOf(asked.get("client")));
    chosen.round = rounds.findLastIndex((entry) => String(entry.round) === asked.get("round"));
    chosen.theme = ["light", "dark"].includes(asked.get("theme")) ? asked.get("theme") : "";
  }

  function writeAddress() {
    const shown = new URLSearchParams();
    if (clients.length) shown.set("client", clients[chosen.client]);
    if (chosen.round >= 0) shown.set("round", rounds[chosen.round].round);
    if (chosen.theme) shown.set("theme", chosen.theme);
    history.replaceState(null, "", `#${shown}`);
  }

  function paint() {
    const dark = chosen.theme ? chosen.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    find("theme").textContent = `Switch to ${dark ? "light" : "dark"} colours`;
  }

  function show() {
    readAddress();
    paint();
    mark();
    drawHistory();
  }

  for (const each of document.querySelectorAll(".sample")) each.append(drawn("path", { class: each.dataset.state, d: shapes[each.dataset.state](1, 0, 12, 14) }));
  find("client").replaceChildren(...clients.map((name, place) => Object.assign(element("option", name), { value: String(place) })));
  find("names").replaceChildren(...clients.map((name) => Object.assign(element("button", name), { type: "button", title: name })));
  drawGrid();
  show();
  find("choice").addEventListener("submit", (event) => event.preventDefault());
  find("client").addEventListener("change", (event) => choose({ client: Number(event.target.value) }));
  find("names").addEventListener("click", (event) => {
    const place = [...find("names").children].indexOf(event.target);
    if (place >= 0) choose({ client: place });
  });
  find("theme").addEventListener("click", () => {
    chosen.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    paint();
    writeAddress();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  addEventListener("hashchange", show);
  document.documentElement.dataset.ready = "yes";
})();
