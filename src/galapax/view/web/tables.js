// Tables that are sorted and filtered here.
function csvRows(table) {
  const labels = table.labels || {}, marked = Object.keys(labels).length > 0;
  return [[...(marked ? ["mark"] : []), ...table.names], ...table.data[0].map((_, i) => [...(marked ? [labels[i] || ""] : []), ...table.data.map((column, c) => (table.words && table.words[c] ? formatCell(table, c, column[i]) : column[i]))])];
}
function accepts(text) {  // "<3", ">= 2", "1..2", or how the value begins
  const condition = text.trim().replaceAll("−", "-"), sides = condition.match(/^(<=?|>=?)\s*(-?[\d.]+(?:e[-+]?\d+)?)$/i);
  if (!condition) return null;
  if (sides) {
    const limit = Number(sides[2]);
    return { "<": (v) => v < limit, "<=": (v) => v <= limit, ">": (v) => v > limit, ">=": (v) => v >= limit }[sides[1]];
  }
  const ends = condition.split("..").map(Number);
  if (ends.length === 2 && ends.every(Number.isFinite)) return (v) => v >= ends[0] && v <= ends[1];
  return (v) => String(v ?? "").toLowerCase().includes(condition.toLowerCase());
}
const ROWS_PER_PAGE = 100, MAX_PRINTED_ROWS = 40, MAX_PRINTED_COLUMNS = 9;  // rows, and columns side by side, on paper
function addPointTable(box, id) {
  const table = data.tables[id], labels = table.labels || {}, marked = Object.keys(labels).length > 0;
  const n = table.data[0].length, filters = {};
  let order = [...Array(n).keys()], sorted = null, shown = 0;
  const tools = addElement(box, "div", { class: "tools" }), count = addElement(tools, "span", { role: "status" });
  addCsvButton(tools, table.file, () => csvRows(table));
  const reset = addElement(tools, "button", { class: "small", type: "button" }, "Reset");
  const scroll = addElement(box, "div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.title });
  const grid = addElement(scroll, "table", { class: "recipes" }), head = addElement(grid, "thead"), body = addElement(grid, "tbody");
  const columns = [...(marked ? [-1] : []), ...table.names.keys()];
  const value = (c, i) => (c < 0 ? labels[i] || "" : table.data[c][i]);
  const hasLabels = (c) => c < 0 || (table.words && table.words[c]), textOrNumber = (c, i) => (c >= 0 && hasLabels(c) ? formatCell(table, c, value(c, i)) : value(c, i));
  const top = addElement(head, "tr"), below = addElement(head, "tr", { class: "filters" });
  const heads = columns.map((c) => {
    const cell = addElement(top, "th", { scope: "col", class: c < 0 ? "" : "n" });
    addElement(cell, "button", { type: "button", title: "Sort" }, c < 0 ? "mark" : table.names[c]).addEventListener("click", () => {
      sorted = [c, sorted && sorted[0] === c ? -sorted[1] : c < 0 ? -1 : 1];
      arrange();
    });
    const input = addElement(addElement(below, "th", { class: c < 0 ? "" : "n" }), "input", { placeholder: "filter" });
    input.setAttribute("aria-label", `Filter ${c < 0 ? "mark" : table.names[c]}`);
    input.addEventListener("input", () => { filters[c] = accepts(input.value); arrange(); });
    return cell;
  });
  const more = (rows) => {
    const until = Math.min(order.length, shown + rows), rowsToAdd = document.createDocumentFragment();
    for (; shown < until; shown++) {
      const i = order[shown], row = addElement(rowsToAdd, "tr", { "data-row": i });
      for (const c of columns) addElement(row, "td", c < 0 ? {} : { class: "n" }, c < 0 ? value(c, i) : formatCell(table, c, value(c, i), table.digits));
    }
    body.append(rowsToAdd);
  };
  const arrange = () => {
    order = [...Array(n).keys()].filter((i) => isKept(id, i) && columns.every((c) => !filters[c] || filters[c](textOrNumber(c, i))));
    if (sorted) {
      const [c, way] = sorted;
      order.sort((a, b) => {
        const [p, q] = [value(c, a), value(c, b)];
        if (typeof p === "string" || typeof q === "string") return way * String(p ?? "").localeCompare(String(q ?? ""), "en", { numeric: true });
        return isNumber(p) && isNumber(q) ? way * (p - q) : isNumber(q) - isNumber(p);
      });
    }
    heads.forEach((cell, k) => (sorted && columns[k] === sorted[0]
      ? cell.setAttribute("aria-sort", sorted[1] > 0 ? "ascending" : "descending") : cell.removeAttribute("aria-sort")));
    body.replaceChildren();
    shown = 0;
    more(ROWS_PER_PAGE);
    scroll.scrollTop = 0;
    const all = table.total > n ? `${n.toLocaleString("en")} of ${table.total.toLocaleString("en")} ${table.what}` : `${n.toLocaleString("en")} ${table.what}`;
    count.textContent = order.length === n ? all : `${order.length.toLocaleString("en")} of ${all}`;
  };
  scroll.addEventListener("scroll", () => { if (scroll.scrollTop + scroll.clientHeight > scroll.scrollHeight - 300) more(ROWS_PER_PAGE); });
  reset.addEventListener("click", () => {
    sorted = null;
    for (const input of below.querySelectorAll("input")) input.value = "";
    for (const c of columns) filters[c] = null;
    arrange();
  });
  brushState(id).listeners.push(arrange);
  const rowOf = (event) => { const row = event.target.closest("tr[data-row]"); return row ? Number(row.dataset.row) : -1; };
  body.addEventListener("pointerover", (event) => pick(id, rowOf(event), box));
  (pickers[id] ||= []).push((row, from) => {
    if (from === box) return;
    const place = order.indexOf(row);
    if (place >= shown) more(place - shown + 1);
    for (const old of body.querySelectorAll(".picked")) old.classList.remove("picked");
    const line = body.querySelector(`tr[data-row="${row}"]`);
    if (line) { line.classList.add("picked"); scroll.scrollTop = line.offsetTop - scroll.clientHeight / 2; }
  });
  const paper = addElement(box, "div", { class: "paper" });
  const onPaper = () => {  // all columns, a few at a time, so that none is lost at the edge of the page
    paper.replaceChildren();
    const rows = order.slice(0, MAX_PRINTED_ROWS), numbered = columns.filter((c) => c >= 0), hasRunNumbers = table.names[0] === "run";
    const wide = Math.ceil(numbered.length / Math.ceil(numbered.length / MAX_PRINTED_COLUMNS));
    for (let from = 0; from < numbered.length; from += wide) {
      const columnsOfBlock = numbered.slice(from, from + wide), block = addElement(paper, "table"), top = addElement(addElement(block, "thead"), "tr"), lines = addElement(block, "tbody");
      if (!hasRunNumbers) addElement(top, "th", {}, "no.");
      for (const c of columnsOfBlock) addElement(top, "th", { class: "n" }, table.names[c]);
      for (const i of rows) {
        const line = addElement(lines, "tr"), mark = labels[i] ? ` ${labels[i]}` : "";
        if (!hasRunNumbers) addElement(line, "td", {}, `${rowNumber(table, i)}${mark}`);
        for (const c of columnsOfBlock) addElement(line, "td", { class: "n" }, formatCell(table, c, value(c, i), table.digits));
      }
    }
    if (order.length > rows.length) addElement(paper, "p", { class: "note" }, `The first ${rows.length} of ${order.length} rows; ${table.file}.csv has all of them.`);
  };
  addEventListener("beforeprint", onPaper);
  matchMedia("print").addEventListener("change", (event) => { if (event.matches) onPaper(); });
  arrange();
  // two header rows stay on top while the rest scrolls
  const settle = () => { for (const cell of below.children) cell.style.top = `${top.offsetHeight}px`; };
  new ResizeObserver(settle).observe(top);
}
function makeSortable(table) {
  const rows = [...table.tBodies[0].rows];
  const number = (text) => { const v = text.includes("∞") ? Infinity : parseFloat(text.replaceAll(",", "").replace("−", "-")); return Number.isNaN(v) ? null : v; };
  [...table.tHead.rows[0].cells].forEach((cell, k) => {
    const text = cell.textContent;
    cell.replaceChildren();
    addElement(cell, "button", { type: "button", title: "Sort" }, text).addEventListener("click", () => {
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

// Interactive choice from a front by pairwise comparisons: the rule of results/preference.py, step by step, with its constants.
const N_WEIGHTS = 2000, MAX_QUESTIONS = 10, CONFIDENCE_TO_STOP = 0.9, ANSWER_ERROR_RATE = 0.1, MAX_FRONT_POINTS = 500, MAX_COMPARED_POINTS = 24;
const roundProbability = (v) => Math.round(v * 1e9) / 1e9;
function sampleWeights(m) {  // weight vectors, one per row
  let root = 1.5;
  for (let k = 0; k < 60; k++) root = (1 + root) ** (1 / (m + 1));
  return Array.from({ length: N_WEIGHTS }, (_, p) => {
    const logs = Array.from({ length: m }, (_, k) => -Math.log((0.5 + (p + 1) * root ** -(k + 1)) % 1)), sum = logs.reduce((a, b) => a + b);
    return logs.map((v) => v / sum);
  });
}
const argmin = (list) => { let at = 0; for (let i = 1; i < list.length; i++) if (list[i] < list[at]) at = i; return at; };
const argsortDescending = (list) => [...list.keys()].sort((a, b) => list[b] - list[a] || a - b);

// points: rows of values to be minimised.
function preferenceSearch(points) {
  const m = points[0].length, low = [], span = [];
  for (let k = 0; k < m; k++) {
    const column = points.map((p) => p[k]);
    low[k] = column.reduce((a, b) => Math.min(a, b));
    span[k] = column.reduce((a, b) => Math.max(a, b)) - low[k] || 1;
  }
  const unit = points.map((p) => p.map((v, k) => (v - low[k]) / span[k])), weights = sampleWeights(m), votes = new Array(points.length).fill(0);
  const loss = (w, u) => { let worst = -Infinity, sum = 0; for (let k = 0; k < m; k++) { const v = w[k] * u[k]; sum += v; if (v > worst) worst = v; } return worst + 1e-3 * sum; };
  for (const w of weights) votes[argmin(unit.map((u) => loss(w, u)))]++;
  const rows = argsortDescending(votes).slice(0, MAX_FRONT_POINTS), losses = weights.map((w) => rows.map((r) => loss(w, unit[r]))), best = losses.map(argmin);
  let belief = new Array(N_WEIGHTS).fill(1 / N_WEIGHTS);
  const questions = [];
  const shares = () => { const out = new Array(rows.length).fill(0); best.forEach((b, p) => { out[b] += belief[p]; }); return out.map(roundProbability); };
  return {
    count: () => questions.length,
    favourite: () => rows[argsortDescending(shares())[0]],
    nextQuestion() {
      const share = shares();
      if (Math.max(...share) >= CONFIDENCE_TO_STOP || questions.length >= MAX_QUESTIONS) return null;
      const candidates = argsortDescending(share).slice(0, MAX_COMPARED_POINTS).filter((i) => share[i] > 0), n = candidates.length, forA = new Float64Array(n * n);
      losses.forEach((loss, p) => { for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) if (loss[candidates[i]] < loss[candidates[j]]) forA[i * n + j] += belief[p]; });
      let pair = null, evenest = 0.01;
      for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
        const [a, b] = [rows[candidates[i]], rows[candidates[j]]], even = roundProbability(Math.min(forA[i * n + j], forA[j * n + i]));
        if (even > evenest && !questions.some(([c, d]) => (a === c || a === d) && (b === c || b === d))) { evenest = even; pair = [a, b]; }
      }
      return pair;
    },
    recordAnswer([a, b], preferred) {  // preferred: one of the two, or null
      questions.push([a, b]);
      if (preferred === null) return;
      const one = rows.indexOf(preferred), other = rows.indexOf(preferred === a ? b : a);
      belief = belief.map((v, p) => v * (losses[p][one] < losses[p][other] ? 1 - ANSWER_ERROR_RATE : ANSWER_ERROR_RATE));
      const sum = belief.reduce((x, y) => x + y);
      belief = belief.map((v) => v / sum);
    },
  };
}

function addPreferenceQuestions(box, id) {
  const table = data.tables[id], m = table.objectives, n = table.data[0].length;
  const pointName = (row) => `point ${rowNumber(table, row)}`;
  box.className = "asking";
  const start = () => {
    const rows = [...Array(n).keys()].filter((i) => isKept(id, i) && table.data.slice(0, m).every((c) => isNumber(c[i])));
    if (rows.length < 2) { showMessage("Fewer than two points are left: clear the brushes first.", "Start"); return; }
    const search = preferenceSearch(rows.map((i) => table.data.slice(0, m).map((c, k) => table.signs[k] * c[i])));
    askNext(search, rows);
  };
  const showMessage = (words, button) => {
    box.replaceChildren();
    addElement(box, "h3", {}, "Which do you prefer?");
    addElement(box, "p", { role: "status" }, words);
    if (button) addElement(box, "button", { class: "small", type: "button", "data-answer": "start" }, button).addEventListener("click", start);
  };
  const askNext = (search, rows) => {
    const question = search.nextQuestion();
    if (!question) { finish(search, rows); return; }
    showMessage(`Question ${search.count() + 1}, of ${MAX_QUESTIONS} at most. So far your answers lead to ${pointName(rows[search.favourite()])}.`);
    if (!search.count()) box.querySelector("p").textContent = `Question 1, of ${MAX_QUESTIONS} at most.`;
    const grid = addElement(box, "table", { class: "two" }), head = addElement(grid, "tr"), pair = question.map((k) => rows[k]);
    for (const words of ["", `A: ${pointName(pair[0])}`, `B: ${pointName(pair[1])}`]) addElement(head, "th", { scope: "col", class: words ? "n" : "" }, words);
    for (let k = 0; k < m; k++) {
      const line = addElement(grid, "tr"), [a, b] = pair.map((i) => table.data[k][i]), digits = digitsToDistinguish(Math.min(a, b), Math.max(a, b), 5);
      addElement(line, "th", { scope: "row" }, table.names[k]);
      for (const [v, other] of [[a, b], [b, a]]) addElement(line, "td", { class: table.signs[k] * (v - other) < 0 ? "n better" : "n" }, formatNumber(v, digits));
    }
    const addAnswer = (words, value, preferred) => addElement(box, "button", { class: "small", type: "button", "data-answer": value }, words)
      .addEventListener("click", () => { search.recordAnswer(question, preferred); askNext(search, rows); box.querySelector("button").focus(); });
    addAnswer("A is better", "a", question[0]);
    addAnswer("B is better", "b", question[1]);
    addAnswer("No preference", "=", null);
    addElement(box, "button", { class: "small", type: "button", "data-answer": "q" }, "Stop").addEventListener("click", () => finish(search, rows));
    box.dataset.pair = pair.join(",");
  };
  const finish = (search, rows) => {
    const row = rows[search.favourite()], at = rowNumber(table, row);
    showMessage(`Your answers lead to ${pointName(row)}, which is marked in the figures and in the table: result.X[${at}] in Python.`, "Start again");
    box.dataset.chosen = at;
    pick(id, row, null);
  };
  showMessage("A few questions about pairs of points lead to the one that suits you; only points inside the selected ranges are considered. Nothing leaves this page.", "Start");
}

// Draw everything that the page has a place for.
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const spec = data.charts[figure.dataset.chart];
  ({ lines: addLineChart, scatter: addScatterChart, parallel: addParallelAxes, matrix: addPairMatrix })[spec.kind](figure, spec);
}
for (const box of document.querySelectorAll("[data-table]")) addPointTable(box, box.dataset.table);
for (const box of document.querySelectorAll("[data-ask]")) addPreferenceQuestions(box, box.dataset.ask);
for (const table of document.querySelectorAll("table[data-sort]")) makeSortable(table);
