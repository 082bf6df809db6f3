"use strict";
// The live page. The state of the run comes as server-sent events; the page fetches a frame, the population, when it has
// drawn the one before. Each card of the page has one function in `draw`.
// Points of the curve are [generation, best.. , median.. , worst.. (one each per objective), feasible share, and then
// quantiles of the runs' best, or the hypervolume].
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, null];
const BLUE = "var(--c0)", ORANGE = "var(--c3)", GREEN = "var(--c2)", GREY = "var(--soft)", DOT = "var(--dot)";
const DESCRIPTIONS = { curve: "fitness by generation", feasible: "share of feasible individuals", spread: "best values of the runs",
  front: "population in the space of objectives", scatter: "population over the contours of the objective",
  genome: "variables of the population", fitness: "fitness of the population" };
let facts = null, runState = null, frame = null, points = [], contours = null, firstRange = null;
let dirty = new Set(), isDrawPending = false, isFetching = false, lastSession = "", savedRunsOf = "";

function address(path, query = {}) {
  const parameters = new URLSearchParams(query);
  if (token) parameters.set("token", token);
  const text = parameters.toString();
  return path + (text ? "?" + text : "");
}
function formatDuration(s) {
  if (!isNumber(s)) return "–";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}
const formatRoughDuration = (s) => s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
const shortNumber = (v) => formatNumber(v, 3);

// --- variables: a page is sent genes, one number each, and shows what they stand for ---
const geneScale = (k) => facts.scales ? facts.scales[k] : null;
const isDiscrete = (k) => !!geneScale(k) && geneScale(k).kind !== "log";
function geneValue(k, gene) {  // what is drawn: codes are whole numbers, as the functions get them
  const scale = geneScale(k);
  if (!scale) return gene;
  return scale.kind === "log" ? Math.exp(gene) : clamp(Math.round(gene), scale.first, scale.last);
}
function geneText(k, gene, digits = 6) {
  const scale = geneScale(k), value = geneValue(k, gene);
  return scale && scale.labels ? scale.labels[value] : isDiscrete(k) ? String(value) : formatNumber(value, digits);
}
function geneAxis(k) {  // the range of an axis, and the kind of a discrete one
  const scale = geneScale(k), [low, high] = [facts.lower[k], facts.upper[k]], margin = 0.025 * (high - low);
  if (scale && scale.kind === "log") return { range: [Math.exp(low - margin), Math.exp(high + margin), true], kind: null };
  return { range: [low - margin, high + margin, false], kind: !isDiscrete(k) ? null : scale.labels || "integer" };
}

// --- charts: axes that can be zoomed, and what the pointer finds on them ---
const charts = {}, views = {};  // views: the part of a chart that was zoomed into
for (const [id, alt] of Object.entries(DESCRIPTIONS)) {
  const chart = charts[id] = createChart($("card-" + id), { alt, fill: true });
  Object.assign(chart, { curves: [], clouds: [], bars: null, cellAt: null, place: null, pointer: null });
  chart.draw = () => requestDraw(id);
  watchPointer(id, chart);
}
function openPlot(id, xs, ys, names, kinds = []) {
  const chart = charts[id], kind = `${names}${xs[2]}${ys[2]}`;  // a part chosen on other axes means nothing
  const view = views[id] && views[id].kind === kind ? views[id] : { kind, x: xs, y: ys };
  clearChart(chart);
  chart.place = drawAxes(chart, view.x, view.y, names, kinds);
  chart.layer = addClippedLayer(chart.svg, chart.place);
  Object.assign(chart, { view, names });
  return chart;
}
function clearChart(chart) {
  chart.begin();
  chart.legend.replaceChildren();
  Object.assign(chart, { curves: [], clouds: [], bars: null, cellAt: null, place: null });
}
function addCurve(chart, name, xs, ys, colour, style = {}) {
  chart.curves.push({ name, xs, ys, colour, dots: style.dots });
  const at = () => xs.map((x, i) => [chart.place.x.at(x), chart.place.y.at(ys[i])]);
  if (style.dots) {
    drawDots(chart.layer, at(), 4, colour);
    return addLegendEntry(chart, name, (svg) => drawDots(svg, [[13, 6]], 6, colour));
  }
  drawCurve(chart.layer, chart.place, xs, ys, colour, style);
  if (xs.length === 1) drawDots(chart.layer, at(), 6, colour);
  addLegendEntry(chart, name, paintLine(colour, style.dash));
}
function addBand(chart, xs, low, high, colour, opacity, name) {
  drawBand(chart.layer, chart.place, xs, low, high, colour, opacity);
  if (name) addLegendEntry(chart, name, paintLine(colour, "", 10, opacity));
}
// cloud: x, y and row of individuals
function addCloud(chart, cloud, width, colour, name, style = "") {
  const at = cloud.x.map((x, i) => [chart.place.x.at(x), chart.place.y.at(cloud.y[i])]).filter(([a, b]) => isNumber(a) && isNumber(b));
  if (cloud.row) chart.clouds.push(cloud);
  drawDots(chart.layer, at, width, colour, style);
  if (name && at.length) addLegendEntry(chart, name, (svg) => drawDots(svg, [[13, 6]], 8, colour, style));
}
function individualRows(row) {
  const m = frame.objectives, shown = Math.min(12, frame.variables);
  const rows = Array.from({ length: m }, (_, k) => [objectiveName(k), formatNumber(frame.values[row * m + k], 7)]);
  if (frame.hasViolation) rows.push(["violation", shortNumber(frame.violation[row])]);
  for (let k = 0; k < shown; k++) rows.push([facts.variables[k], geneText(k, frame.x[row * frame.variables + k])]);
  if (shown < facts.dim) rows.push([`… ${facts.dim - shown} more`, ""]);
  return rows;
}
function showTipAt(chart, [px, py]) {
  const { place } = chart;
  if (chart.cellAt) {
    const cell = chart.cellAt(px, py), variable = cell && cell.variable !== undefined ? `, ${facts.variables[cell.variable]}` : "";
    return cell && frame ? chart.showTip(px, py, `individual ${cell.row}${variable}`, individualRows(cell.row)) : chart.hideTip();
  }
  if (!place || px < place.left || px > place.right || py < place.top || py > place.bottom) return chart.hideTip();
  let nearest = null, least = 14 * 14;
  for (const cloud of chart.clouds) cloud.row.forEach((row, i) => {
    const distance = (place.x.at(cloud.x[i]) - px) ** 2 + (place.y.at(cloud.y[i]) - py) ** 2;
    if (distance < least) { least = distance; nearest = row; }
  });
  if (nearest !== null && frame) return chart.showTip(px, py, `individual ${nearest}`, individualRows(nearest));
  const bar = chart.bars && chart.bars.find(({ low, high }) => place.x.at(low) <= px && px <= place.x.at(high));
  if (bar) return chart.showTip(px, py, `${shortNumber(bar.low)} to ${shortNumber(bar.high)}`, [["share of runs", `${shortNumber(100 * bar.share)} %`]]);
  if (!chart.curves.length || !chart.curves[0].xs.length) return chart.hideTip();
  const closest = (xs) => xs.reduce((best, x, i) => (Math.abs(place.x.at(x) - px) < Math.abs(place.x.at(xs[best]) - px) ? i : best), 0);
  const { xs } = chart.curves[0], x = xs[closest(xs)];
  const last = (curve) => curve.ys[Math.max(0, curve.xs.findLastIndex((v) => v <= x))];  // the value at x, or the last one before
  const shown = chart.curves.filter((curve) => !curve.dots || curve.xs.includes(x));  // dots have no value between them
  chart.showTip(px, py, `${chart.names[0]} ${formatCount(x)}`, shown.map((curve) => [curve.name, formatNumber(last(curve)), curve.colour]));
}
function watchPointer(id, chart) {  // the pointer shows values, dragging zooms in, a double click shows everything again
  const canZoom = !["genome", "fitness"].includes(id), box = addElement(chart.plot, "div", { class: "zoom" });
  let start = null;
  box.hidden = true;
  chart.plot.addEventListener("pointermove", (event) => {
    if (!chart.svg) return;
    const end = chart.pointer = chart.pointerPosition(event);
    if (!start) return showTipAt(chart, end);
    chart.hideTip();
    box.hidden = false;
    const [left, top] = [0, 1].map((i) => Math.min(start[i], end[i])), [width, height] = [0, 1].map((i) => Math.abs(start[i] - end[i]));
    Object.assign(box.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  });
  chart.plot.addEventListener("pointerleave", () => { chart.pointer = null; if (!start) chart.hideTip(); });
  if (!canZoom) return;
  chart.plot.title = "Drag to zoom in, double-click to see everything";
  chart.plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0 || !chart.place) return;
    start = chart.pointerPosition(event);
    chart.plot.setPointerCapture(event.pointerId);
  });
  chart.plot.addEventListener("pointerup", (event) => {
    const [from, to, { place, view }] = [start, chart.pointerPosition(event), chart];
    start = null;
    box.hidden = true;
    if (!from || !place || Math.abs(to[0] - from[0]) < 8 || Math.abs(to[1] - from[1]) < 8) return;
    const inX = (p) => place.x.value(clamp(p, place.left, place.right)), inY = (p) => place.y.value(clamp(p, place.top, place.bottom));
    const sorted = (a, b) => [Math.min(a, b), Math.max(a, b)];
    views[id] = { kind: view.kind, x: [...sorted(inX(from[0]), inX(to[0])), view.x[2]], y: [...sorted(inY(from[1]), inY(to[1])), view.y[2]] };
    redrawAll();
  });
  chart.plot.addEventListener("pointercancel", () => { start = null; box.hidden = true; });
  chart.plot.addEventListener("dblclick", () => { delete views[id]; redrawAll(); });
}

// --- what the cards draw ---
const countObjectives = () => (frame ? frame.objectives : Math.max(1, facts.objectives.length));
const objectiveName = (k) => facts.objectives[k] || (countObjectives() > 1 ? `f${k + 1}` : "fitness");
const isMaximised = (k) => Array.isArray(facts.settings.maximize) ? facts.settings.maximize[k] : facts.settings.maximize;
const individualsName = () => (facts.settings.algorithm === "minima" ? "minima" : "individuals");
const signOf = (k) => (isMaximised(k) ? -1 : 1);
const curveColumn = (k) => points.map((p) => (isNumber(p[k]) ? p[k] : NaN));
const whereFinite = (xs, ys) => { const rows = xs.map((_, i) => i).filter((i) => Number.isFinite(ys[i])); return [rows.map((i) => xs[i]), rows.map((i) => ys[i])]; };
const lastGeneration = () => Math.max(2, points.length ? points[points.length - 1][0] : 2);

// What the log scale shows: distances from the best known value, the values themselves, or distances from the best so far.
function toLogScale(lists) {
  const [low, high] = extremes(...lists), { maximize, optimum } = isMaximised(0) ? { maximize: true, optimum: null } : { maximize: false, optimum: facts.optimum };
  let reference = 0, name = null, sign = 1;
  if (isNumber(optimum)) {
    reference = optimum;
    name = optimum === 0 ? null : `above the best known (${formatNumber(optimum, 10)})`;
  } else if (!(low > 0)) {
    reference = maximize ? high : low;
    sign = maximize ? -1 : 1;
    name = `${maximize ? "below" : "above"} the best so far (${formatNumber(reference, 10)})`;
  }
  return { lists: lists.map((list) => list.map((v) => (sign * (v - reference) > 0 ? sign * (v - reference) : NaN))), name };
}
function valueAxis(lists, log) {
  const [low, high] = extremes(...lists);
  if (!(low <= high)) return [log ? 0.1 : 0, 1, log];
  if (!log) return [...rangeWithMargin(...lists), false];
  const margin = (high / low) ** 0.04;
  return [low / margin, high * margin, true];
}
const draw = {};
draw.curve = () => {
  const m = countObjectives(), nRuns = facts.settings.runs, xs = curveColumn(0), first = 2 + 3 * m;
  const volume = m > 1 ? curveColumn(first) : [], hasVolume = volume.some(Number.isFinite);
  const isEnsemble = m === 1 && nRuns > 1;
  const columns = hasVolume ? [volume] : isEnsemble ? [0, 1, 2, 3, 4].map((k) => curveColumn(first + k))
    : Array.from({ length: facts.map ? 1 : m > 1 ? m : 3 }, (_, k) => curveColumn(1 + k));
  $("curve-title").textContent = hasVolume ? "Hypervolume by generation" : facts.map ? "Best value by generation"
    : m > 1 ? "Best of each objective by generation"
    : isEnsemble ? "Best value by generation, over the runs" : "Fitness by generation";
  let lists = columns, isLog = false, name = m > 1 ? (hasVolume ? "hypervolume" : "value") : objectiveName(0);
  if ($("log").checked && m === 1) {
    const distances = toLogScale(columns);
    if (distances.lists.some((list) => list.some(Number.isFinite))) { lists = distances.lists; isLog = true; name = distances.name || name; }
  } else if ($("log").checked && !hasVolume) isLog = extremes(...columns)[0] > 0;
  const chart = openPlot("curve", [1, lastGeneration(), false], valueAxis(lists, isLog), ["generation", name]);
  if (hasVolume) {
    const estimated = m > 3 ? "estimated hypervolume" : "hypervolume";
    addCurve(chart, `${estimated} of the feasible points, larger is better`, ...whereFinite(xs, volume), BLUE);
  } else if (m > 1) lists.forEach((ys, k) => addCurve(chart, objectiveName(k), ...whereFinite(xs, ys), seriesColour(k), { dash: DASHES[Math.floor(k / 8) % 4] }));
  else if (isEnsemble) {
    const floor = extremes(lists[0])[0], [best, lower, middle, upper, worst] = lists;  // where the log scale has no value
    const atLeast = (ys) => ys.map((v, i) => (Number.isFinite(v) ? v : Number.isFinite(upper[i]) ? floor : NaN));
    addBand(chart, xs, atLeast(best), worst, BLUE, 0.16, "all runs");
    addBand(chart, xs, atLeast(lower), upper, BLUE, 0.3, "middle half");
    addCurve(chart, "best run", ...whereFinite(xs, best), BLUE, { width: 1.4, dash: "5 3" });
    addCurve(chart, "median run", ...whereFinite(xs, middle), BLUE, { width: 2.4 });
  } else {
    const [best, median, worst] = lists;
    addBand(chart, xs, best, worst, BLUE, 0.16);
    addCurve(chart, "best so far", ...whereFinite(xs, best), BLUE, { width: 2.6 });
    // measured at some generations alone, where the dots are: a line between them could cross the best or the worst
    addCurve(chart, "median of the generation", ...whereFinite(xs, median), ORANGE, { dots: true });
    addCurve(chart, "worst of the generation", ...whereFinite(xs, worst), GREY, { width: 1.4 });
  }
  drawSearches(chart);
  $("curve").dataset.points = xs.length;
};
function drawSearches(chart) {  // where a run restarted, and what followed the search
  const restarts = (runState.searches || []).filter(([generation]) => generation > 0);
  let row = 0;
  restarts.forEach(([generation, algorithm], i) => {
    const before = i ? restarts[i - 1][1] : (runState.searches[0] || [0, ""])[1];
    drawEvent(chart.layer, chart.place, generation, algorithm !== before ? algorithm : "", algorithm !== before ? row++ % 3 : 0);
  });
  if (restarts.length) addLegendEntry(chart, "restart", (svg) => addElement(svg, "line", { x1: 13, x2: 13, y1: 0, y2: 12, style: "stroke: var(--soft)", "stroke-dasharray": "2 3" }));
  if (runState.after_search) drawEvent(chart.layer, chart.place, ...runState.after_search, row % 3);
}

draw.feasible = () => {
  const [xs, ys] = whereFinite(curveColumn(0), curveColumn(1 + 3 * countObjectives()));
  const chart = openPlot("feasible", [1, lastGeneration(), false], [0, 1.02, false], ["generation", "feasible share"]);
  addBand(chart, xs, ys.map(() => 0), ys, BLUE, 0.16);
  addCurve(chart, "feasible share", xs, ys, BLUE);
};

draw.spread = () => {
  const values = (runState.values || []).filter((v) => v !== null), N_BINS = 40;
  let list = values, isLog = false, name = `best ${objectiveName(0)} of a run`;
  if ($("log").checked && values.length) {
    const distances = toLogScale([values]), positive = distances.lists[0].filter(Number.isFinite);
    if (positive.length) { list = positive; isLog = true; name = distances.name || name; }
  }
  let [low, high] = list.length ? extremes(list).map((v) => (isLog ? Math.log10(v) : v)) : [0, 1];
  if (!(high > low)) { const margin = Math.max(1e-12, Math.abs(low) * 1e-3); low -= margin; high += margin; }
  const unlog = (v) => (isLog ? 10 ** v : v), shares = new Array(N_BINS).fill(0);
  for (const v of list) shares[Math.min(N_BINS - 1, Math.floor(((isLog ? Math.log10(v) : v) - low) / (high - low) * N_BINS))] += 1 / Math.max(1, values.length);
  const chart = openPlot("spread", [unlog(low), unlog(high), isLog], [0, Math.max(0.05, ...shares) * 1.05, false], [name, "share of runs"]);
  chart.bars = shares.map((share, i) => ({ share, low: unlog(low + i / N_BINS * (high - low)), high: unlog(low + (i + 1) / N_BINS * (high - low)) }));
  for (const bar of chart.bars) {
    const [left, right, top] = [chart.place.x.at(bar.low), chart.place.x.at(bar.high), chart.place.y.at(bar.share)];
    addElement(chart.layer, "rect", { x: left + 0.5, y: top, width: Math.max(1, right - left - 1), height: Math.max(0, chart.place.y.at(0) - top), style: `fill: ${BLUE}` });
  }
  const sorted = [...values].sort((a, b) => isMaximised(0) ? b - a : a - b), digits = digitsToDistinguish(...extremes(values), 7);
  const at = (q) => formatNumber(sorted[Math.round(q * (sorted.length - 1))], digits);
  const total = facts.settings.runs, n = runState.batch_runs || total, nFeasible = runState.feasible_runs;
  const notes = sorted.length ? [`best ${at(0)} · quartiles ${at(0.25)}, ${at(0.5)}, ${at(0.75)} · worst ${at(1)}.`] : [];
  if (nFeasible !== undefined && nFeasible < n) notes.push(`${n - nFeasible} of ${n} runs have no feasible point yet.`);
  if (isLog && list.length < values.length) notes.push(`${values.length - list.length} of the ${values.length} values lie at or beyond the left end.`);
  if (n < total) notes.push(`Runs ${runState.first_run} to ${runState.first_run + n - 1} of ${total} are shown, as many as fit in memory at once.`);
  setText("spread-note", notes.join(" "));
};

function drawMap() {  // the elites of a grid over two measures, coloured by their value
  const { cells, ranges } = facts.map, m = frame.objectives, sign = signOf(0), value = (r, k) => frame.values[r * m + k];
  const rows = Array.from({ length: frame.shown }, (_, r) => r).filter((r) => Number.isFinite(value(r, 0)));
  // of an archive that was thinned some cells are missing: the best of a block of cells stands for all of them
  const block = rows.length < facts.max_individuals ? 1 : Math.max(1, Math.ceil(cells[0] * cells[1] / rows.length));
  const [width, height] = cells.map((n) => Math.ceil(n / block)), elite = new Int32Array(width * height).fill(-1);
  const place = (r, k) => Math.floor(clamp(Math.floor((value(r, k + 1) - ranges[k][0]) / (ranges[k][1] - ranges[k][0]) * cells[k]), 0, cells[k] - 1) / block);
  for (const r of rows) {
    const at = (height - 1 - place(r, 1)) * width + place(r, 0);
    if (elite[at] < 0 || sign * value(r, 0) < sign * value(elite[at], 0)) elite[at] = r;
  }
  const chart = openPlot("front", [...ranges[0], false], [...ranges[1], false], [objectiveName(1), objectiveName(2)]);
  const style = getComputedStyle(document.documentElement), [low, high] = extremes(rows.map((r) => value(r, 0)));
  const [from, to] = ["low", "high"].map((name) => style.getPropertyValue("--" + name).trim().match(/[\d.]+/g).map(Number));
  const image = imageUrl(width, height, (q, r) => {
    const row = elite[r * width + q], share = row < 0 || !(high > low) ? 0 : (value(row, 0) - low) / (high - low);
    return row < 0 ? null : from.map((c, i) => c + (to[i] - c) * (sign > 0 ? share : 1 - share));
  });
  const end = (k) => ranges[k][0] + (ranges[k][1] - ranges[k][0]) * [width, height][k] * block / cells[k];
  const [left, right, bottom, top] = [chart.place.x.at(ranges[0][0]), chart.place.x.at(end(0)), chart.place.y.at(ranges[1][0]), chart.place.y.at(end(1))];
  drawImage(chart.layer, image, left, top, right - left, bottom - top, true);
  chart.clouds.push({ x: rows.map((r) => value(r, 1)), y: rows.map((r) => value(r, 2)), row: rows });
  addLegendEntry(chart, `${objectiveName(0)} ${formatNumber(sign > 0 ? low : high, 4)}`, (svg) => addElement(svg, "rect", { width: 26, height: 12, style: "fill: rgb(var(--low))" }));
  addLegendEntry(chart, formatNumber(sign > 0 ? high : low, 4), (svg) => addElement(svg, "rect", { width: 26, height: 12, style: "fill: rgb(var(--high))" }));
  if (block > 1) addLegendEntry(chart, `${block} × ${block} cells drawn as one`, () => {});
}
draw.front = () => {
  if (!frame || frame.objectives < 2) return;
  if (facts.map) return drawMap();
  const i = Number($("front-x").value), j = Number($("front-y").value), m = frame.objectives;
  const value = (r, k) => frame.values[r * m + k], cloudOf = (rows) => ({ x: rows.map((r) => value(r, i)), y: rows.map((r) => value(r, j)), row: rows });
  const rows = Array.from({ length: frame.shown }, (_, r) => r), feasible = rows.filter(isFeasible), infeasible = rows.filter((r) => !isFeasible(r));
  const isBest = new Set(feasible);
  if (m === 2) {
    const [across, up] = [signOf(i), signOf(j)];
    let least = Infinity;
    for (const r of [...feasible].sort((a, b) => across * (value(a, i) - value(b, i)) || up * (value(a, j) - value(b, j)))) {
      if (up * value(r, j) < least) least = up * value(r, j);
      else isBest.delete(r);
    }
  }
  const truth = { x: (facts.front || []).map((p) => p[i]), y: (facts.front || []).map((p) => p[j]) }, inRange = cloudOf(feasible.length ? feasible : infeasible);
  const chart = openPlot("front", [...rangeWithMargin(inRange.x, truth.x), false], [...rangeWithMargin(inRange.y, truth.y), false], [objectiveName(i), objectiveName(j)]);
  addCloud(chart, cloudOf([...isBest]), 7, DOT, m === 2 ? `non-dominated (${formatCount(isBest.size)})` : "individuals", "stroke: var(--dot-edge); stroke-width: 0.7");
  addCloud(chart, cloudOf(feasible.filter((r) => !isBest.has(r))), 5, BLUE, "dominated", "opacity: 0.45");
  addCloud(chart, truth, 3, GREY, "true front");
  addCloud(chart, cloudOf(infeasible), 4, "var(--line)", "infeasible");
  if (frame.forecast) drawForecast(chart, chart.layer, frame.forecast, [i, j], (x, y) => [chart.place.x.at(x), chart.place.y.at(y)]);
};

function contourImage(grid, first, second) {  // the objective over two variables in bands of colour, as a data URL
  const SIZE = 360, N_BANDS = 11, style = getComputedStyle(document.documentElement);
  const [low, high, line, hatch] = ["low", "high", "contour", "hatch"].map((name) => style.getPropertyValue("--" + name).trim().match(/[\d.]+/g).map(Number));
  const weight = [second, first].map((k) => isDiscrete(k) ? Math.round : (v) => v);  // nothing lies between whole numbers
  const { side, values, feasible } = grid, sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const largest = sorted[sorted.length - 1], at = (k) => (values[k] === null ? largest : values[k]);
  const levels = Array.from({ length: N_BANDS - 1 }, (_, k) => sorted[Math.floor((k + 1) / N_BANDS * (sorted.length - 1))]);
  const bandOf = new Uint8Array(SIZE * SIZE), mix = (a, b, t) => [0, 1, 2].map((i) => a[i] + (b[i] - a[i]) * t);
  for (let r = 0; r < SIZE; r++) for (let q = 0; q < SIZE; q++) {
    const up = (SIZE - 1 - r) / (SIZE - 1) * (side - 1), across = q / (SIZE - 1) * (side - 1);
    const a = Math.min(side - 2, Math.floor(up)), b = Math.min(side - 2, Math.floor(across)), u = weight[0](up - a), v = weight[1](across - b);
    const value = (at(a * side + b) * (1 - v) + at(a * side + b + 1) * v) * (1 - u) + (at((a + 1) * side + b) * (1 - v) + at((a + 1) * side + b + 1) * v) * u;
    let band = 0;
    while (band < levels.length && value > levels[band]) band++;
    bandOf[r * SIZE + q] = band;
  }
  return imageUrl(SIZE, SIZE, (q, r) => {
    const band = bandOf[r * SIZE + q], share = band / (N_BANDS - 1);
    let rgb = mix(low, high, isMaximised(grid.objective) ? 1 - share : share);
    const isEdge = (q + 1 < SIZE && bandOf[r * SIZE + q + 1] !== band) || (r + 1 < SIZE && bandOf[(r + 1) * SIZE + q] !== band);
    if (isEdge) rgb = mix(rgb, line, line[3]);
    const row = Math.round((SIZE - 1 - r) / (SIZE - 1) * (side - 1)), column = Math.round(q / (SIZE - 1) * (side - 1));
    return !feasible[row * side + column] && (q + r) % 8 < 2 ? mix(rgb, hatch, 0.55) : rgb;
  });
}
function imageUrl(width, height, colourAt) {  // pixels as a PNG in a data URL
  const canvas = document.createElement("canvas"), image = new ImageData(width, height);
  [canvas.width, canvas.height] = [width, height];
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const rgb = colourAt(x, y);
    if (rgb) image.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * (y * width + x));
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL();
}

draw.scatter = () => {
  const i = Number($("scatter-x").value), j = Number($("scatter-y").value);
  if (facts.variables.length < 2) return;
  const grid = contours && contours.first === i && contours.second === j ? contours : null, [across, up] = [geneAxis(i), geneAxis(j)];
  const chart = openPlot("scatter", across.range, up.range, [facts.variables[i], facts.variables[j]], [across.kind, up.kind]);
  if (grid && grid.image) {
    const [left, right] = [facts.lower[i], facts.upper[i]].map((gene) => chart.place.x.at(geneScale(i)?.kind === "log" ? Math.exp(gene) : gene));
    const [bottom, top] = [facts.lower[j], facts.upper[j]].map((gene) => chart.place.y.at(geneScale(j)?.kind === "log" ? Math.exp(gene) : gene));
    drawImage(chart.layer, grid.image, left, top, right - left, bottom - top);
  }
  if (frame) {
    // individuals of the same choice would lie on one point: a little apart they can be seen and counted
    const jitter = (k, r, step) => geneScale(k) && geneScale(k).labels ? 0.5 * (((r + 1) * step) % 1 - 0.5) : 0;
    const position = (k, r, step) => geneValue(k, frame.x[r * frame.variables + k]) + jitter(k, r, step);
    const rows = Array.from({ length: frame.shown }, (_, r) => frame.shown - 1 - r);
    const cloudOf = (list) => ({ x: list.map((r) => position(i, r, 0.754878)), y: list.map((r) => position(j, r, 0.569840)), row: list });
    const infeasible = cloudOf(rows.filter((r) => !isFeasible(r)));
    infeasible.x.forEach((x, n) => drawMarker(chart.layer, "cross", chart.place.x.at(x), chart.place.y.at(infeasible.y[n]), "none", 3).style.setProperty("stroke", DOT));
    chart.clouds.push(infeasible);
    addCloud(chart, cloudOf(rows.filter(isFeasible)), 7, DOT, frame.hasViolation ? "feasible" : individualsName(), "stroke: var(--dot-edge); stroke-width: 0.7");
    if (infeasible.x.length) addLegendEntry(chart, "infeasible", (svg) => drawMarker(svg, "cross", 13, 6, "none", 3).style.setProperty("stroke", DOT));
  }
  if (grid && grid.image) addLegendEntry(chart, isMaximised(grid.objective) ? "high values" : "low values", (svg) => addElement(svg, "rect", { width: 26, height: 12, style: "fill: rgb(var(--low))" }));
  if (grid && grid.feasible && grid.feasible.includes(0)) addLegendEntry(chart, "hatched: infeasible", (svg) => addElement(svg, "rect", { width: 26, height: 12, style: "fill: rgb(var(--hatch))" }));
  setText("scatter-note", !grid ? "Computing contours …" : grid.why ? grid.why
    : facts.dim > 2 ? `Contours with the other variables fixed at the best individual of generation ${formatCount(grid.generation)}.` : "");
};

// --- maps of the population, one cell or pixel per individual ---
const isFeasible = (r) => !frame.hasViolation || frame.violation[r] <= 0;
function sortBestFirst() {  // feasible ones before the others; individuals that were not evaluated are left out
  const m = frame.objectives, sign = signOf(0), violation = (r) => frame.hasViolation ? frame.violation[r] : 0;
  return Array.from({ length: frame.shown }, (_, r) => r).filter((r) => Number.isFinite(frame.values[r * m]))
    .sort((a, b) => violation(a) - violation(b) || sign * (frame.values[a * m] - frame.values[b * m]));
}
function geneRanges() {
  if ($("genome-scale").value === "box") return [facts.lower, facts.upper];
  const columns = Array.from({ length: frame.variables }, (_, k) => extremes(Array.from({ length: frame.shown }, (_, r) => frame.x[r * frame.variables + k])));
  return [columns.map(([low]) => low), columns.map(([, high]) => high)];
}
const viridis = Array.from({ length: 256 }, (_, i) => {
  const at = i / 255 * (VIRIDIS.length - 1), k = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return VIRIDIS[k].map((v, c) => Math.round(v + (VIRIDIS[k + 1][c] - v) * (at - k)));
});
draw.genome = () => {
  if (!frame) return;
  const chart = charts.genome, v = frame.variables, [low, high] = geneRanges();
  const level = (r, k) => high[k] > low[k] ? clamp(Math.round(255 * (frame.x[r * v + k] - low[k]) / (high[k] - low[k])), 0, 255) : 128;
  const scaledTo = $("genome-scale").value === "box" ? "its bounds" : "the population";
  clearChart(chart);
  if ($("genome-form").value === "rows") {
    const rows = sortBestFirst(), n = rows.length, [left, width, height] = [26, chart.width - 26, chart.height - 24];
    if (!n) return;
    drawImage(chart.svg, imageUrl(v, n, (k, y) => viridis[level(rows[y], k)]), left, 0, width, height, n < height);
    chart.cellAt = (px, py) => (px >= left && py < height ? { row: rows[clamp(Math.floor(py / height * n), 0, n - 1)], variable: clamp(Math.floor((px - left) / width * v), 0, v - 1) } : null);
    let free = -1;
    for (let k = 0; k < v; k++) {
      const name = shorten(facts.variables[k]), half = 3.5 * name.length + 4, middle = clamp(left + (k + 0.5) / v * width, left + half - 4, chart.width - half + 4);
      if (middle - half < free) continue;
      addElement(chart.svg, "text", { x: middle, y: height + 16, "text-anchor": "middle" }, name);
      free = middle + half;
    }
    drawAxisName(chart.svg, "individuals, best at the top", 13, height / 2, height, true);
    addColourKey(chart, "lowest", "highest");
    setText("genome-note", `Colours: each variable, scaled to ${scaledTo}. ${thinningNote(true)}`);
    return;
  }
  const n = frame.shown, tile = Math.ceil(Math.sqrt(n)), tileRows = Math.ceil(n / tile), tiles = Math.ceil(v / 4);
  const across = Math.min(tiles, Math.ceil(Math.sqrt(tiles * 1.6))), down = Math.ceil(tiles / across), gap = Math.max(1, Math.round(tile / 32));
  const [width, height] = [across * tile + (across - 1) * gap, down * tileRows + (down - 1) * gap];
  const url = imageUrl(width, height, (x, y) => {
    const [column, row] = [Math.floor(x / (tile + gap)), Math.floor(y / (tileRows + gap))], [dx, dy] = [x % (tile + gap), y % (tileRows + gap)];
    const t = row * across + column, r = dy * tile + dx;
    if (dx >= tile || dy >= tileRows || t >= tiles || r >= n) return null;
    const rgba = [0, 1, 2, 3].map((k) => 4 * t + k < v ? level(r, 4 * t + k) : k === 3 ? 255 : 0);
    return [0, 1, 2].map((k) => 255 + (rgba[k] - 255) * rgba[3] / 255);  // on white
  });
  drawFitted(chart, url, width, height);
  const nInLast = v % 4 || 4, perPixel = tiles === 1 ? `${v} variables in the colour of a pixel` : "four variables in the colour of a pixel";
  setText("genome-note", `One pixel per individual, ${perPixel} (red, green, blue, opacity)${tiles > 1 && nInLast < 4 ? `, the last tile with ${nInLast}` : ""}; scaled to ${scaledTo}. ${thinningNote(true)}`);
};
function drawFitted(chart, url, width, height) {  // as large as it fits, in its proportions; returns [left, size of a pixel]
  const size = Math.min(chart.width / width, chart.height / height), left = (chart.width - width * size) / 2;
  drawImage(chart.svg, url, left, 0, width * size, height * size, size > 1);
  return [left, size];
}
draw.fitness = () => {
  if (!frame) return;
  const chart = charts.fitness, m = frame.objectives, n = frame.shown, k = Math.min(m - 1, Number($("fitness-k").value || 0));
  const values = Array.from({ length: n }, (_, r) => frame.values[r * m + k]);
  const [low, high] = $("fitness-scale").value === "run" && firstRange && firstRange[k] ? firstRange[k] : extremes(values);
  const columns = Math.ceil(Math.sqrt(n * 1.6)), rows = Math.ceil(n / columns);
  const grey = (r) => !isNumber(values[r]) ? 255 : high > low ? clamp(Math.round(255 * (values[r] - low) / (high - low)), 0, 255) : 0;
  clearChart(chart);
  const [left, size] = drawFitted(chart, imageUrl(columns, rows, (x, y) => (y * columns + x < n ? Array(3).fill(grey(y * columns + x)) : null)), columns, rows);
  chart.cellAt = (px, py) => {
    const [column, row] = [Math.floor((px - left) / size), Math.floor(py / size)], r = row * columns + column;
    return column >= 0 && column < columns && r < n ? { row: r } : null;
  };
  addColourKey(chart, formatNumber(low), formatNumber(high), "grey");
  setText("fitness-note", `One pixel per individual, in population order; darker is ${isMaximised(0) ? "lower" : "better"}. ${thinningNote(false)}`);
};
function populationSize() {  // of the search that runs: a restart may have another; a frame has a limited number of individuals
  return frame && frame.shown < facts.max_individuals ? frame.shown : facts.population;
}
function thinningNote(hasVariables) {
  const parts = [];
  if (frame && frame.shown < populationSize()) parts.push(`${formatCount(frame.shown)} of ${formatCount(populationSize())} individuals`);
  if (hasVariables && facts.variables.length < facts.dim) parts.push(`the first ${facts.variables.length} of ${facts.dim} variables`);
  return parts.length ? `Shown: ${parts.join(", ")}.` : "";
}

// --- tables: the best individuals, the settings, the runs saved beside this one ---
function fillTable(body, heads, rows) {
  body.replaceChildren();
  const head = addElement(body, "tr");
  for (const text of heads) addElement(head, "th", {}, text);
  return rows.map((cells) => {
    const row = addElement(body, "tr");
    for (const cell of cells) cell instanceof Node ? addElement(row, "td").append(cell) : addElement(row, "td", {}, cell);
    return row;
  });
}
draw.best = () => {
  if (!frame) return;
  const m = frame.objectives, v = Math.min(8, frame.variables), order = sortBestFirst(), isFront = m > 1 && !facts.map, rows = (isFront ? selectNonDominated(order) : order).slice(0, 10);
  const heads = [...Array.from({ length: m }, (_, k) => objectiveName(k)), ...(frame.hasViolation ? ["violation"] : []), ...facts.variables.slice(0, v)];
  fillTable($("best-rows"), heads, rows.map((r) => [
    ...Array.from({ length: m }, (_, k) => formatNumber(frame.values[r * m + k], 7)), ...(frame.hasViolation ? [shortNumber(frame.violation[r])] : []),
    ...Array.from({ length: v }, (_, k) => geneText(k, frame.x[r * frame.variables + k]))]));
  setText("best-note", (isFront ? "Non-dominated individuals of this generation. " : "The best individuals of this generation. ") +
    (v < facts.dim ? `The first ${v} of ${facts.dim} variables. ` : "") + thinningNote(false));
};
function selectNonDominated(rows) {
  const m = frame.objectives, value = (r, k) => signOf(k) * frame.values[r * m + k];
  const feasible = rows.filter(isFeasible).slice(0, 600), objectives = [...Array(m).keys()];
  const dominates = (a, b) => objectives.every((k) => value(a, k) <= value(b, k)) && objectives.some((k) => value(a, k) < value(b, k));
  return feasible.length ? feasible.filter((r) => !feasible.some((other) => dominates(other, r))) : rows;
}
async function fetchSavedRuns() {
  const runs = await (await fetch(address("runs"))).json();
  const link = (name, text) => Object.assign(document.createElement("a"), { href: address("report", { run: name }), target: "_blank", rel: "noopener", textContent: text });
  $("after").hidden = !runs.some((run) => run.shown && run.report);
  $("report").href = address("report");
  $("card-past").hidden = runs.length < 2;
  const value = (run) => Array.isArray(run.fun) ? run.fun.map(shortNumber).join(", ") : formatNumber(run.fun, 7);
  const rows = fillTable($("past-rows"), ["run", "problem", "algorithm", "best", "feasible", "evaluations", "runs", "seed", ""],
    runs.map((run) => [run.name + (run.shown ? " (this one)" : ""), run.problem, run.algorithm, value(run), run.feasible ? "yes" : "no", formatCount(run.nfev),
      formatCount(run.runs), String(run.seed), run.report && !run.shown ? link(run.name, "report") : ""]));
  rows.forEach((row, i) => { row.className = runs[i].shown ? "shown" : ""; });
}

// --- when to draw ---
function requestDraw(...names) {
  for (const name of names) dirty.add(name);
  if (!isDrawPending) { isDrawPending = true; requestAnimationFrame(paint); }
}
// Points move five times a second; curves and maps change slowly and are drawn less often, which spares the machine that
// may be running the run.
const SLOW_CHARTS = new Set(["curve", "feasible", "spread", "genome", "fitness", "best"]), SLOW_INTERVAL = 220;  // milliseconds
let slowDrawnAt = 0, timer = 0;
function paint() {
  isDrawPending = false;
  if (!facts || !runState) return;
  const now = performance.now(), wait = slowDrawnAt + SLOW_INTERVAL - now, due = dirty;
  dirty = new Set();
  let hasDrawnSlow = false;
  for (const name of due) {
    if (SLOW_CHARTS.has(name) && wait > 0) { dirty.add(name); continue; }
    if ($("card-" + name).hidden) continue;
    draw[name]();
    hasDrawnSlow = hasDrawnSlow || SLOW_CHARTS.has(name);
    const chart = charts[name];
    if (chart && chart.pointer && !chart.tip.hidden) showTipAt(chart, chart.pointer);
  }
  if (hasDrawnSlow) slowDrawnAt = now;
  if (dirty.size && !timer) timer = setTimeout(() => { timer = 0; requestDraw(); }, wait + 5);
}
const redrawAll = () => { slowDrawnAt = 0; requestDraw(...Object.keys(draw)); };

// --- facts, frames and contours from the server ---
const setOptions = (id, names, chosen) => $(id).replaceChildren(...names.map((name, k) => new Option(name, k, k === chosen, k === chosen)));
async function loadFacts() {
  facts = null; frame = null; contours = null; firstRange = null;
  for (const id of Object.keys(views)) delete views[id];
  const answer = await fetch(address("facts"));
  if (!answer.ok) return;
  facts = await answer.json();
  const settings = facts.settings;
  document.title = `${facts.name} · galapax`;
  $("title").textContent = facts.title;
  $("best-name").textContent = isMaximised(0) ? "best (largest) value" : "best value";
  $("violation-box").hidden = $("share-box").hidden = $("card-feasible").hidden = !facts.constrained;
  $("runs-box").hidden = $("run-label").hidden = settings.runs === 1;
  $("run").max = settings.runs - 1;
  $("limit").textContent = facts.generations ? ` of ${formatCount(facts.generations)}` : "";
  setOptions("scatter-x", facts.variables, 0);
  setOptions("scatter-y", facts.variables, Math.min(1, facts.variables.length - 1));
  $("card-scatter").hidden = facts.variables.length < 2;
  $("anew").hidden = facts.dim < 3 || !facts.contours;
  showSettings(settings);
  $("footer").textContent = "The run does not wait for this page, which shows at most five frames per second. Long curves are thinned to 2,000 points.";
  $("fitness-k").replaceChildren();  // another run may have other objectives
  prepareObjectives(facts.objectives.length || 1);
  redrawAll();
}
function showSettings(settings) {
  const rows = Object.entries(settings).flatMap(([name, value]) => value && typeof value === "object"
    ? Object.entries(value).map(([k, v]) => [`${name === "hyperparameters" ? "" : name + ", "}${k}`, v]) : [[name, value]]);
  $("settings").replaceChildren();
  for (const [name, value] of rows.filter(([, v]) => v !== null)) {
    const row = addElement($("settings"), "div");
    addElement(row, "dt", {}, name.replaceAll("_", " "));
    addElement(row, "dd", {}, typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
  }
}
function showSubtitle() {
  const settings = facts.settings, searches = runState.searches || [], running = searches.length ? searches[searches.length - 1][1] : null;
  const restarts = settings.restarts ? ` with restarts (${settings.restarts})` : "";
  setText("subtitle", (facts.title === facts.name ? "" : `${facts.name} · `) + settings.algorithm + restarts +
    (running && running !== settings.algorithm ? `, now ${running}` : "") +
    ` · ${formatCount(populationSize())} ${individualsName()}, ${formatCount(facts.dim)} variables` +
    (settings.runs > 1 ? `, ${formatCount(settings.runs)} runs` : "") + ` · seed ${settings.seed} · ${settings.dtype} on ${settings.device}`);
}
function prepareObjectives(m) {
  if ($("fitness-k").options.length === m) return;
  const names = Array.from({ length: m }, (_, k) => facts.objectives[k] || (m > 1 ? `f${k + 1}` : "fitness"));
  for (const id of ["front-x", "fitness-k", "scatter-k"]) setOptions(id, names, 0);
  setOptions("front-y", names, Math.min(1, m - 1));
  $("card-front").hidden = $("fitness-k-label").hidden = $("scatter-k-label").hidden = m < 2;
  if (facts.map) { setText("front-title", "Map of elites"); $("front-tools").hidden = true; }
  $("best-box").hidden = m > 1 && !facts.map;  // with several objectives no value is the best; a hypervolume may take its place
  $("card-spread").hidden = m > 1 || facts.settings.runs === 1;
  const cards = [...document.querySelectorAll("main > article")].filter((card) => !card.hidden && !card.classList.contains("whole"));
  document.querySelector("main").dataset.cards = cards.length;
  if (runState) showRunState();
}
async function fetchFrame() {
  if (isFetching || !facts) return;
  isFetching = true;
  try {
    const data = await (await fetch(address("frame"))).arrayBuffer();
    if (data.byteLength && facts) readFrame(data);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;  // a connection that broke shows in the state
  } finally {
    isFetching = false;
  }
  if (runState && frame && runState.frame > frame.frame && document.visibilityState === "visible") setTimeout(fetchFrame, 60);
}
function readFrame(data) {
  const length = new DataView(data).getUint32(0, true), head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  const { shown: n, variables: v, objectives: m } = head;
  let at = 4 + length;
  const values = new Float64Array(data, at, n * m);
  at += 8 * n * m;
  const violation = head.violation ? new Float64Array(data, at, n) : null;
  at += head.violation ? 8 * n : 0;
  frame = { ...head, hasViolation: head.violation, values, violation, x: new Float32Array(data, at, n * v) };
  firstRange = firstRange || Array.from({ length: m }, (_, k) => extremes(Array.from({ length: n }, (_, r) => values[r * m + k])));
  prepareObjectives(m);
  showSubtitle();
  $("genome").dataset.generation = head.generation;
  if (!contours && facts.variables.length > 1) fetchContours(false);
  requestDraw("front", "scatter", "genome", "fitness", "best");
}
async function fetchContours(recompute) {
  const first = Number($("scatter-x").value), second = Number($("scatter-y").value), objective = Number($("scatter-k").value || 0);
  const session = lastSession, query = { a: first, b: second, k: objective };
  if (recompute) query.anew = 1;
  contours = { first: -1, second: -1 };
  requestDraw("scatter");
  const answer = await fetch(address("contours", query));
  const grid = await answer.json();
  if (session !== lastSession || first !== Number($("scatter-x").value) || second !== Number($("scatter-y").value)) return;
  contours = { ...grid, first, second, objective };
  contours.image = grid.values ? contourImage(contours, first, second) : null;
  requestDraw("scatter");
}

// --- the state of the run, and the viewer's commands ---
async function onMessage(event) {
  const message = JSON.parse(event.data);
  if (message.session !== lastSession) {
    lastSession = message.session;
    points = [];
    showNote("");
    runState = message;
    await loadFacts();
  }
  if (message.session !== lastSession) return;
  if (message.is_full) points = [];
  for (const p of message.points) points.push(p);
  runState = message;
  showRunState();
  if (!frame || message.frame > frame.frame) fetchFrame();
  requestDraw("curve", "feasible", "spread");
}
function setText(id, words) {
  if ($(id).textContent !== words) $(id).textContent = words;
}
function showNote(words, isError) {
  $("note").hidden = !words;
  $("note").textContent = words;
  $("note").classList.toggle("bad", !!isError);
}
function latestHypervolume() {  // the last one measured, of several objectives with a reference point
  const m = frame ? frame.objectives : facts ? facts.objectives.length : 0;
  return m > 1 ? points.findLast((p) => isNumber(p[2 + 3 * m]))?.[2 + 3 * m] ?? null : null;
}
function showRunState() {
  const isOver = runState.state === "finished" || runState.state === "failed", canReplay = runState.replay || runState.can_replay;
  const state = isOver || runState.state === "starting" ? runState.state : runState.paused ? "paused" : "running";
  setText("state", state === "starting" ? "compiling" : state);
  $("state").className = "pill " + state;
  if (isOver) showNote(runState.message, runState.state === "failed");
  else if (runState.replay) showNote("");
  for (const id of ["pause", "step", "stop", "speed"]) $(id).disabled = isOver && !runState.replay && !(id === "pause" && runState.can_replay);
  setText("pause", canReplay && isOver ? "Play again" : runState.paused ? "Resume" : "Pause");
  if (runState.saved && savedRunsOf !== runState.session + runState.state) { savedRunsOf = runState.session + runState.state; fetchSavedRuns(); }
  if (document.activeElement !== $("speed")) {
    const k = SPEEDS.findIndex((s) => s === runState.speed);
    $("speed").value = k < 0 ? SPEEDS.length - 1 : k;
  }
  setText("speed-text", runState.slow_start ? "slow start" : runState.speed === null ? "fastest" : `${runState.speed} generations/s`);
  setText("generation", formatCount(runState.generation));
  $("generation").dataset.value = runState.generation;
  $("done").style.width = facts && facts.generations ? `${100 * runState.generation / facts.generations}%` : "0";
  const volume = latestHypervolume();
  if (volume !== null) { $("best-box").hidden = false; setText("best-name", "hypervolume"); }
  const interval = volume === null && runState.interval;
  if (facts && facts.settings.noisy && volume === null) setText("best-name", interval ? "mean at x" : "best mean so far");
  $("interval-box").hidden = !interval;
  if (interval) setText("interval", `${formatNumber(interval[0], 4)} to ${formatNumber(interval[1], 4)}`);
  setText("best", formatNumber(volume === null ? runState.best : volume, 6));
  $("best").title = formatNumber(volume === null ? runState.best : volume, 10);
  setText("violation", shortNumber(runState.violation));
  setText("share", isNumber(runState.share) ? `${(100 * runState.share).toFixed(runState.share < 0.1 ? 1 : 0)} %` : "–");
  setText("runs", runState.runs_done === undefined ? "–" : `${formatCount(runState.runs_done)} of ${formatCount(runState.batch_runs)}`);
  setText("nfev", formatCount(runState.nfev));
  $("rate").parentNode.hidden = $("left").parentNode.hidden = $("footer").hidden = !!runState.replay;
  setText("rate", runState.replay || runState.evaluations_per_second === undefined ? "–" : formatCount(runState.evaluations_per_second));
  setText("seconds", formatDuration(runState.seconds));
  setText("in-all", isOver || !(runState.total_seconds >= 10) ? "" : ` of about ${formatRoughDuration(runState.total_seconds)}`);
  setText("left", isOver ? "–" : formatDuration(runState.left));
  if (facts) showSubtitle();
}
async function command(name, value) {
  const body = JSON.stringify(value === undefined ? { command: name } : { command: name, value });
  try {
    const answer = await fetch(address("command"), { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok && runState && runState.state !== "finished") showNote(await answer.text(), true);
  } catch {
    showNote("The connection to the run is lost.", true);
  }
}
$("pause").onclick = () => command(runState && (runState.paused || ((runState.replay || runState.can_replay) && runState.state === "finished")) ? "resume" : "pause");
$("step").onclick = () => command("step");
$("stop").onclick = () => command("stop");
$("speed").oninput = () => {
  const speed = SPEEDS[Number($("speed").value)];
  $("speed-text").textContent = speed === null ? "fastest" : `${speed} generations/s`;
  command("speed", speed);
};
$("run").onchange = () => command("run", Number($("run").value));
$("log").onchange = redrawAll;
for (const id of ["genome-form", "genome-scale", "fitness-scale", "fitness-k"]) $(id).onchange = redrawAll;
for (const id of ["front-x", "front-y"]) $(id).onchange = () => requestDraw("front");
for (const id of ["scatter-x", "scatter-y", "scatter-k"]) $(id).onchange = () => fetchContours(false);
$("anew").onclick = () => fetchContours(true);
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") { event.preventDefault(); $("pause").click(); }
  if (event.key === "ArrowRight") { event.preventDefault(); $("step").click(); }
});
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") { fetchFrame(); redrawAll(); } });
function recolour() {  // the contours alone: all else has its colours from the style sheet
  if (contours && contours.values) contours.image = contourImage(contours, contours.first, contours.second);
  redrawAll();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
matchMedia("print").addEventListener("change", () => { recolour(); paint(); });  // at once: no frame comes before the print
const source = new EventSource(address("events"));
let messageQueue = Promise.resolve();
source.onmessage = (event) => { messageQueue = messageQueue.then(() => onMessage(event)); };
source.onerror = () => {
  if (runState && (runState.state === "finished" || runState.state === "failed")) { $("state").textContent = runState.state + ", page closed"; return; }
  $("state").textContent = "no connection";
  $("state").className = "pill lost";
};
