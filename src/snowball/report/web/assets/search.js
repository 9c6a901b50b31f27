// A list of runs that is searched by typing and walked with the arrow keys.
const groupOf = (entry) => [entry.data, entry.attack].filter((name) => name !== "–").join(", ") || "runs";
const sought = (entry) => `${entry.name} ${entry.data} ${entry.attack} ${entry.defense} seed ${entry.seed}`;
const titleOf = (entry) => (entry.defense === "–" ? entry.name : `${entry.defense}, seed ${entry.seed}`);

function longTitleOf(entry) {
  const parts = { "": entry.defense, " against ": entry.attack, " on ": entry.data, ", seed ": entry.seed };
  const known = Object.entries(parts).filter(([, name]) => name !== "–").map(([words, name]) => `${words}${name}`).join("");
  return entry.defense === "–" ? entry.name : known;
}

function optionOf(place) {
  const entry = runs[place];
  const made = element("div", undefined, "option");
  made.id = `option-${place}`;
  made.setAttribute("role", "option");
  made.dataset.place = place;
  made.append(element("span", titleOf(entry)), element("small", `${entry.name} · main ${percent(entry.main)}, backdoor ${percent(entry.backdoor)}`));
  return made;
}

function listOptions(words) {
  const groups = new Map();
  runs.forEach((entry, place) => {
    if (matches(sought(entry), words)) groups.set(groupOf(entry), [...(groups.get(groupOf(entry)) || []), place]);
  });
  const made = [...groups].map(([name, places], index) => {
    const group = element("div", undefined, "group");
    const label = Object.assign(element("p", name), { id: `group-${index}` });
    group.setAttribute("role", "group");
    group.setAttribute("aria-labelledby", label.id);
    group.append(label, ...places.map(optionOf));
    return group;
  });
  find("options").replaceChildren(...(made.length ? made : [element("p", "No run has all these words.", "empty")]));
}

const optionsShown = () => [...find("options").querySelectorAll(".option")];
const isListed = () => !find("options").hidden;

function activate(option) {
  for (const each of optionsShown()) each.setAttribute("aria-selected", String(each === option));
  find("search").setAttribute("aria-activedescendant", option ? option.id : "");
  if (option) option.scrollIntoView({ block: "nearest" });
}

function showList(words) {
  listOptions(words);
  find("options").hidden = false;
  find("search").setAttribute("aria-expanded", "true");
  activate(optionsShown().find((each) => Number(each.dataset.place) === chosen.run) || optionsShown()[0]);
}

function hideList() {
  find("options").hidden = true;
  find("search").setAttribute("aria-expanded", "false");
  find("search").setAttribute("aria-activedescendant", "");
  find("search").value = chosen.run < 0 ? "" : runs[chosen.run].name;
}

function walk(step) {
  if (!isListed()) return showList("");
  const shown = optionsShown();
  const now = shown.findIndex((each) => each.getAttribute("aria-selected") === "true");
  if (shown.length) activate(shown[Math.min(Math.max(now + step, 0), shown.length - 1)]);
}

function take(option, go) {
  if (!option) return;
  hideList();
  go(Number(option.dataset.place));
}

function listenToSearch(go) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
  find("search").addEventListener("focus", () => find("search").select());
  find("search").addEventListener("click", () => showList(""));
  find("search").addEventListener("input", () => showList(find("search").value.trim()));
  find("search").addEventListener("blur", hideList);
  find("search").addEventListener("keydown", (event) => {
    if (event.key in steps) walk(steps[event.key]);
    else if (event.key === "Enter" && isListed()) take(optionsShown().find((each) => each.getAttribute("aria-selected") === "true"), go);
    else if (event.key === "Escape") hideList();
    else return;
    event.preventDefault();
  });
  find("options").addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
  find("options").addEventListener("click", (event) => take(event.target.closest(".option"), go));
}
