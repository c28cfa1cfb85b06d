// Draws the curves of each chart with uPlot, in the colours of the theme; the table below a chart has the same names.
"use strict";

const HEIGHT = 250;
const DASHES = { s2: [8, 3], s3: [2, 3], s4: [9, 3, 2, 3], s5: [4, 2] };
const drawn = new Map(); // charts by their ids
const sizes = new ResizeObserver((news) => {
  for (const { target } of news) if (target.clientWidth) drawn.get(target.parentNode.id)?.plot.setSize({ width: target.clientWidth, height: HEIGHT });
});

/** Draw every chart of the page whose figures have changed; all of them after a change of colours. */
function drawAll(colours = false) {
  for (const node of document.querySelectorAll("figure.chart:has(> script)")) {
    const text = node.querySelector("script").textContent;
    const known = drawn.get(node.id)?.node === node ? drawn.get(node.id) : null;
    if (colours) known?.plot.redraw(false, true);
    if (known?.text !== text) drawn.set(node.id, draw(known ?? { node }, text));
  }
}

function draw(chart, text) {
  const data = JSON.parse(text);
  const names = JSON.stringify(data.curves.map(({ name, style, mean }) => [name, style, Boolean(mean)]));
  const [again, place] = [chart.names === names, chart.node.querySelector(".drawing")];
  const table = uPlot.join(data.curves.flatMap(({ x, y, mean }) => (mean ? [[x, mean], [x, y]] : [[x, y]])));
  Object.assign(chart, { text, data, names });
  if (again) chart.plot.setData(table);
  else {
    chart.plot?.destroy();
    chart.plot = new uPlot(settings(chart, place), table, place);
    place.onkeydown = (event) => walk(event, chart);
    sizes.observe(place);
  }
  return chart;
}

const colour = ({ node }, name) => getComputedStyle(node).getPropertyValue(`--${name}`);
const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");
const short = (value) => (Number.isFinite(value) ? value.toLocaleString("en-GB", { maximumSignificantDigits: 4 }) : "–");

function settings(chart, place) {
  const { data } = chart;
  const style = (name) => () => colour(chart, name);
  const axis = { stroke: style("soft"), grid: { stroke: style("rule"), width: 1 }, ticks: { show: false } };
  const series = data.curves.flatMap(({ name, style: key, mean, x }) => {
    const line = { label: name, stroke: style(key), width: key === "rest" ? 1 : 2, dash: DASHES[key], spanGaps: data.across === "step", points: { show: x.length < 60, size: 5 } };
    return mean ? [line, { ...line, label: "", width: 0.5, alpha: 0.45, dash: [], points: { show: false } }] : [line];
  });
  return {
    width: place.clientWidth || 300, height: HEIGHT, legend: { show: false }, series: [{}, ...series],
    scales: { x: { time: data.across === "time" }, y: { range: () => chart.data.range } },
    axes: [{ ...axis, space: 80, values: (u, ticks) => ticks.map(data.across === "time" ? clock : short) }, { ...axis, size: 62, values: (u, ticks) => ticks.map(short) }],
    cursor: { y: false, sync: { key: data.across, scales: ["x", null], filters: { pub: (type) => /^mouse(move|leave)$/.test(type) } } },
    hooks: { drawAxes: [(u) => under(u, chart)], draw: [(u) => limits(u, chart)], setCursor: [(u) => read(u, chart)] },
  };
}

/** Times in which nothing moved, places that are marked, and intervals, behind the curves. */
function under(u, chart) {
  const { ctx, bbox } = u;
  const [at, up] = [(x) => u.valToPos(x, "x", true), (y) => u.valToPos(y, "y", true)];
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.globalAlpha = 0.3;
  ctx.fillStyle = colour(chart, "rest");
  for (const [since, to] of chart.data.shades) ctx.fillRect(at(since), bbox.top, Math.max(at(to) - at(since), 1), bbox.height);
  for (const x of chart.data.marks) stroke(ctx, [[at(x), bbox.top], [at(x), bbox.top + bbox.height]], colour(chart, "open"), 2);
  for (const { x, low, high, style } of chart.data.curves) {
    if (!low || style === "rest") continue;
    x.forEach((one, i) => low[i] !== null && stroke(ctx, [[at(one), up(low[i])], [at(one), up(high[i])]], colour(chart, style), 4));
  }
  ctx.restore();
}

function limits(u, chart) {
  const { x, y } = chart.data.limits ?? { x: [], y: [] };
  const corners = x.flatMap((one, i) => [[one, y[Math.max(i - 1, 0)]], [one, y[i]]]).filter(([, bound]) => bound !== null);
  const within = (one) => Math.min(Math.max(u.valToPos(one, "x", true), u.bbox.left), u.bbox.left + u.bbox.width);
  u.ctx.save();
  u.ctx.setLineDash([5, 3].map((one) => one * devicePixelRatio));
  stroke(u.ctx, corners.map(([one, bound]) => [within(one), u.valToPos(bound, "y", true)]), colour(chart, "bad"), 2 * devicePixelRatio);
  u.ctx.restore();
}

function stroke(ctx, points, style, width) {
  Object.assign(ctx, { strokeStyle: style, lineWidth: width });
  ctx.beginPath();
  points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.stroke();
}

/** Say what the curves are where the cursor is. */
function read(u, { node, data }) {
  const { idx, left } = u.cursor;
  const said = node.querySelector("output");
  if (!(left >= 0 && idx >= 0)) return void (said.textContent = "");
  const x = u.data[0][idx];
  const values = u.series.flatMap(({ label }, i) => (i && label && Number.isFinite(u.data[i][idx]) ? [`${label} ${short(u.data[i][idx])}`] : []));
  said.textContent = `${data.across === "time" ? new Date(1000 * x).toLocaleString("en-GB") : `step ${short(x)}`}: ${values.join(", ")}`;
}

function walk(event, { node, plot: u }) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const from = u.cursor.left >= 0 ? u.cursor.idx : step > 0 ? -1 : u.data[0].length;
  const index = Math.min(Math.max(from + step * (event.shiftKey ? 10 : 1), 0), u.data[0].length - 1);
  node.querySelector("output").setAttribute("aria-live", "polite"); // whoever reads by keys is told; others look
  u.setCursor({ left: Math.min(Math.max(u.valToPos(u.data[0][index], "x"), 0), u.over.clientWidth - 1), top: 1 });
  event.preventDefault();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
