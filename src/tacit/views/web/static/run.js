// One run: what is going on in a sentence, then everything that it wrote down.

import { get } from "./api.js";
import { chip } from "./card.js";
import { StepCharts } from "./curves.js";
import * as exchange from "./exchange.js";
import { coded, el, empty, mark, put, renew, say, section } from "./dom.js";
import { ago, bytes, count, duration, fixed, known, limit, many, measure, rate, spelled } from "./format.js";
import { grid } from "./grid.js";
import { NormsView } from "./norms.js";
import { Pace } from "./pace.js";
import { scale } from "./pictures.js";
import { decisions, events, serving } from "./tables.js";
import { moves, over, progress, sentence, state, verdict } from "./words.js";

/** Points of each curve that the server sends at most: a lowest and a highest one for each pixel of the page. */
const points = () => Math.min(2000, Math.max(400, 200 * Math.ceil(innerWidth / 100)));

/** Open the page of a run. */
export async function open(root, [id], told) {
  const view = { window: [], sort: { column: 0, down: true }, told };
  const path = () => {
    const [first, last] = view.window;
    return `api/runs/${encodeURIComponent(id)}?points=${points()}${known(first) ? `&first=${first}&last=${last}` : ""}`;
  };
  const refresh = async (signal) => {
    const asked = path();
    const detail = await get(asked, signal);
    if (asked === path()) show(view, detail);
  };
  const ask = (first, last) => {
    view.window = [first, last];
    refresh(told.signal).catch((error) => told.signal.aborted || told.fail(error));
  };
  const detail = await get(path(), told.signal);
  if (detail.mode === "one_shot") return exchange.open(root, detail, told);
  build(view, root, ask);
  show(view, detail);
  return {
    title: detail.name, page: "runs", up: "#/", refresh,
    wants: (ids) => ids.includes(id),
    close: () => [view.steps, view.pace, view.norms].forEach((part) => part.close()),
  };
}

function build(view, root, ask) {
  view.eyebrow = el("p", { class: "eyebrow" });
  view.title = el("h1", { tabindex: "-1" });
  view.states = el("p", { class: "states" });
  view.sentence = el("p", { class: "sentence" });
  view.problems = el("ul", { class: "problems" });
  view.figure = el("p", { class: "figure" });
  view.under = el("p", { class: "under" });
  view.scale = scale({ worst: null, limit: null, measure: "leak_auc" }, { height: 26, ends: true });
  view.tiles = el("dl", { class: "tiles" });
  view.report = el("p", { class: "report" });
  view.steps = new StepCharts(ask);
  view.pace = new Pace();
  view.norms = new NormsView();
  for (const part of ["decided", "matrix", "served", "log"]) view[part] = el("div", {});
  view.hero = el("div", { class: "hero" }, el("div", {}, view.figure, view.under), el("div", {}, view.scale, view.tiles));
  put(
    root,
    el("div", { class: "finding" }, view.eyebrow, view.title, view.states, view.sentence, view.problems, view.report, view.hero),
    section("over-steps", "Over steps", view.steps.note, view.steps.node),
    el("div", { class: "pair" }, section("decisions", "What the gate decided", view.decided), section("attacks", "Every attack, before each epoch", view.matrix)),
    section("norms", "Length of gradients, by class", view.norms.node),
    section("pace", "Pace and journal", view.pace.node),
    (view.serving = section("serving", "Serving", view.served)),
    section("events", "Events", view.log),
  );
  view.finding = root.querySelector(".finding");
}

function show(view, detail) {
  const now = state(detail);
  const judged = verdict(detail);
  if (view.word && view.word !== now.word) view.told.say(`${detail.name}: ${now.word}`);
  view.word = now.word;
  const role = { label: "label party", features: "feature party" }[detail.role] ?? detail.role;
  say(view.eyebrow, [detail.party, role, detail.strength, ago(detail.time)].filter(Boolean).join(" · "));
  say(view.title, detail.run ?? detail.name);
  mark(view.finding, "data-tone", over(detail) ? "bad" : now.tone);
  renew(view.states, [now, judged], () => [chip(now), judged ? chip(judged) : null].filter(Boolean));
  say(view.sentence, sentence(detail));
  renew(view.problems, detail.problems, () => (detail.problems ?? []).map((problem) => el("li", {}, coded(String(problem)))));
  view.problems.hidden = !detail.problems?.length;
  renew(view.report, [detail.report, detail.id], () => links(detail));
  hero(view, detail);
  view.steps.update(detail);
  view.pace.update(detail);
  view.norms.update(detail);
  renew(view.decided, [detail.decisions, detail.limit], () => decisions(detail));
  const again = () => renew(view.matrix, [detail.matrix, view.sort], () => attacks(detail, view.sort, again));
  again();
  view.serving.hidden = !detail.serving;
  renew(view.served, detail.serving, () => (detail.serving ? serving(detail.serving) : []));
  renew(view.log, detail.events, () => events(detail));
}

/** Where a run's report and figures are. */
export function links(detail) {
  const base = `api/runs/${encodeURIComponent(detail.id)}`;
  const report = el("a", { href: `${base}/report`, target: "_blank", rel: "noopener" }, "The run's report, for a reader who is no specialist");
  const figures = el("a", { href: `${base}/figures.parquet`, download: "" }, "All figures as Parquet");
  return detail.report ? [report, figures] : [figures];
}

const ON = { live: "at a single look", batches: "on batches", visits: "on all visits of an example", report: "in the report" };

function hero(view, detail) {
  const { worst } = detail;
  say(view.figure, worst ? fixed(worst.value) : "not yet");
  view.figure.classList.toggle("none", !worst);
  const range = worst && known(worst.low) && known(worst.high) && worst.high > worst.low ? `, ${fixed(worst.low)} to ${fixed(worst.high)}` : "";
  const title = measure(detail.measure).title;
  say(view.under, worst ? `${title} of the worst attack: ${worst.attack} ${ON[worst.on] ?? ""}${range}` : `${title}: no attack has looked yet`);
  view.scale.draw(detail);
  const tiles = [
    ["limit", known(detail.limit) ? limit(detail.limit) : "none"],
    [detail.utility ? spelled(detail.utility.name) : "test figure", detail.utility ? fixed(detail.utility.value) : "–"],
    [progress({ ...detail, seconds_left: null }) || "progress", known(detail.turns) && detail.turns > 0 ? `${Math.floor((100 * (detail.turn ?? 0)) / detail.turns)}%` : "–"],
    ["time left", detail.state === "finished" ? "none" : moves(detail) ? duration(detail.seconds_left) : "–"],
    ["throughput", moves(detail) ? rate(detail.rate) : "–"],
    ["journal", bytes(detail.journal_bytes)],
    [detail.alarms === 1 ? "alarm" : "alarms", count(detail.alarms ?? 0)],
    [detail.reconnects === 1 ? "reconnect" : "reconnects", count(detail.reconnects ?? 0)],
  ];
  renew(view.tiles, tiles, () => tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function attacks(detail, sort, again) {
  const { matrix } = detail;
  if (!matrix?.rows?.length) return [empty("Nothing yet: all attacks are measured when an epoch ends, and in the report.")];
  const columns = matrix.columns.map((label) => ({ label: String(label) }));
  if (sort.column >= columns.length) sort.column = null;
  const words = `${many(matrix.rows.length, "attack")}. A darker cell leaks more${known(detail.limit) ? `, ▲ is over the limit of ${limit(detail.limit)}` : ""}; click a heading to sort by it.`;
  return [el("p", { class: "told" }, words), grid({ label: "Attacks before each epoch", columns, rows: matrix.rows, measure: detail.measure, limit: detail.limit, sort, again })];
}
