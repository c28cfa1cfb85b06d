// What the server says. It is only ever asked; nothing can be changed from this page.

const KEPT = 12; // answers that are remembered with their tags
const WAITS = [500, 1000, 2000, 5000, 10000]; // milliseconds before the line is tried again
const answers = new Map();

/** The server answered, but not with what was asked for. */
export class Refused extends Error {
  constructor(status, path) {
    super(`${path}: ${status}`);
    this.status = status;
  }
}

/** There was no answer. */
export class Lost extends Error {}

/**
 * An answer of the server. One that has not changed is not sent again, and is the same object as before.
 * A `signal` of an AbortController ends it early.
 */
export async function get(path, signal) {
  const had = answers.get(path);
  const headers = had ? { "If-None-Match": had.tag } : {};
  const response = await fetch(path, { headers, signal, credentials: "same-origin", cache: "no-store" }).catch((error) => {
    throw signal?.aborted ? error : new Lost(path, { cause: error });
  });
  if (response.status === 304 && had) return had.body;
  if (!response.ok) throw new Refused(response.status, path);
  const body = await response.json();
  const tag = response.headers.get("ETag");
  answers.delete(path);
  if (tag) answers.set(path, { tag, body });
  while (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return body;
}

/**
 * Listen to what changes. `changed` and `gone` get ids; `state` gets "open" or "lost". After a loss the line is tried
 * again, and `state` says "open" when it stands, so that the page can ask for what it missed. A page that nobody sees
 * listens to nothing: a browser has six lines to a server for all its pages, and each that listens holds one.
 */
export function listen({ changed, gone, state }) {
  let source = null;
  let failed = 0;
  let timer = null;
  const ids = (event) => {
    try {
      const said = JSON.parse(event.data);
      return Array.isArray(said.ids) ? said.ids : [];
    } catch {
      return []; // half a message: the next one comes
    }
  };
  const connect = () => {
    timer = null;
    if (document.hidden) return;
    source = new EventSource("api/events");
    source.onopen = () => {
      failed = 0;
      state("open");
    };
    source.addEventListener("changed", (event) => changed(ids(event)));
    source.addEventListener("gone", (event) => gone(ids(event)));
    source.onerror = () => {
      leave();
      state("lost");
      timer ??= setTimeout(connect, WAITS[Math.min(failed++, WAITS.length - 1)]);
    };
  };
  const leave = () => {
    source?.close();
    source = null;
  };
  const seen = () => {
    if (document.hidden) leave();
    else if (!source && timer === null) connect();
  };
  document.addEventListener("visibilitychange", seen);
  connect();
}

/**
 * A call that runs at most once in `pause` milliseconds and never twice at a time; what came in between runs once more
 * afterwards.
 */
export function calm(work, pause = 700) {
  let busy = false;
  let again = false;
  const call = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      await work();
    } finally {
      setTimeout(() => {
        busy = false;
        if (again) {
          again = false;
          call();
        }
      }, pause);
    }
  };
  return call;
}
