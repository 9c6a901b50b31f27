// Numbers along an axis: the pixels where they stand, and the ticks that have a label. Names stand at 0, 1, 2 and so on.
const maxTicks = 50;
const tidy = (value) => Number(value.toPrecision(12));
const withMinus = (text) => text.replace("-", "−");

// The widest of 1, 2 and 5 times a power of ten that parts a range into at most so many pieces.
function stepOf([low, high], most) {
  const rough = high / most - low / most, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((wide) => wide * power).find((step) => step >= rough * 0.999);
}

function ticksOf({ range: [low, high], most = 6, step = stepOf([low, high], most), unit = "" }) {
  const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
  if (!(count > 0 && count <= maxTicks)) return [];
  const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(100 * step) + 1e-9)));
  const write = unit === "%" ? (value) => `${(100 * value).toFixed(decimals)}%` : digits;
  return Array.from({ length: count }, (_, index) => tidy((first + index) * step)).map((at) => ({ at, text: withMinus(write(at)) }));
}

// Powers of ten, and of many of them every second or third; where there are few, their doubles and fivefolds as well.
function decadesOf([low, high]) {
  const first = Math.floor(Math.log10(low)), count = Math.ceil(Math.log10(high)) - first + 1, step = Math.ceil(count / 7);
  const factors = count < 4 ? [1, 2, 5] : [1];
  const powers = Array.from({ length: Math.ceil(count / step) }, (_, index) => 10 ** ((Math.ceil(first / step) + index) * step));
  return powers.flatMap((power) => factors.map((factor) => tidy(factor * power))).filter((at) => at >= low && at <= high).map((at) => ({ at, text: digits(at) }));
}

// A range that is wide enough to divide by.
function widen([low, high], isLogarithmic) {
  if (high > low) return [low, high];
  return isLogarithmic ? [low / 2, low * 2] : [low - (Math.abs(low) / 10 || 1), low + (Math.abs(low) / 10 || 1)];
}

// The range of an axis that names none: what is drawn, with a little room, and zero where lengths start there.
function rangeOf(values, { log = false, zero = false }) {
  const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!known.length) return log ? [1, 10] : [0, 1];
  const [low, high] = known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], zero ? [0, 0] : [Infinity, -Infinity]);
  if (log) {
    const room = (high / low) ** 0.05;
    return widen([low / room, high * room], true);
  }
  const room = high / 20 - low / 20;
  return widen([zero && low === 0 ? 0 : low - room, zero && high === 0 ? 0 : high + room], false);
}

function axis(extra) {
  return { title: "", grid: true, line: false, bare: false, log: false, ...extra };
}

function nameAxis(names, extra) {
  return axis({ named: true, range: [-0.5, names.length - 0.5], ticks: names.map((name, at) => ({ at, text: String(name) })), grid: false, ...extra });
}

// From the first round to the last; with room on both sides for what is as wide as a round.
function roundAxis(numbers, room = 0) {
  const first = Math.min(...numbers), last = Math.max(...numbers), wider = first === last ? 0.5 : room;
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((wide) => last <= 10 * wide) || 1000;
  return axis({ title: "round", grid: false, line: true, step, range: [first - wider, last + wider] });
}

// An axis with its range and ticks, and what turns a number into pixels between two ends.
function fitAxis(given, values) {
  const range = widen(given.range || rangeOf(values, given), given.log);
  const settled = { ...given, range, ticks: given.ticks || (given.log ? decadesOf(range) : ticksOf({ ...given, range })) };
  const [low, high] = (given.reversed ? [...range].reverse() : range).map((end) => (given.log ? Math.log10(end) : end / 2));
  settled.shareOf = (value) => {
    const along = given.log ? Math.log10(Math.max(value, range[0])) : value / 2; // halves, since a difference may be too large
    return Math.max(0, Math.min(1, (along - low) / (high - low)));
  };
  return settled;
}
