// One setting of a sweep: its curves.

import { get } from "./api.js";
import { StepCharts } from "./curves.js";
import { el, empty, put, renew, say, section } from "./dom.js";
import { grid } from "./grid.js";
import { words } from "./scatter.js";

/** Open the page of a replica. */
export async function open(root, [id, number], told) {
  const path = () => `api/sweeps/${encodeURIComponent(id)}/${number}`;
  const eyebrow = el("p", { class: "eyebrow" });
  const title = el("h1", { tabindex: "-1" });
  const sentence = el("p", { class: "sentence" });
  const sort = { column: 0, down: true };
  const matrix = el("div", {});
  const show = (detail) => {
    const again = () => renew(matrix, [detail.matrix, sort], () => attacks(detail, sort, again));
    again();
    say(eyebrow, `replica ${number} of ${detail.name ?? "a sweep"}`);
    say(title, detail.label ?? `Replica ${number}`);
    say(sentence, `${words(detail)}.`);
    steps.update({ ...detail, kind: "replica", measure: detail.measure ?? "leak_auc", decisions: [], about_looks: "No leak was measured in this part of the sweep." });
  };
  const refresh = async (signal) => show(await get(path(), signal));
  const steps = new StepCharts(() => {});
  const detail = await get(path(), told.signal);
  const back = el("p", {}, el("a", { href: `#/sweep/${encodeURIComponent(id)}` }, "Back to the trade-off"));
  put(root, el("div", { class: "finding" }, eyebrow, title, sentence, back), section("over-steps", "Over updates", steps.note, steps.node), section("attacks", "Every attack, over the whole training", matrix));
  show(detail);
  const about = detail.label ?? `Replica ${number}`;
  return { title: about, page: "runs", up: `#/sweep/${encodeURIComponent(id)}`, wants: (ids) => ids.includes(id), refresh, close: () => steps.close() };
}

function attacks(detail, sort, again) {
  if (!detail.matrix?.rows?.length) return [empty("No attack has run.")];
  return [grid({ label: "Attacks", columns: [{ label: "Leak AUC" }], rows: detail.matrix.rows, measure: detail.measure, limit: null, sort, again })];
}
