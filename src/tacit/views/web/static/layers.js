// What is drawn on a chart beside its curves: the limit, intervals, decisions, stalls.

import { colour, faint } from "./colours.js";
import { known, limit } from "./format.js";

const FONT = '12px system-ui, "Liberation Sans", sans-serif';

function clipped(u, draw) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, devicePixelRatio || 1);
  ctx.restore();
}

/** Stretches of x that are shaded: [from, to, why]. */
export function shades(u, stretches) {
  clipped(u, (ctx) => {
    ctx.fillStyle = faint("open", 0.16);
    for (const [from, to] of stretches) {
      const left = u.valToPos(from, "x", true);
      ctx.fillRect(left, u.bbox.top, Math.max(u.valToPos(to, "x", true) - left, 2), u.bbox.height);
    }
  });
}

/** The limit over x, as a dashed line of steps that goes on to the right edge, with its name. */
export function limits(u, line) {
  if (!line?.x?.length) return;
  clipped(u, (ctx, ratio) => {
    const right = u.bbox.left + u.bbox.width;
    ctx.strokeStyle = colour("bad");
    ctx.lineWidth = 2 * ratio;
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    ctx.beginPath();
    let height = null;
    line.x.forEach((x, index) => {
      if (!known(line.y[index])) return;
      const left = height === null ? u.bbox.left : u.valToPos(x, "x", true);
      const y = u.valToPos(line.y[index], "y", true);
      if (height === null) ctx.moveTo(left, y);
      else ctx.lineTo(left, height), ctx.lineTo(left, y);
      height = y;
    });
    if (height === null) return;
    ctx.lineTo(right, height);
    ctx.stroke();
    ctx.fillStyle = colour("bad");
    ctx.font = FONT.replace("12", String(12 * ratio));
    ctx.textAlign = "right";
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("paper"); // curves may run through its name
    ctx.lineWidth = 4 * ratio;
    ctx.lineJoin = "round";
    const named = [`limit ${limit(line.y.findLast(known))}`, right - 4 * ratio, height - 6 * ratio];
    ctx.strokeText(...named);
    ctx.fillText(...named);
  });
}

/** Single looks, thin behind the line of their mean. */
export function looks(u, curves) {
  clipped(u, (ctx, ratio) => {
    ctx.lineWidth = ratio;
    for (const curve of curves) {
      if (!curve.looks || curve.hidden || curve.colour === "rest") continue;
      ctx.strokeStyle = faint(curve.colour, 0.3);
      ctx.beginPath();
      curve.x.forEach((x, index) => {
        if (known(curve.looks[index])) ctx.lineTo(u.valToPos(x, "x", true), u.valToPos(curve.looks[index], "y", true));
      });
      ctx.stroke();
    }
  });
}

/** The interval of each point as a whisker, or of a whole curve as a band. */
export function intervals(u, curves) {
  const shown = curves.filter((curve) => curve.low?.length && !curve.hidden && curve.colour !== "rest");
  clipped(u, (ctx, ratio) => {
    shown.forEach((curve, index) => {
      if (curve.band) band(u, ctx, curve);
      else whiskers(u, ctx, curve, (index - (shown.length - 1) / 2) * 7 * ratio, ratio);
    });
  });
}

function band(u, ctx, curve) {
  ctx.fillStyle = faint(curve.colour, 0.2);
  ctx.beginPath();
  curve.x.forEach((x, index) => ctx.lineTo(u.valToPos(x, "x", true), u.valToPos(curve.high[index], "y", true)));
  for (let index = curve.x.length - 1; index >= 0; index--) {
    ctx.lineTo(u.valToPos(curve.x[index], "x", true), u.valToPos(curve.low[index], "y", true));
  }
  ctx.fill();
}

function whiskers(u, ctx, curve, dodge, ratio) {
  curve.x.forEach((x, index) => {
    if (!known(curve.low[index]) || !known(curve.high[index])) return;
    const left = u.valToPos(x, "x", true) + dodge;
    ctx.strokeStyle = faint(curve.colour, 0.55);
    ctx.lineWidth = 2.5 * ratio;
    ctx.beginPath();
    ctx.moveTo(left, u.valToPos(curve.low[index], "y", true));
    ctx.lineTo(left, u.valToPos(curve.high[index], "y", true));
    ctx.stroke();
    ctx.fillStyle = colour(curve.colour);
    ctx.beginPath();
    ctx.arc(left, u.valToPos(curve.y[index], "y", true), 3.5 * ratio, 0, 7);
    ctx.fill();
  });
}

const SHAPES = {
  stop: [[-4, -4], [4, -4], [4, 4], [-4, 4]],
};

/** What was decided or happened at an x: a thin line with a shape on top. {x, what} */
export function marks(u, moments) {
  clipped(u, (ctx, ratio) => {
    for (const { x, what } of moments) {
      const left = u.valToPos(x, "x", true);
      const top = u.bbox.top + 7 * ratio;
      ctx.strokeStyle = faint("soft", 0.5);
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, u.bbox.top);
      ctx.lineTo(left, u.bbox.top + u.bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = colour(what === "stop" ? "bad" : "ink");
      markShape(ctx, what, left, top, ratio);
    }
  });
}

function markShape(ctx, what, left, top, ratio) {
  if (what === "pause") {
    ctx.fillRect(left - 4 * ratio, top - 4 * ratio, 3 * ratio, 9 * ratio);
    ctx.fillRect(left + 1 * ratio, top - 4 * ratio, 3 * ratio, 9 * ratio);
    return;
  }
  ctx.beginPath();
  if (SHAPES[what]) for (const [dx, dy] of SHAPES[what]) ctx.lineTo(left + dx * ratio, top + dy * ratio);
  else ctx.arc(left, top, 2.5 * ratio, 0, 7);
  ctx.fill();
}
