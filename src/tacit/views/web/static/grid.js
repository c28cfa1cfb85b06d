// A table of attacks against something else, with a number and a tone in each cell. Its columns can be sorted by.

import { el, scrolled } from "./dom.js";
import { fixed, known, limit as bound, measure } from "./format.js";

/**
 * Make the table. columns: [{label, href}]; rows: [{attack, on, values, low, high}]; `sort` is {column, down}, kept by
 * the caller, with `again` to draw anew when it changes. Column -1 is the attacks' names, null the worst of all columns.
 */
export function grid({ label, columns, rows, measure: name, limit, sort, again }) {
  const order = [...rows].sort((a, b) => compare(a, b, sort));
  const heads = columns.map((column, index) => head(column, index, sort, again));
  const first = head({ label: "Attack" }, -1, sort, again);
  const lines = order.map((row) => line(row, columns, name, limit));
  const table = el("table", { class: "grid" }, el("thead", {}, el("tr", {}, first, heads)), el("tbody", {}, lines));
  const place = scrolled(label, table);
  const wide = () => place.style.setProperty("--who", `${first.offsetWidth}px`); // what has the focus is not under it
  new ResizeObserver(wide).observe(first);
  return place;
}

const title = (row) => (row.on ? `${row.attack} on ${row.on}` : row.attack);

function compare(a, b, { column, down }) {
  const turn = down ? -1 : 1;
  if (column === null) return Math.max(...b.values.map(Number)) - Math.max(...a.values.map(Number));
  if (column < 0) return turn * title(a).localeCompare(title(b), "en");
  const [one, other] = [a.values[column], b.values[column]];
  if (!known(one) || !known(other)) return Number(known(other)) - Number(known(one));
  return turn * (one - other);
}

function head(column, index, sort, again) {
  const chosen = sort.column === index;
  const direction = chosen ? (sort.down ? "descending" : "ascending") : null;
  const press = () => {
    sort.down = chosen ? !sort.down : index >= 0;
    sort.column = index;
    again();
  };
  const button = el("button", { type: "button", class: "sorter", onclick: press, "data-column": index }, column.label, el("span", { class: "way", "aria-hidden": "true" }, chosen ? (sort.down ? "\u00a0↓" : "\u00a0↑") : ""));
  const link = column.href ? el("a", { class: "about", href: column.href }, column.name ?? "open") : null;
  return el("th", { scope: "col", class: index < 0 ? "who" : "n", "aria-sort": direction }, button, link);
}

function line(row, columns, name, limit) {
  const cells = columns.map((_, index) => cell(row, index, name, limit));
  return el("tr", {}, el("th", { scope: "row", class: "who" }, el("span", { class: "name" }, row.attack.split(/(?<=[(=])/).flatMap((part) => [part, el("wbr")])), row.on ? el("span", { class: "about" }, `on ${row.on}`) : null), cells);
}

function cell(row, index, name, limit) {
  const value = row.values[index];
  if (!known(value)) return el("td", { class: "n none" }, "–");
  const { chance } = measure(name);
  const share = Math.min(Math.max((value - chance) / (1 - chance), 0), 1);
  const over = known(limit) && value > limit;
  const [low, high] = [row.low?.[index], row.high?.[index]];
  const range = known(low) && known(high) && high > low ? el("span", { class: "about" }, `${fixed(low, 2)} to ${fixed(high, 2)}`) : null;
  const made = el("td", { class: over ? "n heat over" : "n heat", title: over ? `over the limit of ${bound(limit)}` : null }, over ? "▲ " : "", fixed(value), range);
  made.style.setProperty("--heat", `${Math.round(50 * Math.sqrt(share))}%`);
  return made;
}
