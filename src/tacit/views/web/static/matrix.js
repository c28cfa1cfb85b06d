// Every attack against every protection that was ever reported or swept.

import { get } from "./api.js";
import { el, empty, put, renew } from "./dom.js";
import { many, measure } from "./format.js";
import { grid } from "./grid.js";

/** Open the page of all attacks and protections. */
export async function open(root, _, told) {
  const sort = { column: null, down: true };
  const place = el("div", {});
  let said = null;
  const show = () => renew(place, [said, sort], () => content(said, sort, show));
  const refresh = async (signal) => {
    said = await get("api/matrix", signal);
    show();
  };
  await refresh(told.signal);
  put(root, el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Attacks and protections")), place);
  return { title: "Attacks and protections", page: "matrix", up: "#/", wants: () => true, refresh, close: () => {} };
}

function content(said, sort, again) {
  if (!said.columns?.length || !said.rows?.length) {
    return [empty("Nothing to compare yet: a column comes with each run that has a report, and with each sweep.")];
  }
  const columns = said.columns.map((column) => ({ ...column, href: address(column) }));
  const { name, lowest, highest, chance } = measure(said.measure);
  const words = `The ${name} of ${many(said.rows.length, "attack")} against ${many(columns.length, "protection")}, from ${chance} (${lowest}) to 1 (${highest}). A darker cell leaks more; click a heading to sort by it.`;
  return [el("p", { class: "told" }, words), grid({ label: "Attacks against protections", columns, rows: said.rows, measure: said.measure, limit: null, sort, again })];
}

function address(column) {
  const kind = column.kind === "sweep" ? "sweep" : "run";
  return `#/${kind}/${encodeURIComponent(column.id)}`;
}
