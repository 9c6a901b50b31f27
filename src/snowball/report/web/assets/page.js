// What is on show: the overview, a run, or, of a few runs, both at once. The address names it, so that it can be shared:
// #run=snowball&round=7&fact=votes&theme=dark, or #compare=fedavg&compare=snowball
const placeOf = (name) => runs.findIndex((each) => each.name === name);
const linkTo = (place) => `#${new URLSearchParams({ run: runs[place].name })}`;
const isOpen = () => chosen.run >= 0;
const isAnchor = () => document.body.dataset.view !== "run" && /^#[\w-]+$/.test(location.hash); // a place on this page
const { title } = document;
let left = 0; // how far the overview was scrolled when a run was opened

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const compared = asked.getAll("compare").map(placeOf).filter((place) => place >= 0);
  if (compared.length) chosen.compared = [...new Set(compared)].slice(0, most);
  chosen.fact = asked.get("fact") || chosen.fact;
  if (["light", "dark"].includes(asked.get("theme"))) chosen.theme = asked.get("theme");
  return { place: placeOf(asked.get("run")), number: asked.get("round") };
}

function writeAddress() {
  const shown = new URLSearchParams();
  if (isOpen()) shown.set("run", runs[chosen.run].name);
  if (isOpen() && run().rounds.length) shown.set("round", record().round);
  if (isOpen() && chosen.fact) shown.set("fact", chosen.fact);
  (chosen.compared || []).forEach((place) => shown.append("compare", runs[place].name));
  if (chosen.theme) shown.set("theme", chosen.theme);
  history.replaceState(null, "", `#${shown}`);
}

function paint() {
  const dark = chosen.theme ? chosen.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark && !onPaper() ? "dark" : "light";
  find("theme").textContent = `Switch to ${dark ? "light" : "dark"} colours`;
}

// All of a few runs; of many, those that were chosen, or the peers of the one that is open, else of the first.
function candidates() {
  if (!many) return runs.map((_, place) => place);
  const beside = chosen.compared || peersOf(isOpen() ? chosen.run : catalogue.first);
  return isOpen() ? [...new Set([chosen.run, ...beside])] : beside;
}

const curvesShown = () => candidates().slice(0, most);

function describeCurves() {
  const total = candidates().length, count = total > most ? `${most} of ${total}` : total;
  const open = isOpen() ? "This run and others: " : "";
  const alike = "all other settings alike but perhaps the number of rounds";
  const { data, attack, seed } = runs[isOpen() ? chosen.run : catalogue.first];
  const where = [data, attack, seed === "–" ? "–" : `seed ${seed}`].filter((name) => name !== "–").join(", ");
  const peers = total > 1 ? `${open}${count} defenses${where ? ` on ${where}` : ""}, ${alike}` : `One run alone: no other defense has one with ${alike}`;
  find("compared").textContent = chosen.compared
    ? `${open}${count} ${total === 1 ? "run" : "runs"}, chosen by the boxes in the table of runs (at most ${most}).`
    : `${peers}. Boxes in the table of runs choose others.`;
}

let views = 0; // what was asked for later is not drawn over
let drawn = 0; // how many of the sweeps' figures

async function drawView() {
  const view = ++views, shown = curvesShown();
  await Promise.all([...shown, ...(isOpen() ? [chosen.run] : [])].map(open));
  if (view !== views) return;
  if (isOpen()) drawRun();
  drawCurves(shown);
  if (document.body.dataset.view !== "run") await drawFigures(() => view === views);
}

async function drawFigures(isWanted) {
  while (drawn < figures.length && isWanted()) {
    drawFigure(figures[drawn], drawn++);
    await new Promise((done) => setTimeout(done)); // the page answers in between
  }
}

function describeRun() {
  const entry = runs[chosen.run];
  const row = find("runs").querySelector(`tr[data-place="${chosen.run}"]`);
  find("run-title").textContent = longTitleOf(entry);
  find("run-name").textContent = entry.name;
  find("run-outcome").textContent = `${entry.verdict}${entry.finished ? "" : " (unfinished)"}`;
  find("run-outcome").dataset.outcome = entry.outcome;
  find("search").value = entry.name;
  find("run-facts").replaceChildren(...[...row.cells].filter((cell) => cell.cellIndex > 0 && !cell.matches(".place")).map((cell) => {
    const pair = element("div");
    pair.append(element("dt", row.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent), element("dd", cell.textContent));
    return pair;
  }));
}

// Where to stand after the view has changed: at the top of a run, where the overview was left, or where a link led.
function settle(before) {
  const now = document.body.dataset.view;
  if (now === "run" && before !== "run") {
    scrollTo(0, 0);
    find("run-title").focus({ preventScroll: true });
  }
  if (now === "overview" && before === "run") scrollTo(0, left);
  if (now === "all" && location.hash.includes("run=")) find("inside").scrollIntoView();
}

// Makes an unpacked run the one that is open, at a round by its number, or else its last.
function enter(place, number) {
  chosen.run = place;
  const { rounds } = run();
  const position = rounds.findIndex((entry) => String(entry.round) === String(number));
  chosen.round = position >= 0 ? position : rounds.length - 1;
}

async function show(moved) {
  const view = ++views, { place, number } = readAddress();
  if (place >= 0) await open(place);
  if (view !== views) return;
  const before = document.body.dataset.view;
  if (before === "overview") left = scrollY;
  if (place >= 0) enter(place, number);
  else if (many) chosen.run = -1;
  paint();
  document.body.dataset.view = !many ? "all" : isOpen() ? "run" : "overview";
  document.title = many && isOpen() ? `Snowball report: ${longTitleOf(runs[chosen.run])}` : title;
  if (isOpen()) describeRun();
  if (many) {
    tick();
    describeCurves();
  } else tickRun();
  if (moved) settle(before);
  await drawView();
}

function choose(change) {
  Object.assign(chosen, change);
  drawRound();
  drawMargins();
  drawShapes(find("grid"), [aroundRound()]);
  drawShapes(find("rates"), [atRound()]);
  writeAddress();
}

// Of a few runs, another one opens at the same round; of many, it is a view of its own that "back" leaves.
function openRun(place) {
  if (many) {
    location.hash = linkTo(place);
    return;
  }
  enter(place, run().rounds.length ? record().round : 0);
  tickRun();
  drawRun();
  writeAddress();
}

const choices = () => [...document.querySelectorAll(".run-choice")];

function offerRuns() {
  for (const choice of choices()) {
    runs.forEach((each, place) => {
      const label = element("label", undefined, "choice");
      label.append(Object.assign(element("input"), { type: "radio", name: choice.id, value: String(place) }), element("span", each.name));
      choice.append(label);
    });
  }
}

function tickRun() {
  for (const choice of choices()) choice.querySelectorAll("input")[chosen.run].checked = true;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    find("copied").textContent = "copied";
  } catch {
    find("copied").textContent = location.href; // for those whose browser keeps the clipboard to itself
  }
}

// One run more, in place of the last where nobody has chosen and there are enough, or one less.
function compare(place, isWanted) {
  const others = curvesShown().filter((other) => other !== place);
  chosen.compared = isWanted ? [...others.slice(0, most - 1), place] : others;
  tick();
  describeCurves();
  writeAddress();
  return drawView();
}

// Paper is white and narrow, and does not wait.
function drawForPrint() {
  document.documentElement.dataset.paper = "yes";
  paint();
  if (document.body.dataset.view !== "run") while (drawn < figures.length) drawFigure(figures[drawn], drawn++);
  drawAgain();
}

function drawAfterPrint() {
  delete document.documentElement.dataset.paper;
  paint();
  drawAgain();
}

function listen() {
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const choice of choices()) choice.addEventListener("change", (event) => openRun(Number(event.target.value)));
  find("round").addEventListener("input", (event) => choose({ round: Number(event.target.value) }));
  find("previous").addEventListener("click", () => choose({ round: Math.max(0, chosen.round - 1) }));
  find("next").addEventListener("click", () => choose({ round: Math.min(run().rounds.length - 1, chosen.round + 1) }));
  find("fact").addEventListener("change", (event) => choose({ fact: event.target.value }));
  find("copy").addEventListener("click", copyLink);
  find("theme").addEventListener("click", () => {
    chosen.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    paint();
    writeAddress();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  addEventListener("beforeprint", drawForPrint);
  addEventListener("afterprint", drawAfterPrint);
  addEventListener("hashchange", () => (isAnchor() ? undefined : show(true)));
  listenToRuns(compare);
  listenToSearch(openRun);
  listenToCells();
  listenToClients();
}

async function start() {
  history.scrollRestoration = "manual";
  find("round").min = 0;
  figures = JSON.parse(await unpack(find("figures")));
  if (!many) {
    offerRuns();
    const all = await Promise.all(runs.map((_, place) => open(place)));
    enter(Math.max(0, all.findIndex(({ rounds }) => rounds.some((entry) => Object.keys(entry.columns).length))));
  }
  listen();
  await show();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  find("not-started").hidden = false;
  throw error;
});
