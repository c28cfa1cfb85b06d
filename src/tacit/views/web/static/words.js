// What is going on, in plain words. Never by colour alone: each state has a word, a shape and a tone.

import { count, duration, fixed, known, limit, measure, spelled } from "./format.js";

const BUSY = ["training", "catching up", "waiting", "preparing", "aligning", "evaluating"];

/** The state of a run as a word, a shape and a tone (good, bad, open or plain). */
export function state(card) {
  if (card.kind === "sweep") {
    const done = known(card.done) && card.done >= card.settings;
    return done ? told("Finished", "check", "good") : told("Under way", "play", "plain");
  }
  if (card.state === "unknown") return told("Can't be read", "query", "open");
  if (card.state === "finished") return told("Finished", "check", card.verdict === "broken" ? "plain" : "good");
  if (card.state === "paused") return told("Paused", "bars", "open");
  if (card.state === "stopped" || card.state === "failed") return told("Stopped", "square", "bad");
  if (BUSY.includes(card.state) && card.alive === false) return told("Its process is gone", "square", "open");
  if (card.state === "waiting") return told("Waiting", "glass", "open");
  if (card.state === "training") return told("Training", "play", "plain");
  return told(spelled(card.state ?? "unknown").replace(/^./, (letter) => letter.toUpperCase()), "play", "plain");
}

function told(word, shape, tone) {
  return { word, shape, tone };
}

/** What became of the limit, as a word, a shape and a tone; null where there is nothing to say. */
export function verdict(card) {
  if (card.verdict === "held") return told("Limit held", "check", "good");
  if (card.verdict === "broken") return told("Limit broken", "cross", "bad");
  if (card.verdict === "not judged") return told("Limit not judged", "query", "open");
  if (known(card.limit) && card.worst && card.worst.value > card.limit) return told("Over the limit", "cross", "bad");
  return null;
}

/** Whether the worst attack lies over the limit. */
export function over(card) {
  return card.verdict === "broken" || (known(card.limit) && known(card.worst?.value) && card.worst.value > card.limit);
}

/** Whether a run goes on by itself. */
export function moves(card) {
  return BUSY.includes(card.state) && card.alive !== false;
}

/** How far a run is. */
export function progress(card) {
  const parts = [];
  if (card.mode === "one_shot") {
    if (card.state === "finished") return "all parts are done";
    if (card.doing?.part) parts.push(card.doing.part);
    if (card.doing?.total > 0) parts.push(`${Math.floor((100 * card.doing.done) / card.doing.total)}%`);
  }
  if (known(card.epochs) && card.epochs > 0) parts.push(`epoch ${count(card.epoch ?? 0)} of ${count(card.epochs)}`);
  if (!parts.length && known(card.turns)) parts.push(`turn ${count(card.turn ?? 0)} of ${count(card.turns)}`);
  if (known(card.seconds_left) && moves(card)) parts.push(`${duration(card.seconds_left)} left`);
  return parts.join(" · ");
}

/** What attacks reach, against the limit. */
function reached(detail) {
  const known_limit = known(detail.limit) ? `the limit is ${limit(detail.limit)}` : "no limit is on record";
  if (!detail.worst) return `No attack has looked yet; ${known_limit}`;
  const what = detail.measure === "variance_read" ? "reads a share of" : "reaches";
  return `The worst attack ${what} ${fixed(detail.worst.value)}; ${known_limit}`;
}

/** What the run does at the moment. */
function doing(detail) {
  const now = state(detail);
  const reason = detail.reason ? ` (${detail.reason})` : "";
  if (now.word === "Can't be read") return "Its status can't be read.";
  if (now.word === "Stopped" && detail.reason) return `It has stopped: ${detail.reason}.`;
  if (now.word === "Paused") return `It is paused${reason}.`;
  if (now.word === "Its process is gone") return "Its process is gone; started again with tacit train, it goes on where it stopped.";
  if (now.word === "Waiting") return `It waits for ${detail.peer ?? "the other side"}${detail.why ? `: ${detail.why}` : ""}.`;
  if (now.word === "Training") {
    const left = known(detail.seconds_left) ? `, about ${duration(detail.seconds_left)} left` : "";
    return `Training goes on${left}.`;
  }
  if (detail.state === "finished") return `The training is over${detail.verdict === "held" ? " and the limit held" : ""}.`;
  return `${now.word}.`;
}

/** Two or three sentences about a run. */
export function sentence(detail) {
  return `${reached(detail)}. ${doing(detail)}`;
}

/** What the figure of a run is: measured by attacks, or certified. */
export function figured(card) {
  const title = measure(card.measure).title;
  return card.mode === "one_shot" && card.role === "label" ? `Certified ${measure(card.measure).name}` : title;
}

/** Two or three sentences about a training in one exchange. */
export function exchanged(detail) {
  const { worst } = detail;
  const bound = known(detail.limit) ? `; the limit is ${limit(detail.limit)}` : "";
  const label = detail.role === "label";
  const none = detail.left_bytes > 0 ? "What left has no certificate yet: it comes with the last embedding" : "Nothing has left yet";
  const said = label ? `Nobody tells two labels apart with an AUC above ${fixed(worst?.value)}, whatever they compute` : `Decoders read ${fixed(worst?.value)} of what they read best`;
  return `${worst ? said : none}${bound}. ${doing(detail)}`;
}
