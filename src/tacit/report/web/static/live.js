// Keeps the page as the server has it: asks for the page again, and changes what has become different.
"use strict";

const PAUSE = 1000; // milliseconds between two looks
const WAITS = [500, 1000, 2000, 5000, 10000]; // milliseconds before a server is asked again that did not answer
const by = (id) => document.getElementById(id);
let seen = { address: null, tag: null };
let [failed, timer, asking] = [0, null, null];

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  asking?.abort();
  const { signal } = (asking = new AbortController());
  const address = location.pathname + location.search;
  const headers = { Accept: "text/html", ...(seen.address === address ? { "If-None-Match": seen.tag } : {}) };
  try {
    const answer = await fetch(address, { headers, signal, credentials: "same-origin", cache: "no-store" });
    if (![200, 304, 404].includes(answer.status)) throw new Error(answer.status === 401 ? "token" : "refused");
    if (answer.status !== 304) show(await answer.text());
    seen = { address, tag: answer.headers.get("ETag") };
    failed = 0;
    line("Live", "");
  } catch (error) {
    if (signal.aborted) return;
    failed += 1;
    const token = "This browser holds no valid token any more: open the address that tacit dashboard has printed.";
    const lost = "The line to the server is lost: what you see is of before. It is tried again by itself.";
    line("Not connected", error.message === "token" ? token : lost);
  }
  timer = setTimeout(look, failed ? WAITS[Math.min(failed, WAITS.length) - 1] : PAUSE);
}

function line(words, trouble) {
  by("link").dataset.state = trouble ? "lost" : "open";
  if (by("link").textContent !== words) by("link").textContent = words;
  if (by("banner").textContent !== trouble) by("banner").textContent = trouble; // it is an alert: said once
  by("banner").hidden = !trouble;
}

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const focus = document.activeElement;
  const news = [];
  document.title = fresh.title;
  morph(by("main"), fresh.getElementById("main"), news);
  if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
  if (news.length > 3) announce(`${news.length} runs have another state`);
  else news.forEach(announce);
  drawAll();
}

/** Make an element like another one; what is the same stays: the focus, what was scrolled, charts. */
function morph(old, fresh, news) {
  if (old.dataset?.said && fresh.dataset.said && old.dataset.said !== fresh.dataset.said) news.push(fresh.dataset.said);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "style") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
    if (name === "value") old.value = value;
  }
  if (old.hasAttribute("data-keep")) return;
  const named = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const same = next.id ? named.get(next.id) : at && !at.id && at.nodeName === next.nodeName ? at : null;
    if (!same || same.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.isEqualNode(next)) continue;
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, next, news);
    else same.data = next.data;
  }
  while (at) [at] = [at.nextSibling, at.remove()];
}

function announce(words) {
  by("told").append(Object.assign(document.createElement("p"), { textContent: words }));
  while (by("told").children.length > 5) by("told").firstChild.remove();
}

function theme(next) {
  const now = document.documentElement.dataset;
  if (next) {
    const chosen = { light: "dark", dark: "" }[now.theme] ?? "light";
    if (chosen) now.theme = chosen;
    else delete now.theme;
    document.cookie = `tacit-theme=${chosen}; Path=/; SameSite=Strict; Max-Age=${chosen ? 31536000 : 0}`;
    drawAll(true);
  }
  by("theme").textContent = { light: "Light", dark: "Dark" }[now.theme] ?? "Auto";
  by("theme").setAttribute("aria-label", `${by("theme").textContent}: theme${now.theme ? "" : ", as the system has it"}`);
}

const KEYS = {
  "?": () => by("keys").showModal(),
  o: () => (location.href = "/"),
  t: () => theme(true),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || by("keys").open) return;
  const [cards, step] = [[...document.querySelectorAll("a.card")], { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key]];
  if (event.key === "Escape" && by("main").dataset.up) location.href = by("main").dataset.up;
  else if (step && cards.includes(event.target)) cards[cards.indexOf(event.target) + step]?.focus();
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
});
addEventListener("keyup", (event) => {
  const at = document.activeElement; // browsers leave it where it is, if a part of it shows from under what sticks
  if (event.key === "Tab" && by("main").contains(at)) at.scrollIntoView({ block: "nearest", inline: "nearest" });
});
document.addEventListener("visibilitychange", look);
by("theme").addEventListener("click", () => theme(true));
by("help").addEventListener("click", () => by("keys").showModal());
theme(false);
drawAll();
look();
