// Numbers, times and measures in words.

const COUNT = new Intl.NumberFormat("en-GB");
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const BRIEF = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** What a figure means, by the name that runs have for it: where nothing is learnt, and both ends in words. */
const MEASURES = {
  leak_auc: { title: "Leak AUC", name: "leak AUC", chance: 0.5, lowest: "coin flip", highest: "open book" },
  attribute_auc: { title: "Attribute AUC", name: "attribute AUC", chance: 0.5, lowest: "coin flip", highest: "open book" },
  variance_read: { title: "Share read", name: "share read", chance: 0, lowest: "nothing", highest: "everything" },
};

/** The measure of that name; an unknown one is shown from 0 to 1 under its own name. */
export function measure(name) {
  const unknown = { title: name ?? "Leak", name: name ?? "leak", chance: 0, lowest: "nothing", highest: "everything" };
  return Object.hasOwn(MEASURES, name ?? "") ? MEASURES[name] : unknown;
}

export const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A figure with a fixed number of digits, or a dash. */
export function fixed(value, digits = 3) {
  return known(value) ? value.toFixed(digits) : "–";
}

/** A number for an axis or a table whose size is not known beforehand. */
export function short(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000 && Number.isInteger(value)) return COUNT.format(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

/** A limit as its owner wrote it, with two digits at least: 0.6 is 0.60. */
export function limit(value) {
  if (!known(value)) return "–";
  const said = String(Number(value.toFixed(6)));
  return said.length < 4 ? value.toFixed(2) : said;
}

export function count(value) {
  return known(value) ? COUNT.format(value) : "–";
}

/** "1 alarm", "2 alarms". */
export function many(value, one, more = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : more}`;
}

export function bytes(value) {
  if (!known(value)) return "–";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), units.length - 1);
  const size = value / 2 ** (10 * power);
  return `${power && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[power]}`;
}

/** Seconds in the two largest units that matter. */
export function duration(seconds) {
  if (!known(seconds)) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Turns a second, or seconds a turn where they are slow. */
export function rate(value) {
  if (!known(value)) return "–";
  if (value > 0 && value < 0.5) return `1 turn in ${duration(1 / value)}`;
  return `${value.toFixed(value < 10 ? 1 : 0)} turns/s`;
}

/** When something was, from now. */
export function ago(iso) {
  const then = Date.parse(iso ?? "");
  if (Number.isNaN(then)) return "time unknown";
  const seconds = (Date.now() - then) / 1000;
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** When something was, by the clock of this machine. */
export function clock(iso) {
  const then = typeof iso === "number" ? iso * 1000 : Date.parse(iso ?? "");
  return Number.isNaN(then) ? "–" : CLOCK.format(then);
}

export function brief(seconds) {
  return known(seconds) ? BRIEF.format(seconds * 1000) : "–";
}

/** Times for an axis: the closer together they are, the more of the clock is told. */
export function times(seconds) {
  const wide = seconds.at(-1) - seconds[0];
  const day = { day: "numeric", month: "short" };
  const hour = { hour: "2-digit", minute: "2-digit" };
  const told = new Intl.DateTimeFormat("en-GB", wide > 5 * 86400 ? day : wide > 86400 ? { ...day, ...hour } : wide < 600 ? { ...hour, second: "2-digit" } : hour);
  return seconds.map((one) => told.format(one * 1000));
}

/** A figure's name as people say it: `test_auc` is "test AUC". */
export function spelled(name) {
  return String(name ?? "").replaceAll("_", " ").replace(/\b(auc|ace)\b/g, (word) => word.toUpperCase());
}
