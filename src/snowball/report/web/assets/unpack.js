// What every part of the page uses: elements, words for numbers, and blocks that are stored packed.
const find = (id) => document.getElementById(id);
const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)}%`);
const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

async function unpack(block) {
  const bytes = Uint8Array.from(atob(block.textContent), (letter) => letter.charCodeAt(0));
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(stream.readable).text();
}

const catalogue = JSON.parse(find("data").textContent);
const runs = catalogue.runs; // what is known of each run before it is opened
const opened = new Map(); // rounds and settings of runs, by place

async function open(place) {
  if (!opened.has(place)) opened.set(place, JSON.parse(await unpack(find(`block-${place}`))));
  return opened.get(place);
}
