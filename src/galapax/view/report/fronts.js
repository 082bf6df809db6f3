// Many objectives at once: parallel axes to brush, and every pair of objectives. What is brushed is brushed everywhere.
const brushed = {};  // by table: which rows are kept, or null for all, and the listeners to changes
const brushState = (table) => (brushed[table] ||= { keep: null, listeners: [] });
const brush = (table, keep) => { const b = brushState(table); b.keep = keep; b.listeners.forEach((listener) => listener()); };
const isKept = (table, i) => !brushState(table).keep || brushState(table).keep[i];
const bin = (v, low, high) => (isNumber(v) ? clamp(Math.floor((v - low) / (high - low || 1) * 10), 0, 9) : 0);
const minMax = (column) => { const seen = column.filter(isNumber); return [Math.min(...seen), Math.max(...seen)]; };

function parallel(figure, spec) {
  const chart = createChart(figure, spec), table = data.tables[spec.table], n = table.data[0].length;
  const limits = {};  // by column: the two ends of its brush, shares of the axis
  let columns = spec.axes, xs = [], top = 0, bottom = 0, marks, dragStart = null, spans = [];
  const share = (k, i) => { const v = table.data[columns[k]][i]; return isNumber(v) ? (v - spans[k][0]) / (spans[k][1] - spans[k][0] || 1) : NaN; };
  const up = (s) => bottom - s * (bottom - top);
  if (spec.more.length) chart.toggle("with variables", false, (on) => { columns = on ? [...spec.axes, ...spec.more] : spec.axes; });
  const clear = addElement(chart.tools, "button", { class: "small", type: "button" }, "Clear brushes");
  const count = addElement(chart.tools, "span", { role: "status", class: "brushed" });
  clear.addEventListener("click", () => { for (const c of Object.keys(limits)) delete limits[c]; apply(); });
  chart.csv(() => { const lines = csvRows(table); return [lines[0], ...lines.slice(1).filter((_, i) => isKept(spec.table, i))]; });
  const apply = () => {
    const open = Object.entries(limits);
    if (!open.length) { brush(spec.table, null); return; }
    brush(spec.table, table.data[0].map((_, i) => open.every(([c, [a, b]]) => {
      const [low, high] = minMax(table.data[c]), v = table.data[c][i], s = (v - low) / (high - low || 1);
      return isNumber(v) && s >= Math.min(a, b) - 1e-9 && s <= Math.max(a, b) + 1e-9;
    })));
  };
  const path = (i) => columns.map((_, k) => [xs[k], up(share(k, i))]).filter((p) => isNumber(p[1])).map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  chart.draw = () => {
    const svg = chart.begin(), { width, height } = chart;
    top = 46;
    bottom = height - 28;
    spans = columns.map((c) => minMax(table.data[c]));
    const edge = clamp(width * 0.07, 30, 70), gap = (width - 2 * edge) / Math.max(1, columns.length - 1);
    xs = columns.map((_, k) => edge + k * gap);
    const rows = [...Array(n).keys()], on = rows.filter((i) => isKept(spec.table, i)), off = rows.filter((i) => !isKept(spec.table, i));
    count.textContent = on.length < n ? `${on.length.toLocaleString("en")} of ${n.toLocaleString("en")} points` : "";
    const thin = n > 1000 ? 0.35 : n > 200 ? 0.55 : 0.8;
    if (off.length) addElement(svg, "path", { d: off.map(path).join(""), class: "off", style: "fill: none; stroke: var(--line); stroke-width: 1; opacity: 0.35" });
    const bins = VIRIDIS.map(() => []);
    for (const i of on) bins[bin(table.data[columns[0]][i], ...spans[0])].push(i);
    bins.forEach((own, k) => own.length && addElement(svg, "path", { d: own.map(path).join(""), class: "curve",
      style: `fill: none; stroke: color-mix(in oklab, rgb(${VIRIDIS[k].join(" ")}) 80%, var(--text)); stroke-width: 1.3; opacity: ${thin}` }));
    columns.forEach((c, k) => {
      addElement(svg, "line", { class: "frame", x1: xs[k], x2: xs[k], y1: top, y2: bottom });
      const digits = digitsToDistinguish(...spans[k], 4), words = table.names[c];
      const letters = Math.max(4, Math.floor((columns.length > 1 ? gap : width) / 7) - 1);
      const label = (text, y, more) => {  // in the middle of its axis, unless it would leave the figure there
        const first = k === 0 && columns.length > 1, outer = (first || k === columns.length - 1) && text.length * 3.6 > edge - 4;
        return addElement(svg, "text", { ...more, x: !outer ? xs[k] : first ? 4 : width - 4, y, "text-anchor": !outer ? "middle" : first ? "start" : "end" }, text);
      };
      const named = label(words.length > letters ? words.slice(0, letters - 1) + "…" : words, k % 2 && gap < 110 ? 30 : 14, { class: "axis-name" });
      addElement(named, "title", {}, words);
      label(formatCell(table, c, spans[k][1], digits), top - 3);
      label(formatCell(table, c, spans[k][0], digits), bottom + 14);
      if (limits[c]) {
        const [a, b] = limits[c].map(up);
        addElement(svg, "rect", { class: "brush", x: xs[k] - 7, width: 14, y: Math.min(a, b), height: Math.max(3, Math.abs(a - b)), style: "fill: var(--link); opacity: 0.45" });
      }
    });
    marks = addElement(svg, "g");
    chart.tip.hidden = true;
    svg.addEventListener("pointerdown", (event) => {
      const [px, py] = chart.pointerPosition(event), k = axisAt(px);
      if (k < 0) return;
      dragStart = { k, from: clamp((bottom - py) / (bottom - top), 0, 1) };
      event.preventDefault();
    });
    svg.addEventListener("dblclick", (event) => { const k = axisAt(chart.pointerPosition(event)[0]); if (k >= 0) { delete limits[columns[k]]; apply(); } });
    svg.addEventListener("pointermove", (event) => (dragStart ? drag(event) : hover(chart.pointerPosition(event))));
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0 && axisAt(chart.pointerPosition(event)[0]) < 0) pick(spec.table, row, chart); });
    svg.addEventListener("pointerleave", () => { if (!dragStart) { chart.tip.hidden = true; marks.replaceChildren(); } });
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
    if (row < 0) { chart.tip.hidden = true; return; }
    chart.show(...at, [`point ${table.number ? table.number[row] : row + 1}`, ...(table.labels[row] ? [table.labels[row]] : [])].join(": "),
      columns.map((c) => [table.names[c], formatCell(table, c, table.data[c][row], digitsToDistinguish(...minMax(table.data[c]), 5))]));
  };
  (pickers[spec.table] ||= []).push((row, from) => { if (from !== chart) strong(row); });
  brushState(spec.table).listeners.push(() => chart.draw());
  chart.draw();
}

function matrix(figure, spec) {
  const chart = createChart(figure, spec), table = data.tables[spec.table], n = table.data[0].length, cols = spec.axes, m = cols.length;
  const spans = cols.map((c) => range(table.data[c]));
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
        const named = addElement(svg, "text", { class: "axis-name", x: x + wide / 2, y: y + high / 2 - 6, "text-anchor": "middle" }, words.length > letters ? words.slice(0, letters - 1) + "…" : words);
        addElement(named, "title", {}, words);
        const [least, most] = minMax(table.data[cols[r]]), digits = digitsToDistinguish(least, most, 3);
        if (wide > 90) addElement(svg, "text", { x: x + wide / 2, y: y + high / 2 + 12, "text-anchor": "middle" }, `${formatNumber(least, digits)} … ${formatNumber(most, digits)}`);
        continue;
      }
      drawCircles(svg, off.map((i) => at(r, c, i)).filter(Boolean), size, "var(--line)", "opacity: 0.5");
      drawCircles(svg, on.map((i) => at(r, c, i)).filter(Boolean), size, "var(--c0)", n > 300 ? "opacity: 0.75" : "");
      for (const mark of spec.marks) { const p = at(r, c, mark.row); if (p) drawMarker(svg, mark.kind, p[0], p[1], mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 4.5); }
    }
    marks = addElement(svg, "g");
    svg.addEventListener("pointermove", (event) => { const row = nearest(chart.pointerPosition(event)); ring(row); });
    svg.addEventListener("click", (event) => { const row = nearest(chart.pointerPosition(event)); if (row >= 0) pick(spec.table, row, chart); });
    svg.addEventListener("pointerleave", () => marks.replaceChildren());
  };
  const nearest = ([px, py]) => {
    const c = Math.floor((px - left) / wide), r = Math.floor((py - 4) / high);
    if (!(c >= 0 && r > c && r < m)) return -1;
    let best = -1, least = MAX_PICK_DISTANCE * MAX_PICK_DISTANCE;
    for (let i = 0; i < n; i++) { const p = isKept(spec.table, i) && at(r, c, i); if (p) { const far = (p[0] - px) ** 2 + (p[1] - py) ** 2; if (far < least) { least = far; best = i; } } }
    return best;
  };
  const ring = (row) => {
    marks.replaceChildren();
    if (row < 0 || row >= n) return;
    for (let r = 1; r < m; r++) for (let c = 0; c < r; c++) { const p = at(r, c, row); if (p) addElement(marks, "circle", { cx: p[0], cy: p[1], r: 5, style: "fill: none; stroke: var(--text); stroke-width: 2" }); }
  };
  (pickers[spec.table] ||= []).push((row, from) => { if (from !== chart) ring(row); });
  brushState(spec.table).listeners.push(() => chart.draw());
  chart.draw();
}
