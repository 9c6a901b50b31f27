// Numbers that come from several runs offer them; what lacks runs says why.
function placeBeside(box, target) {
  const { left, bottom, top } = target;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${bottom + 6 + box.offsetHeight > innerHeight ? Math.max(8, top - 6 - box.offsetHeight) : bottom + 6}px`;
}

function offer(places, label, target) {
  const list = element("ul");
  list.append(...places.map((place) => {
    const entry = runs[place], line = element("li");
    const link = Object.assign(element("a", titleOf(entry)), { href: linkTo(place) });
    line.append(link, element("small", `${groupOf(entry)}: main ${percent(entry.main)}, backdoor ${percent(entry.backdoor)}`));
    return line;
  }));
  find("choice").replaceChildren(element("p", label), list);
  find("choice").showPopover();
  placeBeside(find("choice"), target);
  list.querySelector("a").focus();
}

let explained = null; // what the tip is about

function say(words, box) {
  find("tip").textContent = words;
  find("tip").showPopover();
  placeBeside(find("tip"), box);
}

function tip(target) {
  explained = target;
  say(target.dataset.reason, target.getBoundingClientRect());
}

function endTip() {
  explained = null;
  find("tip").hidePopover();
}

function listenToCells() {
  for (const cell of document.querySelectorAll("[data-reason]")) {
    cell.setAttribute("aria-describedby", "tip");
    for (const kind of ["mouseenter", "focus", "click"]) cell.addEventListener(kind, () => tip(cell));
    for (const kind of ["mouseleave", "blur"]) cell.addEventListener(kind, endTip);
  }
  for (const cell of document.querySelectorAll("[data-runs]")) {
    cell.addEventListener("click", () => offer(cell.dataset.runs.split(" ").map(Number), cell.dataset.label, cell.getBoundingClientRect()));
  }
  find("choice").addEventListener("click", (event) => event.target.closest("a") && find("choice").hidePopover());
  addEventListener("keydown", (event) => event.key === "Escape" && endTip());
  addEventListener("scroll", () => explained && placeBeside(find("tip"), explained.getBoundingClientRect()), { capture: true, passive: true });
}
