// How fast it goes, when it stood still and when the line came back; and what the journal takes on the disk.

import { Chart } from "./chart.js";
import { el, renew } from "./dom.js";
import { bytes, clock, count, duration, known, many, rate } from "./format.js";
import { row, table } from "./tables.js";

const SYNC = "times";

/** The charts over time. */
export class Pace {
  constructor() {
    this.window = null;
    const zoom = (first, last) => {
      this.window = known(first) ? [first, last] : null;
      this.show();
    };
    const shared = { across: "time", sync: SYNC, zoom, floor: 0 };
    this.rate = new Chart({ ...shared, id: "rate", title: "Throughput", format: (value) => (known(value) ? rate(value) : "stands still") });
    this.journal = new Chart({ ...shared, id: "journal-size", title: "Journal on the disk, MiB", format: (value) => (known(value) ? bytes(value * 2 ** 20) : "–") });
    this.stalls = el("div", {});
    this.node = el("div", {}, el("div", { class: "charts" }, this.rate.node, this.journal.node), this.stalls);
  }

  update(detail) {
    this.detail = detail;
    this.show();
  }

  show() {
    const pace = this.detail.pace ?? { time: [], turn: [], rate: [], journal: [], stalls: [], connected: [] };
    const extra = { shades: pace.stalls, marks: (pace.connected ?? []).map((x) => ({ x, what: "connected" })) };
    if (pace.time.length) extra.window = this.window ?? [pace.time[0], Math.max(pace.time.at(-1), pace.time[0] + 1)];
    const nothing = "No pace is on record: the run has not begun, or an older version has written it.";
    const turns = { name: "turns a second", x: pace.time, y: pace.rate, gaps: true };
    this.rate.update([turns], { ...extra, told: told(this.detail, pace), nothing });
    const size = { name: "journal", x: pace.time, y: pace.journal.map((value) => (known(value) ? value / 2 ** 20 : null)) };
    this.journal.update([size], { ...extra, told: `The journal takes ${bytes(this.detail.journal_bytes)} now.`, nothing });
    renew(this.stalls, pace.stalls, () => list(pace.stalls));
  }

  close() {
    this.rate.close();
    this.journal.close();
  }
}

function told(detail, pace) {
  const stalls = pace.stalls.length;
  const lost = pace.stalls.reduce((sum, [from, to]) => sum + (to - from), 0);
  const now = known(detail.rate) ? `${rate(detail.rate)} now. ` : "";
  const still = stalls ? `It stood still ${stalls === 1 ? "once" : `${count(stalls)} times`}, ${duration(lost)} in all (shaded)` : "It never stood still";
  const back = Math.max((pace.connected ?? []).length - 1, 0);
  return `${now}${still}; ${back ? `the line came back ${back === 1 ? "once" : `${count(back)} times`} (dots on top)` : "the line was never lost"}.`;
}

function list(stalls) {
  if (!stalls.length) return [];
  const longest = [...stalls].sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, 8);
  const heads = [["Since"], ["For", "n"], ["Why"]];
  const rows = longest.map(([from, to, why]) => row(heads, [clock(from), duration(to - from), String(why ?? "")]));
  const title = stalls.length > 8 ? `The 8 longest of ${many(stalls.length, "stall")}` : "When it stood still";
  return [el("h3", {}, title), table(title, heads, rows)];
}
