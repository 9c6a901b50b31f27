// Tables are sorted by any column. The table of runs is cut down to those that are sought, and the ones to compare ticked.
const most = 8; // runs in one figure
const landmarks = ["fedavg", "ideal", "snowball"]; // which no figure goes without
const many = document.body.dataset.many === "yes";
const rowsOfRuns = () => [...find("runs").tBodies[0].rows];
const boxes = () => [...find("runs").querySelectorAll("input[type=checkbox]")];

function sortKey(cell, numeric) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  return numeric ? parseFloat(text) : text;
}

// What has no number stays at the end, whichever way the rest is sorted.
function compareKeys(a, b, numeric, sign) {
  if (!numeric) return sign * a.localeCompare(b, undefined, { numeric: true });
  return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
}

function sortRows(head) {
  const falling = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const numeric = "numeric" in head.dataset, column = head.cellIndex, [body] = head.closest("table").tBodies;
  const keyed = [...body.rows].map((row) => [sortKey(row.cells[column], numeric), row]);
  keyed.sort(([a], [b]) => compareKeys(a, b, numeric, falling ? -1 : 1));
  body.append(...keyed.map(([, row]) => row));
}

const matches = (text, words) => words.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

function filterRuns() {
  const facets = [...find("filter").querySelectorAll("select")].filter((each) => each.value);
  let shown = 0;
  for (const row of rowsOfRuns()) {
    const entry = runs[row.dataset.place];
    row.hidden = !(matches(row.textContent, find("words").value.trim()) && facets.every((each) => entry[each.name] === each.value));
    shown += !row.hidden;
  }
  find("found").textContent = shown === runs.length ? `${shown} runs` : `${shown} of ${runs.length} runs`;
  find("none-found").hidden = shown > 0;
}

function offerFacets() {
  for (const select of find("filter").querySelectorAll("select")) {
    const values = [...new Set(runs.map((each) => each[select.name]))].sort();
    select.append(...values.map((value) => Object.assign(element("option", value), { value })));
    select.parentElement.hidden = values.length < 2;
  }
}

// Where nobody has chosen: a run of each defense with all other settings alike, of several the closest in rounds.
function peersOf(place) {
  const { conditions, rounds } = runs[place];
  const distance = (other) => Math.abs(runs[other].rounds - rounds);
  const alike = runs.map((_, other) => other).filter((other) => runs[other].conditions === conditions);
  alike.sort((a, b) => distance(b) - distance(a) || b - a);
  const peers = new Map([...alike, place].map((other) => [runs[other].defense, other])); // the last of each stays
  const isLandmark = (other) => landmarks.includes(runs[other].defense);
  return [...peers.values()].sort((a, b) => isLandmark(b) - isLandmark(a) || a - b);
}

function tick() {
  const full = chosen.compared && chosen.compared.length >= most;
  for (const box of boxes()) {
    box.checked = curvesShown().includes(Number(box.value));
    box.disabled = !box.checked && full;
  }
}

function listenToRuns(compare) {
  for (const button of document.querySelectorAll("table.sorted .sort")) {
    button.addEventListener("click", () => sortRows(button.closest("th")));
  }
  if (!many) return;
  offerFacets();
  filterRuns();
  find("filter").addEventListener("submit", (event) => event.preventDefault());
  find("filter").addEventListener("input", filterRuns);
  find("runs").addEventListener("change", ({ target }) => compare(Number(target.value), target.checked));
}
