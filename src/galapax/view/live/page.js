"use strict";
// The live page. News come as events; the page fetches a frame when it has drawn the one before. Points of the curve are
// [generation, best.. , median.. , worst.. (one each per objective), feasible share, quantiles of the runs' best..].
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, null];
let facts = null, news = null, frame = null, points = [], contours = null, firstRange = null;
let dirty = new Set(), planned = false, fetching = false, lastSession = "";

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
const short = (v) => text(v, 3);
const count = (v) => v === undefined || v === null ? "–" : v >= 1e6 ? `${Number((v / 1e6).toPrecision(4))} M`
  : Math.round(v).toLocaleString("en-GB").replaceAll(",", "\u202f");
function duration(s) {
  if (s === undefined || s === null || !isFinite(s)) return "–";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}

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

function surface(id) {
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
function powers(low, high, wanted) {
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

// A frame with axes; x and y are [low, high] in what is drawn (logarithms where yLog).
function plot(id, x, y, names, options = {}) {
  const { c, w, h } = surface(id);
  const widen = ([a, b]) => b > a ? [a, b] : [a - Math.max(1e-12, Math.abs(a) * 0.05), b + Math.max(1e-12, Math.abs(b) * 0.05)];
  x = widen(x); y = widen(y);
  const yTicks = options.yLog ? powers(y[0], y[1], 6) : ticks(y[0], y[1], Math.max(3, h / 55));
  const yTexts = yTicks.map(options.yLog ? powerText : options.yText || ((v) => text(v, 4)));
  const left = 24 + Math.max(...yTexts.map((t) => c.measureText(t).width)), right = 10, top = 8, bottom = 38;
  const px = (v) => left + (v - x[0]) / (x[1] - x[0]) * (w - left - right);
  const py = (v) => h - bottom - (v - y[0]) / (y[1] - y[0]) * (h - top - bottom);
  const area = { x: left, y: top, w: w - left - right, h: h - top - bottom };
  if (options.under) options.under(c, px, py);
  const xTicks = options.xLog ? powers(x[0], x[1], Math.max(3, w / 80)) : ticks(x[0], x[1], Math.max(2, w / 95));
  c.lineWidth = 1; c.strokeStyle = colour.grid; c.fillStyle = colour.soft;
  c.textAlign = "right"; c.textBaseline = "middle";
  yTicks.forEach((v, i) => {
    if (!options.under) { c.beginPath(); c.moveTo(left, py(v)); c.lineTo(w - right, py(v)); c.stroke(); }
    c.fillText(yTexts[i], left - 6, Math.max(top + 5, Math.min(h - bottom - 4, py(v))));
  });
  c.textAlign = "center"; c.textBaseline = "top";
  for (const v of xTicks) {
    const t = options.xLog ? powerText(v) : text(v, 4), half = c.measureText(t).width / 2;
    c.fillText(t, Math.min(w - half - 1, Math.max(half, px(v))), h - bottom + 6);
    if (!options.under) { c.beginPath(); c.moveTo(px(v), top); c.lineTo(px(v), h - bottom); c.stroke(); }
  }
  c.strokeStyle = colour.line;
  c.strokeRect(left, top, area.w, area.h);
  c.fillStyle = colour.ink;
  c.fillText(names[0], left + area.w / 2, h - 17);
  c.save(); c.translate(2, top + area.h / 2); c.rotate(-Math.PI / 2); c.fillText(names[1], 0, 0); c.restore();
  c.save(); c.beginPath(); c.rect(left, top, area.w, area.h); c.clip();
  return { c, px, py, area, end: () => c.restore() };
}

function line(p, xs, ys, stroke, width = 2, dash = []) {
  const { c, px, py } = p;
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
function dots(p, xs, ys, radius, fill, edge) {
  const { c, px, py } = p;
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

// What the log scale shows: distances from the best known value, the values themselves, or distances from the best so far.
function logged(lists) {
  const best = facts.settings.maximize ? range(lists)[1] : range(lists)[0];
  const all = lists.flat().filter(isFinite);
  let from = null, name = null, flip = 1;
  if (facts.optimum !== null && facts.optimum !== undefined) {
    from = facts.optimum; name = from === 0 ? null : `above the best known (${short(from)})`;
  } else if (!all.length || Math.min(...all.slice(0, 50000)) > 0) from = 0;
  else { from = best; flip = facts.settings.maximize ? -1 : 1; name = `${flip < 0 ? "below" : "above"} the best so far (${short(best)})`; }
  const of = (v) => { const d = flip * (v - from); return d > 0 ? Math.log10(d) : NaN; };
  return { lists: lists.map((list) => list.map(of)), name };
}

function column(k) { return points.map((p) => p[k] === null || p[k] === undefined ? NaN : p[k]); }
function objectiveName(k) {
  if (facts.objectives[k]) return facts.objectives[k];
  return objectives() > 1 ? `objective ${k + 1}` : "fitness";
}
function objectives() { return facts.objectives.length || (frame ? frame.objectives : 1); }

const draw = {};

draw.curve = () => {
  const m = frame ? frame.objectives : Math.max(1, facts.objectives.length), runs = facts.settings.runs;
  const xs = column(0), log = $("log").checked, at = 1 + 3 * m + 1;
  let lists, items = [], title = "Fitness by generation";
  if (m > 1) {
    title = "Best of each objective by generation";
    lists = Array.from({ length: m }, (_, k) => column(1 + k));
  } else if (runs > 1) {
    title = "Best value by generation, over the runs";
    lists = [0, 1, 2, 3, 4].map((k) => column(at + k));
  } else lists = [column(1), column(2), column(3)];
  let name = objectiveName(0);
  if (m > 1) name = "value";
  let yLog = false, shown = lists;
  if (log && m === 1) {
    const l = logged(lists);
    if (l.lists.some((list) => list.some(isFinite))) { shown = l.lists; yLog = true; if (l.name) name = l.name; }
  } else if (log) {
    const positive = lists.every((list) => list.every((v) => !isFinite(v) || v > 0));
    if (positive) { shown = lists.map((list) => list.map((v) => Math.log10(v))); yLog = true; }
  }
  $("curve-title").textContent = title;
  const x = [1, Math.max(2, xs.length ? xs[xs.length - 1] : 2)];
  const p = plot("curve", x, pad(range(shown)), ["generation", name], { yLog });
  const paints = [colour.blue, colour.orange, colour.green, colour.grey];
  if (m > 1) {
    shown.forEach((list, k) => { line(p, xs, list, paints[k % 4], 2, k > 3 ? [6, 3] : []); items.push(swatch(k > 3 ? "dash" : "line", paints[k % 4], objectiveName(k))); });
  } else if (runs > 1) {
    const least = range([shown[0]])[0], floor = shown[0].map((v) => isFinite(v) ? v : least);  // where log has no value
    band(p, xs, floor, shown[4], colour.band);
    band(p, xs, shown[1].map((v, i) => isFinite(v) ? v : floor[i]), shown[3], colour.band2);
    line(p, xs, shown[0], colour.blue, 1.4, [5, 3]);
    line(p, xs, shown[2], colour.blue, 2.4);
    items = [swatch("line", colour.blue, "median run"), swatch("band", colour.band2, "middle half"),
      swatch("band", colour.band, "all runs"), swatch("dash", colour.blue, "best run")];
  } else {
    band(p, xs, shown[0], shown[2], colour.band);
    line(p, xs, shown[2], colour.grey, 1.4);
    line(p, xs, shown[1], colour.orange, 2);
    line(p, xs, shown[0], colour.blue, 2.6);
    items = [swatch("line", colour.blue, "best"), swatch("line", colour.orange, "median"), swatch("line", colour.grey, "worst")];
  }
  p.end();
  legend("curve-legend", items);
  $("curve").dataset.points = xs.length;
};

draw.feasible = () => {
  const m = frame ? frame.objectives : Math.max(1, facts.objectives.length);
  const xs = column(0), ys = column(1 + 3 * m).map((v) => 100 * v);
  const x = [1, Math.max(2, xs.length ? xs[xs.length - 1] : 2)];
  const p = plot("feasible", x, [0, 100], ["generation", "feasible"], { yText: (v) => `${v} %` });
  const known = xs.map((_, i) => i).filter((i) => isFinite(ys[i]));
  const kx = known.map((i) => xs[i]), ky = known.map((i) => ys[i]);
  band(p, kx, kx.map(() => 0), ky, colour.band);
  line(p, kx, ky, colour.blue, 2.2);
  p.end();
};

draw.spread = () => {
  const values = (news.values || []).filter((v) => v !== null);
  let list = values, xLog = false, name = `best ${objectiveName(0)} of a run`;
  if ($("log").checked && values.length) {
    const l = logged([values]);
    const kept = l.lists[0].filter(isFinite);
    if (kept.length) { list = kept; xLog = true; if (l.name) name = l.name; }
  }
  let [low, high] = range([list]);
  if (!(high > low)) { low -= Math.max(1e-12, Math.abs(low) * 1e-3); high += Math.max(1e-12, Math.abs(high) * 1e-3); }
  const bins = 40, heights = new Array(bins).fill(0);
  for (const v of list) heights[Math.min(bins - 1, Math.floor((v - low) / (high - low) * bins))] += 100 / Math.max(1, values.length);
  const p = plot("spread", [low, high], [0, Math.max(5, ...heights) * 1.05], [name, "share of runs"], { xLog, yText: (v) => `${v} %` });
  p.c.fillStyle = colour.blue;
  heights.forEach((v, i) => {
    const a = p.px(low + i / bins * (high - low)), b = p.px(low + (i + 1) / bins * (high - low));
    p.c.fillRect(a + 0.5, p.py(v), b - a - 1, p.py(0) - p.py(v));
  });
  p.end();
  const sorted = [...values].sort((a, b) => facts.settings.maximize ? b - a : a - b);
  const at = (q) => short(sorted[Math.round(q * (sorted.length - 1))]);
  const total = facts.settings.runs, here = news.batch_runs || total;
  const part = here < total ? ` Runs ${news.first_run} to ${news.first_run + here - 1} of ${total} are shown; memory holds no more at once.` : "";
  const lost = news.feasible_runs !== undefined && news.feasible_runs < here ? ` ${here - news.feasible_runs} of ${here} runs have no feasible point yet.` : "";
  const under = xLog && list.length < values.length ? ` ${values.length - list.length} of the ${values.length} drawn are at the left end or beyond.` : "";
  $("spread-note").textContent = (sorted.length ? `best ${at(0)} · quartiles ${at(0.25)}, ${at(0.5)}, ${at(0.75)} · worst ${at(1)}.` : "") + lost + under + part;
};

draw.front = () => {
  if (!frame || frame.objectives < 2) return;
  const i = Number($("front-x").value), j = Number($("front-y").value), m = frame.objectives, n = frame.shown;
  const xs = [], ys = [], badX = [], badY = [];
  for (let r = 0; r < n; r++) {
    const good = !frame.hasViolation || frame.violation[r] <= 0;
    (good ? xs : badX).push(frame.values[r * m + i]);
    (good ? ys : badY).push(frame.values[r * m + j]);
  }
  let ahead = new Array(xs.length).fill(true);
  if (m === 2) {
    const s = facts.settings.maximize ? -1 : 1;
    const order = xs.map((_, k) => k).sort((a, b) => s * (xs[a] - xs[b]) || s * (ys[a] - ys[b]));
    let least = Infinity;
    for (const k of order) { ahead[k] = s * ys[k] < least; least = Math.min(least, s * ys[k]); }
  }
  const pick = (list, want) => list.filter((_, k) => ahead[k] === want);
  const tx = facts.front ? facts.front.map((p) => p[i]) : [], ty = facts.front ? facts.front.map((p) => p[j]) : [];
  const inX = xs.length ? xs : badX, inY = ys.length ? ys : badY;
  const p = plot("front", pad(range([inX, tx])), pad(range([inY, ty])), [objectiveName(i), objectiveName(j)]);
  dots(p, tx, ty, 1.6, colour.grey);
  dots(p, badX, badY, 2, colour.line);
  dots(p, pick(xs, false), pick(ys, false), 2.6, colour.band2);
  dots(p, pick(xs, true), pick(ys, true), 3.4, colour.dot, colour["dot-edge"]);
  p.end();
  const items = [swatch("dot", colour.dot, m === 2 ? `non-dominated (${count(ahead.filter((a) => a).length)})` : "individuals")];
  if (m === 2) items.push(swatch("dot", colour.band2, "dominated"));
  if (facts.front) items.push(swatch("dot", colour.grey, "true front"));
  if (badX.length) items.push(swatch("dot", colour.line, "infeasible"));
  legend("front-legend", items);
};

function contourPicture(grid) {
  const side = grid.side, size = 360, z = grid.values, out = document.createElement("canvas");
  const sorted = z.filter((v) => v !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const levels = [], count = 11;
  for (let k = 1; k < count; k++) levels.push(sorted[Math.floor(k / count * (sorted.length - 1))]);
  const top = sorted[sorted.length - 1], flip = facts.settings.maximize;
  const low = hex(colour.low), high = hex(colour.high), edge = colour.contour.match(/[\d.]+/g).map(Number);
  out.width = out.height = size;
  const c = out.getContext("2d"), image = c.createImageData(size, size), level = new Uint8Array(size * size);
  for (let r = 0; r < size; r++) for (let q = 0; q < size; q++) {
    const fy = (size - 1 - r) / (size - 1) * (side - 1), fx = q / (size - 1) * (side - 1);
    const a = Math.min(side - 2, Math.floor(fy)), b = Math.min(side - 2, Math.floor(fx)), u = fy - a, v = fx - b;
    const g = (k) => z[k] === null ? top : z[k];
    const value = (g(a * side + b) * (1 - v) + g(a * side + b + 1) * v) * (1 - u) + (g((a + 1) * side + b) * (1 - v) + g((a + 1) * side + b + 1) * v) * u;
    let k = 0;
    while (k < levels.length && value > levels[k]) k++;
    level[r * size + q] = k;
  }
  for (let r = 0; r < size; r++) for (let q = 0; q < size; q++) {
    const k = level[r * size + q], t = flip ? 1 - k / (count - 1) : k / (count - 1);
    let rgb = mix(low, high, t);
    if ((q + 1 < size && level[r * size + q + 1] !== k) || (r + 1 < size && level[(r + 1) * size + q] !== k)) rgb = mix(rgb, edge, edge[3]);
    const fy = Math.round((size - 1 - r) / (size - 1) * (side - 1)), fx = Math.round(q / (size - 1) * (side - 1));
    if (!grid.feasible[fy * side + fx] && (q + r) % 8 < 2) rgb = mix(rgb, hex(colour.soft), 0.55);
    image.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * (r * size + q));
  }
  c.putImageData(image, 0, 0);
  return out;
}

draw.scatter = () => {
  const i = Number($("scatter-x").value), j = Number($("scatter-y").value);
  if (facts.variables.length < 2) return;
  const current = contours && contours.first === i && contours.second === j ? contours : null;
  const picture = current && current.picture;
  const [x0, x1, y0, y1] = [facts.lower[i], facts.upper[i], facts.lower[j], facts.upper[j]];
  const under = (c, px, py) => c.drawImage(picture, px(x0), py(y1), px(x1) - px(x0), py(y0) - py(y1));
  const p = plot("scatter", pad([x0, x1], 0.025), pad([y0, y1], 0.025), [facts.variables[i], facts.variables[j]], picture ? { under } : {});
  const items = [];
  if (frame) {
    const xs = [], ys = [], badX = [], badY = [], v = frame.variables;
    for (let r = frame.shown - 1; r >= 0; r--) {
      const good = !frame.hasViolation || frame.violation[r] <= 0;
      (good ? xs : badX).push(frame.x[r * v + i]);
      (good ? ys : badY).push(frame.x[r * v + j]);
    }
    p.c.strokeStyle = colour.dot; p.c.lineWidth = 1.5;
    for (let k = 0; k < badX.length; k++) {
      const a = p.px(badX[k]), b = p.py(badY[k]);
      p.c.beginPath(); p.c.moveTo(a - 3, b - 3); p.c.lineTo(a + 3, b + 3); p.c.moveTo(a + 3, b - 3); p.c.lineTo(a - 3, b + 3); p.c.stroke();
    }
    dots(p, xs, ys, 3.6, colour.dot, colour["dot-edge"]);
    if (!frame.hasViolation) items.push(swatch("dot", colour.dot, "individuals"));
    else { items.push(swatch("dot", colour.dot, "feasible"), swatch("cross", colour.dot, "infeasible")); }
  }
  p.end();
  if (picture) items.push(swatch("band", colour.low, facts.settings.maximize ? "high values" : "low values"));
  if (current && current.feasible && current.feasible.includes(0)) items.push(swatch("band", colour.grey, "hatched: infeasible"));
  legend("scatter-legend", items);
  let note = "";
  if (current && current.why) note = current.why;
  else if (current && facts.dim > 2) note = `Contours with the other variables as in the best individual of generation ${current.generation}.`;
  else if (!current) note = "Contours are being computed.";
  $("scatter-note").textContent = note;
};

// Pixels as they are, as large as fits; returns where it was drawn.
function pixels(id, image, w, h, keep, left = 0, bottom = 0) {
  const s = surface(id), off = document.createElement("canvas");
  off.width = w; off.height = h;
  off.getContext("2d").putImageData(image, 0, 0);
  let dw = s.w - left, dh = s.h - bottom;
  if (keep) { const k = Math.min(dw / w, dh / h); dw = w * k; dh = h * k; }
  const x = left + (keep ? (s.w - left - dw) / 2 : 0);
  s.c.imageSmoothingEnabled = w > dw || h > dh;
  s.c.drawImage(off, x, 0, dw, dh);
  return { ...s, x, dw, dh };
}
function scaleBar(c, middle, y, stops, low, high) {
  const half = 110, fill = c.createLinearGradient(middle - half, 0, middle + half, 0);
  stops.forEach((rgb, k) => fill.addColorStop(k / (stops.length - 1), `rgb(${rgb})`));
  c.fillStyle = fill; c.fillRect(middle - half, y, 2 * half, 8);
  c.strokeStyle = colour.line; c.lineWidth = 1; c.strokeRect(middle - half, y, 2 * half, 8);
  c.fillStyle = colour.soft; c.textBaseline = "top";
  c.textAlign = "left"; c.fillText(low, middle - half, y + 12);
  c.textAlign = "right"; c.fillText(high, middle + half, y + 12);
}
function order() {  // best first, feasible ones before the others
  const m = frame.objectives, s = facts.settings.maximize ? -1 : 1, bad = (r) => frame.hasViolation ? frame.violation[r] : 0;
  return Array.from({ length: frame.shown }, (_, r) => r).sort((a, b) => bad(a) - bad(b) || s * (frame.values[a * m] - frame.values[b * m]));
}
function ranges() {
  const v = frame.variables;
  if ($("genome-scale").value === "box") return [facts.lower, facts.upper];
  const low = new Array(v).fill(Infinity), high = new Array(v).fill(-Infinity);
  for (let r = 0; r < frame.shown; r++) for (let k = 0; k < v; k++) {
    const a = frame.x[r * v + k];
    if (a < low[k]) low[k] = a;
    if (a > high[k]) high[k] = a;
  }
  return [low, high];
}

draw.genome = () => {
  if (!frame) return;
  const v = frame.variables, n = frame.shown, [low, high] = ranges();
  const level = (r, k) => high[k] > low[k] ? Math.max(0, Math.min(255, Math.round(255 * (frame.x[r * v + k] - low[k]) / (high[k] - low[k])))) : 128;
  const whole = $("genome-scale").value === "box" ? "its bounds" : "the population";
  if ($("genome-form").value === "rows") {
    const rows = order(), image = new ImageData(v, n);
    rows.forEach((r, y) => { for (let k = 0; k < v; k++) image.data.set([...viridis[level(r, k)], 255], 4 * (y * v + k)); });
    const { c, w, h, x, dw, dh } = pixels("genome", image, v, n, false, 26, 62);
    c.fillStyle = colour.soft; c.textBaseline = "top"; c.textAlign = "center";
    let free = -1;
    for (let k = 0; k < v; k++) {
      const name = facts.variables[k].length > 14 ? facts.variables[k].slice(0, 13) + "…" : facts.variables[k];
      const half = c.measureText(name).width / 2 + 5, at = Math.min(w - half, Math.max(x + half - 5, x + (k + 0.5) / v * dw));
      if (at - half < free) continue;
      c.fillText(name, at, dh + 5);
      free = at + half;
    }
    c.save(); c.translate(4, dh / 2); c.rotate(-Math.PI / 2); c.fillText("individuals, best at the top", 0, 0); c.restore();
    scaleBar(c, x + dw / 2, h - 28, VIRIDIS, "lowest", "highest");
    $("genome-note").textContent = `Colours: each variable over ${whole}. ` + thinned(true);
    return;
  }
  const tile = Math.ceil(Math.sqrt(n)), tileRows = Math.ceil(n / tile), tiles = Math.ceil(v / 4);
  const across = Math.min(tiles, Math.ceil(Math.sqrt(tiles * 1.6))), down = Math.ceil(tiles / across), gap = Math.max(1, Math.round(tile / 32));
  const W = across * tile + (across - 1) * gap, H = down * tileRows + (down - 1) * gap, image = new ImageData(W, H);
  for (let t = 0; t < tiles; t++) for (let r = 0; r < n; r++) {
    const y = Math.floor(t / across) * (tileRows + gap) + Math.floor(r / tile), x = (t % across) * (tile + gap) + r % tile;
    const rgba = [0, 1, 2, 3].map((k) => 4 * t + k < v ? level(r, 4 * t + k) : k === 3 ? 255 : 0);
    const over = (k) => 255 + (rgba[k] - 255) * rgba[3] / 255;  // on white
    image.data.set([over(0), over(1), over(2), 255], 4 * (y * W + x));
  }
  pixels("genome", image, W, H, true);
  $("genome-note").textContent = `A tile for every four variables (red, green, blue, opacity), a pixel an individual; each variable over ${whole}. ` + thinned(true);
};

draw.fitness = () => {
  if (!frame) return;
  const m = frame.objectives, n = frame.shown, k = Math.min(m - 1, Number($("fitness-k").value || 0));
  const list = [];
  for (let r = 0; r < n; r++) list.push(frame.values[r * m + k]);
  const [low, high] = $("fitness-scale").value === "run" && firstRange && firstRange[k] ? firstRange[k] : range([list]);
  const w = Math.ceil(Math.sqrt(n * 1.6)), h = Math.ceil(n / w), image = new ImageData(w, h);
  for (let r = 0; r < n; r++) {
    const g = !isFinite(list[r]) ? 255 : high > low ? Math.max(0, Math.min(255, Math.round(255 * (list[r] - low) / (high - low)))) : 0;
    image.data.set([g, g, g, 255], 4 * r);
  }
  const { c, w: sw, h: sh } = pixels("fitness", image, w, h, true, 0, 34);
  scaleBar(c, sw / 2, sh - 26, [[0, 0, 0], [255, 255, 255]], short(low), short(high));
  $("fitness-note").textContent = `One pixel an individual, in the order of the population; dark is ${facts.settings.maximize ? "low" : "better"}. ` + thinned(false);
};

function thinned(variables) {
  const parts = [];
  if (facts.shown < facts.population) parts.push(`${count(facts.shown)} of ${count(facts.population)} individuals`);
  if (variables && facts.variables.length < facts.dim) parts.push(`the first ${facts.variables.length} of ${facts.dim} variables`);
  return parts.length ? `Shown: ${parts.join(", ")}.` : "";
}

function plan(...names) {
  for (const name of names) dirty.add(name);
  if (!planned) { planned = true; requestAnimationFrame(paint); }
}
// Points move five times a second; curves and maps change slowly and are drawn less often, which spares the machine that
// may be running the run.
const SELDOM = new Set(["curve", "feasible", "spread", "genome", "fitness"]);
let seldomAt = 0;
function paint() {
  planned = false;
  if (!facts) return;
  const now = performance.now(), wait = seldomAt + 220 - now, due = dirty;
  dirty = new Set();
  let drawn = false;
  for (const name of due) {
    if (SELDOM.has(name) && wait > 0) dirty.add(name);
    else if (!$("card-" + name).hidden) { draw[name](); drawn = drawn || SELDOM.has(name); }
  }
  if (drawn) seldomAt = now;
  if (dirty.size && !waiting) waiting = setTimeout(() => { waiting = 0; plan(); }, wait + 5);
}
let waiting = 0;
const everything = () => { seldomAt = 0; return plan("curve", "feasible", "spread", "front", "scatter", "genome", "fitness"); };

// ---- news, facts, frames, contours

function options(id, names, chosen) {
  $(id).replaceChildren(...names.map((name, k) => new Option(name, k, k === chosen, k === chosen)));
}

async function learn(session) {
  facts = null; frame = null; contours = null; firstRange = null;
  const answer = await fetch(address("facts"));
  if (!answer.ok) return;
  facts = await answer.json();
  const s = facts.settings;
  document.title = `${facts.name} · galapax`;
  $("title").textContent = facts.title;
  $("subtitle").textContent = (facts.title === facts.name ? "" : `${facts.name} · `) + `${s.algorithm} · ${count(facts.population)} individuals, ${facts.dim} variables` +
    (s.runs > 1 ? `, ${count(s.runs)} runs` : "") + ` · seed ${s.seed} · ${s.dtype} on ${s.device}`;
  $("best-name").textContent = s.maximize ? "best (largest) value" : "best value";
  $("violation-box").hidden = $("share-box").hidden = $("card-feasible").hidden = !facts.constrained;
  $("runs-box").hidden = $("run-label").hidden = s.runs === 1;
  $("run").max = s.runs - 1;
  $("limit").textContent = facts.generations ? ` of ${count(facts.generations)}` : "";
  options("scatter-x", facts.variables, 0);
  options("scatter-y", facts.variables, Math.min(1, facts.variables.length - 1));
  $("card-scatter").hidden = facts.variables.length < 2;
  $("anew").hidden = facts.dim < 3 || !facts.contours;
  const rows = Object.entries(s).flatMap(([name, value]) => value && typeof value === "object"
    ? Object.entries(value).map(([k, v]) => [`${name === "hyperparameters" ? "" : name + ", "}${k}`, v]) : [[name, value]]);
  $("settings").replaceChildren(...rows.filter(([, v]) => v !== null).map(([name, value]) => {
    const row = document.createElement("div"), words = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    for (const [kind, t] of [["dt", name.replaceAll("_", " ")], ["dd", words]]) {
      const cell = document.createElement(kind);
      cell.textContent = t;
      row.append(cell);
    }
    return row;
  }));
  $("footer").textContent = "The run does not wait for this page: at most five frames a second are taken, between chunks of generations. " +
    "Long curves keep at most 2000 points. " + thinned(true);
  $("fitness-k").replaceChildren();  // another run may have other objectives
  prepareObjectives(facts.objectives.length || 1);
  everything();
}

function prepareObjectives(m) {
  if ($("fitness-k").options.length === m) return;
  const names = Array.from({ length: m }, (_, k) => facts.objectives[k] || (m > 1 ? `objective ${k + 1}` : "fitness"));
  for (const id of ["front-x", "fitness-k", "scatter-k"]) options(id, names, 0);
  options("front-y", names, Math.min(1, m - 1));
  $("card-front").hidden = $("fitness-k-label").hidden = $("scatter-k-label").hidden = m < 2;
  $("best-box").hidden = m > 1;  // with several objectives no value is the best
  $("card-spread").hidden = m > 1 || facts.settings.runs === 1;
  const cards = [...document.querySelectorAll("main > article")].filter((card) => !card.hidden && card.id !== "card-settings");
  document.querySelector("main").dataset.cards = cards.length;
}

async function fetchFrame() {
  if (fetching || !facts) return;
  fetching = true;
  try {
    const data = await (await fetch(address("frame"))).arrayBuffer();
    if (data.byteLength && facts) {
      const length = new DataView(data).getUint32(0, true);
      const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
      let at = 4 + length;
      const { shown: n, variables: v, objectives: m } = head;
      const values = new Float64Array(data, at, n * m);
      at += 8 * n * m;
      const violation = head.violation ? new Float64Array(data, at, n) : null;
      at += head.violation ? 8 * n : 0;
      frame = { ...head, hasViolation: head.violation, values, violation, x: new Float32Array(data, at, n * v) };
      firstRange = firstRange || Array.from({ length: m }, (_, k) => range([Array.from({ length: n }, (_, r) => values[r * m + k])]));
      prepareObjectives(m);
      $("genome").dataset.generation = head.generation;
      if (!contours && facts.variables.length > 1) fetchContours(false);
      plan("front", "scatter", "genome", "fitness");
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;  // a connection that broke shows in the state
  } finally {
    fetching = false;
  }
  if (news && frame && news.frame > frame.frame && document.visibilityState === "visible") setTimeout(fetchFrame, 60);
}

async function fetchContours(anew) {
  const first = Number($("scatter-x").value), second = Number($("scatter-y").value), objective = Number($("scatter-k").value || 0);
  const session = lastSession, query = { a: first, b: second, k: objective };
  if (anew) query.anew = 1;
  contours = { first: -1, second: -1 };
  plan("scatter");
  const answer = await fetch(address("contours", query));
  const grid = await answer.json();
  if (session !== lastSession || first !== Number($("scatter-x").value) || second !== Number($("scatter-y").value)) return;
  contours = { ...grid, first, second, picture: grid.values ? contourPicture(grid) : null };
  plan("scatter");
}

function tell(words, bad) {
  $("note").hidden = !words;
  $("note").textContent = words;
  $("note").classList.toggle("bad", !!bad);
}

async function hear(event) {
  const message = JSON.parse(event.data);
  if (message.session !== lastSession) {
    lastSession = message.session;
    points = [];
    tell("");
    news = message;
    await learn(message.session);
  }
  if (message.session !== lastSession) return;
  if (message.whole) points = [];
  for (const p of message.points) points.push(p);
  news = message;
  showNews();
  if (!frame || message.frame > frame.frame) fetchFrame();
  plan("curve", "feasible", "spread");
}

function put(id, words) {
  if ($(id).textContent !== words) $(id).textContent = words;
}
function showNews() {
  const ended = news.state === "finished" || news.state === "failed";
  const state = ended || news.state === "starting" ? news.state : news.held ? "paused" : "running";
  put("state", state === "starting" ? "compiling" : state);
  $("state").className = "pill " + state;
  if (ended) tell(news.message, news.state === "failed");
  for (const id of ["pause", "step", "stop", "speed"]) $(id).disabled = ended;
  put("pause", news.held ? "Resume" : "Pause");
  if (document.activeElement !== $("speed")) {
    const k = SPEEDS.findIndex((s) => s === news.speed);
    $("speed").value = k < 0 ? SPEEDS.length - 1 : k;
  }
  put("speed-text", news.speed === null ? "fastest" : `${news.speed} generations/s`);
  put("generation", count(news.generation));
  $("generation").dataset.value = news.generation;
  $("done").style.width = facts && facts.generations ? `${100 * news.generation / facts.generations}%` : "0";
  put("best", text(news.best, 7));
  put("violation", news.violation === undefined ? "–" : text(news.violation, 3));
  put("share", news.share === undefined ? "–" : `${(100 * news.share).toFixed(news.share < 0.1 ? 1 : 0)} %`);
  put("runs", news.runs_done === undefined ? "–" : `${count(news.runs_done)} of ${count(news.batch_runs)}`);
  put("nfev", count(news.nfev));
  put("rate", news.evaluations_per_second === undefined ? "–" : short(news.evaluations_per_second));
  put("seconds", duration(news.seconds));
  put("left", ended ? "–" : duration(news.left));
}

async function command(name, value) {
  const body = JSON.stringify(value === undefined ? { command: name } : { command: name, value });
  try {
    const answer = await fetch(address("command"), { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok && news && news.state !== "finished") tell(await answer.text(), true);
  } catch {
    tell("The page cannot reach the run any more.", true);
  }
}

$("pause").onclick = () => command(news && news.held ? "resume" : "pause");
$("step").onclick = () => command("step");
$("stop").onclick = () => command("stop");
$("speed").oninput = () => {
  const speed = SPEEDS[Number($("speed").value)];
  $("speed-text").textContent = speed === null ? "fastest" : `${speed} generations/s`;
  command("speed", speed);
};
$("run").onchange = () => command("run", Number($("run").value));
$("log").onchange = everything;
for (const id of ["genome-form", "genome-scale", "fitness-scale", "fitness-k"]) $(id).onchange = everything;
for (const id of ["front-x", "front-y"]) $(id).onchange = () => plan("front");
for (const id of ["scatter-x", "scatter-y", "scatter-k"]) $(id).onchange = () => fetchContours(false);
$("anew").onclick = () => fetchContours(true);
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") { event.preventDefault(); $("pause").click(); }
  if (event.key === "ArrowRight") { event.preventDefault(); $("step").click(); }
});
window.addEventListener("resize", everything);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") { fetchFrame(); everything(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  if (contours && contours.values) contours.picture = contourPicture(contours);
  everything();
});
readColours();
const source = new EventSource(address("events"));
let hearing = Promise.resolve();
source.onmessage = (event) => { hearing = hearing.then(() => hear(event)); };
source.onerror = () => {
  if (news && (news.state === "finished" || news.state === "failed")) { $("state").textContent = news.state + ", page closed"; return; }
  $("state").textContent = "no connection";
  $("state").className = "pill lost";
};
