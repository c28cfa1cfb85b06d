// The charts over steps that a run and a replica of a sweep have in common: utility, leaks, the gate.

import { Chart } from "./chart.js";
import { el, mark, say } from "./dom.js";
import { count, fixed, known, limit, many, measure, short, spelled } from "./format.js";

const SYNC = "steps";

/** The last of a curve and its highest, with where that was. */
function told(curve) {
  let best = -1;
  curve.y.forEach((value, index) => {
    if (known(value) && (best < 0 || value > curve.y[best])) best = index;
  });
  return { highest: curve.y[best], where: curve.x[best], last: curve.y.findLast(known) };
}

/** A sentence about some curves: which of them came highest. */
function worstWords(curves, [one, more], bound) {
  const found = curves.map((curve) => ({ curve, ...told(curve) })).filter((one) => known(one.highest));
  if (!found.length) return "";
  const worst = found.reduce((a, b) => (b.highest > a.highest ? b : a));
  const rest = known(bound) ? ` The limit is ${limit(bound)}.` : " No limit is on record.";
  return `${many(found.length, one, more)}; the highest is ${fixed(worst.highest)} (${worst.curve.name}, step ${count(worst.where)}).${rest}`;
}

function lastWords(curves) {
  return `Last: ${curves.map((curve) => `${spelled(curve.name)} ${short(told(curve).last)}`).join(", ")}.`;
}

const within = (curve, [first, last]) => curve.x.some((x) => x >= first && x <= last);

/** What only the loss is, and what only grows with a better model, are two charts: their scales differ. */
const isLoss = (curve) => /loss|nll|error/i.test(curve.name);

/** All charts over steps. `ask(first, last)` is called when somebody comes closer, with nothing when all is to be seen. */
export class StepCharts {
  constructor(ask) {
    this.ask = ask;
    this.zoomed = null;
    const zoom = (first, last) => this.zoom(first, last);
    const shared = { sync: SYNC, zoom };
    this.leak = new Chart({ ...shared, id: "leak", title: "Leak while training runs", format: fixed, height: 300 });
    this.gate = new Chart({ ...shared, id: "gate", title: "What the gate measured", format: fixed });
    this.quality = new Chart({ ...shared, id: "quality", title: "How good the model is", format: fixed });
    this.loss = new Chart({ ...shared, id: "loss", title: "Loss", format: short });
    this.all = [this.leak, this.quality, this.gate, this.loss];
    this.range = el("span", { class: "range" });
    this.reset = el("button", { type: "button", class: "quiet", id: "show-all", onclick: () => zoom(null) }, "Show all steps");
    this.note = el("p", { class: "zoom", hidden: true }, this.range, " ", this.reset);
    this.node = el("div", { class: "charts" }, this.all.map((chart) => chart.node));
  }

  zoom(first, last) {
    if (first === null || first === undefined) {
      if (!this.zoomed) return;
      this.zoomed = null;
    } else {
      const [low, high] = this.whole;
      const from = Math.max(low, Math.floor(first));
      const to = Math.min(high, Math.max(Math.ceil(last), from + 2));
      this.zoomed = from <= low && to >= high ? null : [from, to];
    }
    this.show();
    this.ask(...(this.zoomed ?? []));
  }

  update(detail) {
    this.detail = detail;
    this.show();
  }

  show() {
    const { curves, limits, decisions } = this.detail;
    const xs = curves.flatMap((curve) => (curve.x.length ? [curve.x[0], curve.x.at(-1)] : []));
    const seen = [Math.min(0, ...xs), Math.max(1, ...xs)];
    if (!this.zoomed) this.whole = seen;
    const window = this.zoomed ?? seen;
    say(this.range, `Steps ${count(window[0])} to ${count(window[1])}.`);
    this.note.hidden = !this.zoomed;
    const marks = (decisions ?? []).filter((one) => known(one.step)).map((one) => ({ x: one.step, what: one.decision }));
    const group = (name) => curves.filter((curve) => curve.group === name).map((curve) => ({ ...curve }));
    const replica = this.detail.kind === "replica"; // whose leaks are means over parts, with intervals
    this.leaks(group(replica ? "gate" : "leak"), { window, limits, marks });
    this.gate.node.hidden = replica;
    if (!replica) this.gates(group("gate"), { window, limits, marks });
    const utility = group("utility");
    this.plain(this.loss, utility.filter(isLoss), { window, nothing: "No loss was noted yet. Only the label party sees it." });
    this.plain(this.quality, utility.filter((one) => !isLoss(one)), { window, nothing: "No test figure yet: the first comes when an epoch ends." });
  }

  leaks(curves, extra) {
    const what = measure(this.detail.measure);
    this.leak.options.floor = what.chance;
    this.leak.options.ceiling = 1;
    const bound = this.detail.limit;
    const shown = curves.map((curve) => (curve.mean ? { ...curve, y: curve.mean, looks: curve.y } : { ...curve, band: true }));
    const seen = shown.filter((curve) => within(curve, extra.window));
    const thin = seen.some((curve) => curve.looks && curve.x.length > 1) ? " Lines are means over the last looks, the thin ones behind them single looks." : "";
    this.leak.update(shown, {
      ...extra,
      told: worstWords(seen, ["attack"], bound) + thin,
      nothing: this.detail.about_looks ?? "No look yet: the first comes half of `live.every` steps (64 by default) into the training.",
    });
    mark(this.leak.node, "data-limit", known(bound) ? bound : null);
  }

  gates(curves, extra) {
    const bound = this.detail.limit;
    this.gate.options.floor = measure(this.detail.measure).chance;
    this.gate.options.ceiling = 1;
    const dotted = curves.map((curve) => ({ ...curve, points: true }));
    const nothing = known(bound) ? "Nothing yet: the gate measures all attacks when an epoch ends." : "No limit is on record, so no gate measures.";
    const told = worstWords(curves, ["figure with its 95% interval, taken at an epoch's end", "figures with 95% intervals, taken at epoch ends"], bound);
    const marked = extra.marks.some((one) => one.what !== "keep") ? " Marks are what the gate decided: two bars pause, a square stops." : "";
    this.gate.update(dotted, { ...extra, told: told + marked, nothing });
  }

  plain(chart, curves, extra) {
    const named = curves.map((curve) => ({ ...curve, title: spelled(curve.name) }));
    chart.update(named, { ...extra, told: lastWords(curves) });
  }

  close() {
    for (const chart of this.all) chart.close();
  }
}
