// Points of a table, in the plane or in space.
const pickers = {};
const pick = (table, row, from) => (pickers[table] || []).forEach((listener) => listener(row, from));
function drawMarker(parent, kind, x, y, c, size) {
  const shapes = { knee: `M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z`,
    end: `M${x} ${y - size}L${x + size} ${y + size * 0.8}L${x - size} ${y + size * 0.8}Z` };
  return addElement(parent, "path", { d: shapes[kind], style: `fill: ${c}; stroke: var(--text); stroke-width: 1` });
}
const drawCircles = (parent, points, width, c, extra = "") => points.length && addElement(parent, "path", {
  // whole circles: a line of no length with round ends is drawn as an oval, or not at all, by what shows PDF
  d: points.map(([x, y]) => `M${(x - width / 2).toFixed(1)} ${y.toFixed(1)}a${width / 2} ${width / 2} 0 1 0 ${width} 0a${width / 2} ${width / 2} 0 1 0 ${-width} 0`).join(""),
  class: "dots", style: `fill: ${c}; ${extra}` });
const key = (chart, text, paint) => { const entry = addElement(chart.legend, "span"); paint(addElement(entry, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" })); addElement(entry, "span", {}, text); };
function range(column, truth) {  // with a margin
  let low = Infinity, high = -Infinity;
  for (const v of column) if (isNumber(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  for (const v of truth || []) if (isNumber(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (!(low <= high)) return [0, 1];
  const pad = (high - low) * 0.04;
  return [low - pad, high + pad];
}
function paintPoints(chart, positions, table, by, size) {  // all in one colour, or each by its value in that column
  const n = positions.length, there = positions.filter(Boolean);
  if (by >= 0) {
    const [low, high] = [Math.min(...table.data[by].filter(isNumber)), Math.max(...table.data[by].filter(isNumber))];
    drawCircles(chart.svg, there, size + 1.6, "var(--text)", "opacity: 0.55");
    const bins = VIRIDIS.map(() => []), valueless = [];
    positions.forEach((p, i) => {
      const v = table.data[by][i];
      if (p) (isNumber(v) ? bins[clamp(Math.floor((v - low) / (high - low || 1) * 10), 0, 9)] : valueless).push(p);
    });
    drawCircles(chart.svg, valueless, size, "var(--line)");
    bins.forEach((points, k) => drawCircles(chart.svg, points, size, `rgb(${VIRIDIS[k].join(" ")})`));
    const entry = addElement(chart.legend, "span"), digits = digitsToDistinguish(low, high, 4);
    addElement(entry, "span", {}, `${table.names[by]}: ${formatCell(table, by, low, digits)}`);
    addElement(entry, "span", { class: "key colours" });
    addElement(entry, "span", {}, formatCell(table, by, high, digits));
  } else {
    drawCircles(chart.svg, there, size, "var(--c0)", n > 1500 ? "opacity: 0.7" : "");
    key(chart, chart.spec.what, (s) => drawCircles(s, [[13, 6]], 8, "var(--c0)"));
  }
}
function paintMarks(chart, positions, truth) {
  if (truth) key(chart, "true front", (s) => drawCircles(s, [[5, 6], [10, 6], [15, 6], [20, 6]], 3, "var(--soft)"));
  const inLegend = new Set();
  for (const mark of [...chart.spec.marks].reverse()) {
    const at = positions[mark.row];
    if (at) drawMarker(chart.svg, mark.kind, at[0], at[1], mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 7);
    if (at && !inLegend.has(mark.short)) key(chart, mark.short, (s) => drawMarker(s, mark.kind, 13, 6, mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 5));
    inLegend.add(mark.short);
  }
}
function scatter(figure, spec) {
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
  chart.csv(() => csvRows(table));
  chart.draw = () => {
    const svg = chart.begin(), solid = use.z >= 0, cols = [use.x, use.y, ...(solid ? [use.z] : [])];
    chart.plot.classList.toggle("turns", solid);
    const truth = spec.truth && cols.every((c) => spec.truth.columns.includes(c)) ? cols.map((c) => spec.truth.data[spec.truth.columns.indexOf(c)]) : null;
    const spans = cols.map((c, k) => range(table.data[c], truth && truth[k]));
    const where = solid ? space(chart, spans, cols.map((c) => names[c]), turn) : (() => {
      const ground = spec.ground && cols[0] === 0 && cols[1] === 1 ? spec.ground : null;
      const ends = ground ? [ground.x, ground.y] : spans;
      const place = axes(chart, [...ends[0], false], [...ends[1], false], cols.map((c) => names[c]), cols.map((c) => table.words && table.words[c]));
      if (ground) {
        const [left, right, top, bottom] = [place.x.at(ground.x[0]), place.x.at(ground.x[1]), place.y.at(ground.y[1]), place.y.at(ground.y[0])];
        addElement(svg, "image", { href: ground.image, x: left, y: top, width: right - left, height: bottom - top, preserveAspectRatio: "none" });
      }
      return (x, y) => [place.x.at(x), place.y.at(y)];
    })();
    const n = table.data[0].length;
    positions = [];
    for (let i = 0; i < n; i++) {
      const values = cols.map((c) => table.data[c][i]);
      positions.push(values.every(isNumber) ? where(...values) : null);
    }
    if (truth) drawCircles(svg, truth[0].map((_, i) => where(...truth.map((t) => t[i]))), solid ? 2 : 3, "var(--soft)", solid ? "opacity: 0.55" : "opacity: 0.8");
    const size = n > 1500 ? 4.5 : n > 300 ? 6 : 7.5;
    chart.legend.replaceChildren();
    const off = positions.filter((p, i) => p && !isKept(spec.table, i));
    drawCircles(svg, off, size, "var(--line)", "opacity: 0.6");
    paintPoints(chart, positions.map((p, i) => (isKept(spec.table, i) ? p : null)), table, use.colour, size);
    paintMarks(chart, positions, truth !== null);
    marks = addElement(svg, "g");
    chart.tip.hidden = true;
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
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0 && !moved) { ring(row); recipe(row); pick(spec.table, row, chart); } });
    svg.addEventListener("pointerleave", () => { if (!dragStart) { chart.tip.hidden = true; marks.replaceChildren(); } });
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (by && solid) { event.preventDefault(); turn = [turn[0] + by[0], clamp(turn[1] + by[1], -1.5, 1.5)]; chart.draw(); chart.svg.focus(); }
    });
  };
  addEventListener("pointerup", () => { dragStart = null; });
  addEventListener("pointercancel", () => { dragStart = null; });
  const nearest = ([px, py]) => {
    let best = -1, least = MAX_PICK_DISTANCE * MAX_PICK_DISTANCE;
    positions.forEach((p, i) => { if (p && isKept(spec.table, i)) { const far = (p[0] - px) ** 2 + (p[1] - py) ** 2; if (far < least) { least = far; best = i; } } });
    return best;
  };
  const ring = (row) => {
    marks.replaceChildren();
    if (row >= 0 && positions[row]) addElement(marks, "circle", { cx: positions[row][0], cy: positions[row][1], r: 8, style: "fill: none; stroke: var(--text); stroke-width: 2" });
  };
  const hover = (at) => {
    const row = nearest(at);
    ring(row);
    if (row < 0) { chart.tip.hidden = true; return; }
    const rows = spec.tip.map((c) => [names[c], formatCell(table, c, table.data[c][row], digitsToDistinguish(...range(table.data[c]), 5))]);
    if (spec.more) rows.push([spec.more, ""]);
    chart.show(...positions[row], [`${spec.one} ${table.number ? table.number[row] : row + 1}`, ...(table.labels[row] ? [table.labels[row]] : [])].join(": "), rows);
  };
  const beside = spec.recipe ? addElement(chart.plot.parentNode, "aside", { class: "recipe", "aria-live": "polite" }) : null;
  if (beside) chart.plot.parentNode.classList.add("with-recipe");
  const recipe = (row) => {
    if (!beside || row < 0) return;
    beside.replaceChildren();
    addElement(beside, "b", {}, [`${spec.one} ${table.number ? table.number[row] : row + 1}`, ...(table.labels[row] ? [table.labels[row]] : [])].join(": "));
    const list = addElement(beside, "table");
    names.forEach((name, c) => {
      const line = addElement(list, "tr");
      addElement(line, "th", { scope: "row" }, name);
      addElement(line, "td", { class: "n" }, formatCell(table, c, table.data[c][row], digitsToDistinguish(...range(table.data[c]), 5)));
    });
  };
  (pickers[spec.table] ||= []).push((row, from) => { if (from !== chart) ring(row); });
  brushState(spec.table).listeners.push(() => chart.draw());
  if (spec.marks.length) recipe((spec.marks.find((mark) => mark.kind === "knee") || spec.marks[0]).row);
  chart.draw();
}
function space(chart, spans, names, [azimuth, tilt]) {  // a box seen from above, in parallel projection
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
      class: far > 6 ? "axis-name" : "" }, words.length > letters ? words.slice(0, letters - 1) + "…" : words);
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
