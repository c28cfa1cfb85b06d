// One card of the overview: made once, then changed in place.

import { el, mark, renew, say } from "./dom.js";
import { ago, bytes, clock, count, fixed, known, limit, many, spelled } from "./format.js";
import { scale, shape, spark } from "./pictures.js";
import { figured, over, progress, state, verdict } from "./words.js";

/** A word with its shape and tone. */
export function chip(told) {
  return el("span", { class: "chip", "data-tone": told.tone }, shape(told.shape), el("span", {}, told.word));
}

/** Where a card leads. */
export function address(card) {
  return `#/${card.kind === "sweep" ? "sweep" : "run"}/${encodeURIComponent(card.id)}`;
}

/** The card of a run or a sweep; `update` fills it. */
export function make(card) {
  const parts = {
    state: el("span", { class: "states" }),
    when: el("time", { class: "when" }),
    title: el("h3", {}),
    who: el("p", { class: "who" }),
    done: el("progress", { max: "1", "aria-hidden": "true" }),
    far: el("p", { class: "far" }),
    leak: el("p", { class: "leak" }),
    utility: el("p", { class: "utility" }),
    trouble: el("p", { class: "trouble" }),
  };
  const run = card.kind !== "sweep";
  parts.scale = run ? scale(card) : null;
  parts.spark = run ? spark(card) : null;
  const link = el(
    "a",
    { class: `card ${card.kind}`, href: address(card) },
    el("span", { class: "top" }, parts.state, parts.when),
    parts.title,
    parts.who,
    parts.done,
    parts.far,
    parts.leak,
    parts.scale,
    el("span", { class: "foot" }, parts.utility, parts.spark),
    parts.trouble,
  );
  const item = el("li", { class: "item", "data-id": card.id }, link);
  item.parts = { ...parts, link };
  return item;
}

/** Bring a card up to date; what stays the same is not touched. */
export function update(item, card) {
  const { parts } = item;
  const now = state(card);
  mark(parts.link, "data-tone", over(card) ? "bad" : now.tone);
  renew(parts.state, [now, verdict(card)], () => [chip(now), verdict(card) ? chip(verdict(card)) : null].filter(Boolean));
  say(parts.when, ago(card.time));
  mark(parts.when, "title", card.time ? clock(card.time) : null);
  if (card.kind === "sweep") sweep(parts, card);
  else run(parts, card);
  trouble(parts.trouble, card);
}

function run(parts, card) {
  say(parts.title, card.run ?? card.name);
  const role = { label: "label party", features: "feature party" }[card.role] ?? card.role;
  say(parts.who, [card.party, role].filter(Boolean).join(" · "));
  const [turn, turns] = card.mode === "one_shot" ? [card.doing?.done, card.doing?.total] : [card.turn, card.turns];
  const share = known(turn) && turns > 0 ? Math.min(turn / turns, 1) : 0;
  bar(parts.done, card.state === "finished" ? 1 : share);
  say(parts.far, progress(card) || "not begun");
  const bound = known(card.limit) ? `limit ${limit(card.limit)}` : "no limit";
  const title = figured(card);
  const leak = card.worst ? [title, card.worst.value, bound] : [title, null, bound];
  renew(parts.leak, leak, () => [
    el("span", {}, `${title} `),
    el("b", {}, card.worst ? fixed(card.worst.value) : card.mode === "one_shot" ? "none yet" : "not measured"),
    el("span", { class: "bound" }, ` · ${bound}`),
  ]);
  parts.scale.draw(card);
  parts.spark.draw(card);
  const quiet = card.mode === "one_shot" && card.role === "features" ? `${bytes(card.left_bytes ?? 0)} sent` : "no test figure yet";
  say(parts.utility, card.utility ? `${spelled(card.utility.name)} ${fixed(card.utility.value)}` : quiet);
}

function sweep(parts, card) {
  say(parts.title, card.name);
  say(parts.who, `sweep${card.data ? ` · ${card.data}` : ""}`);
  bar(parts.done, card.settings > 0 ? card.done / card.settings : 0);
  say(parts.far, `${count(card.done)} of ${many(card.settings, "setting")}`);
  say(parts.leak, (card.protections ?? []).join(", ") || "no protection yet");
  const best = card.utility?.best;
  say(parts.utility, known(best) ? `best ${spelled(card.utility.name)} ${fixed(best)}` : "");
}

function bar(node, share) {
  const value = Number.isFinite(share) ? share : 0;
  if (node.value !== value) node.value = value;
}

function trouble(node, card) {
  const words = [];
  if (card.alarms) words.push(many(card.alarms, "alarm"));
  if (card.reconnects) words.push(many(card.reconnects, "reconnect"));
  for (const problem of card.problems ?? []) words.push(problem);
  say(node, words.join(" · "));
  node.hidden = !words.length;
}
