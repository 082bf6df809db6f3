// The figures and tables of a report. Names come from users: they reach the page as text nodes, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["", "7 4", "2 3", "8 3 2 3"];
  const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
    [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
  const LAND = 0.48, PAGE = 100, NEAR = 30;

  const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

  // --- small helpers ---
  const put = (parent, tag, attributes = {}, text) => {
    const drawn = tag === "svg" || parent.namespaceURI === SVG;
    const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
  const known = (v) => typeof v === "number" && Number.isFinite(v);
  const whole = (v) => Number.isInteger(v) && Math.abs(v) < 1e15;
  const fmt = (v, digits = 6) => {
    if (typeof v === "string") return v;
    if (!known(v)) return "–";
    if (whole(v) && Math.abs(v) < 1e9) return v.toLocaleString("en").replace("-", "−");
    const size = Math.abs(v);
    const text = size >= 1e7 || size < 1e-4 ? v.toExponential(Math.min(digits - 1, 4)) : v.toPrecision(digits);
    return text.replace(/(\.\d*?)0+(e|$)/, "$1$2").replace(/\.(e|$)/, "$1").replaceAll("-", "−");
  };
  const raised = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);

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

  // --- scales ---
  function scale(low, high, log, from, to) {
    if (log) { low = Math.log10(low); high = Math.log10(high); }
    if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) {  // nothing that numbers on an axis could tell apart
      const by = log ? 0.5 : Math.abs(low) * 1e-3 || 1;
      low -= by;
      high += by;
    }
    const at = (v) => (v === null || (log && v <= 0) ? NaN : from + ((log ? Math.log10(v) : v) - low) / (high - low) * (to - from));
    const room = (to - from) / (from > to ? -45 : 75);  // numbers that fit: upwards they may stand closer
    return { at, ticks: log ? logTicks(low, high, room) : ticks(low, high, room) };
  }
  function ticks(low, high, room) {
    const rough = (high - low) / clamp(room, 3, 9), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
    const places = clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 15), out = [];
    const first = Math.ceil(low / step - 1e-9);
    for (let i = 0; i < 20 && (first + i) * step <= high + 1e-9 * step; i++) {
      const v = (first + i) * step || 0, size = Math.max(Math.abs(low), Math.abs(high));
      const text = size >= 1e6 || size < 1e-4 ? fmt(v === 0 ? 0 : v, Math.max(2, Math.ceil(Math.log10(size / step)) + 1))
        : v.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
      out.push([v, text]);
    }
    return out;
  }
  function logTicks(low, high, room) {
    const out = [], every = Math.max(1, Math.ceil((high - low) / clamp(1.6 * room, 2, 12)));
    for (let p = Math.ceil(low - 1e-9); p <= high + 1e-9; p++) {
      if (p % every === 0) out.push([10 ** p, p >= -2 && p <= 4 ? fmt(10 ** p) : "10" + raised(p)]);
    }
    if (out.length < 3) {
      for (let p = Math.floor(low); p <= high; p++) {
        for (const f of high - low < 1.2 ? [1.5, 2, 3, 4, 5, 7] : [2, 5]) {
          const v = f * 10 ** p;
          if (Math.log10(v) >= low && Math.log10(v) <= high) out.push([v, fmt(v, 2)]);
        }
      }
    }
    return out.length > 1 ? out.sort((a, b) => a[0] - b[0]) : ticks(10 ** low, 10 ** high, room);
  }

  // --- what all figures share: a box for tools, legend, drawing and tip, drawn again when its width changes ---
  function frame(figure, spec) {
    const box = figure.querySelector(".chart");
    const tools = put(box, "div", { class: "tools" }), legend = put(box, "div", { class: "legend" });
    const plot = put(box, "div", { class: "plot" }), tip = put(plot, "div", { class: "tip", role: "status" });
    tip.hidden = true;
    const chart = { spec, tools, legend, plot, tip, svg: null, width: 0, height: 0 };
    chart.begin = () => {
      chart.width = Math.max(260, plot.clientWidth || 800);
      chart.height = Math.round(clamp(chart.width * (spec.tall || LAND), spec.tall ? 330 : 270, spec.tall ? 560 : 410));
      if (chart.svg) chart.svg.remove();
      chart.svg = put(plot, "svg", { viewBox: `0 0 ${chart.width} ${chart.height}`, role: "img", tabindex: 0 });
      chart.svg.setAttribute("aria-label", spec.alt);
      plot.prepend(chart.svg);
      return chart.svg;
    };
    chart.toggle = (text, pressed, change) => {
      const button = put(tools, "button", { class: "small", type: "button", "aria-pressed": pressed }, text);
      button.addEventListener("click", () => {
        const now = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", now);
        change(now);
        chart.draw();
      });
    };
    chart.csv = (lines) => {
      const button = put(tools, "button", { class: "small", type: "button" }, "CSV ↓");
      button.title = "Download the data of this figure";
      button.addEventListener("click", () => download(spec.file, lines()));
    };
    chart.show = (x, y, title, rows) => {
      tip.replaceChildren();
      put(tip, "b", {}, title);
      const table = put(tip, "table");
      for (const [name, value, colour] of rows) {
        const row = put(table, "tr");
        put(row, "td", colour ? { style: `color: ${colour}` } : {}, name);
        put(row, "td", { class: "n" }, value);
      }
      tip.hidden = false;
      const ratio = plot.clientWidth / chart.width;
      const left = x * ratio + 14 + tip.offsetWidth < plot.clientWidth ? x * ratio + 14 : x * ratio - 14 - tip.offsetWidth;
      tip.style.left = `${clamp(left, 0, Math.max(0, plot.clientWidth - tip.offsetWidth))}px`;
      tip.style.top = `${clamp(y * ratio - tip.offsetHeight / 2, 0, Math.max(0, plot.clientHeight - tip.offsetHeight))}px`;
    };
    chart.place = (event) => {
      const area = chart.svg.getBoundingClientRect();
      return [(event.clientX - area.left) * chart.width / area.width, (event.clientY - area.top) * chart.height / area.height];
    };
    new ResizeObserver(() => { if (Math.abs(plot.clientWidth - chart.width) > 1 && plot.clientWidth) chart.draw(); }).observe(plot);
    return chart;
  }
  function axes(chart, xs, ys, names) {
    const { svg, width, height } = chart, rough = ticksOf(ys, height);
    const left = 30 + 7 * Math.max(2, ...rough.map((t) => t[1].length)), right = 14, top = 10, bottom = 46;
    const x = scale(...xs, left, width - right), y = scale(...ys, height - bottom, top);
    for (const [v, text] of y.ticks) {
      put(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y.at(v), y2: y.at(v) });
      put(svg, "text", { x: left - 6, y: y.at(v) + 4, "text-anchor": "end" }, text);
    }
    let free = left - 30;
    for (const [v, text] of x.ticks) {
      put(svg, "line", { class: "grid", y1: top, y2: height - bottom, x1: x.at(v), x2: x.at(v) });
      const half = 3.5 * text.length, at = Math.min(x.at(v), width - half - 2);
      if (at - half < free) continue;  // numbers that would touch
      free = at + half + 8;
      put(svg, "text", { x: at, y: height - bottom + 17, "text-anchor": "middle" }, text);
    }
    put(svg, "rect", { class: "frame", x: left, y: top, width: width - left - right, height: height - top - bottom });
    name(svg, names[0], (left + width - right) / 2, height - 8, width - left - right);
    name(svg, names[1], 13, (top + height - bottom) / 2, height - top - 10, true);
    return { x, y, left, right: width - right, top, bottom: height - bottom };
  }
  const ticksOf = (ys, height) => scale(...ys, height - 46, 10).ticks;
  function name(svg, text, x, y, room, upright = false) {
    const letters = Math.floor(room / 6.6), cut = text.length > letters ? text.slice(0, Math.max(1, letters - 1)) + "…" : text;
    const made = put(svg, "text", { class: "axis-name", x, y, "text-anchor": "middle" }, cut);
    if (upright) made.setAttribute("transform", `rotate(-90 ${x} ${y})`);
    if (cut !== text) put(made, "title", {}, text);
  }
  const colour = (c) => (Number.isInteger(c) ? `var(--c${c % 8})` : `oklch(var(--shade) 0.14 ${(265 - 235 * c).toFixed(0)})`);
  function swatch(parent, c, dash, wide) {
    const svg = put(parent, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" });
    put(svg, "line", { x1: 1, x2: 25, y1: 6, y2: 6, style: `stroke: ${c}; stroke-width: ${wide || 2.5}`, "stroke-dasharray": dash || "" });
    return svg;
  }

  // --- curves, with bands ---
  function lines(figure, spec) {
    const chart = frame(figure, spec), hidden = new Set();
    let ylog = spec.y.log, xlog = spec.x.log, at = -1;
    const positive = spec.series.some((s) => s.y.some((v) => v > 0));
    if (positive && !spec.y.share) chart.toggle("log scale", ylog, (on) => { ylog = on; });
    if (!spec.x.fixed) chart.toggle("log horizontally", xlog, (on) => { xlog = on; });
    chart.csv(() => {
      const bands = spec.series[0].bands || [];
      const head = ["series", spec.x.name, ...(spec.also ? [spec.also.name] : []), spec.y.name, ...bands.flatMap((b) => [`${b.name}, from`, `${b.name}, to`])];
      return [head, ...spec.series.flatMap((s) => spec.xs[s.x].map((x, i) => [
        s.name, x, ...(spec.also ? [spec.also.values[i]] : []), s.y[i], ...(s.bands || []).flatMap((b) => [b.low[i], b.high[i]])]))];
    });
    spec.series.forEach((s, i) => {
      const bands = s.bands || [];
      if (spec.series.length === 1) {
        const key = put(chart.legend, "span");
        swatch(key, colour(s.c), DASHES[s.dash || 0]);
        put(key, "span", {}, s.name);
        for (const band of bands) {
          const more = put(chart.legend, "span");
          swatch(more, colour(s.c), "", 10).style.opacity = band.opacity;
          put(more, "span", {}, band.name);
        }
        return;
      }
      const button = put(chart.legend, "button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
      swatch(button, colour(s.c), DASHES[s.dash || 0]);
      put(button, "span", {}, s.name);
      button.addEventListener("click", () => {
        hidden.has(i) ? hidden.delete(i) : hidden.add(i);
        button.setAttribute("aria-pressed", !hidden.has(i));
        chart.draw();
      });
    });
    const path = (x, y, place, step) => {
      let out = "", pen = false, last = [0, 0];
      for (let i = 0; i < x.length; i++) {
        const px = place.x.at(x[i]), py = y[i] === null ? NaN : place.y.at(y[i]);
        if (!known(px) || !known(py)) { pen = false; continue; }
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
    };
    const area = (x, low, high, place) => {
      let out = "", up = [], down = [];
      const close = () => { if (up.length) out += `M${up.join("L")}L${down.reverse().join("L")}Z`; up = []; down = []; };
      for (let i = 0; i < x.length; i++) {
        const px = place.x.at(x[i]), top = high[i] === null ? NaN : place.y.at(high[i]), under = low[i] === null ? NaN : place.y.at(low[i]);
        if (!known(px) || !known(top) || !known(under)) { close(); continue; }
        up.push(`${px.toFixed(1)} ${top.toFixed(1)}`);
        down.push(`${px.toFixed(1)} ${under.toFixed(1)}`);
      }
      close();
      return out;
    };
    let place, marks, paths;
    chart.draw = () => {
      const svg = chart.begin(), shown = spec.series.filter((_, i) => !hidden.has(i));
      let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
      const take = (v) => { if (known(v) && (!ylog || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); } };
      for (const s of shown) {
        s.y.forEach(take);
        for (const b of s.bands || []) { b.low.forEach(take); b.high.forEach(take); }
        for (const v of spec.xs[s.x]) if (known(v) && (!xlog || v > 0)) { first = Math.min(first, v); last = Math.max(last, v); }
      }
      if (spec.y.share) { low = 0; high = 1.02; }
      if (!(low <= high)) { low = ylog ? 0.1 : 0; high = 1; }
      if (!(first <= last)) { first = 1; last = 2; }
      const pad = ylog ? (high / low) ** 0.03 : (high - low) * 0.03;
      place = axes(chart, [first, last, xlog], spec.y.share ? [low, high, false] : ylog ? [low / pad, high * pad, true] : [low - pad, high + pad, false], [spec.x.name, spec.y.name]);
      for (const mark of spec.marks || []) {
        const px = place.x.at(mark.x), far = px > (place.left + place.right) / 2;
        put(svg, "line", { x1: px, x2: px, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)", "stroke-dasharray": "2 3" });
        put(svg, "text", { x: px + (far ? -5 : 5), y: place.top + 14, "text-anchor": far ? "end" : "start" }, mark.text);
      }
      for (const s of shown) {
        for (const b of [...(s.bands || [])].reverse()) {
          put(svg, "path", { d: area(spec.xs[s.x], b.low, b.high, place), style: `fill: ${colour(s.c)}; opacity: ${b.opacity}` });
        }
      }
      paths = shown.map((s) => put(svg, "path", {
        class: "curve", d: path(spec.xs[s.x], s.y, place, s.step), fill: "none", "stroke-dasharray": DASHES[s.dash || 0],
        "stroke-linejoin": "round", style: `stroke: ${colour(s.c)}; stroke-width: ${s.thin ? 1.2 : 2}` }));
      marks = put(svg, "g");
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
    const hover = (event) => point(...chart.place(event));
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
        found = found.filter((f) => known(f.y)).sort((a, b) => Math.abs(a.y - py) - Math.abs(b.y - py)).slice(0, 1);
        if (!found.length) return;
        paths.forEach((p, k) => { p.style.opacity = k === found[0].k ? 1 : 0.15; });
      }
      const x = spec.xs[found[0].s.x][found[0].i], line = place.x.at(x);
      marks.replaceChildren();
      put(marks, "line", { x1: line, x2: line, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)" });
      const rows = [];
      for (const f of found) {
        if (known(f.y)) put(marks, "circle", { cx: line, cy: f.y, r: 4, style: `fill: ${colour(f.s.c)}` });
        rows.push([f.s.name, spec.y.percent ? `${fmt(100 * f.s.y[f.i], 3)} %` : fmt(f.s.y[f.i]), colour(f.s.c)]);
        if (!many && found.length < 4) {
          for (const b of f.s.bands || []) rows.push([b.name, `${fmt(b.low[f.i], 4)} to ${fmt(b.high[f.i], 4)}`]);
        }
      }
      const also = spec.also ? `, ${fmt(spec.also.values[found[0].i])} ${spec.also.name}` : "";
      chart.show(line, py === null ? 60 : py, `${spec.x.name} ${fmt(x)}${also}`, rows);
    };
    chart.draw();
  }

  // --- points of a table in the plane or in space ---
  const pickers = {};
  const pick = (table, row, from) => (pickers[table] || []).forEach((told) => told(row, from));
  function scatter(figure, spec) {
    const chart = frame(figure, spec), table = data.tables[spec.table], names = table.names;
    const use = { ...spec.use };
    let turn = [0.7, 0.45], drawn = [], marks, held = null, moved = false;
    const choose = (key, text, none) => {
      const label = put(chart.tools, "label", {}, text), list = put(label, "select", { "data-axis": key });
      if (none) put(list, "option", { value: -1 }, none);
      for (const i of spec.choices) put(list, "option", { value: i }, names[i]);
      list.value = use[key];
      list.addEventListener("change", () => { use[key] = Number(list.value); chart.draw(); });
    };
    choose("x", "across");
    choose("y", "up");
    if (spec.choices.length > 2) { choose("z", "depth", "none (flat)"); choose("colour", "colour", "none"); }
    chart.csv(() => csvOf(table));
    const dot = (parent, kind, x, y, c, size) => {
      const shapes = { knee: `M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z`,
        end: `M${x} ${y - size}L${x + size} ${y + size * 0.8}L${x - size} ${y + size * 0.8}Z` };
      return put(parent, "path", { d: shapes[kind], style: `fill: ${c}; stroke: var(--text); stroke-width: 1` });
    };
    const key = (text, paint) => { const entry = put(chart.legend, "span"); paint(put(entry, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" })); put(entry, "span", {}, text); };
    const round = (parent, points, width, c, extra = "") => points.length && put(parent, "path", {
      d: points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join(""), class: "dots",
      style: `stroke: ${c}; stroke-width: ${width}; stroke-linecap: round; fill: none; ${extra}` });
    const range = (column, truth) => {
      let low = Infinity, high = -Infinity;
      for (const v of table.data[column]) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
      for (const v of truth || []) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
      if (!(low <= high)) return [0, 1];
      const pad = (high - low) * 0.04;
      return [low - pad, high + pad];
    };
    chart.draw = () => {
      const svg = chart.begin(), solid = use.z >= 0, cols = [use.x, use.y, ...(solid ? [use.z] : [])];
      chart.plot.classList.toggle("turns", solid);
      const truth = spec.truth && cols.every((c) => spec.truth.columns.includes(c)) ? cols.map((c) => spec.truth.data[spec.truth.columns.indexOf(c)]) : null;
      const spans = cols.map((c, k) => range(c, truth && truth[k]));
      const where = solid ? space(chart, spans, cols.map((c) => names[c]), turn) : (() => {
        const place = axes(chart, [...spans[0], false], [...spans[1], false], cols.map((c) => names[c]));
        return (x, y) => [place.x.at(x), place.y.at(y)];
      })();
      const n = table.data[0].length;
      drawn = [];
      for (let i = 0; i < n; i++) {
        const values = cols.map((c) => table.data[c][i]);
        drawn.push(values.every(known) ? where(...values) : null);
      }
      if (truth) round(svg, truth[0].map((_, i) => where(...truth.map((t) => t[i]))), solid ? 2 : 3, "var(--soft)", solid ? "opacity: 0.55" : "opacity: 0.8");
      const size = n > 1500 ? 4.5 : n > 300 ? 6 : 7.5, there = drawn.filter(Boolean);
      chart.legend.replaceChildren();
      if (use.colour >= 0) {
        const [low, high] = [Math.min(...table.data[use.colour].filter(known)), Math.max(...table.data[use.colour].filter(known))];
        round(svg, there, size + 1.6, "var(--text)", "opacity: 0.55");
        const bins = VIRIDIS.map(() => []), valueless = [];
        drawn.forEach((p, i) => {
          const v = table.data[use.colour][i];
          if (p) (known(v) ? bins[clamp(Math.floor((v - low) / (high - low || 1) * 10), 0, 9)] : valueless).push(p);
        });
        round(svg, valueless, size, "var(--line)");
        bins.forEach((points, k) => round(svg, points, size, `rgb(${VIRIDIS[k].join(" ")})`));
        const entry = put(chart.legend, "span");
        put(entry, "span", {}, `${names[use.colour]}: ${fmt(low, 4)}`);
        put(entry, "span", { class: "key colours" });
        put(entry, "span", {}, fmt(high, 4));
      } else {
        round(svg, there, size, "var(--c0)", n > 1500 ? "opacity: 0.7" : "");
        key(spec.what, (s) => round(s, [[13, 6]], 8, "var(--c0)"));
      }
      if (truth) key("true front", (s) => round(s, [[5, 6], [10, 6], [15, 6], [20, 6]], 3, "var(--soft)"));
      const told = new Set();
      for (const mark of [...spec.marks].reverse()) {
        const at = drawn[mark.row];
        if (at) dot(svg, mark.kind, at[0], at[1], mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 7);
        if (at && !told.has(mark.short)) key(mark.short, (s) => dot(s, mark.kind, 13, 6, mark.kind === "knee" ? "var(--c1)" : "var(--c2)", 5));
        told.add(mark.short);
      }
      marks = put(svg, "g");
      chart.tip.hidden = true;
      svg.addEventListener("pointermove", (event) => {
        if (held) {
          const by = [event.clientX - held[0], event.clientY - held[1]];
          if (Math.hypot(...by) > 3 || moved) { moved = true; turn = [held[2] + by[0] / 120, clamp(held[3] + by[1] / 160, -1.5, 1.5)]; chart.draw(); }
          return;
        }
        hover(chart.place(event));
      });
      svg.addEventListener("pointerdown", (event) => {
        moved = false;
        if (solid) { held = [event.clientX, event.clientY, ...turn]; event.preventDefault(); } else hover(chart.place(event));
      });
      svg.addEventListener("click", (event) => { const row = nearest(chart.place(event)); if (row >= 0 && !moved) { ring(row); pick(spec.table, row, chart); } });
      svg.addEventListener("pointerleave", () => { if (!held) { chart.tip.hidden = true; marks.replaceChildren(); } });
      svg.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
        if (by && solid) { event.preventDefault(); turn = [turn[0] + by[0], clamp(turn[1] + by[1], -1.5, 1.5)]; chart.draw(); chart.svg.focus(); }
      });
    };
    addEventListener("pointerup", () => { held = null; });
    addEventListener("pointercancel", () => { held = null; });
    const nearest = ([px, py]) => {
      let best = -1, least = NEAR * NEAR;
      drawn.forEach((p, i) => { if (p) { const far = (p[0] - px) ** 2 + (p[1] - py) ** 2; if (far < least) { least = far; best = i; } } });
      return best;
    };
    const ring = (row) => {
      marks.replaceChildren();
      if (row >= 0 && drawn[row]) put(marks, "circle", { cx: drawn[row][0], cy: drawn[row][1], r: 8, style: "fill: none; stroke: var(--text); stroke-width: 2" });
    };
    const hover = (at) => {
      const row = nearest(at);
      ring(row);
      if (row < 0) { chart.tip.hidden = true; return; }
      const rows = spec.tip.map((c) => [names[c], fmt(table.data[c][row], 5)]);
      if (spec.more) rows.push([spec.more, ""]);
      chart.show(...drawn[row], [`${spec.one} ${table.number ? table.number[row] : row + 1}`, ...(table.labels[row] ? [table.labels[row]] : [])].join(": "), rows);
    };
    (pickers[spec.table] ||= []).push((row, from) => { if (from !== chart) ring(row); });
    chart.draw();
  }
  function space(chart, spans, names, [round, tilt]) {  // a box seen from above, in parallel projection
    const { svg, width, height } = chart, size = Math.min(width * 0.56, height * 0.62);
    const [cos, sin, up, flat] = [Math.cos(round), Math.sin(round), Math.sin(tilt), Math.cos(tilt)];
    const project = (a, b, c) => {
      const x = a * cos - b * sin, depth = a * sin + b * cos;
      return [width / 2 + size * x, height / 2 - size * (c * flat + depth * up)];
    };
    const corner = [-0.5, 0.5];
    const line = (from, to, kind) => {
      const [a, b] = [project(...from), project(...to)];
      put(svg, "line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: kind });
    };
    for (const s of corner) for (const t of corner) {
      line([-0.5, s, t], [0.5, s, t], "frame");
      line([s, -0.5, t], [s, 0.5, t], "frame");
      line([s, t, -0.5], [s, t, 0.5], "frame");
    }
    const text = (at, words, right, far, down) => {
      const [x, y] = project(...at), letters = Math.max(6, Math.floor((right ? width - x : x) / 6.8) - 2);
      put(svg, "text", { x: x + (right ? far : -far), y: clamp(y + down, 12, height - 4), "text-anchor": right ? "start" : "end",
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
      const value = (v) => fmt(Math.round((spans[axis][0] + (v + 0.5) * wide) / wide * 1e6) / 1e6 * wide || 0, 3);
      text(point(low), value(low), right, 5, down);
      text(point(high), value(high), right, 5, down);
      text(point(0), name, right, 12, down);
    });
    return (...v) => project(...v.map((value, k) => (value - spans[k][0]) / (spans[k][1] - spans[k][0] || 1) - 0.5));
  }

  // --- tables that are sorted and filtered here ---
  function csvOf(table) {
    const labels = table.labels || {}, marked = Object.keys(labels).length > 0;
    return [[...(marked ? ["mark"] : []), ...table.names], ...table.data[0].map((_, i) => [...(marked ? [labels[i] || ""] : []), ...table.data.map((c) => c[i])])];
  }
  function accepts(text) {  // "<3", ">= 2", "1..2", or how the value begins
    const wanted = text.trim().replaceAll("−", "-"), sides = wanted.match(/^(<=?|>=?)\s*(-?[\d.]+(?:e[-+]?\d+)?)$/i);
    if (!wanted) return null;
    if (sides) {
      const limit = Number(sides[2]);
      return { "<": (v) => v < limit, "<=": (v) => v <= limit, ">": (v) => v > limit, ">=": (v) => v >= limit }[sides[1]];
    }
    const ends = wanted.split("..").map(Number);
    if (ends.length === 2 && ends.every(Number.isFinite)) return (v) => v >= ends[0] && v <= ends[1];
    return (v) => String(v ?? "").toLowerCase().includes(wanted.toLowerCase());
  }
  function recipes(box, id) {
    const table = data.tables[id], labels = table.labels || {}, marked = Object.keys(labels).length > 0;
    const n = table.data[0].length, filters = {};
    let order = [...Array(n).keys()], sorted = null, shown = 0;
    const tools = put(box, "div", { class: "tools" }), count = put(tools, "span", { role: "status" });
    const csv = put(tools, "button", { class: "small", type: "button" }, "CSV ↓");
    csv.addEventListener("click", () => download(table.file, csvOf(table)));
    const reset = put(tools, "button", { class: "small", type: "button" }, "Reset");
    const scroll = put(box, "div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.title });
    const grid = put(scroll, "table", { class: "recipes" }), head = put(grid, "thead"), body = put(grid, "tbody");
    const columns = [...(marked ? [-1] : []), ...table.names.keys()];
    const value = (c, i) => (c < 0 ? labels[i] || "" : table.data[c][i]);
    const top = put(head, "tr"), below = put(head, "tr", { class: "filters" });
    const heads = columns.map((c) => {
      const cell = put(top, "th", { scope: "col", class: c < 0 ? "" : "n" });
      put(cell, "button", { type: "button", title: "Sort" }, c < 0 ? "mark" : table.names[c]).addEventListener("click", () => {
        sorted = [c, sorted && sorted[0] === c ? -sorted[1] : c < 0 ? -1 : 1];
        arrange();
      });
      const input = put(put(below, "th", { class: c < 0 ? "" : "n" }), "input", { placeholder: c < 0 || typeof value(c, 0) === "string" ? "filter" : "< > a..b" });
      input.setAttribute("aria-label", `Filter ${c < 0 ? "mark" : table.names[c]}`);
      input.addEventListener("input", () => { filters[c] = accepts(input.value); arrange(); });
      return cell;
    });
    const more = (rows) => {
      const until = Math.min(order.length, shown + rows), part = document.createDocumentFragment();
      for (; shown < until; shown++) {
        const i = order[shown], row = put(part, "tr", { "data-row": i });
        for (const c of columns) put(row, "td", c < 0 ? {} : { class: "n" }, c < 0 ? value(c, i) : fmt(value(c, i), table.digits));
      }
      body.append(part);
    };
    const arrange = () => {
      order = [...Array(n).keys()].filter((i) => columns.every((c) => !filters[c] || filters[c](value(c, i))));
      if (sorted) {
        const [c, way] = sorted;
        order.sort((a, b) => {
          const [p, q] = [value(c, a), value(c, b)];
          if (typeof p === "string" || typeof q === "string") return way * String(p ?? "").localeCompare(String(q ?? ""), "en", { numeric: true });
          return known(p) && known(q) ? way * (p - q) : known(q) - known(p);
        });
      }
      heads.forEach((cell, k) => (sorted && columns[k] === sorted[0]
        ? cell.setAttribute("aria-sort", sorted[1] > 0 ? "ascending" : "descending") : cell.removeAttribute("aria-sort")));
      body.replaceChildren();
      shown = 0;
      more(PAGE);
      scroll.scrollTop = 0;
      const all = table.total > n ? `${n.toLocaleString("en")} of ${table.total.toLocaleString("en")} ${table.what}` : `${n.toLocaleString("en")} ${table.what}`;
      count.textContent = order.length === n ? all : `${order.length.toLocaleString("en")} of ${all}`;
    };
    scroll.addEventListener("scroll", () => { if (scroll.scrollTop + scroll.clientHeight > scroll.scrollHeight - 300) more(PAGE); });
    reset.addEventListener("click", () => {
      sorted = null;
      for (const input of below.querySelectorAll("input")) input.value = "";
      for (const c of columns) filters[c] = null;
      arrange();
    });
    const rowOf = (event) => { const row = event.target.closest("tr[data-row]"); return row ? Number(row.dataset.row) : -1; };
    body.addEventListener("pointerover", (event) => pick(id, rowOf(event), box));
    (pickers[id] ||= []).push((row, from) => {
      if (from === box) return;
      const place = order.indexOf(row);
      if (place >= shown) more(place - shown + 1);
      for (const old of body.querySelectorAll(".picked")) old.classList.remove("picked");
      const found = body.querySelector(`tr[data-row="${row}"]`);
      if (found) { found.classList.add("picked"); scroll.scrollTop = found.offsetTop - scroll.clientHeight / 2; }
    });
    put(box, "p", { class: "note paper" }, `On paper at most 40 rows and 9 columns; ${table.file}.csv has all.`);
    arrange();
    // two header rows stay on top while the rest scrolls
    const settle = () => { for (const cell of below.children) cell.style.top = `${top.offsetHeight}px`; };
    new ResizeObserver(settle).observe(top);
  }
  function sortable(table) {
    const rows = [...table.tBodies[0].rows];
    const number = (text) => { const v = text.includes("∞") ? Infinity : parseFloat(text.replaceAll(",", "").replace("−", "-")); return Number.isNaN(v) ? null : v; };
    [...table.tHead.rows[0].cells].forEach((cell, k) => {
      const text = cell.textContent;
      cell.replaceChildren();
      put(cell, "button", { type: "button", title: "Sort" }, text).addEventListener("click", () => {
        const way = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
        const sorted = [...rows].sort((a, b) => {
          const [p, q] = [a, b].map((r) => r.cells[k].textContent), [v, w] = [number(p), number(q)];
          return v !== null && w !== null ? way * (v === w ? 0 : v - w) : v === null && w === null ? way * p.localeCompare(q, "en") : v === null ? 1 : -1;
        });
        table.tBodies[0].append(...sorted);
      });
    });
  }

  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const spec = data.charts[figure.dataset.chart];
    ({ lines, scatter })[spec.kind](figure, spec);
  }
  for (const box of document.querySelectorAll("[data-table]")) recipes(box, box.dataset.table);
  for (const table of document.querySelectorAll("table[data-sort]")) sortable(table);
})();
