// Choosing from a front by answering. The rule is that of results/asking.py, step by step; the numbers are its constants.
const PEOPLE = 2000, QUESTIONS = 10, SURE = 0.9, WRONG = 0.1, MOST = 500, CANDIDATES = 24;
const evenly = (v) => Math.round(v * 1e9) / 1e9;
function tastes(m) {  // weights, a row for each of many people
  let root = 1.5;
  for (let k = 0; k < 60; k++) root = (1 + root) ** (1 / (m + 1));
  return Array.from({ length: PEOPLE }, (_, p) => {
    const drawn = Array.from({ length: m }, (_, k) => -Math.log((0.5 + (p + 1) * root ** -(k + 1)) % 1)), sum = drawn.reduce((a, b) => a + b);
    return drawn.map((v) => v / sum);
  });
}
const least = (list) => { let at = 0; for (let i = 1; i < list.length; i++) if (list[i] < list[at]) at = i; return at; };
const downwards = (list) => [...list.keys()].sort((a, b) => list[b] - list[a] || a - b);

// points: rows of values to be minimised.
function walk(points) {
  const m = points[0].length, low = [], span = [];
  for (let k = 0; k < m; k++) {
    const seen = points.map((p) => p[k]);
    low[k] = seen.reduce((a, b) => Math.min(a, b));
    span[k] = seen.reduce((a, b) => Math.max(a, b)) - low[k] || 1;
  }
  const unit = points.map((p) => p.map((v, k) => (v - low[k]) / span[k])), people = tastes(m), votes = new Array(points.length).fill(0);
  const loss = (w, u) => { let most = -Infinity, sum = 0; for (let k = 0; k < m; k++) { const v = w[k] * u[k]; sum += v; if (v > most) most = v; } return most + 1e-3 * sum; };
  for (const w of people) votes[least(unit.map((u) => loss(w, u)))]++;
  const rows = downwards(votes).slice(0, MOST), losses = people.map((w) => rows.map((r) => loss(w, unit[r]))), best = losses.map(least);
  let belief = new Array(PEOPLE).fill(1 / PEOPLE), asked = [];
  const shares = () => { const out = new Array(rows.length).fill(0); best.forEach((b, p) => { out[b] += belief[p]; }); return out.map(evenly); };
  return {
    asked: () => asked.length,
    favourite: () => rows[downwards(shares())[0]],
    question() {
      const share = shares();
      if (Math.max(...share) >= SURE || asked.length >= QUESTIONS) return null;
      const some = downwards(share).slice(0, CANDIDATES).filter((i) => share[i] > 0), n = some.length, forA = new Float64Array(n * n);
      losses.forEach((own, p) => { for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) if (own[some[i]] < own[some[j]]) forA[i * n + j] += belief[p]; });
      let found = null, most = 0.01;
      for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
        const [a, b] = [rows[some[i]], rows[some[j]]], even = evenly(Math.min(forA[i * n + j], forA[j * n + i]));
        if (even > most && !asked.some(([c, d]) => (a === c || a === d) && (b === c || b === d))) { most = even; found = [a, b]; }
      }
      return found;
    },
    answer([a, b], liked) {  // liked: one of the two, or null
      asked.push([a, b]);
      if (liked === null) return;
      const one = rows.indexOf(liked), other = rows.indexOf(liked === a ? b : a);
      belief = belief.map((v, p) => v * (losses[p][one] < losses[p][other] ? 1 - WRONG : WRONG));
      const sum = belief.reduce((x, y) => x + y);
      belief = belief.map((v) => v / sum);
    },
  };
}

function asking(box, id) {
  const table = data.tables[id], m = table.objectives, n = table.data[0].length;
  const named = (row) => `point ${table.number ? table.number[row] : row + 1}`;
  box.className = "asking";
  const begin = () => {
    const rows = [...Array(n).keys()].filter((i) => kept(id, i) && table.data.slice(0, m).every((c) => known(c[i])));
    if (rows.length < 2) { say("Fewer than two points are left: clear the brushes first.", "Start"); return; }
    const own = walk(rows.map((i) => table.data.slice(0, m).map((c) => table.sign * c[i])));
    next(own, rows);
  };
  const say = (words, button) => {
    box.replaceChildren();
    put(box, "h3", {}, "Which do you like better?");
    put(box, "p", { role: "status" }, words);
    if (button) put(box, "button", { class: "small", type: "button", "data-answer": "start" }, button).addEventListener("click", begin);
  };
  const next = (own, rows) => {
    const asked = own.question();
    if (!asked) { done(own, rows); return; }
    say(`Question ${own.asked() + 1}, of ${QUESTIONS} at most. So far your answers lead to ${named(rows[own.favourite()])}.`);
    if (!own.asked()) box.querySelector("p").textContent = `Question 1, of ${QUESTIONS} at most.`;
    const grid = put(box, "table", { class: "two" }), head = put(grid, "tr"), pair = asked.map((k) => rows[k]);
    for (const words of ["", `A: ${named(pair[0])}`, `B: ${named(pair[1])}`]) put(head, "th", { scope: "col", class: words ? "n" : "" }, words);
    for (let k = 0; k < m; k++) {
      const line = put(grid, "tr"), [a, b] = pair.map((i) => table.data[k][i]), digits = telling(Math.min(a, b), Math.max(a, b), 5);
      put(line, "th", { scope: "row" }, table.names[k]);
      for (const [v, other] of [[a, b], [b, a]]) put(line, "td", { class: table.sign * (v - other) < 0 ? "n better" : "n" }, fmt(v, digits));
    }
    const answer = (words, value, liked) => put(box, "button", { class: "small", type: "button", "data-answer": value }, words)
      .addEventListener("click", () => { own.answer(asked, liked); next(own, rows); box.querySelector("button").focus(); });
    answer("A is better", "a", asked[0]);
    answer("B is better", "b", asked[1]);
    answer("No preference", "=", null);
    put(box, "button", { class: "small", type: "button", "data-answer": "q" }, "Stop").addEventListener("click", () => done(own, rows));
    box.dataset.pair = pair.join(",");
  };
  const done = (own, rows) => {
    const row = rows[own.favourite()], at = table.number ? table.number[row] - 1 : row;
    say(`Your answers lead to ${named(row)}, which is marked in the figures and in the table: result.X[${at}] in Python.`, "Start again");
    box.dataset.chosen = at;
    pick(id, row, null);
  };
  say("A few questions about pairs of points lead to the one that suits you; brushed ranges count. Nothing leaves this page.", "Start");
}
