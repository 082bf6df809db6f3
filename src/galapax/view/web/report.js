// The figures of a report: curves, points in the plane or in space, parallel axes and pairs of objectives.
const data = JSON.parse(document.getElementById("data").textContent);
function download(name, lines) {
  const quoted = (cell) => {
    const text = cell === null || cell === undefined ? "" : String(cell);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const text = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// --- curves with bands ---
function curveRows(spec) {  // for the CSV file
  const bands = spec.series[0].bands || [];
  const head = ["series", spec.x.name, ...(spec.also ? [spec.also.name] : []), spec.y.name, ...bands.flatMap((b) => [`${b.name}, lower`, `${b.name}, upper`])];
  return [head, ...spec.series.flatMap((s) => spec.xs[s.x].map((x, i) => [
    s.name, x, ...(spec.also ? [spec.also.values[i]] : []), s.y[i], ...(s.bands || []).flatMap((b) => [b.low[i], b.high[i]])]))];
}
function addCurveLegend(chart, spec, hidden) {  // of several curves each name hides its own
  spec.series.forEach((s, i) => {
    const bands = s.bands || [];
    if (spec.series.length === 1) {
      addLegendEntry(chart, s.name, paintLine(seriesColour(s.c), DASHES[s.dash || 0]));
      for (const band of bands) addLegendEntry(chart, band.name, paintLine(seriesColour(s.c), "", 10, band.opacity));
      return;
    }
    const button = addElement(chart.legend, "button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
    addLegendEntry(chart, s.name, s.dots ? (svg) => drawDots(svg, [[13, 6]], 6, seriesColour(s.c)) : paintLine(seriesColour(s.c), DASHES[s.dash || 0]), button);
    button.addEventListener("click", () => {
      hidden.has(i) ? hidden.delete(i) : hidden.add(i);
      button.setAttribute("aria-pressed", !hidden.has(i));
      chart.draw();
    });
  });
}
function curveExtent(spec, shown, xlog, ylog) {  // [least y, most y, least x, most x] that can be drawn
  const drawable = (log) => (v) => isNumber(v) && (!log || v > 0);
  let [low, high] = extremes(...shown.flatMap((s) => [s.y, ...(s.bands || []).flatMap((b) => [b.low, b.high])]).map((list) => list.filter(drawable(ylog))));
  let [first, last] = extremes(...shown.map((s) => spec.xs[s.x].filter(drawable(xlog))));
  if (spec.y.share) { low = 0; high = 1.02; }
  if (!(low <= high)) { low = ylog ? 0.1 : 0; high = 1; }
  if (!(first <= last)) { first = 1; last = 2; }
  return [low, high, first, last];
}

function drawValues(layer, place, x, y, colour) {  // values as dots, those that the axes can show
  const points = x.map((v, i) => [place.x.at(v), y[i] === null ? NaN : place.y.at(y[i])]).filter((p) => p.every(isNumber));
  const group = addElement(layer, "g");
  drawDots(group, points, x.length > 300 ? 3.5 : 5, colour);
  return group;
}
function addLineChart(figure, spec) {
  const chart = createChart(figure, spec), hidden = new Set();
  let ylog = spec.y.log, xlog = spec.x.log, at = -1;
  const positive = spec.series.some((s) => s.y.some((v) => v > 0));
  if (positive && !spec.y.share) chart.toggle("log scale", ylog, (on) => { ylog = on; });
  if (!spec.x.fixed) chart.toggle("log x axis", xlog, (on) => { xlog = on; });
  addCsvButton(chart.tools, spec.file, () => curveRows(spec));
  addCurveLegend(chart, spec, hidden);
  const events = spec.events || [];  // named in the legend, where no curve is
  events.forEach((event, i) => addLegendEntry(chart, event.name, paintLine("var(--soft)", EVENT_DASHES[i], 1.5)));
  let place, marks, paths;
  chart.draw = () => {
    const svg = chart.begin(), shown = spec.series.filter((_, i) => !hidden.has(i));
    const [low, high, first, last] = curveExtent(spec, shown, xlog, ylog);
    const pad = ylog ? (high / low) ** 0.03 : (high - low) * 0.03;
    place = drawAxes(chart, [first, last, xlog], spec.y.share ? [low, high, false] : ylog ? [low / pad, high * pad, true] : [low - pad, high + pad, false], [spec.x.name, spec.y.name]);
    const layer = addClippedLayer(svg, place);
    for (const s of shown) {
      for (const b of [...(s.bands || [])].reverse()) drawBand(layer, place, spec.xs[s.x], b.low, b.high, seriesColour(s.c), b.opacity);
    }
    paths = shown.map((s) => s.dots ? drawValues(layer, place, spec.xs[s.x], s.y, seriesColour(s.c))
      : drawCurve(layer, place, spec.xs[s.x], s.y, seriesColour(s.c), { width: s.thin ? 1.2 : 2, dash: DASHES[s.dash || 0], step: s.step }));
    events.forEach((event, i) => event.at.forEach((x) => drawEvent(layer, place, x, "", 0, EVENT_DASHES[i])));
    marks = addElement(svg, "g");
    chart.hideTip();
    svg.addEventListener("pointermove", hover);
    svg.addEventListener("pointerdown", hover);
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("keydown", (event) => {
      if (!shown.length) return;
      const count = spec.xs[shown[0].x].length;
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) { event.preventDefault(); at = clamp(at + by * Math.max(1, Math.round(count / 60)), 0, count - 1); point(place.x.at(spec.xs[shown[0].x][at]), null); }
      if (event.key === "Escape") leave();
    });
  };
  const leave = () => { chart.hideTip(); marks.replaceChildren(); paths.forEach((p) => { p.style.opacity = 1; }); };
  const hover = (event) => point(...chart.pointerPosition(event));
  const nearest = (x, px) => {  // positions along x never fall
    let low = 0, high = x.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (!(place.x.at(x[mid]) > px)) low = mid; else high = mid; }
    return Math.abs(place.x.at(x[high]) - px) < Math.abs(place.x.at(x[low]) - px) ? high : low;
  };
  const point = (px, py) => {
    const shown = spec.series.filter((_, i) => !hidden.has(i));
    if (!shown.length) return;
    let points = shown.map((s, k) => {
      let i = nearest(spec.xs[s.x], px);
      if (s.step && s.step !== "before") while (i > 0 && place.x.at(spec.xs[s.x][i]) > px + 0.5) i--;
      return { s, k, i, y: s.y[i] === null ? NaN : place.y.at(s.y[i]) };
    });
    at = points[0].i;
    const many = shown.length > 6;
    if (many) {  // the closest one alone
      points = points.filter((f) => isNumber(f.y)).sort((a, b) => Math.abs(a.y - py) - Math.abs(b.y - py)).slice(0, 1);
      if (!points.length) return;
      paths.forEach((p, k) => { p.style.opacity = k === points[0].k ? 1 : 0.15; });
    }
    const x = spec.xs[points[0].s.x][points[0].i], line = place.x.at(x);
    marks.replaceChildren();
    addElement(marks, "line", { x1: line, x2: line, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)" });
    const rows = [];
    for (const f of points) {
      if (isNumber(f.y)) addElement(marks, "circle", { cx: line, cy: f.y, r: 4, style: `fill: ${seriesColour(f.s.c)}` });
      rows.push([f.s.name, spec.y.share ? `${formatNumber(100 * f.s.y[f.i], 3)} %` : formatNumber(f.s.y[f.i]), seriesColour(f.s.c)]);
      if (!many && points.length < 4) {
        for (const b of f.s.bands || []) rows.push([b.name, `${formatNumber(b.low[f.i], 4)} to ${formatNumber(b.high[f.i], 4)}`]);
      }
    }
    const also = spec.also ? `, ${formatNumber(spec.also.values[points[0].i])} ${spec.also.name}` : "";
    chart.showTip(line, py === null ? 60 : py, `${spec.x.name} ${formatNumber(x)}${also}`, rows);
  };
  chart.draw();
}

// --- rows of a table that are picked or brushed, in all figures alike ---
const pickers = {};
const pick = (table, row, from) => (pickers[table] || []).forEach((listener) => listener(row, from));
const brushed = {};  // by table: which rows are kept, or null for all, and the listeners to changes
const brushState = (table) => (brushed[table] ||= { keep: null, listeners: [] });
const brush = (table, keep) => { const b = brushState(table); b.keep = keep; b.listeners.forEach((listener) => listener()); };
const isKept = (table, i) => !brushState(table).keep || brushState(table).keep[i];
// a value of a table as text: the label that it stands for, of variables that are choices
const formatCell = (table, c, v, digits) => (table.words && table.words[c] ? table.words[c][v] ?? formatNumber(v) : formatNumber(v, digits));
const formatDistinct = (table, c, row) => {
  const column = table.data[c];
  return formatCell(table, c, column[row], digitsToDistinguish(...extremes(column), 5));
};
// points are numbered as the rows of result.X and result.F are
const rowNumber = (table, row) => (table.number ? table.number[row] : row);
const rowTitle = (table, row, kind) => [`${kind} ${rowNumber(table, row)}`, table.labels[row]].filter(Boolean).join(": ");
function followTable(chart, mark) {  // draw again when rows are brushed; mark(row) shows one that was picked elsewhere
  (pickers[chart.spec.table] ||= []).push((row, from) => { if (from !== chart) mark(row); });
  brushState(chart.spec.table).listeners.push(() => chart.draw());
}
function nearestPoint(count, at, [px, py]) {  // the row whose point at(i), null if it has none, lies nearest; -1 for none near
  let best = -1, least = MAX_PICK_DISTANCE * MAX_PICK_DISTANCE;
  for (let i = 0; i < count; i++) {
    const point = at(i), distance = point ? (point[0] - px) ** 2 + (point[1] - py) ** 2 : Infinity;
    if (distance < least) { least = distance; best = i; }
  }
  return best;
}
function addCsvButton(tools, file, lines) {
  const button = addElement(tools, "button", { class: "small", type: "button", title: "Download these numbers" }, "CSV ↓");
  button.addEventListener("click", () => download(file, lines()));
}

// --- points of a table, in the plane or in space ---
function paintPoints(chart, positions, table, by, size) {  // all in one colour, or each by its value in that column
  const n = positions.length, there = positions.filter(Boolean);
  if (by >= 0) {
    const [low, high] = extremes(table.data[by]);
    drawDots(chart.svg, there, size + 1.6, "var(--text)", "opacity: 0.55");
    const bins = VIRIDIS.map(() => []), valueless = [];
    positions.forEach((p, i) => {
      const v = table.data[by][i];
      if (p) (isNumber(v) ? bins[viridisBin(v, low, high)] : valueless).push(p);
    });
    drawDots(chart.svg, valueless, size, "var(--line)");
    bins.forEach((points, k) => drawDots(chart.svg, points, size, `rgb(${VIRIDIS[k].join(" ")})`));
    const digits = digitsToDistinguish(low, high, 4);
    addColourKey(chart, `${table.names[by]}: ${formatCell(table, by, low, digits)}`, formatCell(table, by, high, digits));
  } else {
    drawDots(chart.svg, there, size, "var(--c0)", n > 1500 ? "opacity: 0.7" : "");
    addLegendEntry(chart, chart.spec.what, (s) => drawDots(s, [[13, 6]], 8, "var(--c0)"));
  }
}
function paintMarks(chart, positions, truth) {
  if (truth) addLegendEntry(chart, "true front", (s) => drawDots(s, [[5, 6], [10, 6], [15, 6], [20, 6]], 3, "var(--soft)"));
  const inLegend = new Set();
  for (const mark of [...chart.spec.marks].reverse()) {
    const at = positions[mark.row];
    if (at) drawMarker(chart.svg, mark.kind, at[0], at[1], mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 7);
    if (at && !inLegend.has(mark.short)) addLegendEntry(chart, mark.short, (s) => drawMarker(s, mark.kind, 13, 6, mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 5));
    inLegend.add(mark.short);
  }
}
function addScatterChart(figure, spec) {
  const chart = createChart(figure, spec), table = data.tables[spec.table], names = table.names;
  const use = { ...spec.use };
  let turn = [0.7, 0.45], positions = [], marks, dragStart = null, moved = false;
  const choose = (key, text, none) => {
    const label = addElement(chart.tools, "label", {}, text), list = addElement(label, "select", { "data-axis": key });
    if (none) addElement(list, "option", { value: -1 }, none);
    for (const i of spec.choices) addElement(list, "option", { value: i }, names[i]);
    list.value = use[key];
    list.addEventListener("change", () => { use[key] = Number(list.value); chart.draw(); });
  };
  choose("x", "across");
  choose("y", "up");
  if (spec.choices.length > 2) { choose("z", "depth", "none (flat)"); choose("colour", "colour", "none"); }
  addCsvButton(chart.tools, spec.file, () => csvRows(table));
  chart.draw = () => {
    const svg = chart.begin(), solid = use.z >= 0, cols = [use.x, use.y, ...(solid ? [use.z] : [])];
    chart.plot.classList.toggle("turns", solid);
    const truth = spec.truth && cols.every((c) => spec.truth.columns.includes(c)) ? cols.map((c) => spec.truth.data[spec.truth.columns.indexOf(c)]) : null;
    const spans = cols.map((c, k) => rangeWithMargin(table.data[c], truth && truth[k]));
    const where = solid ? drawSpace(chart, spans, cols.map((c) => names[c]), turn) : (() => {
      const ground = spec.ground && cols[0] === 0 && cols[1] === 1 ? spec.ground : null;
      const ends = ground ? [ground.x, ground.y] : spans;
      const place = drawAxes(chart, [...ends[0], false], [...ends[1], false], cols.map((c) => names[c]), cols.map((c) => table.words && table.words[c]), ground && ground.equal);
      if (ground) drawImage(svg, ground.image, place.left, place.top, place.right - place.left, place.bottom - place.top);
      return (x, y) => [place.x.at(x), place.y.at(y)];
    })();
    const n = table.data[0].length;
    positions = [];
    for (let i = 0; i < n; i++) {
      const values = cols.map((c) => table.data[c][i]);
      positions.push(values.every(isNumber) ? where(...values) : null);
    }
    if (truth) drawDots(svg, truth[0].map((_, i) => where(...truth.map((t) => t[i]))), solid ? 2 : 3, "var(--soft)", solid ? "opacity: 0.55" : "opacity: 0.8");
    const size = n > 1500 ? 4.5 : n > 300 ? 6 : 7.5;
    chart.legend.replaceChildren();
    const off = positions.filter((p, i) => p && !isKept(spec.table, i));
    drawDots(svg, off, size, "var(--line)", "opacity: 0.6");
    paintPoints(chart, positions.map((p, i) => (isKept(spec.table, i) ? p : null)), table, use.colour, size);
    paintMarks(chart, positions, truth !== null);
    if (spec.forecast && cols.every((c) => c < spec.forecast.objectives)) drawForecast(chart, svg, spec.forecast, cols, where);
    marks = addElement(svg, "g");
    chart.hideTip();
    svg.addEventListener("pointermove", (event) => {
      if (dragStart) {
        const by = [event.clientX - dragStart[0], event.clientY - dragStart[1]];
        if (Math.hypot(...by) > 3 || moved) { moved = true; turn = [dragStart[2] + by[0] / 120, clamp(dragStart[3] + by[1] / 160, -1.5, 1.5)]; chart.draw(); }
        return;
      }
      hover(chart.pointerPosition(event));
    });
    svg.addEventListener("pointerdown", (event) => {
      moved = false;
      if (solid) { dragStart = [event.clientX, event.clientY, ...turn]; event.preventDefault(); } else hover(chart.pointerPosition(event));
    });
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0 && !moved) { ring(row); showRecipe(row); pick(spec.table, row, chart); } });
    svg.addEventListener("pointerleave", () => { if (!dragStart) { chart.hideTip(); marks.replaceChildren(); } });
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (by && solid) { event.preventDefault(); turn = [turn[0] + by[0], clamp(turn[1] + by[1], -1.5, 1.5)]; chart.draw(); chart.svg.focus(); }
    });
  };
  addEventListener("pointerup", () => { dragStart = null; });
  addEventListener("pointercancel", () => { dragStart = null; });
  const nearest = (pointer) => nearestPoint(positions.length, (i) => isKept(spec.table, i) && positions[i], pointer);
  const ring = (row) => {
    marks.replaceChildren();
    if (row >= 0 && positions[row]) addElement(marks, "circle", { cx: positions[row][0], cy: positions[row][1], r: 8, style: "fill: none; stroke: var(--text); stroke-width: 2" });
  };
  const hover = (at) => {
    const row = nearest(at);
    ring(row);
    if (row < 0) { chart.hideTip(); return; }
    const rows = spec.tip.map((c) => [names[c], formatDistinct(table, c, row)]);
    if (spec.more) rows.push([spec.more, ""]);
    chart.showTip(...positions[row], rowTitle(table, row, spec.one), rows);
  };
  const beside = spec.recipe ? addElement(chart.plot.parentNode, "aside", { class: "recipe", "aria-live": "polite" }) : null;
  if (beside) chart.plot.parentNode.classList.add("with-recipe");
  const showRecipe = (row) => {
    if (!beside || row < 0) return;
    beside.replaceChildren();
    addElement(beside, "b", {}, rowTitle(table, row, spec.one));
    const list = addElement(beside, "table");
    names.forEach((name, c) => {
      const line = addElement(list, "tr");
      addElement(line, "th", { scope: "row" }, name);
      addElement(line, "td", { class: "n" }, formatDistinct(table, c, row));
    });
  };
  followTable(chart, ring);
  if (spec.marks.length) showRecipe((spec.marks.find((mark) => mark.kind === "knee") || spec.marks[0]).row);
  chart.draw();
}
function drawSpace(chart, spans, names, [azimuth, tilt]) {  // a box seen from above, in parallel projection
  const { svg, width, height } = chart, size = Math.min(width * 0.56, height * 0.62);
  const [cos, sin, up, flat] = [Math.cos(azimuth), Math.sin(azimuth), Math.sin(tilt), Math.cos(tilt)];
  const project = (a, b, c) => {
    const x = a * cos - b * sin, depth = a * sin + b * cos;
    return [width / 2 + size * x, height / 2 - size * (c * flat + depth * up)];
  };
  const corner = [-0.5, 0.5];
  const line = (from, to, kind) => {
    const [a, b] = [project(...from), project(...to)];
    addElement(svg, "line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: kind });
  };
  for (const s of corner) for (const t of corner) {
    line([-0.5, s, t], [0.5, s, t], "frame");
    line([s, -0.5, t], [s, 0.5, t], "frame");
    line([s, t, -0.5], [s, t, 0.5], "frame");
  }
  const text = (at, words, right, far, down) => {
    const [x, y] = project(...at), letters = Math.max(6, Math.floor((right ? width - x : x) / 6.8) - 2);
    addElement(svg, "text", { x: x + (right ? far : -far), y: clamp(y + down, 12, height - 4), "text-anchor": right ? "start" : "end",
      class: far > 6 ? "axis-name" : "" }, shorten(words, letters));
  };
  const side = (axis) => {  // the edge of that axis whose middle lies lowest, or for the third leftmost
    const edges = corner.flatMap((s) => corner.map((t) => [s, t]));
    const middle = ([s, t]) => project(...(axis === 0 ? [0, s, t] : axis === 1 ? [s, 0, t] : [s, t, 0]));
    return edges.sort((a, b) => (axis === 2 ? middle(a)[0] - middle(b)[0] : middle(b)[1] - middle(a)[1]))[0];
  };
  names.forEach((name, axis) => {
    const [s, t] = side(axis), point = (v) => (axis === 0 ? [v, s, t] : axis === 1 ? [s, v, t] : [s, t, v]);
    const right = project(...point(0))[0] > width / 2, [low, high] = [0.04, 1.04].map((v) => v / 1.08 - 0.5);  // without the margin
    const wide = spans[axis][1] - spans[axis][0], down = axis === 2 ? 0 : 18;
    const value = (v) => formatNumber(Math.round((spans[axis][0] + (v + 0.5) * wide) / wide * 1e6) / 1e6 * wide || 0, 3);
    text(point(low), value(low), right, 5, down);
    text(point(high), value(high), right, 5, down);
    text(point(0), name, right, 12, down);
  });
  return (...v) => project(...v.map((value, k) => (value - spans[k][0]) / (spans[k][1] - spans[k][0] || 1) - 0.5));
}

// --- many objectives at once: parallel axes to brush, and every pair ---
function addParallelAxes(figure, spec) {
  const chart = createChart(figure, spec), table = data.tables[spec.table], n = table.data[0].length;
  const limits = {};  // by column: the two ends of its brush, shares of the axis
  let columns = spec.axes, xs = [], top = 0, bottom = 0, marks, dragStart = null, spans = [];
  const share = (k, i) => { const v = table.data[columns[k]][i]; return isNumber(v) ? (v - spans[k][0]) / (spans[k][1] - spans[k][0] || 1) : NaN; };
  const up = (s) => bottom - s * (bottom - top);
  if (spec.more.length) chart.toggle("with variables", false, (on) => { columns = on ? [...spec.axes, ...spec.more] : spec.axes; });
  const clear = addElement(chart.tools, "button", { class: "small", type: "button" }, "Clear brushes");
  const count = addElement(chart.tools, "span", { role: "status", class: "brushed" });
  clear.addEventListener("click", () => { for (const c of Object.keys(limits)) delete limits[c]; apply(); });
  addCsvButton(chart.tools, spec.file, () => { const lines = csvRows(table); return [lines[0], ...lines.slice(1).filter((_, i) => isKept(spec.table, i))]; });
  const apply = () => {
    const open = Object.entries(limits);
    if (!open.length) { brush(spec.table, null); return; }
    brush(spec.table, table.data[0].map((_, i) => open.every(([c, [a, b]]) => {
      const [low, high] = extremes(table.data[c]), v = table.data[c][i], s = (v - low) / (high - low || 1);
      return isNumber(v) && s >= Math.min(a, b) - 1e-9 && s <= Math.max(a, b) + 1e-9;
    })));
  };
  const path = (i) => columns.map((_, k) => [xs[k], up(share(k, i))]).filter((p) => isNumber(p[1])).map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  chart.draw = () => {
    const svg = chart.begin(), { width, height } = chart;
    top = 46;
    bottom = height - 28;
    spans = columns.map((c) => extremes(table.data[c]));
    const edge = clamp(width * 0.07, 30, 70), gap = (width - 2 * edge) / Math.max(1, columns.length - 1);
    xs = columns.map((_, k) => edge + k * gap);
    const rows = [...Array(n).keys()], on = rows.filter((i) => isKept(spec.table, i)), off = rows.filter((i) => !isKept(spec.table, i));
    count.textContent = on.length < n ? `${on.length.toLocaleString("en")} of ${n.toLocaleString("en")} points` : "";
    const thin = n > 1000 ? 0.35 : n > 200 ? 0.55 : 0.8;
    if (off.length) addElement(svg, "path", { d: off.map(path).join(""), class: "off", style: "fill: none; stroke: var(--line); stroke-width: 1; opacity: 0.35" });
    const bins = VIRIDIS.map(() => []);
    for (const i of on) bins[viridisBin(table.data[columns[0]][i], ...spans[0])].push(i);
    bins.forEach((rowsOfBin, k) => rowsOfBin.length && addElement(svg, "path", { d: rowsOfBin.map(path).join(""), class: "curve",
      style: `fill: none; stroke: color-mix(in oklab, rgb(${VIRIDIS[k].join(" ")}) 80%, var(--text)); stroke-width: 1.3; opacity: ${thin}` }));
    columns.forEach((c, k) => {
      addElement(svg, "line", { class: "frame", x1: xs[k], x2: xs[k], y1: top, y2: bottom });
      const digits = digitsToDistinguish(...spans[k], 4), words = table.names[c];
      const letters = Math.max(4, Math.floor((columns.length > 1 ? gap : width) / 7) - 1);
      const label = (text, y, more) => {  // in the middle of its axis, unless it would leave the figure there
        const first = k === 0 && columns.length > 1, outer = (first || k === columns.length - 1) && text.length * 3.6 > edge - 4;
        return addElement(svg, "text", { ...more, x: !outer ? xs[k] : first ? 4 : width - 4, y, "text-anchor": !outer ? "middle" : first ? "start" : "end" }, text);
      };
      const named = label(shorten(words, letters), k % 2 && gap < 110 ? 30 : 14, { class: "axis-name" });
      addElement(named, "title", {}, words);
      label(formatCell(table, c, spans[k][1], digits), top - 3);
      label(formatCell(table, c, spans[k][0], digits), bottom + 14);
      if (limits[c]) {
        const [a, b] = limits[c].map(up);
        addElement(svg, "rect", { class: "brush", x: xs[k] - 7, width: 14, y: Math.min(a, b), height: Math.max(3, Math.abs(a - b)), style: "fill: var(--link); opacity: 0.45" });
      }
    });
    marks = addElement(svg, "g");
    chart.hideTip();
    svg.addEventListener("pointerdown", (event) => {
      const [px, py] = chart.pointerPosition(event), k = axisAt(px);
      if (k < 0) return;
      dragStart = { k, from: clamp((bottom - py) / (bottom - top), 0, 1) };
      event.preventDefault();
    });
    svg.addEventListener("dblclick", (event) => { const k = axisAt(chart.pointerPosition(event)[0]); if (k >= 0) { delete limits[columns[k]]; apply(); } });
    svg.addEventListener("pointermove", (event) => (dragStart ? drag(event) : hover(chart.pointerPosition(event))));
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0 && axisAt(chart.pointerPosition(event)[0]) < 0) pick(spec.table, row, chart); });
    svg.addEventListener("pointerleave", () => { if (!dragStart) { chart.hideTip(); marks.replaceChildren(); } });
  };
  const axisAt = (px) => { let best = -1, least = 18; xs.forEach((x, k) => { if (Math.abs(x - px) < least) { least = Math.abs(x - px); best = k; } }); return best; };
  const drag = (event) => {
    const to = clamp((bottom - chart.pointerPosition(event)[1]) / (bottom - top), 0, 1);
    if (Math.abs(to - dragStart.from) * (bottom - top) < 3) return;
    limits[columns[dragStart.k]] = [dragStart.from, to];
    apply();
  };
  addEventListener("pointermove", (event) => { if (dragStart && !chart.svg.contains(event.target)) drag(event); });
  addEventListener("pointerup", () => { dragStart = null; });
  addEventListener("pointercancel", () => { dragStart = null; });
  const nearest = ([px, py]) => {
    let k = 0;
    while (k < xs.length - 2 && xs[k + 1] < px) k++;
    const t = xs.length > 1 ? clamp((px - xs[k]) / (xs[k + 1] - xs[k]), 0, 1) : 0;
    let best = -1, least = MAX_PICK_DISTANCE;
    for (let i = 0; i < n; i++) {
      if (!isKept(spec.table, i)) continue;
      const y = up(share(k, i)) * (1 - t) + (xs.length > 1 ? up(share(k + 1, i)) : 0) * t, far = Math.abs(y - py);
      if (far < least) { least = far; best = i; }
    }
    return best;
  };
  const strong = (row) => {
    marks.replaceChildren();
    if (row >= 0 && row < n) addElement(marks, "path", { d: path(row), style: "fill: none; stroke: var(--text); stroke-width: 2.6" });
  };
  const hover = (at) => {
    const row = nearest(at);
    strong(row);
    if (row < 0) { chart.hideTip(); return; }
    chart.showTip(...at, rowTitle(table, row, "point"),
      columns.map((c) => [table.names[c], formatDistinct(table, c, row)]));
  };
  followTable(chart, strong);
  chart.draw();
}

function addPairMatrix(figure, spec) {
  const chart = createChart(figure, spec), table = data.tables[spec.table], n = table.data[0].length, cols = spec.axes, m = cols.length;
  const spans = cols.map((c) => rangeWithMargin(table.data[c]));
  let marks, wide = 0, high = 0;  // of a cell
  const left = 4, place = (k, v, flip) => { const s = (v - spans[k][0]) / (spans[k][1] - spans[k][0] || 1); return 4 + (flip ? 1 - s : s) * ((flip ? high : wide) - 8); };
  const corner = (r, c) => [left + c * wide, 4 + r * high];
  const at = (r, c, i) => { const [x, y] = corner(r, c), [a, b] = [table.data[cols[c]][i], table.data[cols[r]][i]]; return isNumber(a) && isNumber(b) ? [x + place(c, a), y + place(r, b, true)] : null; };
  chart.draw = () => {
    const svg = chart.begin();
    [wide, high] = [(chart.width - 2 * left) / m, (chart.height - 8) / m];
    const rows = [...Array(n).keys()], on = rows.filter((i) => isKept(spec.table, i)), off = rows.filter((i) => !isKept(spec.table, i));
    const size = n > 1000 ? 2.4 : n > 300 ? 3 : 4;
    for (let r = 0; r < m; r++) for (let c = 0; c <= r; c++) {
      const [x, y] = corner(r, c);
      addElement(svg, "rect", { class: "frame", x: x + 2, y: y + 2, width: wide - 4, height: high - 4 });
      if (r === c) {
        const words = table.names[cols[r]], letters = Math.max(4, Math.floor(wide / 7) - 1);
        const named = addElement(svg, "text", { class: "axis-name", x: x + wide / 2, y: y + high / 2 - 6, "text-anchor": "middle" }, shorten(words, letters));
        addElement(named, "title", {}, words);
        const [least, most] = extremes(table.data[cols[r]]), digits = digitsToDistinguish(least, most, 3);
        if (wide > 90) addElement(svg, "text", { x: x + wide / 2, y: y + high / 2 + 12, "text-anchor": "middle" }, `${formatNumber(least, digits)} … ${formatNumber(most, digits)}`);
        continue;
      }
      drawDots(svg, off.map((i) => at(r, c, i)).filter(Boolean), size, "var(--line)", "opacity: 0.5");
      drawDots(svg, on.map((i) => at(r, c, i)).filter(Boolean), size, "var(--c0)", n > 300 ? "opacity: 0.75" : "");
      for (const mark of spec.marks) { const p = at(r, c, mark.row); if (p) drawMarker(svg, mark.kind, p[0], p[1], mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 4.5); }
    }
    marks = addElement(svg, "g");
    svg.addEventListener("pointermove", (event) => { const row = nearest(chart.pointerPosition(event)); ring(row); });
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0) pick(spec.table, row, chart); });
    svg.addEventListener("pointerleave", () => marks.replaceChildren());
  };
  const nearest = ([px, py]) => {
    const c = Math.floor((px - left) / wide), r = Math.floor((py - 4) / high);
    return c >= 0 && r > c && r < m ? nearestPoint(n, (i) => isKept(spec.table, i) && at(r, c, i), [px, py]) : -1;
  };
  const ring = (row) => {
    marks.replaceChildren();
    if (row < 0 || row >= n) return;
    for (let r = 1; r < m; r++) for (let c = 0; c < r; c++) { const p = at(r, c, row); if (p) addElement(marks, "circle", { cx: p[0], cy: p[1], r: 5, style: "fill: none; stroke: var(--text); stroke-width: 2" }); }
  };
  followTable(chart, ring);
  chart.draw();
}
