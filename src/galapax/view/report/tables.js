// Tables that are sorted and filtered here.
function csvRows(table) {
  const labels = table.labels || {}, marked = Object.keys(labels).length > 0;
  return [[...(marked ? ["mark"] : []), ...table.names], ...table.data[0].map((_, i) => [...(marked ? [labels[i] || ""] : []), ...table.data.map((own, c) => (table.words && table.words[c] ? formatCell(table, c, own[i]) : own[i]))])];
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
const MAX_PRINTED_ROWS = 40, MAX_PRINTED_COLUMNS = 9;  // rows, and columns side by side, on paper
function addPointTable(box, id) {
  const table = data.tables[id], labels = table.labels || {}, marked = Object.keys(labels).length > 0;
  const n = table.data[0].length, filters = {};
  let order = [...Array(n).keys()], sorted = null, shown = 0;
  const tools = addElement(box, "div", { class: "tools" }), count = addElement(tools, "span", { role: "status" });
  const csv = addElement(tools, "button", { class: "small", type: "button" }, "CSV ↓");
  csv.addEventListener("click", () => download(table.file, csvRows(table)));
  const reset = addElement(tools, "button", { class: "small", type: "button" }, "Reset");
  const scroll = addElement(box, "div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.title });
  const grid = addElement(scroll, "table", { class: "recipes" }), head = addElement(grid, "thead"), body = addElement(grid, "tbody");
  const columns = [...(marked ? [-1] : []), ...table.names.keys()];
  const value = (c, i) => (c < 0 ? labels[i] || "" : table.data[c][i]);
  const worded = (c) => c < 0 || (table.words && table.words[c]), asked = (c, i) => (c >= 0 && worded(c) ? formatCell(table, c, value(c, i)) : value(c, i));
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
    const until = Math.min(order.length, shown + rows), part = document.createDocumentFragment();
    for (; shown < until; shown++) {
      const i = order[shown], row = addElement(part, "tr", { "data-row": i });
      for (const c of columns) addElement(row, "td", c < 0 ? {} : { class: "n" }, c < 0 ? value(c, i) : formatCell(table, c, value(c, i), table.digits));
    }
    body.append(part);
  };
  const arrange = () => {
    order = [...Array(n).keys()].filter((i) => isKept(id, i) && columns.every((c) => !filters[c] || filters[c](asked(c, i))));
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
    const found = body.querySelector(`tr[data-row="${row}"]`);
    if (found) { found.classList.add("picked"); scroll.scrollTop = found.offsetTop - scroll.clientHeight / 2; }
  });
  const paper = addElement(box, "div", { class: "paper" });
  const onPaper = () => {  // all columns, a few at a time, so that none is lost at the edge of the page
    paper.replaceChildren();
    const rows = order.slice(0, MAX_PRINTED_ROWS), numbered = columns.filter((c) => c >= 0), own = table.names[0] === "run";
    const wide = Math.ceil(numbered.length / Math.ceil(numbered.length / MAX_PRINTED_COLUMNS));
    for (let from = 0; from < numbered.length; from += wide) {
      const part = numbered.slice(from, from + wide), block = addElement(paper, "table"), top = addElement(addElement(block, "thead"), "tr"), lines = addElement(block, "tbody");
      if (!own) addElement(top, "th", {}, "no.");
      for (const c of part) addElement(top, "th", { class: "n" }, table.names[c]);
      for (const i of rows) {
        const line = addElement(lines, "tr"), mark = labels[i] ? ` ${labels[i]}` : "";
        if (!own) addElement(line, "td", {}, `${table.number ? table.number[i] : i + 1}${mark}`);
        for (const c of part) addElement(line, "td", { class: "n" }, formatCell(table, c, value(c, i), table.digits));
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
