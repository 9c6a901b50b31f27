// The round that is shown, in words and in a table: who was picked when, and how clearly.
const average = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
const best = (rows, of) => rows.reduce((a, b) => (of(b) > of(a) ? b : a));

// The last one elected, the infected one that came closest to it, and what lies between them.
function lead(entry) {
  const rows = entry.clients.map((_, row) => row).filter((row) => !isDropped(entry, row));
  const infected = rows.filter((row) => entry.malicious[row]);
  if (!infected.length) return null;
  const failed = infected.filter((row) => entry.elected[row]);
  if (failed.length) return { failed };
  const { order, score, votes } = entry.columns, last = order ? Math.max(...order) : -1;
  const [by, values, sign] = last > 0 && score ? ["score", score, -1] : order && votes ? ["votes", votes, 1] : [chosen.fact, entry.columns[chosen.fact] || [], 0];
  const known = rows.filter((row) => typeof values[row] === "number" && !(last > 0 && by === "score" && order[row] >= 0 && order[row] < last));
  return apart(entry, by, values, sign, known);
}

// In a top-down election the scores of the last step are compared, the lowest first; otherwise the averages say which end is ahead.
function apart(entry, by, values, sign, rows) {
  const inside = rows.filter((row) => entry.elected[row]), outside = rows.filter((row) => entry.malicious[row]);
  if (!inside.length || !outside.length) return null;
  const mean = (list) => average(list.map((row) => values[row]));
  const side = sign || (mean(inside) >= mean(outside) ? 1 : -1);
  const row = best(inside, (each) => -side * values[each]), next = best(outside, (each) => side * values[each]);
  const numbers = rows.map((each) => values[each]), range = Math.max(...numbers) - Math.min(...numbers);
  const value = side * (values[row] - values[next]);
  return { row, next, value, by, share: range ? value / range : 0 };
}

function leadWords(entry) {
  const found = lead(entry);
  if (!found) return "";
  const { row, next, value, by, failed } = found;
  if (failed) return `Infected and elected: ${failed.map((each) => entry.clients[each]).join(", ")}.`;
  if (value < 0) return `By ${by}, the first infected, ${entry.clients[next]}, stood ${digits(-value)} before the last elected, ${entry.clients[row]}.`;
  return `The first infected, ${entry.clients[next]}, stood ${digits(value)} behind the last elected, ${entry.clients[row]} (${by}).`;
}

const picked = { votes: "Votes", score: "Score" };

function step(entry, row) {
  if (isDropped(entry, row)) return `dropped: ${entry.dropped[entry.clients[row]]}`;
  if (!entry.elected[row]) return "left out";
  const order = entry.columns.order && entry.columns.order[row];
  if (!order) return order === 0 ? "seated first" : "elected";
  return `step ${order}`;
}

function fillPicks() {
  const entry = record();
  const columns = [...new Set([...Object.keys(picked), chosen.fact])].filter((name) => Object.hasOwn(entry.columns, name));
  const rank = (row) => (entry.elected[row] ? (entry.columns.order || [])[row] || 0 : Infinity);
  const votes = (row) => (entry.columns.votes || entry.columns[chosen.fact] || [])[row] || 0;
  const rows = entry.clients.map((_, row) => row);
  rows.sort((a, b) => (rank(a) === rank(b) ? votes(b) - votes(a) : rank(a) - rank(b)));
  const head = element("tr");
  for (const name of ["Elected", "Client", "Truth", ...columns.map((column) => (Object.hasOwn(picked, column) ? picked[column] : column))]) {
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

// Who was dropped and why, and why the model stays, where that is so.
function exceptions(entry) {
  const dropped = Object.entries(entry.dropped).map(([client, reason]) => `${client} (${reason})`);
  const charge = entry.charge ? ` Charge: ${entry.charge}.` : "";
  return `${charge}${dropped.length ? ` Dropped: ${dropped.join(", ")}.` : ""}${entry.kept === null ? "" : ` The model stays as it was: ${entry.kept}.`}`;
}

function describe() {
  const entry = record();
  const infected = count(entry, [0, 1]);
  const among = infected ? `, among them ${count(entry, [0])} of ${infected} infected` : "; none was infected";
  const backdoor = entry.backdoor === null ? "" : `, backdoor ${percent(entry.backdoor)}`;
  find("round-words").textContent =
    `${count(entry, [0, 3])} of ${entry.clients.length} elected${among}. Main accuracy ${percent(entry.main)}${backdoor}.${exceptions(entry)}`;
  find("lead").textContent = leadWords(entry);
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
  find("settings").textContent = run().settings;
  find("controls").querySelector(".round").hidden = empty;
  if (empty) return drawEmptyRun();
  chosen.round = Math.min(Math.max(chosen.round, 0), run().rounds.length - 1);
  offerFacts();
  drawClients();
  drawRound();
  drawGrid();
  drawRates();
  drawMargins();
  drawSeconds();
}

function drawEmptyRun() {
  find("round-words").textContent = "This run has no round to show yet.";
  for (const id of ["map", "evidence", "grid", "rates", "margins", "seconds"]) nothing(find(id), "No round yet.");
  find("fact").hidden = true;
  find("clients-words").textContent = "";
  fillClients();
  find("lead").textContent = "";
  find("numbers").textContent = "";
  find("picks").tHead.replaceChildren();
  find("picks").tBodies[0].replaceChildren();
}
