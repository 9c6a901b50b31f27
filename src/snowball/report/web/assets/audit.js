"use strict";
(() => {
  const { clients, labels, rounds, states } = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const ruler = 22, strip = rounds.some((entry) => entry.clear) ? 20 : 0, top = ruler + strip, tall = 18;
  const wide = rounds.length <= 60 ? 16 : rounds.length <= 250 ? 9 : 5;
  const SHARE = "Share of the average", CLARITY = "Clarity of the round";
  const chosen = { client: 0, round: -1, theme: "" }; // places, not numbers or names
  const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));
  const shapes = { // of each state, in a cell of w by h at x, y
    elected: (x, y, w, h) => `M${x} ${y}h${w}v${h}h${-w}z`,
    suspect: (x, y, w, h) => `M${x} ${y + h}l${w / 2} ${-h}l${w / 2} ${h}z`,
    malformed: (x, y, w, h) => `M${x} ${y + h / 2 - 4}l${w} 8m0 -8l${-w} 8`,
    failed: (x, y, w, h) => `M${x} ${y + h / 2}h${w}m${-w / 2} -4v8`,
    denied: (x, y, w, h) => `M${x} ${y + h / 2 - 3}h${w}v6h${-w}z`,
    probation: (x, y, w, h) => `M${x + 1} ${y + 1}h${w - 2}v${h - 2}h${2 - w}z`,
    left_out: (x, y, w, h) => `M${x} ${y + h - 1}v${2 - h}l${w} ${h - 2}z`,
    unjudged: (x, y, w, h) => `M${x + 0.6} ${y + 1.6}h${w - 1.2}v${h - 3.2}h${1.2 - w}z`,
    dropped: (x, y, w, h) => `M${x} ${y + h / 2}l${w / 2} -4l${w / 2} 4l${-w / 2} 4z`,
    silent: (x, y, w, h) => `M${x + w / 4} ${y + h / 2 - 1}h${w / 2}v2h${-w / 2}z`,
  };
  shapes.not_needed = shapes.elected; // in another colour: it is not a fault
  const bars = { charged: strip - 4, unclear: (strip - 4) / 2, calm: 2 };
  const judgedStates = ["suspect", "probation", "left_out", "not_needed", "elected"];
  const leftOut = ["suspect", "left_out", "not_needed"];

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
    holder.append(drawn("path", { class: state, d: shapes[state](0, 0, 12, 12) }));
    return holder;
  }

  function drawGrid() {
    const width = Math.max(rounds.length * wide, 40), height = top + clients.length * tall;
    const paths = Object.fromEntries(Object.keys(shapes).map((state) => [state, []]));
    const kept = [], marks = [], decided = [], clarity = { charged: [], unclear: [], calm: [] };
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => each * wide >= 44) || 1000;
    rounds.forEach((entry, column) => {
      const x = column * wide;
      if (entry.kept) kept.push(`M${x} ${top}h${wide}v${height - top}h${-wide}z`);
      if (column === 0 || entry.round % step === 0) marks.push(drawn("text", { x: x + 1, y: 15 }, String(entry.round)));
      if (entry.clear) clarity[entry.clear].push(`M${x + 1} ${top - 2}v${-bars[entry.clear]}h${wide - 2}v${bars[entry.clear]}z`);
      for (const [place] of entry.decisions) decided.push(`M${x} ${top + place * tall + tall - 1}h${wide}`);
      for (const [state, places] of Object.entries(entry.states)) {
        for (const place of places) paths[state].push(shapes[state](x + 1, top + place * tall + 1, wide - 2, tall - 2));
      }
    });
    const grid = find("grid");
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) grid.setAttribute(name, value);
    grid.setAttribute("aria-label", `What ${rounds.length} rounds were for ${clients.length} clients; the table below has the numbers.`);
    const title = drawn("title", {}, "");
    const layers = Object.entries(paths).map(([state, parts]) => drawn("path", { class: state, d: parts.join("") }));
    layers.push(...Object.entries(clarity).map(([name, parts]) => drawn("path", { class: `clarity-${name}`, d: parts.join("") })));
    layers.push(drawn("path", { class: "decided-line", d: decided.join("") }));
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
    if (client < 0 && round in rounds && rounds[round].clear) return `Round ${rounds[round].round}: clarity ${digits(rounds[round].clarity)}; from 1 on, somebody is charged`;
    if (!(client in clients) || !(round in rounds)) return "";
    const state = stateOf(rounds[round], client);
    return `Round ${rounds[round].round}, ${clients[client]}: ${state ? states[state] : "not asked"}`;
  }

  function words(entry, client, state) {
    const decision = entry.decisions.filter(([place]) => place === client).map(([, said]) => `; ${said}`).join("");
    if (state === "denied" && decision) return `${states[state]}${decision}${entry.reason}`;
    const charge = ["suspect", "left_out"].includes(state) && entry.charge ? `: ${entry.charge}` : "";
    const averaged = leftOut.includes(state) && entry.averaged.includes(client) ? "; averaged nevertheless" : "";
    const faults = entry.dropped.filter(([place]) => place === client).map(([, reason, detail]) => `${reason}: ${detail || "–"}`).join("; ");
    const more = ["malformed", "failed", "denied", "dropped"].includes(state) ? `, ${faults}` : `; a reply was dropped, ${faults}`;
    return `${states[state]}${charge}${averaged}${faults ? more : ""}${decision}${entry.reason}`;
  }

  function ballotWords([name, said, clarity, bound, charged], client) {
    const whom = charged === null ? "" : charged.includes(client) ? " charged it" : charged.length ? " charged others" : " charged nobody";
    const from = bound === null ? "" : `, charges from ${digits(bound)} on`;
    return `${name}${whom}${said ? `: ${said}` : ""}${clarity === null ? "" : ` (clarity ${digits(clarity)}${from})`}`;
  }

  function evidence(entry, client, state) {
    if (!judgedStates.includes(state) || !entry.ballots.length) return [];
    const made = element("details");
    made.open = state === "suspect";
    made.append(element("summary", `Evidence of ${entry.ballots.length} ballot${entry.ballots.length === 1 ? "" : "s"}`),
      ...entry.ballots.map((ballot) => element("small", ballotWords(ballot, client))));
    return [made];
  }

  function numbers(entry, client, state) {
    const place = entry.judged.indexOf(client);
    const found = new Map();
    for (const [name, values] of Object.entries(entry.facts)) {
      const range = leftOut.includes(state) && Object.hasOwn(entry.ranges, name) ? entry.ranges[name] : [];
      if (place >= 0 && values[place] !== null) found.set(name, [values[place], range]);
    }
    if (Object.hasOwn(entry.shares, client)) found.set(SHARE, [entry.shares[client], []]);
    if (entry.clarity !== null) found.set(CLARITY, [entry.clarity, []]);
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
    const found = lines.map(({ entry, state }) => numbers(entry, chosen.client, state));
    const seen = new Set(found.flatMap((each) => [...each.keys()]));
    const columns = [...[...seen].filter((name) => name !== SHARE && name !== CLARITY), ...[SHARE, CLARITY].filter((name) => seen.has(name))];
    const head = element("tr");
    for (const name of ["Round", "What happened", ...columns, "Time"]) head.append(Object.assign(element("th", name), { scope: "col" }));
    const body = lines.map(({ entry, place, state }, index) => {
      const made = element("tr", undefined, place === chosen.round ? "found" : "");
      const what = element("td");
      what.append(sample(state), words(entry, chosen.client, state), ...evidence(entry, chosen.client, state));
      made.append(element("th", String(entry.round)), what, ...columns.map((name) => numberCell(found[index].get(name))), element("td", entry.time));
      return made;
    });
    find("moments").tHead.replaceChildren(head);
    find("moments").tBodies[0].replaceChildren(...body);
    const counts = Object.keys(states).map((name) => [name, lines.filter(({ state }) => state === name).length]).filter(([, count]) => count);
    find("client-words").textContent = clients.length === 0 ? "The audit names no client." :
      `${labels[chosen.client]}: ${counts.map(([name, count]) => `${states[name]} in ${count}`).join(", ")}; no part in ${rounds.length - lines.length} of ${rounds.length} rounds.`;
    const marked = find("moments").querySelector(".found");
    if (marked) marked.parentElement.parentElement.parentElement.scrollTop = marked.offsetTop - find("moments").tHead.offsetHeight;
  }

  function mark() {
    find("client").value = String(chosen.client);
    [...find("names").querySelectorAll("button")].forEach((each, place) => each.setAttribute("aria-pressed", String(place === chosen.client)));
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
  find("client").replaceChildren(...labels.map((name, place) => Object.assign(element("option", name), { value: String(place) })));
  const heading = element("p", strip ? "clarity" : "");
  heading.style.height = `${top}px`;
  find("names").replaceChildren(heading, ...clients.map((name, place) => Object.assign(element("button", name), { type: "button", title: labels[place] })));
  const nameButtons = [...find("names").querySelectorAll("button")];
  drawGrid();
  show();
  find("choice").addEventListener("submit", (event) => event.preventDefault());
  find("client").addEventListener("change", (event) => choose({ client: Number(event.target.value) }));
  find("names").addEventListener("click", (event) => {
    const place = nameButtons.indexOf(event.target);
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
