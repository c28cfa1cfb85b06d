// What a run has written down, as tables: decisions, events, how it serves.

import { el, empty, scrolled } from "./dom.js";
import { ago, clock, count, fixed, known, many } from "./format.js";

export function table(label, heads, rows, kind = "stack") {
  const head = el("tr", {}, heads.map(([word, of]) => el("th", { scope: "col", class: of ?? null }, word)));
  return scrolled(label, el("table", { class: kind }, el("thead", {}, head), el("tbody", {}, rows)));
}

export function row(heads, cells) {
  return el("tr", {}, cells.map((cell, index) => el(index ? "td" : "th", { scope: index ? null : "row", class: heads[index][1] ?? null, "data-label": heads[index][0] }, cell)));
}

/** What the gate decided, newest first, with its reasons. */
export function decisions(detail) {
  const found = detail.decisions ?? [];
  if (!found.length) {
    return [empty(known(detail.limit) ? "The gate has decided nothing yet: it does so before each epoch." : "No limit is on record, so no gate decides anything.")];
  }
  const heads = [["Before epoch", "n"], ["Decision"], ["Why"], ["When"]];
  const rows = [...found].reverse().map((one) => {
    const tag = el("span", { class: `tag ${["keep", "pause", "stop"].includes(one.decision) ? one.decision : ""}` }, String(one.decision ?? ""));
    return row(heads, [count(one.epoch), tag, String(one.reason ?? ""), clock(one.time)]);
  });
  return [table("Decisions of the gate", heads, rows)];
}

function details(event) {
  const left = Object.entries(event).filter(([name]) => !["time", "event"].includes(name));
  return left.map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

/** The last events, newest first. */
export function events(detail) {
  const found = detail.events ?? [];
  if (!found.length) return [empty("Nothing has happened yet that is worth a line.")];
  const heads = [["When"], ["What"], ["Details"]];
  const rows = [...found].reverse().map((one) => {
    const alarm = one.event === "refused";
    const name = el("span", { class: alarm ? "alarm" : null }, alarm ? "▲ refused" : String(one.event ?? ""));
    return row(heads, [clock(one.time), name, details(one)]);
  });
  return [table("The last events", heads, rows)];
}

const ROWS = { joint: "rows scored with the partner", fallback: "by the fallback", none: "without a score", yes: "rows known here", no: "rows not known here" };
const milliseconds = (value) => (known(value) ? `${fixed(value, 1)} ms` : "–");

/** How the model is served: traffic and times of the last minute, and minute by minute. */
export function serving(found) {
  const { lately } = found;
  const partners = Object.entries(found.connected).map(([name, there]) => `${name} is ${there ? "" : "not "}connected`).join(", ");
  const state = found.alive ? `Serving since ${clock(found.since)}` : found.state === "stopped" ? `Stopped ${ago(found.time)}` : `Its process is gone; it was last heard of ${ago(found.time)}`;
  const tiles = [
    [found.alive ? "answers in the last minute" : "answers in its last minute", count(lately.answers)],
    ["half of them within", milliseconds(lately.median_ms)],
    ["99 of 100 within", milliseconds(lately.p99_ms)],
    ...Object.entries(found.rows).map(([name, value]) => [ROWS[name] ?? name, count(value)]),
    ...(known(found.different_rows_left) ? [["different rows that may still be asked for", count(found.different_rows_left)]] : []),
  ];
  const minutes = [...found.minutes].reverse().filter((one) => one.answers);
  const most = Math.max(1, ...minutes.map((one) => one.answers));
  const heads = [["Minute"], ["Answers", "n"], ["As a bar"], ["Half within", "n"], ["99 of 100 within", "n"]];
  const rows = minutes.map((one) => row(heads, [clock(`${one.minute}:00Z`), count(one.answers), el("progress", { max: most, value: one.answers, "aria-label": many(one.answers, "answer") }), milliseconds(one.median_ms), milliseconds(one.p99_ms)]));
  return [
    el("p", { class: "told" }, `${state}${found.alive ? `; ${partners}` : ""}.`),
    el("dl", { class: "tiles" }, tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("h3", {}, "Minute by minute"),
    rows.length ? table("Answers by minute", heads, rows) : empty("Nothing was asked for in the last half hour."),
  ];
}
