"use strict";
// The live page; page_base.js, page_draw.js, page.js and page_zoom.js are one script, in this order. This one has what all share:
// the state of the run, numbers as text, colours, axes and curves on a canvas. Points of the curve are
// [generation, best.. , median.. , worst.. (one each per objective), feasible share, quantiles of the runs' best..].
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, null];
let facts = null, runState = null, frame = null, points = [], contours = null, firstRange = null;
const views = {}, drawn = {};  // the parts of figures that were zoomed into, and figures as they were drawn last
let dirty = new Set(), isDrawPending = false, fetching = false, lastSession = "";

function address(path, query = {}) {
  const q = new URLSearchParams(query);
  if (token) q.set("token", token);
  const text = q.toString();
  return path + (text ? "?" + text : "");
}

// ---- numbers as text

function text(v, digits = 5) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  if (v === 0) return "0";
  const a = Math.abs(v);
  if (a >= 1e5 || a < 1e-3) return v.toExponential(digits - 2).replace("e+", "e");
  return String(Number(v.toPrecision(digits)));
}
const formatShort = (v) => text(v, 3);
const formatExact = (v) => text(v, 10);  // of a value that others are measured from
const count = (v) => v === undefined || v === null ? "–" : v >= 1e6 ? `${Number((v / 1e6).toPrecision(4))} M`
  : Math.round(v).toLocaleString("en-GB").replaceAll(",", "\u202f");
function formatDuration(s) {
  if (s === undefined || s === null || !isFinite(s)) return "–";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}
const formatRoughDuration = (s) => s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;

// ---- colours

let colour = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "soft", "line", "grid", "blue", "orange", "green", "grey", "dot", "dot-edge", "low",
    "high", "band", "band2", "contour"]) colour[name] = style.getPropertyValue("--" + name).trim();
}
const hex = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
function mix(a, b, t) { return a.map((v, i) => v + (b[i] - v) * t); }
const VIRIDIS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b",
  "#fde725"].map(hex);
const viridis = Array.from({ length: 256 }, (_, i) => {
  const at = i / 255 * (VIRIDIS.length - 1), k = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return mix(VIRIDIS[k], VIRIDIS[k + 1], at - k).map(Math.round);
});

// ---- drawing

function openCanvas(id) {
  const canvas = $(id), ratio = Math.min(2, window.devicePixelRatio || 1);
  const w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  c.font = "12px system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif";
  c.lineJoin = "round";
  return { c, w, h };
}

function ticks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / wanted, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * power >= raw) * power;
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) out.push(Math.abs(k * step) < step / 1e6 ? 0 : k * step);
  return out;
}
function logTicks(low, high, wanted) {
  const a = Math.ceil(low - 1e-9), b = Math.floor(high + 1e-9), every = Math.max(1, Math.ceil((b - a + 1) / wanted)), out = [];
  for (let k = b; k >= a; k -= every) out.push(k);
  if (out.length > 2) return out;
  const finer = [];  // less than two decades: also 2 and 5 times a power of ten
  for (let k = Math.floor(low); k <= Math.ceil(high); k++) for (const f of [1, 2, 5]) {
    const at = k + Math.log10(f);
    if (at >= low && at <= high) finer.push(f === 1 ? k : at);
  }
  return finer.length >= 2 ? finer : ticks(low, high, wanted);
}
const powerText = (k) => Number.isInteger(k) ? (k >= -2 && k <= 4 ? String(Number((10 ** k).toPrecision(2))) : `1e${k}`) : text(10 ** k, 3);

// ---- variables: a page is sent genes, one number each, and shows what they stand for

const geneScale = (k) => facts.scales ? facts.scales[k] : null;
const LN10 = Math.LN10, tenth = (v) => Math.abs(v / LN10 - Math.round(v / LN10)) < 1e-9 ? Math.round(v / LN10) : v / LN10;
const isDiscrete = (k) => !!geneScale(k) && geneScale(k).kind !== "log";
function geneCode(k, gene) {  // where it stands: codes are whole numbers, as the functions got them
  const s = geneScale(k);
  return isDiscrete(k) ? Math.max(s.first, Math.min(s.last, Math.round(gene))) : gene;
}
function geneText(k, gene, digits = 6) {
  const s = geneScale(k);
  if (!s) return text(gene, digits);
  return s.kind === "log" ? text(Math.exp(gene), digits) : s.labels ? s.labels[geneCode(k, gene)] : String(geneCode(k, gene));
}
function geneAxis(k) {
  const s = geneScale(k);
  if (!s) return null;
  if (s.kind === "log") return { ticks: (a, b, n) => logTicks(a / LN10, b / LN10, n).map((v) => v * LN10), text: (v) => powerText(tenth(v)) };
  const inside = (v) => v >= s.first && v <= s.last, every = (a, b, n) => Math.max(1, Math.ceil((b - a) / n));
  if (s.kind === "integer") return { ticks: (a, b, n) => [...new Set(ticks(a, b, n).map(Math.round))].filter((v) => inside(v) && v >= a && v <= b), text: String };
  return { ticks: (a, b, n) => Array.from({ length: s.last + 1 }, (_, v) => v).filter((v) => v >= a && v <= b && v % every(a, b, n) === 0),
    text: (v) => s.labels[v].length > 14 ? s.labels[v].slice(0, 13) + "…" : s.labels[v] };
}

// A frame with axes; x and y are [low, high] in what is drawn (logarithms where yLog).
function plot(id, x, y, names, options = {}) {
  const { c, w, h } = openCanvas(id);
  const widen = ([a, b]) => b > a ? [a, b] : [a - Math.max(1e-12, Math.abs(a) * 0.05), b + Math.max(1e-12, Math.abs(b) * 0.05)];
  const kind = `${names}${!!options.xLog}${!!options.yLog}`;  // other axes show other numbers: a part chosen before means nothing
  const part = views[id] && views[id].kind === kind ? views[id] : null;
  x = part ? part.x : widen(x); y = part ? part.y : widen(y);
  const plain = { ticks, text: (v) => text(v, 4) }, tens = { ticks: logTicks, text: powerText };
  const ofX = options.xAxis || (options.xLog ? tens : plain), ofY = options.yAxis || (options.yLog ? tens : plain);
  const yTicks = ofY.ticks(y[0], y[1], options.yLog ? 6 : Math.max(3, h / 55));
  const yTexts = yTicks.map(options.yText || ofY.text);
  const left = 24 + Math.max(...yTexts.map((t) => c.measureText(t).width)), right = 10, top = 8, bottom = 38;
  const px = (v) => left + (v - x[0]) / (x[1] - x[0]) * (w - left - right);
  const py = (v) => h - bottom - (v - y[0]) / (y[1] - y[0]) * (h - top - bottom);
  const area = { x: left, y: top, w: w - left - right, h: h - top - bottom };
  if (options.under) { c.save(); c.beginPath(); c.rect(left, top, area.w, area.h); c.clip(); options.under(c, px, py); c.restore(); }
  const xTicks = ofX.ticks(x[0], x[1], options.xLog ? Math.max(3, w / 80) : Math.max(2, w / 95));
  c.lineWidth = 1; c.strokeStyle = colour.grid; c.fillStyle = colour.soft;
  c.textAlign = "right"; c.textBaseline = "middle";
  yTicks.forEach((v, i) => {
    if (!options.under) { c.beginPath(); c.moveTo(left, py(v)); c.lineTo(w - right, py(v)); c.stroke(); }
    c.fillText(yTexts[i], left - 6, Math.max(top + 5, Math.min(h - bottom - 4, py(v))));
  });
  c.textAlign = "center"; c.textBaseline = "top";
  for (const v of xTicks) {
    const t = ofX.text(v), half = c.measureText(t).width / 2;
    c.fillText(t, Math.min(w - half - 1, Math.max(half, px(v))), h - bottom + 6);
    if (!options.under) { c.beginPath(); c.moveTo(px(v), top); c.lineTo(px(v), h - bottom); c.stroke(); }
  }
  c.strokeStyle = colour.line;
  c.strokeRect(left, top, area.w, area.h);
  c.fillStyle = colour.ink;
  c.fillText(names[0], left + area.w / 2, h - 17);
  c.save(); c.translate(2, top + area.h / 2); c.rotate(-Math.PI / 2); c.fillText(names[1], 0, 0); c.restore();
  c.save(); c.beginPath(); c.rect(left, top, area.w, area.h); c.clip();
  const shown = { id, kind, c, px, py, area, x, y, names, xLog: options.xLog, yLog: options.yLog, yText: options.yText, lines: [], dots: [],
    end: () => c.restore() };
  drawn[id] = shown;
  return shown;
}

function line(p, xs, ys, stroke, width = 2, dash = [], name = "") {
  const { c, px, py } = p;
  if (name) p.lines.push({ name, xs, ys, stroke });
  c.strokeStyle = stroke; c.lineWidth = width; c.setLineDash(dash); c.beginPath();
  let pen = false;
  for (let i = 0; i < xs.length; i++) {
    if (!isFinite(ys[i])) continue;
    const a = px(xs[i]), b = py(ys[i]);
    if (pen) c.lineTo(a, b); else { c.moveTo(a, b); pen = true; }
  }
  c.stroke(); c.setLineDash([]);
  if (xs.length === 1 && isFinite(ys[0])) { c.fillStyle = stroke; c.beginPath(); c.arc(px(xs[0]), py(ys[0]), 3, 0, 7); c.fill(); }
}
function band(p, xs, low, high, fill) {
  const { c, px, py } = p;
  const at = xs.map((_, i) => i).filter((i) => isFinite(low[i]) && isFinite(high[i]));
  if (at.length < 2) return;
  c.fillStyle = fill; c.beginPath();
  at.forEach((i, k) => k ? c.lineTo(px(xs[i]), py(high[i])) : c.moveTo(px(xs[i]), py(high[i])));
  for (const i of at.reverse()) c.lineTo(px(xs[i]), py(low[i]));
  c.closePath(); c.fill();
}
function dots(p, xs, ys, radius, fill, edge, rows = null) {
  const { c, px, py } = p;
  if (rows) p.dots.push({ xs, ys, rows });
  c.fillStyle = fill; c.strokeStyle = edge || fill; c.lineWidth = 0.7;
  const big = xs.length > 1500;  // many small squares are drawn much faster than many circles
  for (let i = 0; i < xs.length; i++) {
    if (!isFinite(xs[i]) || !isFinite(ys[i])) continue;
    if (big) { c.fillRect(px(xs[i]) - 1.3, py(ys[i]) - 1.3, 2.6, 2.6); continue; }
    c.beginPath(); c.arc(px(xs[i]), py(ys[i]), radius, 0, 7); c.fill();
    if (edge) c.stroke();
  }
}
function swatch(kind, paint, words) {
  const shape = { line: `<line x1="1" y1="6" x2="21" y2="6" stroke="${paint}" stroke-width="3"/>`,
    dash: `<line x1="1" y1="6" x2="21" y2="6" stroke="${paint}" stroke-width="2" stroke-dasharray="4 3"/>`,
    band: `<rect x="1" y="1" width="20" height="10" fill="${paint}"/>`,
    dot: `<circle cx="11" cy="6" r="4" fill="${paint}"/>`,
    cross: `<path d="M8 3l6 6m0-6l-6 6" stroke="${paint}" stroke-width="1.6"/>` }[kind];
  return { svg: `<svg width="22" height="12" aria-hidden="true">${shape}</svg>`, words };
}
function legend(id, items) {
  const name = JSON.stringify(items);
  if ($(id).dataset.shown === name) return;
  $(id).dataset.shown = name;
  $(id).replaceChildren(...items.map((item) => {
    const span = document.createElement("span");
    span.innerHTML = item.svg;  // ours alone: no text from outside is in it
    span.append(item.words);
    return span;
  }));
}
function range(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list) if (isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  return low <= high ? [low, high] : [0, 1];
}
const pad = ([a, b], share = 0.04) => { const d = (b - a) * share; return [a - d, b + d]; };
