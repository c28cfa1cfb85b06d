// A training in one exchange: its parts in time, what is certified or was read, and what left this house.

import { get } from "./api.js";
import { chip } from "./card.js";
import { coded, el, empty, mark, put, renew, say, section, svg } from "./dom.js";
import { ago, brief, bytes, clock, count, duration, fixed, known, limit, spelled } from "./format.js";
import { scale } from "./pictures.js";
import { links } from "./run.js";
import { events, row, serving, table } from "./tables.js";
import { exchanged, figured, moves, over, progress, state, verdict } from "./words.js";

/** Open the page of a run whose detail is at hand. */
export function open(root, first, told) {
  const view = build(root, first);
  const path = `api/runs/${encodeURIComponent(first.id)}`;
  show(view, first, told);
  return {
    title: first.name, page: "runs", up: "#/",
    refresh: async (signal) => show(view, await get(path, signal), told),
    wants: (ids) => ids.includes(first.id),
    close: () => {},
  };
}

function build(root, detail) {
  const view = { title: el("h1", { tabindex: "-1" }), tiles: el("dl", { class: "tiles" }) };
  for (const name of ["eyebrow", "states", "sentence", "report", "figure", "under"]) view[name] = el("p", { class: name });
  for (const name of ["timeline", "left", "bound", "figures", "served", "log"]) view[name] = el("div", {});
  view.problems = el("ul", { class: "problems" });
  view.scale = scale({ worst: null, limit: null, measure: detail.measure }, { height: 26, ends: true });
  const hero = el("div", { class: "hero" }, el("div", {}, view.figure, view.under), el("div", {}, view.scale, view.tiles));
  const label = detail.role === "label";
  view.finding = el("div", { class: "finding" }, view.eyebrow, view.title, view.states, view.sentence, view.problems, view.report, hero);
  put(
    root,
    view.finding,
    section("timeline", "The exchange", view.timeline),
    el("div", { class: "pair" }, section("left", "What left this house", view.left), section("figures", "Figures", view.figures)),
    section("bound", label ? "Certificate" : "Column by column", view.bound),
    (view.serving = section("serving", "Serving", view.served)),
    section("events", "Events", view.log),
  );
  return view;
}

function show(view, detail, told) {
  const [now, judged] = [state(detail), verdict(detail)];
  if (view.word && view.word !== now.word) told.say(`${detail.name}: ${now.word}`);
  view.word = now.word;
  const role = { label: "label party", features: "feature party" }[detail.role] ?? detail.role;
  say(view.eyebrow, [detail.party, role, "one-shot training", detail.strength, ago(detail.time)].filter(Boolean).join(" · "));
  say(view.title, detail.run ?? detail.name);
  mark(view.finding, "data-tone", over(detail) ? "bad" : now.tone);
  renew(view.states, [now, judged], () => [chip(now), judged ? chip(judged) : null].filter(Boolean));
  say(view.sentence, exchanged(detail));
  renew(view.problems, detail.problems, () => (detail.problems ?? []).map((problem) => el("li", {}, coded(String(problem)))));
  view.problems.hidden = !detail.problems?.length;
  renew(view.report, [detail.report, detail.id], () => links(detail));
  hero(view, detail);
  const { exchange } = detail;
  renew(view.timeline, exchange.timeline, () => timeline(exchange.timeline));
  renew(view.left, exchange.left, () => left(exchange.left));
  renew(view.figures, [exchange.figures, detail.history], () => figures(exchange.figures));
  renew(view.bound, [exchange, detail.limit], () => (detail.role === "label" ? certificate(exchange.certificate) : columns(exchange, detail.limit)));
  view.serving.hidden = !detail.serving;
  renew(view.served, detail.serving, () => (detail.serving ? serving(detail.serving) : []));
  const rest = (detail.events ?? []).filter((one) => !["part", "left"].includes(one.event));
  renew(view.log, rest, () => events({ events: rest }));
}

function hero(view, detail) {
  const { worst, certificate, release } = detail;
  say(view.figure, worst ? fixed(worst.value) : "not yet");
  view.figure.classList.toggle("none", !worst);
  const kind = detail.role === "label" ? (certificate?.beside ? "of exchanges alone" : "a bound") : `a measurement: ${worst?.attack ?? ""}`;
  say(view.under, worst ? `${figured(detail)}, ${kind}` : `${figured(detail)}: nothing has left yet`);
  view.scale.draw(detail);
  const own = certificate
    ? [["odds, at most", fixed(certificate.odds)], ["AUC over all exchanges", fixed(certificate.total_auc)], ["labels sent", count(certificate.rows)]]
    : [["numbers a row", count(release?.width)], ["ranks of each", count(release?.ranks)], ["noise", release ? (release.noise ? `${release.noise} of a deviation` : "none") : "–"]];
  const tiles = [
    ["limit", known(detail.limit) ? limit(detail.limit) : "none"],
    ...own,
    ...(detail.role === "label" ? [[detail.utility ? `${spelled(detail.utility.name)}, private` : "private figure", detail.utility ? fixed(detail.utility.value) : "none yet"]] : []),
    [progress({ ...detail, seconds_left: null }) || "progress", detail.state === "finished" ? "100%" : detail.doing?.total > 0 ? `${Math.floor((100 * detail.doing.done) / detail.doing.total)}%` : "–"],
    ["this part still takes", moves(detail) ? duration(detail.seconds_left) : "–"],
    ["left this house", bytes(detail.left_bytes ?? 0)],
  ];
  renew(view.tiles, tiles, () => tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** Every part as a bar over time; those in which it only waited are hatched, and say so. */
function timeline(rows) {
  if (!rows?.length) return [empty("No part has begun yet.")];
  const ends = rows.flatMap((one) => one.spans.flat());
  const [from, to] = [Math.min(...ends), Math.max(...ends)];
  const wide = Math.max(to - from, 1);
  const heads = [["Part"], ["When"], ["Took", "n"]];
  const lines = rows.map((one) => {
    const bars = one.spans.map(([first, last]) => {
      const place = { x: `${(99.5 * (first - from)) / wide}%`, width: `${Math.max(0.5, (99.5 * (last - first)) / wide)}%` };
      return svg("rect", { class: one.still ? "span still" : "span", y: 0, height: 14, ...place }, svg("title", {}, `${brief(first)} to ${brief(last)}`));
    });
    const took = one.spans.reduce((sum, [first, last]) => sum + last - first, 0);
    const times = one.spans.length > 1 ? `, ${one.spans.length} times` : "";
    return row(heads, [one.part, svg("svg", { class: "track", width: "100%", height: 14, role: "img", "aria-label": `from ${brief(one.spans[0][0])}${times}` }, bars), took < 1 ? "under 1 s" : duration(took)]);
  });
  const still = rows.some((one) => one.still) ? " Light bars are waiting or standing still." : "";
  const words = `From ${clock(from)} to ${clock(to)}.${still}`;
  return [el("p", { class: "told" }, words), table("Parts of the exchange over time", heads, lines, "stack parts")];
}

function left(found) {
  if (!found?.length) return [empty("Nothing has left yet.")];
  const heads = [["When"], ["What"], ["To"], ["Rows", "n"], ["Bytes", "n"]];
  const rows = found.map((one) => row(heads, [clock(one.time), one.what, one.to, one.rows ? count(one.rows) : "–", count(one.bytes)]));
  return [table("Everything that left", heads, rows)];
}

function figures(found) {
  if (!found?.length) return [empty("They stand here when the report is made, at the end of the training.")];
  const heads = [["Figure"], ["Kind"], ["Value", "n"], ["Bound", "n"]];
  const rows = found.map((one) => {
    const range = known(one.low) && known(one.high) ? el("span", { class: "about" }, `${fixed(one.low)} to ${fixed(one.high)}`) : null;
    return row(heads, [one.name, one.kind, el("span", {}, fixed(one.value), ...(range ? [range] : [])), known(one.most) ? fixed(one.most) : "–"]);
  });
  return [table("Figures, and the bounds that they are held against", heads, rows)];
}

function certificate(told) {
  if (!told) return [empty("It stands here when the report is made, at the end of the training.")];
  const facts = [
    ["mechanism", told.mechanism], ["bound for", `one ${told.unit}`],
    ["leak AUC", `${fixed(told.auc)} in this exchange, ${fixed(told.total_auc)} over ${told.releases === 1 ? "all so far" : `all ${count(told.releases)}`}`],
    ["odds", `${fixed(told.odds)} in this exchange, ${fixed(told.total_odds)} over all`],
    ["budget of leak AUC", known(told.budget) ? `${fixed(told.budget)}, ${fixed(Math.max(0, told.budget - told.total_auc))} left` : "none"],
    ["budget of odds", known(told.odds_budget) ? `${fixed(told.odds_budget)}${known(told.total_odds) ? `, × ${fixed(Math.max(1, told.odds_budget / told.total_odds))} left` : ""}` : "none"],
    ["labels sent so far", count(told.labels)],
  ];
  return [
    el("p", {}, told.sentence),
    told.posterior ? el("p", {}, told.posterior) : null,
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    told.charges?.length ? el("h3", {}, `By ${told.unit}, over all exchanges`) : null,
    told.charges?.length ? charges(told) : null,
    el("h3", {}, "What it does not cover"),
    el("ul", {}, (told.not_covered ?? []).map((one) => el("li", {}, coded(one)))),
  ].filter(Boolean);
}

/** The book: how many units have come to how much. */
function charges(told) {
  const heads = [[`${told.unit}s`, "n"], ["Leak AUC", "n"], ["Odds", "n"], ["Through"]];
  const rows = told.charges.map((one) => row(heads, [count(one.units), fixed(one.auc), known(one.odds) ? fixed(one.odds) : "–", one.through]));
  return table(`What each ${told.unit} has come to`, heads, rows);
}

function columns(exchange, bound) {
  if (!exchange.columns?.length) return [empty("They stand here when the report is made, at the end of the training.")];
  const heads = [["Column"], ["Asked"], ["Read", "n"], ["At most", "n"], ["From 0 to 1"], ["By what, of which rows"]];
  const rows = exchange.columns.map((one) => {
    const high = known(bound) && one.high > bound ? el("b", { class: "alarm" }, `▲ ${fixed(one.high)}`) : fixed(one.high);
    const bar = el("progress", { max: 1, value: Math.max(0, one.value), "aria-label": `${fixed(one.value)} of 1` });
    const rows_ = `${one.decoder}, ${count(one.members)} among ${one.rows === "train" ? "training" : one.rows} rows${one.given ? ", all other columns known" : ""}`;
    return row(heads, [one.column, one.question, fixed(one.value), high, bar, rows_]);
  });
  const tried = (exchange.tried ?? []).map((one, place, all) => el("li", {}, place === all.length - 1 ? `${one}: this one was sent` : one));
  return [table("The most that was read of each column", heads, rows, "stack read"), el("h3", {}, "Forms that were tried"), el("ul", {}, tried)];
}
