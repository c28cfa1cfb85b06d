// A sweep: the trade-off between leak and utility, the list of its points, and every attack against every setting.

import { get } from "./api.js";
import { chip } from "./card.js";
import { el, empty, put, renew, say, section, scrolled, svg } from "./dom.js";
import { count, fixed, known, many, spelled } from "./format.js";
import { grid } from "./grid.js";
import { arrows } from "./keys.js";
import { front, look, scatter, words } from "./scatter.js";
import { state } from "./words.js";

/** Open the page of a sweep. */
export async function open(root, [id], told) {
  const path = `api/sweeps/${encodeURIComponent(id)}`;
  const view = { id, hidden: new Set(), sort: { column: null, down: true }, order: "leak", detail: await get(path, told.signal) };
  const address = (one) => `#/sweep/${encodeURIComponent(id)}/${one.replica}`;
  view.address = address;
  view.plot = scatter(address);
  build(view, root);
  show(view);
  const refresh = async (signal) => {
    view.detail = await get(path, signal);
    show(view);
  };
  return { title: view.detail.name, page: "runs", up: "#/", wants: (ids) => ids.includes(id), refresh, close: () => view.plot.close() };
}

function build(view, root) {
  view.eyebrow = el("p", { class: "eyebrow" });
  view.title = el("h1", { tabindex: "-1" });
  view.states = el("p", { class: "states" });
  view.sentence = el("p", { class: "sentence" });
  view.key = el("ul", { class: "legend" });
  view.said = el("p", { class: "told reading", "aria-hidden": "true" });
  for (const part of ["list", "matrix", "about", "problems"]) view[part] = el("div", {});
  const both = el("div", { class: "trade" }, el("div", {}, view.plot.node, view.said, view.key), view.list);
  const hint = el("p", { class: "told" }, "Down and to the right is better: less leak, a better model. The line joins the settings that no other beats in both; bars are 95% intervals. A click on a point, or Enter, opens its curves; the list has the same points.");
  put(
    root,
    el("div", { class: "finding" }, view.eyebrow, view.title, view.states, view.sentence, view.problems),
    section("trade-off", "Trade-off", hint, both),
    section("attacks", "Every attack against every setting", view.matrix),
    section("about", "How it was made", view.about),
  );
  arrows(view.plot.node, "a.point");
  const tell = (event) => {
    const at = event.target.closest?.("a.point");
    if (at) say(view.said, at.getAttribute("aria-label"));
  };
  view.plot.node.addEventListener("pointerover", tell);
  view.plot.node.addEventListener("focusin", tell);
}

function show(view) {
  const { detail } = view;
  const names = [...new Set(detail.points.map((one) => one.protection))];
  say(view.eyebrow, ["sweep", detail.data].filter(Boolean).join(" · "));
  say(view.title, detail.name);
  renew(view.states, state(detail), () => [chip(state(detail))]);
  say(view.sentence, sentence(detail));
  renew(view.problems, detail.problems, () => (detail.problems ?? []).map((problem) => el("p", { class: "trouble" }, String(problem))));
  view.plot.draw(detail, view.hidden);
  say(view.said, view.said.textContent || "Point at a setting, or reach one with the keyboard, to read it here.");
  renew(view.key, [names, [...view.hidden]], () => names.map((name, index) => entry(view, name, index)));
  drawList(view);
  const again = () => renew(view.matrix, [detail.matrix, view.sort], () => attacks(view, again));
  again();
  renew(view.about, detail.about, () => about(detail.about));
}

function entry(view, name, index) {
  const { path, colour } = look(index);
  const press = () => {
    if (!view.hidden.delete(name)) view.hidden.add(name);
    show(view);
  };
  const picture = svg("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, svg("path", { class: `shape ${colour}`, d: path }));
  return el("li", {}, el("button", { type: "button", "aria-pressed": view.hidden.has(name) ? "false" : "true", onclick: press }, picture, el("span", { class: "name" }, name)));
}

function sentence(detail) {
  const done = detail.points.filter((one) => one.done !== false).length;
  const best = front(detail.points);
  const first = `${count(done)} of ${many(detail.settings ?? detail.points.length, "setting")} done.`;
  if (!best.length) return `${first} No point has both a leak and a test figure yet.`;
  const name = spelled(best[0].utility_name);
  return `${first} The least leak is ${fixed(best[0].leak)} (${best[0].label}, ${name} ${fixed(best[0].utility)}); the best ${name} is ${fixed(best.at(-1).utility)} (${best.at(-1).label}, leak ${fixed(best.at(-1).leak)}).`;
}

function drawList(view) {
  const shown = view.detail.points.filter((one) => !view.hidden.has(one.protection));
  renew(view.list, [shown, view.order], () => {
    const best = new Set(front(shown).map((one) => one.replica));
    const order = [...shown].sort((a, b) => (a.leak ?? 2) - (b.leak ?? 2) || (b.utility ?? 0) - (a.utility ?? 0));
    const name = spelled(order[0]?.utility_name ?? "utility");
    const head = el("tr", {}, el("th", { scope: "col" }, "Setting"), el("th", { scope: "col", class: "n" }, "Leak"), el("th", { scope: "col", class: "n" }, name));
    const rows = order.map((one) =>
      el("tr", { title: words(one) }, el("th", { scope: "row" }, el("a", { href: view.address(one) }, one.label), best.has(one.replica) ? el("span", { class: "tag worst" }, "unbeaten") : null), el("td", { class: "n" }, known(one.leak) ? fixed(one.leak) : "not done"), el("td", { class: "n" }, fixed(one.utility))),
    );
    return [scrolled("Settings, least leak first", el("table", { class: "points" }, el("thead", {}, head), el("tbody", {}, rows)))];
  });
}

function attacks(view, again) {
  const { matrix } = view.detail;
  if (!matrix?.rows?.length) return [empty("No attack has run yet.")];
  const columns = matrix.columns.map((label) => ({ label: String(label?.label ?? label) }));
  return [grid({ label: "Attacks against settings", columns, rows: matrix.rows, measure: "leak_auc", limit: null, sort: view.sort, again })];
}

function about(said) {
  const entries = Object.entries(said ?? {});
  if (!entries.length) return [empty("The file says nothing about how it was made.")];
  const plain = (value) => (Array.isArray(value) ? value.map(plain).join(" ") : typeof value === "object" ? JSON.stringify(value) : String(value));
  const told = (value) => (Array.isArray(value) ? value.map(plain).join(", ") : plain(value));
  return [el("dl", { class: "facts" }, entries.map(([name, value]) => el("div", {}, el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, told(value)))))];
}
