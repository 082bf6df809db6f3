// One function for each card of the page, which draws the current state.

// What the log scale shows: distances from the best known value, the values themselves, or distances from the best so far.
function toLogScale(lists) {
  const best = facts.settings.maximize ? range(lists)[1] : range(lists)[0];
  const all = lists.flat().filter(isFinite);
  let from = null, name = null, flip = 1;
  if (facts.optimum !== null && facts.optimum !== undefined) {
    from = facts.optimum; name = from === 0 ? null : `above the best known (${formatExact(from)})`;
  } else if (!all.length || Math.min(...all.slice(0, 50000)) > 0) from = 0;
  else { from = best; flip = facts.settings.maximize ? -1 : 1; name = `${flip < 0 ? "below" : "above"} the best so far (${formatExact(best)})`; }
  const of = (v) => { const d = flip * (v - from); return d > 0 ? Math.log10(d) : NaN; };
  return { lists: lists.map((list) => list.map(of)), name };
}

function column(k) { return points.map((p) => p[k] === null || p[k] === undefined ? NaN : p[k]); }
function objectiveName(k) {
  if (facts.objectives[k]) return facts.objectives[k];
  return objectives() > 1 ? `objective ${k + 1}` : "fitness";
}
function objectives() { return facts.objectives.length || (frame ? frame.objectives : 1); }

const draw = {}, cells = {};  // cells: which individual lies at a place of a map

draw.curve = () => {
  const m = frame ? frame.objectives : Math.max(1, facts.objectives.length), runs = facts.settings.runs;
  const xs = column(0), log = $("log").checked, at = 1 + 3 * m + 1;
  let lists, items = [], title = "Fitness by generation";
  const volume = m > 1 ? column(at) : [], measured = volume.some(isFinite);
  if (measured) {
    title = "Hypervolume by generation";
    lists = [volume];
  } else if (m > 1) {
    title = "Best of each objective by generation";
    lists = Array.from({ length: m }, (_, k) => column(1 + k));
  } else if (runs > 1) {
    title = "Best value by generation, over the runs";
    lists = [0, 1, 2, 3, 4].map((k) => column(at + k));
  } else lists = [column(1), column(2), column(3)];
  let name = objectiveName(0);
  if (m > 1) name = measured ? "hypervolume" : "value";
  let yLog = false, shown = lists;
  if (log && m === 1) {
    const l = toLogScale(lists);
    if (l.lists.some((list) => list.some(isFinite))) { shown = l.lists; yLog = true; if (l.name) name = l.name; }
  } else if (log && !measured) {
    const positive = lists.every((list) => list.every((v) => !isFinite(v) || v > 0));
    if (positive) { shown = lists.map((list) => list.map((v) => Math.log10(v))); yLog = true; }
  }
  $("curve-title").textContent = title;
  const x = [1, Math.max(2, xs.length ? xs[xs.length - 1] : 2)];
  const p = plot("curve", x, pad(range(shown)), ["generation", name], { yLog });
  const paints = [colour.blue, colour.orange, colour.green, colour.grey];
  if (measured) {
    const known = xs.map((_, i) => i).filter((i) => isFinite(volume[i]));
    line(p, known.map((i) => xs[i]), known.map((i) => volume[i]), colour.blue, 2.6, [], "hypervolume");
    items = [swatch("line", colour.blue, m > 3 ? "estimated hypervolume of the feasible points, larger is better" : "hypervolume of the feasible points, larger is better")];
  } else if (m > 1) {
    shown.forEach((list, k) => { line(p, xs, list, paints[k % 4], 2, k > 3 ? [6, 3] : [], objectiveName(k)); items.push(swatch(k > 3 ? "dash" : "line", paints[k % 4], objectiveName(k))); });
  } else if (runs > 1) {
    const least = range([shown[0]])[0], floor = shown[0].map((v) => isFinite(v) ? v : least);  // where log has no value
    band(p, xs, floor, shown[4], colour.band);
    band(p, xs, shown[1].map((v, i) => isFinite(v) ? v : floor[i]), shown[3], colour.band2);
    line(p, xs, shown[0], colour.blue, 1.4, [5, 3], "best run");
    line(p, xs, shown[2], colour.blue, 2.4, [], "median run");
    items = [swatch("line", colour.blue, "median run"), swatch("band", colour.band2, "middle half"),
      swatch("band", colour.band, "all runs"), swatch("dash", colour.blue, "best run")];
  } else {
    band(p, xs, shown[0], shown[2], colour.band);
    line(p, xs, shown[2], colour.grey, 1.4, [], "worst");
    line(p, xs, shown[1], colour.orange, 2, [], "median");
    line(p, xs, shown[0], colour.blue, 2.6, [], "best");
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
  line(p, kx, ky, colour.blue, 2.2, [], "feasible");
  p.end();
};

draw.spread = () => {
  const values = (runState.values || []).filter((v) => v !== null);
  let list = values, xLog = false, name = `best ${objectiveName(0)} of a run`;
  if ($("log").checked && values.length) {
    const l = toLogScale([values]);
    const kept = l.lists[0].filter(isFinite);
    if (kept.length) { list = kept; xLog = true; if (l.name) name = l.name; }
  }
  let [low, high] = range([list]);
  if (!(high > low)) { low -= Math.max(1e-12, Math.abs(low) * 1e-3); high += Math.max(1e-12, Math.abs(high) * 1e-3); }
  const bins = 40, heights = new Array(bins).fill(0);
  for (const v of list) heights[Math.min(bins - 1, Math.floor((v - low) / (high - low) * bins))] += 100 / Math.max(1, values.length);
  const p = plot("spread", [low, high], [0, Math.max(5, ...heights) * 1.05], [name, "share of runs"], { xLog, yText: (v) => `${v} %` });
  p.c.fillStyle = colour.blue;
  p.bars = { low, high, heights };
  heights.forEach((v, i) => {
    const a = p.px(low + i / bins * (high - low)), b = p.px(low + (i + 1) / bins * (high - low));
    p.c.fillRect(a + 0.5, p.py(v), b - a - 1, p.py(0) - p.py(v));
  });
  p.end();
  const sorted = [...values].sort((a, b) => facts.settings.maximize ? b - a : a - b);
  const at = (q) => text(sorted[Math.round(q * (sorted.length - 1))], 7);
  const total = facts.settings.runs, here = runState.batch_runs || total;
  const part = here < total ? ` Runs ${runState.first_run} to ${runState.first_run + here - 1} of ${total} are shown, as many as fit in memory at once.` : "";
  const lost = runState.feasible_runs !== undefined && runState.feasible_runs < here ? ` ${here - runState.feasible_runs} of ${here} runs have no feasible point yet.` : "";
  const under = xLog && list.length < values.length ? ` ${values.length - list.length} of the ${values.length} values lie at or beyond the left end.` : "";
  $("spread-note").textContent = (sorted.length ? `best ${at(0)} · quartiles ${at(0.25)}, ${at(0.5)}, ${at(0.75)} · worst ${at(1)}.` : "") + lost + under + part;
};

draw.front = () => {
  if (!frame || frame.objectives < 2) return;
  const i = Number($("front-x").value), j = Number($("front-y").value), m = frame.objectives, n = frame.shown;
  const xs = [], ys = [], badX = [], badY = [], rows = [], badRows = [];
  for (let r = 0; r < n; r++) {
    const good = !frame.hasViolation || frame.violation[r] <= 0;
    (good ? xs : badX).push(frame.values[r * m + i]);
    (good ? ys : badY).push(frame.values[r * m + j]);
    (good ? rows : badRows).push(r);
  }
  let nonDominated = new Array(xs.length).fill(true);
  if (m === 2) {
    const s = facts.settings.maximize ? -1 : 1;
    const order = xs.map((_, k) => k).sort((a, b) => s * (xs[a] - xs[b]) || s * (ys[a] - ys[b]));
    let least = Infinity;
    for (const k of order) { nonDominated[k] = s * ys[k] < least; least = Math.min(least, s * ys[k]); }
  }
  const pick = (list, want) => list.filter((_, k) => nonDominated[k] === want);
  const tx = facts.front ? facts.front.map((p) => p[i]) : [], ty = facts.front ? facts.front.map((p) => p[j]) : [];
  const inX = xs.length ? xs : badX, inY = ys.length ? ys : badY;
  const p = plot("front", pad(range([inX, tx])), pad(range([inY, ty])), [objectiveName(i), objectiveName(j)]);
  dots(p, tx, ty, 1.6, colour.grey);
  dots(p, badX, badY, 2, colour.line, null, badRows);
  dots(p, pick(xs, false), pick(ys, false), 2.6, colour.band2, null, pick(rows, false));
  dots(p, pick(xs, true), pick(ys, true), 3.4, colour.dot, colour["dot-edge"], pick(rows, true));
  p.end();
  const items = [swatch("dot", colour.dot, m === 2 ? `non-dominated (${count(nonDominated.filter((a) => a).length)})` : "individuals")];
  if (m === 2) items.push(swatch("dot", colour.band2, "dominated"));
  if (facts.front) items.push(swatch("dot", colour.grey, "true front"));
  if (badX.length) items.push(swatch("dot", colour.line, "infeasible"));
  legend("front-legend", items);
};

function contourPicture(grid, first, second) {
  const between = [second, first].map((k) => isDiscrete(k) ? Math.round : (v) => v);  // whole numbers have nothing in between
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
    const a = Math.min(side - 2, Math.floor(fy)), b = Math.min(side - 2, Math.floor(fx)), u = between[0](fy - a), v = between[1](fx - b);
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
  const p = plot("scatter", pad([x0, x1], 0.025), pad([y0, y1], 0.025), [facts.variables[i], facts.variables[j]],
    { ...(picture ? { under } : {}), xAxis: geneAxis(i), yAxis: geneAxis(j) });
  // individuals of the same choice would lie on one point: a little apart they can be seen and counted
  const apart = (k, r, step) => geneScale(k) && geneScale(k).labels ? 0.5 * (((r + 1) * step) % 1 - 0.5) : 0;
  const at = (k, r, step) => geneCode(k, frame.x[r * frame.variables + k]) + apart(k, r, step);
  const items = [];
  if (frame) {
    const xs = [], ys = [], badX = [], badY = [], rows = [], badRows = [];
    for (let r = frame.shown - 1; r >= 0; r--) {
      const good = !frame.hasViolation || frame.violation[r] <= 0;
      (good ? xs : badX).push(at(i, r, 0.754878));
      (good ? ys : badY).push(at(j, r, 0.569840));
      (good ? rows : badRows).push(r);
    }
    p.dots.push({ xs: badX, ys: badY, rows: badRows });
    p.c.strokeStyle = colour.dot; p.c.lineWidth = 1.5;
    for (let k = 0; k < badX.length; k++) {
      const a = p.px(badX[k]), b = p.py(badY[k]);
      p.c.beginPath(); p.c.moveTo(a - 3, b - 3); p.c.lineTo(a + 3, b + 3); p.c.moveTo(a + 3, b - 3); p.c.lineTo(a - 3, b + 3); p.c.stroke();
    }
    dots(p, xs, ys, 3.6, colour.dot, colour["dot-edge"], rows);
    if (!frame.hasViolation) items.push(swatch("dot", colour.dot, "individuals"));
    else { items.push(swatch("dot", colour.dot, "feasible"), swatch("cross", colour.dot, "infeasible")); }
  }
  p.end();
  if (picture) items.push(swatch("band", colour.low, facts.settings.maximize ? "high values" : "low values"));
  if (current && current.feasible && current.feasible.includes(0)) items.push(swatch("band", colour.grey, "hatched: infeasible"));
  legend("scatter-legend", items);
  let note = "";
  if (current && current.why) note = current.why;
  else if (current && facts.dim > 2) note = `Contours with the other variables fixed at the best individual of generation ${current.generation}.`;
  else if (!current) note = "Computing contours …";
  $("scatter-note").textContent = note;
};

// Pixels as they are, as large as fits; returns where it was drawn.
function pixels(id, image, w, h, keep, left = 0, bottom = 0) {
  const s = openCanvas(id), off = document.createElement("canvas");
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
    cells.genome = (a, b) => a >= x && a < x + dw && b >= 0 && b < dh ? { row: rows[Math.floor(b / dh * n)], variable: Math.floor((a - x) / dw * v) } : null;
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
    $("genome-note").textContent = `Colours: each variable, scaled to ${whole}. ` + thinningNote(true);
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
  cells.genome = null;
  $("genome-note").textContent = `One tile per four variables (red, green, blue, opacity), one pixel per individual; colours scaled to ${whole}. ` + thinningNote(true);
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
  const { c, w: sw, h: sh, x: fx, dw: fw, dh: fh } = pixels("fitness", image, w, h, true, 0, 34);
  cells.fitness = (a, b) => {
    const row = Math.floor(b / fh * h) * w + Math.floor((a - fx) / fw * w);
    return a >= fx && a < fx + fw && b >= 0 && b < fh && row < n ? { row } : null;
  };
  scaleBar(c, sw / 2, sh - 26, [[0, 0, 0], [255, 255, 255]], text(low, 6), text(high, 6));
  $("fitness-note").textContent = `One pixel per individual, in population order; darker is ${facts.settings.maximize ? "lower" : "better"}. ` + thinningNote(false);
};

function thinningNote(variables) {
  const parts = [];
  if (facts.shown < facts.population) parts.push(`${count(facts.shown)} of ${count(facts.population)} individuals`);
  if (variables && facts.variables.length < facts.dim) parts.push(`the first ${facts.variables.length} of ${facts.dim} variables`);
  return parts.length ? `Shown: ${parts.join(", ")}.` : "";
}

// The best individuals of the moment, the feasible ones first; of a front those that nothing shown dominates.
draw.best = () => {
  if (!frame) return;
  const m = frame.objectives, v = Math.min(8, frame.variables), rows = (m > 1 ? nonDominated(order()) : order()).slice(0, 10);
  const heads = [...Array.from({ length: m }, (_, k) => objectiveName(k)), ...(frame.hasViolation ? ["violation"] : []), ...facts.variables.slice(0, v)];
  const cell = (kind, words) => { const out = document.createElement(kind); out.textContent = words; return out; };
  const line = (kind, list) => { const out = document.createElement("tr"); out.append(...list.map((words) => cell(kind, words))); return out; };
  $("best-rows").replaceChildren(line("th", heads), ...rows.map((r) => line("td", [
    ...Array.from({ length: m }, (_, k) => text(frame.values[r * m + k], 7)), ...(frame.hasViolation ? [text(frame.violation[r], 3)] : []),
    ...Array.from({ length: v }, (_, k) => geneText(k, frame.x[r * frame.variables + k]))])));
  $("best-note").textContent = (m > 1 ? "Non-dominated individuals of this generation. " : "The best individuals of this generation. ") +
    (v < facts.dim ? `The first ${v} of ${facts.dim} variables. ` : "") + thinningNote(false);
};
function nonDominated(rows) {
  const m = frame.objectives, s = facts.settings.maximize ? -1 : 1, value = (r, k) => s * frame.values[r * m + k];
  const good = rows.filter((r) => !frame.hasViolation || frame.violation[r] <= 0).slice(0, 600);
  const beats = (a, b) => { let less = false; for (let k = 0; k < m; k++) { if (value(a, k) > value(b, k)) return false; less = less || value(a, k) < value(b, k); } return less; };
  return good.length ? good.filter((r) => !good.some((other) => beats(other, r))) : rows;
}
