// Curves, with bands.
function curveRows(spec) {  // for the CSV file
  const bands = spec.series[0].bands || [];
  const head = ["series", spec.x.name, ...(spec.also ? [spec.also.name] : []), spec.y.name, ...bands.flatMap((b) => [`${b.name}, lower`, `${b.name}, upper`])];
  return [head, ...spec.series.flatMap((s) => spec.xs[s.x].map((x, i) => [
    s.name, x, ...(spec.also ? [spec.also.values[i]] : []), s.y[i], ...(s.bands || []).flatMap((b) => [b.low[i], b.high[i]])]))];
}
function curveLegend(chart, spec, hidden) {  // of several curves each name hides its own
  spec.series.forEach((s, i) => {
    const bands = s.bands || [];
    if (spec.series.length === 1) {
      const key = addElement(chart.legend, "span");
      swatch(key, colour(s.c), DASHES[s.dash || 0]);
      addElement(key, "span", {}, s.name);
      for (const band of bands) {
        const more = addElement(chart.legend, "span");
        swatch(more, colour(s.c), "", 10).style.opacity = band.opacity;
        addElement(more, "span", {}, band.name);
      }
      return;
    }
    const button = addElement(chart.legend, "button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
    swatch(button, colour(s.c), DASHES[s.dash || 0]);
    addElement(button, "span", {}, s.name);
    button.addEventListener("click", () => {
      hidden.has(i) ? hidden.delete(i) : hidden.add(i);
      button.setAttribute("aria-pressed", !hidden.has(i));
      chart.draw();
    });
  });
}
function curvePath(x, y, place, step) {  // what an SVG path draws; steps: true, "all" or "before", see below
  let out = "", pen = false, last = [0, 0];
  for (let i = 0; i < x.length; i++) {
    const px = place.x.at(x[i]), py = y[i] === null ? NaN : place.y.at(y[i]);
    if (!isNumber(px) || !isNumber(py)) { pen = false; continue; }
    if (pen && step) out += step === "before" ? `L${last[0].toFixed(1)} ${py.toFixed(1)}` : `L${px.toFixed(1)} ${last[1].toFixed(1)}`;
    out += `${pen ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`;
    pen = true;
    last = [px, py];
  }
  if (step === "all" && pen) {  // a distribution begins at 0 and goes on to the end
    out = out.replace("M", `M${place.x.at(x[0]).toFixed(1)} ${place.bottom}L`) + `L${place.right} ${last[1].toFixed(1)}`;
  } else if (step === "before" && pen) {  // and one of how many are at least as large falls to 0
    out = out.replace("M", `M${place.left} ${place.y.at(y[0]).toFixed(1)}L`) + `L${last[0].toFixed(1)} ${place.bottom}`;
  }
  return out;
}
function bandPath(x, low, high, place) {
  let out = "", up = [], down = [];
  const close = () => { if (up.length) out += `M${up.join("L")}L${down.reverse().join("L")}Z`; up = []; down = []; };
  for (let i = 0; i < x.length; i++) {
    const px = place.x.at(x[i]), top = high[i] === null ? NaN : place.y.at(high[i]), under = low[i] === null ? NaN : place.y.at(low[i]);
    if (!isNumber(px) || !isNumber(top) || !isNumber(under)) { close(); continue; }
    up.push(`${px.toFixed(1)} ${top.toFixed(1)}`);
    down.push(`${px.toFixed(1)} ${under.toFixed(1)}`);
  }
  close();
  return out;
}
function extent(spec, shown, xlog, ylog) {  // the least and the most of y, then of x, that can be drawn
  let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
  const take = (v) => { if (isNumber(v) && (!ylog || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); } };
  for (const s of shown) {
    s.y.forEach(take);
    for (const b of s.bands || []) { b.low.forEach(take); b.high.forEach(take); }
    for (const v of spec.xs[s.x]) if (isNumber(v) && (!xlog || v > 0)) { first = Math.min(first, v); last = Math.max(last, v); }
  }
  if (spec.y.share) { low = 0; high = 1.02; }
  if (!(low <= high)) { low = ylog ? 0.1 : 0; high = 1; }
  if (!(first <= last)) { first = 1; last = 2; }
  return [low, high, first, last];
}

function lines(figure, spec) {
  const chart = createChart(figure, spec), hidden = new Set();
  let ylog = spec.y.log, xlog = spec.x.log, at = -1;
  const positive = spec.series.some((s) => s.y.some((v) => v > 0));
  if (positive && !spec.y.share) chart.toggle("log scale", ylog, (on) => { ylog = on; });
  if (!spec.x.fixed) chart.toggle("log horizontally", xlog, (on) => { xlog = on; });
  chart.csv(() => curveRows(spec));
  curveLegend(chart, spec, hidden);
  let place, marks, paths;
  chart.draw = () => {
    const svg = chart.begin(), shown = spec.series.filter((_, i) => !hidden.has(i));
    const [low, high, first, last] = extent(spec, shown, xlog, ylog);
    const pad = ylog ? (high / low) ** 0.03 : (high - low) * 0.03;
    place = axes(chart, [first, last, xlog], spec.y.share ? [low, high, false] : ylog ? [low / pad, high * pad, true] : [low - pad, high + pad, false], [spec.x.name, spec.y.name]);
    for (const mark of spec.marks || []) {
      const px = place.x.at(mark.x), far = px > (place.left + place.right) / 2;
      addElement(svg, "line", { x1: px, x2: px, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)", "stroke-dasharray": "2 3" });
      addElement(svg, "text", { x: px + (far ? -5 : 5), y: place.top + 14, "text-anchor": far ? "end" : "start" }, mark.text);
    }
    for (const s of shown) {
      for (const b of [...(s.bands || [])].reverse()) {
        addElement(svg, "path", { d: bandPath(spec.xs[s.x], b.low, b.high, place), style: `fill: ${colour(s.c)}; opacity: ${b.opacity}` });
      }
    }
    paths = shown.map((s) => addElement(svg, "path", {
      class: "curve", d: curvePath(spec.xs[s.x], s.y, place, s.step), fill: "none", "stroke-dasharray": DASHES[s.dash || 0],
      "stroke-linejoin": "round", style: `stroke: ${colour(s.c)}; stroke-width: ${s.thin ? 1.2 : 2}` }));
    marks = addElement(svg, "g");
    chart.tip.hidden = true;
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
  const leave = () => { chart.tip.hidden = true; marks.replaceChildren(); paths.forEach((p) => { p.style.opacity = 1; }); };
  const hover = (event) => point(...chart.pointerPosition(event));
  const nearest = (x, px) => {  // positions along x never fall
    let low = 0, high = x.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (!(place.x.at(x[mid]) > px)) low = mid; else high = mid; }
    return Math.abs(place.x.at(x[high]) - px) < Math.abs(place.x.at(x[low]) - px) ? high : low;
  };
  const point = (px, py) => {
    const shown = spec.series.filter((_, i) => !hidden.has(i));
    if (!shown.length) return;
    let found = shown.map((s, k) => {
      let i = nearest(spec.xs[s.x], px);
      if (s.step && s.step !== "before") while (i > 0 && place.x.at(spec.xs[s.x][i]) > px + 0.5) i--;
      return { s, k, i, y: s.y[i] === null ? NaN : place.y.at(s.y[i]) };
    });
    at = found[0].i;
    const many = shown.length > 6;
    if (many) {  // the closest one alone
      found = found.filter((f) => isNumber(f.y)).sort((a, b) => Math.abs(a.y - py) - Math.abs(b.y - py)).slice(0, 1);
      if (!found.length) return;
      paths.forEach((p, k) => { p.style.opacity = k === found[0].k ? 1 : 0.15; });
    }
    const x = spec.xs[found[0].s.x][found[0].i], line = place.x.at(x);
    marks.replaceChildren();
    addElement(marks, "line", { x1: line, x2: line, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)" });
    const rows = [];
    for (const f of found) {
      if (isNumber(f.y)) addElement(marks, "circle", { cx: line, cy: f.y, r: 4, style: `fill: ${colour(f.s.c)}` });
      rows.push([f.s.name, spec.y.percent ? `${formatNumber(100 * f.s.y[f.i], 3)} %` : formatNumber(f.s.y[f.i]), colour(f.s.c)]);
      if (!many && found.length < 4) {
        for (const b of f.s.bands || []) rows.push([b.name, `${formatNumber(b.low[f.i], 4)} to ${formatNumber(b.high[f.i], 4)}`]);
      }
    }
    const also = spec.also ? `, ${formatNumber(spec.also.values[found[0].i])} ${spec.also.name}` : "";
    chart.show(line, py === null ? 60 : py, `${spec.x.name} ${formatNumber(x)}${also}`, rows);
  };
  chart.draw();
}
