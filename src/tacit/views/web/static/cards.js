// The overview: every run and sweep as a card, which can be searched, sorted and grouped.

import { get } from "./api.js";
import { make, update } from "./card.js";
import { el, empty, keyed, put, say } from "./dom.js";
import { count, many } from "./format.js";
import { arrows } from "./keys.js";
import { over, state, verdict } from "./words.js";

const SORTS = {
  newest: { title: "newest first", by: (a, b) => compare(b.time, a.time) },
  attention: { title: "what needs a look first", by: (a, b) => urgency(b) - urgency(a) || compare(b.time, a.time) },
  leak: { title: "worst leak first", by: (a, b) => (b.worst?.value ?? -1) - (a.worst?.value ?? -1) },
  name: { title: "by name", by: (a, b) => compare(a.name, b.name) },
};
const GROUPS = {
  none: { title: "not at all", of: () => "" },
  folder: { title: "by folder", of: (card) => folder(card) },
  state: { title: "by state", of: (card) => state(card).word },
};

function compare(a, b) {
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

function folder(card) {
  const parts = String(card.name).split(" / ");
  return parts.length > 1 ? parts.slice(0, -1).join(" / ") : card.kind === "sweep" ? "sweeps" : "runs";
}

function urgency(card) {
  if (over(card)) return 5;
  if (card.problems?.length || card.alarms) return 4;
  return { bad: 3, open: 2, plain: 1 }[state(card).tone] ?? 0;
}

function kept(name, choices, usual) {
  try {
    const value = localStorage.getItem(`tacit.${name}`);
    return Object.hasOwn(choices, value ?? "") ? value : usual;
  } catch {
    return usual;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`tacit.${name}`, value);
  } catch {
    // a browser that keeps nothing starts anew next time
  }
}

function choice(label, name, choices, view) {
  const select = el("select", { name }, Object.entries(choices).map(([value, one]) => el("option", { value }, one.title)));
  select.value = view[name];
  select.addEventListener("change", () => {
    view[name] = select.value;
    keep(name, select.value);
    view.show();
  });
  return el("label", {}, `${label} `, select);
}

/** Open the overview in a place of the page; see main.js for what a page is. */
export async function open(root, _, told) {
  const view = { sort: kept("sort", SORTS, "newest"), group: kept("group", GROUPS, "none"), words: "", places: [] };
  const search = el("input", { type: "search", id: "filter", placeholder: "Search (/)", "aria-label": "Search among the runs" });
  const sum = el("p", { class: "sum" });
  const groups = el("div", { class: "groups" });
  view.show = () => show(view, groups, sum);
  search.addEventListener("input", () => {
    view.words = search.value;
    view.show();
  });
  const tools = el("form", { class: "filters", role: "search" }, search, choice("Sort", "sort", SORTS, view), choice("Group", "group", GROUPS, view));
  tools.addEventListener("submit", (event) => event.preventDefault());
  put(root, el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Runs"), sum), tools, groups);
  arrows(groups, "a.card");
  const refresh = async (signal) => {
    const said = await get("api/runs", signal);
    if (said.places !== view.places) announce(view.places, said.places, told);
    view.places = said.places;
    view.show();
  };
  await refresh(told.signal);
  const clock = setInterval(view.show, 30000);
  return { title: "Runs", page: "runs", wants: () => true, refresh, close: () => clearInterval(clock) };
}

function announce(before, after, told) {
  const had = new Map(before.map((card) => [card.id, `${state(card).word} ${verdict(card)?.word ?? ""}`]));
  const news = after.filter((card) => had.has(card.id) && had.get(card.id) !== `${state(card).word} ${verdict(card)?.word ?? ""}`);
  if (news.length > 3) told.say(`${count(news.length)} runs have another state`);
  else for (const card of news) told.say(`${card.name}: ${state(card).word} ${verdict(card)?.word ?? ""}`);
}

function matches(card, words) {
  const about = [card.name, card.run, card.party, card.role, card.strength, card.data, state(card).word, verdict(card)?.word, ...(card.protections ?? [])];
  const text = about.filter(Boolean).join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function show(view, groups, sum) {
  const shown = view.places.filter((card) => matches(card, view.words)).sort(SORTS[view.sort].by);
  const bins = new Map();
  for (const card of shown) {
    const name = GROUPS[view.group].of(card);
    bins.set(name, [...(bins.get(name) ?? []), card]);
  }
  say(sum, summary(view, shown));
  keyed(groups, shown.length ? [...bins] : [["", []]], ([name]) => name, makeGroup, (node, [name, cards]) => {
    const { title, list, none } = node.parts;
    say(title, name || "All");
    title.classList.toggle("unseen", !name); // a screen reader goes from heading to heading
    keyed(list, cards, (card) => card.id, make, update);
    none.hidden = cards.length > 0;
    if (!cards.length) nothing(none, view);
  });
}

function makeGroup() {
  const parts = { title: el("h2", {}), list: el("ul", { class: "cards" }), none: el("div", {}) };
  const node = el("div", { class: "group" }, parts.title, parts.list, parts.none);
  node.parts = parts;
  return node;
}

function nothing(node, view) {
  if (view.places.length) put(node, empty("No run matches this search. Esc clears it."));
  else put(node, empty("There is no run here yet. It appears by itself when `tacit train` begins in one of the folders that this page was opened with."));
}

function summary(view, shown) {
  const training = view.places.filter((card) => state(card).word === "Training").length;
  const wrong = view.places.filter(over).length;
  const runs = view.places.filter((card) => card.kind !== "sweep").length;
  const parts = [many(runs, "run"), many(view.places.length - runs, "sweep")];
  if (shown.length !== view.places.length) parts.push(`${count(shown.length)} shown`);
  if (training) parts.push(`${count(training)} training`);
  if (wrong) parts.push(`${count(wrong)} over the limit`);
  return parts.join(" · ");
}
