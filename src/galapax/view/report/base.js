// The figures and tables of a report. Names come from users: they reach the page as text nodes, never as markup.
// These files are one program, put one after the other in a scope of their own (see page.py). This one has what the
// others share: numbers as text, scales, the frame of a figure and its axes.
const data = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["", "7 4", "2 3", "8 3 2 3"];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
  [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
const ASPECT_RATIO = 0.48, ROWS_PER_PAGE = 100, MAX_PICK_DISTANCE = 30;

const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

// --- small helpers ---
const addElement = (parent, tag, attributes = {}, text) => {
  const positions = tag === "svg" || parent.namespaceURI === SVG;
  const element = positions ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
const isNumber = (v) => typeof v === "number" && Number.isFinite(v);
const isWhole = (v) => Number.isInteger(v) && Math.abs(v) < 1e15;
const formatNumber = (v, digits = 6) => {
  if (typeof v === "string") return v;
  if (!isNumber(v)) return "–";
  if (isWhole(v) && Math.abs(v) < 1e9) return v.toLocaleString("en").replace("-", "−");
  const size = Math.abs(v);
  if (size >= 10 ** digits && size < 1e7) return Math.round(v).toLocaleString("en").replace("-", "−");
  const text = size >= 1e7 || size < 1e-4 ? v.toExponential(Math.min(digits - 1, 4)) : v.toPrecision(digits);
  return text.replace(/(\.\d*?)0+(e|$)/, "$1$2").replace(/\.(e|$)/, "$1").replaceAll("-", "−");
};
// a value of a table: the word that it stands for, of variables that are choices
const formatCell = (table, c, v, digits) => (table.words && table.words[c] ? table.words[c][v] ?? formatNumber(v) : formatNumber(v, digits));
const wordTicks = (words, low, high) => words.map((w, i) => [i, w.length > 14 ? w.slice(0, 13) + "…" : w]).filter(([v]) => v >= low && v <= high);
// digits that tell numbers from low to high apart, at least so many
const digitsToDistinguish = (low, high, least) => (high > low
  ? clamp(Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) + 3, least, 15) : least);
const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);

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
    const text = size >= 1e6 || size < 1e-4 ? formatNumber(v === 0 ? 0 : v, Math.max(2, Math.ceil(Math.log10(size / step)) + 1))
      : v.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
    out.push([v, text]);
  }
  return out;
}
function logTicks(low, high, room) {
  const out = [], every = Math.max(1, Math.ceil((high - low) / clamp(1.6 * room, 2, 12)));
  for (let p = Math.ceil(low - 1e-9); p <= high + 1e-9; p++) {
    if (p % every === 0) out.push([10 ** p, p >= -2 && p <= 4 ? formatNumber(10 ** p) : "10" + superscript(p)]);
  }
  if (out.length < 3) {
    for (let p = Math.floor(low); p <= high; p++) {
      for (const f of high - low < 1.2 ? [1.5, 2, 3, 4, 5, 7] : [2, 5]) {
        const v = f * 10 ** p;
        if (Math.log10(v) >= low && Math.log10(v) <= high) out.push([v, formatNumber(v, 2)]);
      }
    }
  }
  return out.length > 1 ? out.sort((a, b) => a[0] - b[0]) : ticks(10 ** low, 10 ** high, room);
}

// --- what all figures share: a box for tools, legend, drawing and tip, drawn again when its width changes ---
function createChart(figure, spec) {
  const box = figure.querySelector(".chart");
  const tools = addElement(box, "div", { class: "tools" }), legend = addElement(box, "div", { class: "legend" });
  const plot = addElement(box, "div", { class: "plot" }), tip = addElement(plot, "div", { class: "tip", role: "status" });
  tip.hidden = true;
  const chart = { spec, tools, legend, plot, tip, svg: null, width: 0, height: 0 };
  chart.begin = () => {
    chart.width = Math.max(260, plot.clientWidth || 800);
    chart.height = Math.round(clamp(chart.width * (spec.tall || ASPECT_RATIO), spec.tall ? 330 : 270, spec.tall ? 560 : 410));
    if (chart.svg) chart.svg.remove();
    chart.svg = addElement(plot, "svg", { viewBox: `0 0 ${chart.width} ${chart.height}`, role: "img", tabindex: 0 });
    chart.svg.setAttribute("aria-label", spec.alt);
    plot.prepend(chart.svg);
    return chart.svg;
  };
  chart.toggle = (text, pressed, change) => {
    const button = addElement(tools, "button", { class: "small", type: "button", "aria-pressed": pressed }, text);
    button.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", now);
      change(now);
      chart.draw();
    });
  };
  chart.csv = (lines) => {
    const button = addElement(tools, "button", { class: "small", type: "button" }, "CSV ↓");
    button.title = "Download the data of this figure";
    button.addEventListener("click", () => download(spec.file, lines()));
  };
  chart.show = (x, y, title, rows) => {
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
  chart.pointerPosition = (event) => {
    const area = chart.svg.getBoundingClientRect();
    return [(event.clientX - area.left) * chart.width / area.width, (event.clientY - area.top) * chart.height / area.height];
  };
  new ResizeObserver(() => { if (Math.abs(plot.clientWidth - chart.width) > 1 && plot.clientWidth) chart.draw(); }).observe(plot);
  return chart;
}
function axes(chart, xs, ys, names, words = []) {
  const { svg, width, height } = chart, rough = words[1] ? wordTicks(words[1], ys[0], ys[1]) : tickValues(ys, height);
  const left = 30 + 7 * Math.max(2, ...rough.map((t) => t[1].length)), right = 14, top = 10, bottom = 46;
  const x = scale(...xs, left, width - right), y = scale(...ys, height - bottom, top);
  if (words[0]) x.ticks = wordTicks(words[0], xs[0], xs[1]);
  if (words[1]) y.ticks = rough;
  for (const [v, text] of y.ticks) {
    addElement(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y.at(v), y2: y.at(v) });
    addElement(svg, "text", { x: left - 6, y: y.at(v) + 4, "text-anchor": "end" }, text);
  }
  let free = left - 30;
  for (const [v, text] of x.ticks) {
    addElement(svg, "line", { class: "grid", y1: top, y2: height - bottom, x1: x.at(v), x2: x.at(v) });
    const half = 3.5 * text.length, at = Math.min(x.at(v), width - half - 2);
    if (at - half < free) continue;  // numbers that would touch
    free = at + half + 8;
    addElement(svg, "text", { x: at, y: height - bottom + 17, "text-anchor": "middle" }, text);
  }
  addElement(svg, "rect", { class: "frame", x: left, y: top, width: width - left - right, height: height - top - bottom });
  name(svg, names[0], (left + width - right) / 2, height - 8, width - left - right);
  name(svg, names[1], 13, (top + height - bottom) / 2, height - top - 10, true);
  return { x, y, left, right: width - right, top, bottom: height - bottom };
}
const tickValues = (ys, height) => scale(...ys, height - 46, 10).ticks;
function name(svg, text, x, y, room, upright = false) {
  const letters = Math.floor(room / 6.6), cut = text.length > letters ? text.slice(0, Math.max(1, letters - 1)) + "…" : text;
  const element = addElement(svg, "text", { class: "axis-name", x, y, "text-anchor": "middle" }, cut);
  if (upright) element.setAttribute("transform", `rotate(-90 ${x} ${y})`);
  if (cut !== text) addElement(element, "title", {}, text);
}
const colour = (c) => (Number.isInteger(c) ? `var(--c${c % 8})` : `oklch(var(--shade) 0.14 ${(265 - 235 * c).toFixed(0)})`);
function swatch(parent, c, dash, wide) {
  const svg = addElement(parent, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" });
  addElement(svg, "line", { x1: 1, x2: 25, y1: 6, y2: 6, style: `stroke: ${c}; stroke-width: ${wide || 2.5}`, "stroke-dasharray": dash || "" });
  return svg;
}
