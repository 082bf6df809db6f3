// The charts of the report and of the live page: numbers as text, scales, axes, curves, bands, points, legends, tooltips,
// drawn as SVG. This script and that of the page are one program, put together by assets.py.
// Names come from users: they reach the page as text nodes, never as markup.
const DASHES = ["", "7 4", "2 3", "8 3 2 3"];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
  [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
const ASPECT_RATIO = 0.48, MAX_PICK_DISTANCE = 30, MAX_ROUND_DOTS = 3000, MAX_LABEL_LETTERS = 14;
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

// --- elements and numbers ---
const addElement = (parent, tag, attributes = {}, text) => {
  const isSvg = tag === "svg" || parent.namespaceURI === SVG;
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") element.style.cssText = value;  // the live page allows no style in markup
    else element.setAttribute(key, value);
  }
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
const isNumber = (v) => typeof v === "number" && Number.isFinite(v);
const isWhole = (v) => Number.isInteger(v) && Math.abs(v) < 1e15;
const formatCount = (v) => (isNumber(v) ? Math.round(v).toLocaleString("en") : "–");
const formatNumber = (v, digits = 6) => {
  if (typeof v === "string") return v;
  if (!isNumber(v)) return "–";
  if (isWhole(v) && Math.abs(v) < 1e9) return v.toLocaleString("en").replace("-", "−");
  const size = Math.abs(v);
  if (size >= 10 ** digits && size < 1e7) return Math.round(v).toLocaleString("en").replace("-", "−");
  const text = size >= 1e7 || size < 1e-4 ? v.toExponential(Math.min(digits - 1, 4)) : v.toPrecision(digits);
  return text.replace(/(\.\d*?)0+(e|$)/, "$1$2").replace(/\.(e|$)/, "$1").replaceAll("-", "−");
};
const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
const shorten = (text, letters = MAX_LABEL_LETTERS) => (text.length > letters ? text.slice(0, Math.max(1, letters - 1)) + "…" : text);
// at least `least` digits, and so many that numbers from low to high differ
const digitsToDistinguish = (low, high, least) => (high > low
  ? clamp(Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) + 3, least, 15) : least);
function extremes(...lists) {  // of all finite numbers; [Infinity, -Infinity] if there is none
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list || []) if (isNumber(v)) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}
function rangeWithMargin(...lists) {
  const [low, high] = extremes(...lists), margin = (high - low) * 0.04;
  return low <= high ? [low - margin, high + margin] : [0, 1];
}

// --- scales: from a value to a pixel (`at`) and back (`value`), and the ticks between ---
function createScale(low, high, log, from, to) {
  const isPoint = low === high, only = [[low, formatNumber(low)]];
  if (log) { low = Math.log10(low); high = Math.log10(high); }
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) {  // numbers on an axis could not tell them apart
    const margin = log ? 0.5 : Math.abs(low) * 1e-3 || 1;
    low -= margin;
    high += margin;
  }
  const at = (v) => (v === null || (log && v <= 0) ? NaN : from + ((log ? Math.log10(v) : v) - low) / (high - low) * (to - from));
  const value = (pixel) => { const v = low + (pixel - from) / (to - from) * (high - low); return log ? 10 ** v : v; };
  const room = (to - from) / (from > to ? -45 : 75);  // ticks that fit: on the vertical axis they may stand closer
  return { at, value, ticks: isPoint ? only : log ? logTicks(low, high, room) : linearTicks(low, high, room) };
}
function linearTicks(low, high, room) {
  const rough = (high - low) / clamp(room, 3, 9), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const places = clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 15), ticks = [];
  const first = Math.ceil(low / step - 1e-9), size = Math.max(Math.abs(low), Math.abs(high));
  for (let i = 0; i < 20 && (first + i) * step <= high + 1e-9 * step; i++) {
    const v = (first + i) * step || 0;
    const text = size >= 1e6 || size < 1e-4 ? formatNumber(v === 0 ? 0 : v, Math.max(2, Math.ceil(Math.log10(size / step)) + 1))
      : v.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
    ticks.push([v, text]);
  }
  return ticks;
}
function logTicks(low, high, room) {
  const ticks = [], every = Math.max(1, Math.ceil((high - low) / clamp(1.6 * room, 2, 12)));
  for (let p = Math.ceil(low - 1e-9); p <= high + 1e-9; p++) {
    if (p % every === 0) ticks.push([10 ** p, p >= -2 && p <= 4 ? formatNumber(10 ** p) : "10" + superscript(p)]);
  }
  if (ticks.length < 3) {
    for (let p = Math.floor(low); p <= high; p++) {
      for (const f of high - low < 1.2 ? [1.5, 2, 3, 4, 5, 7] : [2, 5]) {
        const v = f * 10 ** p;
        if (Math.log10(v) >= low && Math.log10(v) <= high) ticks.push([v, formatNumber(v, 2)]);
      }
    }
  }
  return ticks.length > 1 ? ticks.sort((a, b) => a[0] - b[0]) : linearTicks(10 ** low, 10 ** high, room);
}
// the ticks of a variable that is not continuous: labels of its codes, or "integer"
function discreteTicks(kind, scale, low, high) {
  if (kind === "integer") return scale.ticks.filter(([v]) => Number.isInteger(v));
  return kind.map((label, code) => [code, shorten(label)]).filter(([code]) => code >= low && code <= high);
}

// --- a chart: a box for tools, legend, drawing and tooltip, drawn again when its width changes ---
// spec.alt: its description; spec.tall: height by width; spec.fill: takes the height that the page gives it
function createChart(figure, spec) {
  const box = figure.querySelector(".chart");
  const tools = addElement(box, "div", { class: "tools" }), legend = addElement(box, "div", { class: "legend" });
  const plot = addElement(box, "div", { class: "plot" }), tip = addElement(plot, "div", { class: "tip", role: "status" });
  tip.hidden = true;
  const chart = { spec, tools, legend, plot, tip, svg: null, width: 0, height: 0 };
  chart.begin = () => {
    chart.width = Math.max(260, plot.clientWidth || 800);
    const height = clamp(chart.width * (spec.tall || ASPECT_RATIO), spec.tall ? 330 : 270, spec.tall ? 560 : 410);
    chart.height = Math.round(spec.fill ? plot.clientHeight || 320 : height);
    if (chart.svg) chart.svg.remove();
    chart.svg = addElement(plot, "svg", { viewBox: `0 0 ${chart.width} ${chart.height}`, role: "img", tabindex: 0 });
    chart.svg.setAttribute("aria-label", spec.alt);
    plot.prepend(chart.svg);
    return chart.svg;
  };
  chart.toggle = (text, pressed, change) => {
    const button = addElement(tools, "button", { class: "small", type: "button", "aria-pressed": pressed }, text);
    button.addEventListener("click", () => {
      const isPressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", isPressed);
      change(isPressed);
      chart.draw();
    });
  };
  chart.showTip = (x, y, title, rows) => {
    tip.replaceChildren();
    addElement(tip, "b", {}, title);
    const table = addElement(tip, "table");
    for (const [name, value, colour] of rows) {
      const row = addElement(table, "tr");
      addElement(row, "td", colour ? { style: `color: ${colour}` } : {}, name);
      addElement(row, "td", { class: "n" }, value);
    }
    tip.hidden = false;
    const ratio = plot.clientWidth / chart.width;
    const left = x * ratio + 14 + tip.offsetWidth < plot.clientWidth ? x * ratio + 14 : x * ratio - 14 - tip.offsetWidth;
    tip.style.left = `${clamp(left, 0, Math.max(0, plot.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${clamp(y * ratio - tip.offsetHeight / 2, 0, Math.max(0, plot.clientHeight - tip.offsetHeight))}px`;
  };
  chart.hideTip = () => { tip.hidden = true; };
  chart.pointerPosition = (event) => {
    const area = chart.svg.getBoundingClientRect();
    return [(event.clientX - area.left) * chart.width / area.width, (event.clientY - area.top) * chart.height / area.height];
  };
  const hasNewSize = () => Math.abs(plot.clientWidth - chart.width) > 1 || (spec.fill && Math.abs(plot.clientHeight - chart.height) > 1);
  new ResizeObserver(() => { if (plot.clientWidth && chart.svg && hasNewSize()) chart.draw(); }).observe(plot);
  return chart;
}

// xs, ys: [low, high, log]; kinds: of discrete variables across and up, see `discreteTicks`; equal: the same scale on both
function drawAxes(chart, xs, ys, names, kinds = [], equal = false) {
  const { svg, width, height } = chart, right = 14, top = 10, bottom = 46;
  const roughTicks = kinds[1] ? discreteTicks(kinds[1], createScale(...ys, height - bottom, top), ys[0], ys[1]) : createScale(...ys, height - bottom, top).ticks;
  const left = 30 + 7 * Math.max(2, ...roughTicks.map((t) => t[1].length));
  let [wide, high] = [width - left - right, height - top - bottom];
  if (equal) {  // one unit is as long across as up
    const unit = Math.min(wide / (xs[1] - xs[0]), high / (ys[1] - ys[0]));
    [wide, high] = [unit * (xs[1] - xs[0]), unit * (ys[1] - ys[0])];
  }
  const x = createScale(...xs, left, left + wide), y = createScale(...ys, top + high, top);
  if (kinds[0]) x.ticks = discreteTicks(kinds[0], x, xs[0], xs[1]);
  if (kinds[1]) y.ticks = discreteTicks(kinds[1], y, ys[0], ys[1]);
  for (const [v, text] of y.ticks) {
    addElement(svg, "line", { class: "grid", x1: left, x2: left + wide, y1: y.at(v), y2: y.at(v) });
    addElement(svg, "text", { x: left - 6, y: y.at(v) + 4, "text-anchor": "end" }, text);
  }
  let free = left - 30;
  for (const [v, text] of x.ticks) {
    addElement(svg, "line", { class: "grid", y1: top, y2: top + high, x1: x.at(v), x2: x.at(v) });
    const half = 3.5 * text.length, middle = Math.min(x.at(v), width - half - 2);
    if (middle - half < free) continue;  // the label would touch the one before
    free = middle + half + 8;
    addElement(svg, "text", { x: middle, y: top + high + 17, "text-anchor": "middle" }, text);
  }
  addElement(svg, "rect", { class: "frame", x: left, y: top, width: wide, height: high });
  drawAxisName(svg, names[0], left + wide / 2, top + high + 38, wide);
  drawAxisName(svg, names[1], 13, top + high / 2, high + 2 * top - 4, true);
  return { x, y, left, right: left + wide, top, bottom: top + high };
}
function drawAxisName(svg, text, x, y, room, upright = false) {
  const size = clamp(room / (6.6 * text.length), 0.75, 1);  // smaller letters before a name is cut
  const shortened = shorten(text, Math.max(2, Math.floor(room / (6.6 * size) + 1e-9)));
  const element = addElement(svg, "text", { class: "axis-name", x, y, "text-anchor": "middle", style: `font-size: ${(12 * size).toFixed(1)}px` }, shortened);
  if (upright) element.setAttribute("transform", `rotate(-90 ${x} ${y})`);
  if (shortened !== text) addElement(element, "title", {}, text);
}
// a layer that draws nothing outside the frame of the axes
function addClippedLayer(svg, { left, right, top, bottom }) {
  const [width, height] = [right - left, bottom - top];
  return addElement(svg, "svg", { x: left, y: top, width, height, viewBox: `${left} ${top} ${width} ${height}` });
}

// --- colours and legends ---
const seriesColour = (c) => (Number.isInteger(c) ? `var(--c${c % 8})` : `oklch(var(--shade) 0.14 ${(265 - 235 * c).toFixed(0)})`);
const viridisBin = (v, low, high) => (isNumber(v) ? clamp(Math.floor((v - low) / (high - low || 1) * 10), 0, 9) : 0);
const paintLine = (colour, dash = "", width = 2.5, opacity = 1) => (svg) => addElement(svg, "line", {
  x1: 1, x2: 25, y1: 6, y2: 6, style: `stroke: ${colour}; stroke-width: ${width}; opacity: ${opacity}`, "stroke-dasharray": dash });
function addLegendEntry(chart, text, paint, entry = addElement(chart.legend, "span")) {  // paint: draws into an SVG of 26 by 12
  paint(addElement(entry, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }));
  addElement(entry, "span", {}, text);
}
function addColourKey(chart, low, high, kind = "colours") {
  const entry = addElement(chart.legend, "span");
  addElement(entry, "span", {}, low);
  addElement(entry, "span", { class: `key ${kind}` });
  addElement(entry, "span", {}, high);
}

// --- curves, bands, points, markers; `place` is what drawAxes returns ---
// step: of shares, which hold until the next value; "all" begins at 0 and goes on to the end, "before" falls to 0
function curvePath(x, y, place, step) {
  let path = "", isPenDown = false, last = [0, 0];
  for (let i = 0; i < x.length; i++) {
    const px = place.x.at(x[i]), py = y[i] === null ? NaN : place.y.at(y[i]);
    if (!isNumber(px) || !isNumber(py)) { isPenDown = false; continue; }
    if (isPenDown && step) path += step === "before" ? `L${last[0].toFixed(1)} ${py.toFixed(1)}` : `L${px.toFixed(1)} ${last[1].toFixed(1)}`;
    path += `${isPenDown ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`;
    isPenDown = true;
    last = [px, py];
  }
  if (step === "all" && isPenDown) {
    path = path.replace("M", `M${place.x.at(x[0]).toFixed(1)} ${place.bottom}L`) + `L${place.right} ${last[1].toFixed(1)}`;
  } else if (step === "before" && isPenDown) {
    path = path.replace("M", `M${place.left} ${place.y.at(y[0]).toFixed(1)}L`) + `L${last[0].toFixed(1)} ${place.bottom}`;
  }
  return path;
}
const drawCurve = (parent, place, x, y, colour, { width = 2, dash = "", step = false } = {}) => addElement(parent, "path", {
  class: "curve", d: curvePath(x, y, place, step), fill: "none", "stroke-dasharray": dash, "stroke-linejoin": "round",
  style: `stroke: ${colour}; stroke-width: ${width}` });
function bandPath(x, low, high, place) {
  let path = "", upper = [], lower = [];
  const close = () => { if (upper.length) path += `M${upper.join("L")}L${lower.reverse().join("L")}Z`; upper = []; lower = []; };
  for (let i = 0; i < x.length; i++) {
    const px = place.x.at(x[i]), top = high[i] === null ? NaN : place.y.at(high[i]), bottom = low[i] === null ? NaN : place.y.at(low[i]);
    if (!isNumber(px) || !isNumber(top) || !isNumber(bottom)) { close(); continue; }
    upper.push(`${px.toFixed(1)} ${top.toFixed(1)}`);
    lower.push(`${px.toFixed(1)} ${bottom.toFixed(1)}`);
  }
  close();
  return path;
}
const drawBand = (parent, place, x, low, high, colour, opacity) => addElement(parent, "path", {
  d: bandPath(x, low, high, place), style: `fill: ${colour}; opacity: ${opacity}` });
const EVENT_DASHES = ["2 3", "6 3", "8 3 2 3", "1 2"];
function drawEvent(svg, place, x, text, row = 0, dash = EVENT_DASHES[0]) {  // a dashed line at x with its name; row: below other names
  const px = place.x.at(x), isRight = px > (place.left + place.right) / 2;
  addElement(svg, "line", { x1: px, x2: px, y1: place.top, y2: place.bottom, style: "stroke: var(--soft)", "stroke-dasharray": dash });
  if (text) addElement(svg, "text", { class: "event", x: px + (isRight ? -5 : 5), y: place.top + 14 + 14 * row, "text-anchor": isRight ? "end" : "start" }, text);
}
function drawMarker(parent, kind, x, y, colour, size) {
  const shapes = { knee: `M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z`,
    end: `M${x} ${y - size}L${x + size} ${y + size * 0.8}L${x - size} ${y + size * 0.8}Z`,
    cross: `M${x - size} ${y - size}L${x + size} ${y + size}M${x + size} ${y - size}L${x - size} ${y + size}` };
  return addElement(parent, "path", { d: shapes[kind], style: `fill: ${colour}; stroke: var(--text); stroke-width: 1` });
}
// what models expect: 95 % in both directions and a mark in the middle. points: each its lower ends, middles and upper ends
function drawForecast(chart, parent, forecast, columns, at) {
  for (const [key, kind, colour, text] of [["front", "dot", "var(--c4)", "the models between, 95 %"], ["next", "cross", "var(--c3)", "next evaluations, 95 %"]]) {
    const ends = forecast[key].map((point) => point.map((row) => at(...columns.map((c) => row[c]))));
    if (!ends.length) continue;
    if (columns.length === 2) {
      const d = ends.map(([low, middle, high]) => `M${low[0]} ${middle[1]}H${high[0]}M${middle[0]} ${low[1]}V${high[1]}`).join("");
      addElement(parent, "path", { d, style: `fill: none; stroke: ${colour}; stroke-width: 1.2; opacity: 0.6` });
    }
    const draw = (svg, [x, y]) => kind === "dot" ? drawDots(svg, [[x, y]], 4, colour) : addElement(drawMarker(svg, "cross", x, y, "none", 5), "title", {}, text);
    for (const [, middle] of ends) draw(parent, middle);
    addLegendEntry(chart, text, (svg) => draw(svg, [13, 6]));
  }
}
function drawDots(parent, points, width, colour, style = "") {
  if (!points.length) return;
  const radius = width / 2;
  // whole circles: a line of no length with round ends is drawn as an oval, or not at all, by what shows PDF; squares
  // are drawn faster
  const shape = points.length > MAX_ROUND_DOTS ? ([x, y]) => `M${(x - radius).toFixed(1)} ${(y - radius).toFixed(1)}h${width}v${width}h${-width}z`
    : ([x, y]) => `M${(x - radius).toFixed(1)} ${y.toFixed(1)}a${radius} ${radius} 0 1 0 ${width} 0a${radius} ${radius} 0 1 0 ${-width} 0`;
  addElement(parent, "path", { d: points.map(shape).join(""), class: "dots", style: `fill: ${colour}; ${style}` });
}
function drawImage(parent, href, x, y, width, height, isPixelated = false) {
  return addElement(parent, "image", { href, x, y, width, height, preserveAspectRatio: "none", ...(isPixelated ? { class: "pixels" } : {}) });
}
