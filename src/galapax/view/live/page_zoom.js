// Tooltips and zoom: the pointer shows values, dragging over a figure zooms into it, a double click resets it.
const tip = $("tip");
function showTooltip(title, rows, event) {
  tip.replaceChildren();
  const head = document.createElement("b");
  head.textContent = title;
  const table = document.createElement("table");
  for (const [name, value, paint] of rows) {
    const line = document.createElement("tr");
    for (const words of [name, value]) {
      const cell = document.createElement("td");
      cell.textContent = words;
      if (paint && words === name) cell.style.color = paint;
      line.append(cell);
    }
    table.append(line);
  }
  tip.append(head, table);
  tip.hidden = false;
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  const left = event.clientX + 16 + wide < innerWidth ? event.clientX + 16 : event.clientX - 16 - wide;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - high - 4, event.clientY + 12))}px`;
}
function individualRows(row) {
  const m = frame.objectives, v = Math.min(12, frame.variables);
  const rows = Array.from({ length: m }, (_, k) => [objectiveName(k), text(frame.values[row * m + k], 7)]);
  if (frame.hasViolation) rows.push(["violation", text(frame.violation[row], 3)]);
  for (let k = 0; k < v; k++) rows.push([facts.variables[k], geneText(k, frame.x[row * frame.variables + k])]);
  if (v < facts.dim) rows.push([`… ${facts.dim - v} more`, ""]);
  return rows;
}
const unlog = (v, log) => log ? 10 ** v : v;
function hover(id, a, b, event) {
  if (cells[id]) {
    const found = cells[id](a, b);
    return found && frame ? showTooltip(`individual ${found.row + 1}` + (found.variable === undefined ? "" : `, ${facts.variables[found.variable]}`), individualRows(found.row), event) : (tip.hidden = true);
  }
  const p = drawn[id];
  if (!p || a < p.area.x || a > p.area.x + p.area.w || b < p.area.y || b > p.area.y + p.area.h) return (tip.hidden = true);
  let best = null, least = 14 * 14;
  for (const cloud of p.dots) cloud.rows.forEach((row, k) => {
    const far = (p.px(cloud.xs[k]) - a) ** 2 + (p.py(cloud.ys[k]) - b) ** 2;
    if (far < least) { least = far; best = row; }
  });
  if (best !== null && frame) return showTooltip(`individual ${best + 1}`, individualRows(best), event);
  if (p.bars) {
    const { low, high, heights } = p.bars, at = p.x[0] + (a - p.area.x) / p.area.w * (p.x[1] - p.x[0]), k = Math.floor((at - low) / (high - low) * heights.length);
    if (k < 0 || k >= heights.length) return (tip.hidden = true);
    const end = (i) => formatShort(unlog(low + i / heights.length * (high - low), p.xLog));
    return showTooltip(`${end(k)} to ${end(k + 1)}`, [["share of runs", `${heights[k].toFixed(1)} %`]], event);
  }
  if (!p.lines.length || !p.lines[0].xs.length) return (tip.hidden = true);
  const at = p.x[0] + (a - p.area.x) / p.area.w * (p.x[1] - p.x[0]), xs = p.lines[0].xs;
  let k = 0;
  xs.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(xs[k] - at)) k = i; });
  const value = (v) => !isFinite(v) ? "–" : p.yText ? `${text(v, 4)} %` : text(unlog(v, p.yLog), 6);
  showTooltip(`${p.names[0]} ${count(xs[k])}`, p.lines.map((l) => [l.name, value(l.ys[k]), l.stroke]), event);
}
for (const id of ["curve", "feasible", "spread", "front", "scatter", "genome", "fitness"]) {
  const canvas = $(id), zoomed = !["genome", "fitness"].includes(id);
  let from = null;
  const box = document.createElement("div");
  box.className = "zoom";
  box.hidden = true;
  canvas.parentNode.append(box);
  const place = (event) => { const area = canvas.getBoundingClientRect(); return [event.clientX - area.left, event.clientY - area.top]; };
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!from) return hover(id, ...at, event);
    tip.hidden = true;
    box.hidden = false;
    Object.assign(box.style, { left: `${canvas.offsetLeft + Math.min(at[0], from[0])}px`, top: `${canvas.offsetTop + Math.min(at[1], from[1])}px`,
      width: `${Math.abs(at[0] - from[0])}px`, height: `${Math.abs(at[1] - from[1])}px` });
  });
  canvas.addEventListener("pointerleave", () => { if (!from) tip.hidden = true; });
  if (!zoomed) continue;
  canvas.title = "Drag to zoom in, double-click to see everything";
  canvas.addEventListener("pointerdown", (event) => { if (event.pointerType !== "touch" && event.button === 0) { from = place(event); canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointerup", (event) => {
    const p = drawn[id], to = place(event), begin = from;
    from = null;
    box.hidden = true;
    if (!begin || !p || Math.abs(to[0] - begin[0]) < 8 || Math.abs(to[1] - begin[1]) < 8) return;
    const inX = (a) => p.x[0] + (Math.max(p.area.x, Math.min(p.area.x + p.area.w, a)) - p.area.x) / p.area.w * (p.x[1] - p.x[0]);
    const inY = (b) => p.y[1] - (Math.max(p.area.y, Math.min(p.area.y + p.area.h, b)) - p.area.y) / p.area.h * (p.y[1] - p.y[0]);
    const order = (u, v) => [Math.min(u, v), Math.max(u, v)];
    views[id] = { kind: p.kind, x: order(inX(begin[0]), inX(to[0])), y: order(inY(begin[1]), inY(to[1])) };
    redrawAll();
  });
  canvas.addEventListener("pointercancel", () => { from = null; box.hidden = true; });
  canvas.addEventListener("dblclick", () => { delete views[id]; redrawAll(); });
}
