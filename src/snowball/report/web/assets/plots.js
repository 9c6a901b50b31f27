// How every figure looks, and the marks that it is drawn with.
const strokes = { solid: "", dash: "6 4", dot: "2 4", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
const symbols = ["circle", "square", "triangle-up", "triangle-down", "cross"]; // of lines that look alike
const outlines = { // within a square from -1 to 1
  diamond: [[-1.2, 0], [0, -1.2], [1.2, 0], [0, 1.2]],
  square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  "triangle-up": [[0, -1], [1, 0.9], [-1, 0.9]],
  "triangle-down": [[0, 1], [1, -0.9], [-1, -0.9]],
  cross: [[-1, -0.4], [-0.4, -0.4], [-0.4, -1], [0.4, -1], [0.4, -0.4], [1, -0.4], [1, 0.4], [0.4, 0.4], [0.4, 1], [-0.4, 1], [-0.4, 0.4], [-1, 0.4]],
};
const colour = (name) => `var(--${name})`;
const onPaper = () => document.documentElement.dataset.paper === "yes"; // paper is white
const pixel = (value) => Number(value.toFixed(1));

// The path of a symbol around a point.
function symbolPath(symbol, x, y, radius) {
  if (symbol === "circle") return `M${pixel(x - radius)} ${pixel(y)}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0`;
  return `M${outlines[symbol].map(([across, down]) => `${pixel(x + radius * across)} ${pixel(y + radius * down)}`).join("L")}z`;
}

const boxPath = ({ left, top, width, height }) => `M${pixel(left)} ${pixel(top)}h${pixel(width)}v${pixel(height)}h${pixel(-width)}z`;

// Every defense has one colour and one kind of line; of several runs of a defense, marks tell all but the first apart.
function looksOf(entries) {
  const alike = new Map();
  return entries.map(({ tone, dash }) => {
    const place = alike.get(`${tone} ${dash}`) || 0;
    alike.set(`${tone} ${dash}`, place + 1);
    return { tone, dash, symbol: symbols[place % symbols.length], marked: place > 0, width: dash === "solid" ? 3 : 2.25 };
  });
}

function shape(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function keyEntry(name, { tone, dash, symbol, marked, width }, title = "") {
  const drawing = shape("svg", { width: 34, height: 10, "aria-hidden": "true" });
  drawing.append(shape("line", { x1: 0, x2: 34, y1: 5, y2: 5, "stroke-dasharray": strokes[dash], "stroke-width": width }));
  if (marked) drawing.append(shape("path", { d: symbolPath(symbol, 17, 5, 4.5) }));
  drawing.style.stroke = drawing.style.fill = colour(tone);
  const entry = Object.assign(element("li"), { title });
  entry.append(drawing, element("span", name));
  return entry;
}
