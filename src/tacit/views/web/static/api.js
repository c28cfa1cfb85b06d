// What the server says. It is only ever asked; nothing can be changed from this page.

const KEPT = 12; // answers that are remembered with their tags
const PAUSE = 1000; // milliseconds between two looks for changes
const WAITS = [500, 1000, 2000, 5000, 10000]; // milliseconds before a server is tried again that did not answer
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
 * Ask every second what has changed. `changed` gets the ids of places that are others now, new or gone; `state` gets
 * "open" when the server answers first or again, and "lost" with what went wrong each time that it does not. A page that
 * nobody sees asks nothing; when it is seen again it hears of all that it missed.
 */
export function watch({ changed, state }) {
  let known = null;
  let failed = 0;
  let busy = false;
  let timer = null;
  const look = async () => {
    clearTimeout(timer);
    if (busy || document.hidden) return;
    busy = true;
    try {
      const marks = await get("api/marks");
      const before = known ?? marks;
      if (known === null || failed) state("open");
      failed = 0;
      known = marks;
      const ids = Object.keys({ ...before, ...marks }).filter((id) => before[id] !== marks[id]);
      if (ids.length) changed(ids);
    } catch (error) {
      state("lost", error);
      failed += 1;
    }
    busy = false;
    timer = setTimeout(look, failed ? WAITS[Math.min(failed, WAITS.length) - 1] : PAUSE);
  };
  document.addEventListener("visibilitychange", look);
  look();
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
