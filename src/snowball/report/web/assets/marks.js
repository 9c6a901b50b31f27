// Marks that are pointed at, or reached with the arrow keys, say what they stand for; a click or Enter leads on.
const reach = 25; // pixels from which a mark is found
const middleOf = ({ left, top, width = 0, height = 0 }) => [left + width / 2, top + height / 2];

function distanceTo({ left, top, width = 0, height = 0 }, x, y) {
  return Math.hypot(Math.max(left - x, 0, x - left - width), Math.max(top - y, 0, y - top - height));
}

function findMark(marks, x, y) {
  let found = -1, best = reach;
  marks.forEach((mark, index) => {
    const distance = distanceTo(mark, x, y);
    if (distance < best) [found, best] = [index, distance];
  });
  return found;
}

// The mark on the screen.
function boxOf(place, mark) {
  const { left, top } = place.getBoundingClientRect();
  return { left: left + mark.left, top: top + mark.top, bottom: top + mark.top + (mark.height || 0) };
}

const outlineOf = (mark) => (mark.width === undefined ? symbolPath("circle", mark.left, mark.top, 7) : boxPath(mark));

function readMark(place, index) {
  const plot = plotted.get(place), mark = plot.marks[index];
  plot.read = mark ? index : -1;
  place.style.cursor = mark && plot.figure.choose ? "pointer" : "";
  plot.focus.setAttribute("d", mark ? outlineOf(mark) : "");
  if (mark) say(mark.words(), boxOf(place, mark));
  else endTip();
}

// The next mark of the same series, or the one above or below it of another.
function moveOn({ marks, read }, key) {
  const from = marks[read], own = marks.map((_, index) => index).filter((index) => !from || marks[index].series === from.series);
  if (!from || key === "Home") return own[0];
  if (key === "End") return own.at(-1);
  if (key === "ArrowLeft" || key === "ArrowRight") return own[own.indexOf(read) + (key === "ArrowRight" ? 1 : -1)] ?? read;
  const kinds = [...new Set(marks.map(({ series }) => series))], next = kinds[kinds.indexOf(from.series) + (key === "ArrowDown" ? 1 : -1)];
  const others = marks.map((_, index) => index).filter((index) => marks[index].series === next), [x, y] = middleOf(from);
  const [aside, apart] = [(index) => Math.abs(middleOf(marks[index])[0] - x), (index) => distanceTo(marks[index], x, y)];
  return others.sort((one, other) => aside(one) - aside(other) || apart(one) - apart(other))[0] ?? read;
}

function pressKey(place, event) {
  const plot = plotted.get(place);
  if (!plot || !plot.marks.length) return;
  if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
    event.preventDefault();
    readMark(place, moveOn(plot, event.key));
  } else if (["Enter", " "].includes(event.key) && plot.read >= 0) {
    event.preventDefault();
    chooseMark(place, plot.read);
  } else if (event.key === "Escape") readMark(place, -1);
}

function chooseMark(place, index) {
  const { figure, marks } = plotted.get(place);
  if (figure.choose && marks[index]) figure.choose(marks[index], boxOf(place, marks[index]));
}

function listenToMarks(place) {
  place.tabIndex = 0;
  place.setAttribute("role", "application"); // screen readers pass the arrow keys on, and read the tip
  place.setAttribute("aria-roledescription", "figure");
  if (place.dataset.heard) return;
  place.dataset.heard = "yes";
  const point = ({ clientX, clientY }) => {
    const { left, top } = place.getBoundingClientRect();
    return findMark(plotted.get(place).marks, clientX - left, clientY - top);
  };
  const hear = (kind, act) => place.addEventListener(kind, (event) => plotted.has(place) && act(event));
  for (const kind of ["pointermove", "pointerdown"]) hear(kind, (event) => readMark(place, point(event)));
  for (const kind of ["pointerleave", "blur"]) hear(kind, () => readMark(place, -1));
  hear("click", (event) => chooseMark(place, point(event)));
  hear("keydown", (event) => pressKey(place, event));
}
