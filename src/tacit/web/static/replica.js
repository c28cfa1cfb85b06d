// One setting of a sweep: its curves.

import { get } from "./api.js";
import { StepCharts } from "./curves.js";
import { el, put, say, section } from "./dom.js";

/** Open the page of a replica. */
export async function open(root, [id, number], told) {
  const path = () => `api/sweeps/${encodeURIComponent(id)}/${number}?points=2000`;
  const eyebrow = el("p", { class: "eyebrow" });
  const title = el("h1", { tabindex: "-1" });
  const sentence = el("p", { class: "sentence" });
  const show = (detail) => {
    say(eyebrow, `replica ${number} of ${detail.name ?? "a sweep"}`);
    say(title, detail.label ?? `Replica ${number}`);
    say(sentence, words(detail));
    steps.update({ ...detail, kind: "replica", measure: detail.measure ?? "leak_auc", decisions: [], about_looks: "No leak was measured in this part of the sweep." });
  };
  const refresh = async (signal) => show(await get(path(), signal));
  const steps = new StepCharts(() => {});
  const detail = await get(path(), told.signal);
  const back = el("p", {}, el("a", { href: `#/sweep/${encodeURIComponent(id)}` }, "Back to the trade-off"));
  put(root, el("div", { class: "finding" }, eyebrow, title, sentence, back), section("over-steps", "Over updates", steps.note, steps.node));
  show(detail);
  const about = detail.label ?? `Replica ${number}`;
  return { title: about, page: "runs", up: `#/sweep/${encodeURIComponent(id)}`, wants: (ids) => ids.includes(id), refresh, close: () => steps.close() };
}

function words(detail) {
  const leaks = (detail.curves ?? []).filter((curve) => curve.group === "leak").length;
  return leaks ? `One setting of the sweep, with ${leaks} leak curves.` : "One setting of the sweep; no leak curve was kept.";
}
