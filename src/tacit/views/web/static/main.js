// Routes, the line to the server, and the keys of the whole page.
//
// A page is a module with `open(root, parts, told)`, which draws into root and returns
// {title, page, up, wants(ids), refresh(signal), close()}: `up` is where Esc leads, `wants` says whether a change is shown.

import { calm, watch, Lost, Refused } from "./api.js";
import * as cards from "./cards.js";
import { nextTheme, theme } from "./colours.js";
import { coded, el, empty, put, say } from "./dom.js";
import { letters } from "./keys.js";
import * as matrix from "./matrix.js";
import * as run from "./run.js";
import * as sweep from "./sweep.js";
import * as replica from "./replica.js";

const ROUTES = [
  [/^#?\/?$/, cards],
  [/^#\/run\/([^/]+)$/, run],
  [/^#\/sweep\/([^/]+)$/, sweep],
  [/^#\/sweep\/([^/]+)\/(\d+)$/, replica],
  [/^#\/matrix$/, matrix],
];
const by = (id) => document.getElementById(id);
const scrolled = new Map(); // how far each page was scrolled
let shown = null;
let showing = null; // ends what a page that was left still asks for
let came = null;
let late = false; // the line stood before the page that it tells of changes

async function route() {
  const hash = location.hash;
  if (hash === "#main") return;
  if (came !== null) scrolled.set(came, scrollY);
  const from = came;
  const back = shown?.up === (hash || "#/");
  came = hash;
  showing?.abort();
  shown?.close();
  shown = null;
  showing = new AbortController();
  const { signal } = showing;
  const [pattern, module] = ROUTES.find(([one]) => one.test(hash)) ?? ROUTES[0];
  try {
    const parts = (hash.match(pattern) ?? []).slice(1).map(decodeURIComponent);
    const page = await module.open(by("main"), parts, { signal, say: announce, fail: failed });
    if (signal.aborted) {
      page.close();
      return;
    }
    arrive(page, hash, from, back);
  } catch (error) {
    if (!signal.aborted) failed(error);
  }
}

/** Show which page it is; whoever comes back finds the focus where it was. */
function arrive(page, hash, from, back) {
  shown = page;
  document.title = `${page.title} · Tacit`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, scrolled.get(hash) ?? 0);
  if (late) refresh();
  late = false;
  if (from === null) return;
  const left = back && [...document.querySelectorAll("main a")].find((link) => link.getAttribute("href") === from);
  (left || document.querySelector("main h1"))?.focus({ preventScroll: true });
}

function failed(error) {
  if ((error instanceof Refused && error.status === 404) || error instanceof URIError) {
    put(by("main"), el("h1", { tabindex: "-1" }, "Not here"), empty("This run or sweep is not there any more. "), el("p", {}, el("a", { href: "#/" }, "All runs")));
    document.title = "Not here · Tacit";
    return;
  }
  if (!(error instanceof Refused) && !(error instanceof Lost)) throw error;
  banner(error);
}

function banner(error) {
  const asked = error instanceof Refused && error.status === 401;
  const words = asked
    ? "This browser holds no valid token any more: open the address that `tacit dashboard` has printed."
    : `The line to the server is lost; what you see is as of ${new Date().toLocaleTimeString("en-GB")}. It is tried again by itself.`;
  if (!by("banner").hidden && by("banner").textContent === words.replaceAll("`", "")) return; // it is an alert: said once
  put(by("banner"), coded(words));
  by("banner").hidden = false;
}

function announce(words) {
  by("told").append(el("p", {}, words));
  while (by("told").children.length > 5) by("told").firstChild.remove();
}

const refresh = calm(async () => {
  const page = shown;
  const signal = showing?.signal;
  if (!page) return;
  try {
    await page.refresh(signal);
    if (by("link").dataset.state === "open") by("banner").hidden = true;
  } catch (error) {
    if (!signal?.aborted) failed(error);
  }
});

function line(state, error) {
  const stands = state === "open";
  say(by("link"), stands ? "Live" : "Not connected");
  by("link").dataset.state = state;
  if (!stands) {
    if (by("banner").hidden || error.status === 401) banner(error); // a server that was started again has another token
    return;
  }
  const lost = !by("banner").hidden;
  by("banner").hidden = true;
  if (shown) refresh(); // what changed before the line stood
  else if (lost) route();
  else late = true;
}

function sayTheme() {
  say(by("theme"), { light: "Light", dark: "Dark" }[theme()] ?? "Auto");
  by("theme").setAttribute("aria-label", `${by("theme").textContent}: theme${theme() ? "" : ", as the system has it"}`);
}

function turnTheme() {
  nextTheme();
  sayTheme();
}

function escape() {
  const filter = by("filter");
  if (filter && (filter.value || document.activeElement === filter)) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    filter.blur();
  } else if (shown?.up) location.hash = shown.up;
  else return false;
  return true;
}

by("theme").addEventListener("click", turnTheme);
by("help").addEventListener("click", () => by("keys").showModal());
by("skip").addEventListener("click", (event) => {
  event.preventDefault();
  by("main").focus();
});
letters({
  "/": () => by("filter")?.focus() ?? (by("filter") ? true : false),
  "?": () => by("keys").showModal(),
  Escape: escape,
  o: () => void (location.hash = "#/"),
  m: () => void (location.hash = "#/matrix"),
  t: turnTheme,
});
addEventListener("keyup", (event) => {
  const at = document.activeElement; // browsers leave it where it is, if a part of it shows from under what sticks
  if (event.key === "Tab" && by("main").contains(at)) at.scrollIntoView({ block: "nearest", inline: "nearest" });
});
sayTheme();
history.scrollRestoration = "manual";
addEventListener("hashchange", route);
route();
watch({ changed: (ids) => shown?.wants(ids) && refresh(), state: line });
