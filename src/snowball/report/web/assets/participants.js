// The round that is shown, in words and in a table: who was picked when, and how clearly.
const average = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
const best = (rows, of) => rows.reduce((a, b) => (of(b) > of(a) ? b : a));

// The last one elected, the first left out and what lies between them.
function lead(entry) {
  const rows = entry.clients.map((_, row) => row);
  const out = rows.filter((row) => !entry.elected[row] && !isDropped(entry, row));
  const { order, margin, score, votes } = entry.columns;
  if (!order || !margin || !out.length) return gap(entry, chosen.fact, rows);
  const last = Math.max(...order);
  const final = rows.filter((row) => order[row] === last && margin[row] !== null);
  const [by, values, sign] = last > 0 ? ["score", score, -1] : ["votes", votes, 1];
  if (!final.length || !values) return gap(entry, chosen.fact, rows);
  const row = best(final, (each) => -margin[each]);
  const compared = rows.filter((each) => values[each] !== null && (order[each] < 0 || order[each] === last));
  return apart(row, best(out, (each) => sign * (values[each] ?? -Infinity * sign)), margin[row], by, compared.map((each) => values[each]));
}

function gap(entry, fact, rows) {
  const values = entry.columns[fact] || [];
  const [inside, outside] = [1, 0].map((side) => rows.filter((row) => entry.elected[row] === side && typeof values[row] === "number"));
  if (!inside.length || !outside.length) return null;
  const sign = average(inside.map((row) => values[row])) >= average(outside.map((row) => values[row])) ? 1 : -1;
  const row = best(inside, (each) => -sign * values[each]), next = best(outside, (each) => sign * values[each]);
  return apart(row, next, sign * (values[row] - values[next]), fact, values.filter((each) => each !== null));
}

function apart(row, next, value, by, values) {
  const range = Math.max(...values) - Math.min(...values);
  return { row, next, value, by, share: range ? value / range : 0 };
}

function leadWords(entry) {
  const found = lead(entry);
  if (!found) return "";
  const { row, next, value, by } = found;
  if (value < 0) return `By ${by}, elected and left out overlap: ${entry.clients[next]}, left out, stands ${digits(-value)} before ${entry.clients[row]}, elected.`;
  return `The last elected, ${entry.clients[row]}, led the first left out, ${entry.clients[next]}, by ${digits(value)} (${by}).`;
}

const picked = { votes: "Votes", score: "Score", margin: "Lead over the runner-up" };

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
  return `${dropped.length ? ` Dropped: ${dropped.join(", ")}.` : ""}${entry.kept === null ? "" : ` The model stays as it was: ${entry.kept}.`}`;
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
  find("lead").textContent = "";
  find("numbers").textContent = "";
  find("picks").tHead.replaceChildren();
  find("picks").tBodies[0].replaceChildren();
}
