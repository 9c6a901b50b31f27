// Every client of the run that is open, over all its rounds: infected ones first, sorted by any column, found by words.
const clientHeads = ["Client", "Truth", "Rounds", "Elected", "Left out", "Mainly because"];
const pageOfClients = 100; // shown at once: a large federation has thousands
const clientView = { run: -1, column: -1, falling: false, limit: pageOfClients };
const [asName, asInfected, asRounds, asElected, asLeftOut, asInfectedElected, asReason] = [0, 1, 2, 3, 4, 5, 6];

const truth = (client) => {
  if (!client[asInfected]) return "benign";
  return client[asInfected] === client[asRounds] ? "◆ infected" : `◆ infected in ${client[asInfected]} of ${client[asRounds]}`;
};
const clientKeys = [asName, truth, asRounds, asElected, (client) => client[asLeftOut] / client[asRounds], asReason];
const keyOfClient = (client, key) => (typeof key === "function" ? key(client) : client[key]);

function wantedClients() {
  const words = find("client-words").value.trim();
  const wanted = run().clients.filter((client) => matches(`${client[asName]} ${truth(client)} ${client[asReason]}`, words));
  if (clientView.column < 0) return wanted;
  const key = clientKeys[clientView.column], numeric = ![0, 1, 5].includes(clientView.column);
  return wanted.sort((a, b) => compareKeys(keyOfClient(a, key), keyOfClient(b, key), numeric, clientView.falling ? -1 : 1));
}

function clientRow(client) {
  const row = element("tr", undefined, client[asInfected] ? "infected" : "benign");
  const elected = element("td", String(client[asElected]), client[asInfectedElected] ? "leaked" : "");
  const out = element("td", undefined, "share");
  const bar = element("span", undefined, "bar");
  bar.style.width = `${(100 * client[asLeftOut]) / client[asRounds]}%`;
  const track = element("span", undefined, "track");
  track.append(bar);
  out.append(element("span", String(client[asLeftOut])), track);
  const name = Object.assign(element("th", client[asName]), { scope: "row", title: client[asName] });
  row.append(name, element("td", truth(client)), element("td", String(client[asRounds])), elected, out, element("td", client[asReason] || "–"));
  return row;
}

function fillClientHeads() {
  const head = element("tr");
  clientHeads.forEach((name, column) => {
    const cell = Object.assign(element("th"), { scope: "col" });
    const falling = clientView.falling ? "descending" : "ascending";
    cell.setAttribute("aria-sort", column === clientView.column ? falling : "none");
    const button = Object.assign(element("button", name, "sort"), { type: "button" });
    button.addEventListener("click", () => sortClients(column));
    cell.append(button);
    head.append(cell);
  });
  find("client-table").tHead.replaceChildren(head);
}

// Numbers are of interest from the highest down, names from the first on.
function sortClients(column) {
  const first = [2, 3, 4].includes(column);
  clientView.falling = clientView.column === column ? !clientView.falling : first;
  clientView.column = column;
  fillClients();
  find("client-table").tHead.querySelectorAll("button")[column].focus();
}

function fillClients() {
  const wanted = wantedClients(), total = run().clients.length, shown = wanted.slice(0, clientView.limit);
  fillClientHeads();
  find("client-table").tBodies[0].replaceChildren(...shown.map(clientRow));
  find("clients-found").textContent = wanted.length === total ? `${total} clients` : `${wanted.length} of ${total} clients`;
  find("more-clients").hidden = shown.length === wanted.length;
  find("more-clients").textContent = `Show ${Math.min(5 * pageOfClients, wanted.length - shown.length)} more of ${wanted.length}`;
}

const were = (number, one = "was", many = "were") => (number === 1 ? one : many);

function describeClients() {
  const { clients } = run(), infected = clients.filter((client) => client[asInfected]);
  const sum = (list, field) => list.reduce((total, client) => total + client[field], 0);
  const [sent, used] = [sum(infected, asInfected), sum(infected, asInfectedElected)];
  const benign = sum(clients, asRounds) - sent, honest = sum(clients, asElected) - used;
  const leaked = infected.filter((client) => client[asInfectedElected]).map((client) => client[asName]);
  const named = leaked.length ? `, those of ${leaked.slice(0, 4).join(", ")}${leaked.length > 4 ? ` and ${leaked.length - 4} more` : ""}` : "";
  const share = benign ? ` Of ${benign} benign updates, ${honest} ${were(honest)} elected (${percent(honest / benign)}).` : "";
  find("clients-words").textContent = infected.length
    ? `${infected.length} of ${clients.length} clients ${were(infected.length, "is", "are")} infected. Of their ${sent} infected updates, ${used} ${were(used)} elected (${percent(used / sent)})${named}.${share}`
    : `None of the ${clients.length} clients is infected.${share}`;
}

function drawClients() {
  if (clientView.run !== chosen.run) Object.assign(clientView, { run: chosen.run, column: -1, falling: false, limit: pageOfClients });
  describeClients();
  fillClients();
}

function listenToClients() {
  find("client-filter").addEventListener("submit", (event) => event.preventDefault());
  find("client-filter").addEventListener("input", () => isOpen() && fillClients());
  find("more-clients").addEventListener("click", () => {
    clientView.limit += 5 * pageOfClients;
    fillClients();
  });
}
