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
  const pointName = (row) => `point ${table.number ? table.number[row] : row + 1}`;
  box.className = "asking";
  const start = () => {
    const rows = [...Array(n).keys()].filter((i) => isKept(id, i) && table.data.slice(0, m).every((c) => isNumber(c[i])));
    if (rows.length < 2) { showMessage("Fewer than two points are left: clear the brushes first.", "Start"); return; }
    const search = preferenceSearch(rows.map((i) => table.data.slice(0, m).map((c) => table.sign * c[i])));
    askNext(search, rows);
  };
  const showMessage = (words, button) => {
    box.replaceChildren();
    addElement(box, "h3", {}, "Which do you like better?");
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
      for (const [v, other] of [[a, b], [b, a]]) addElement(line, "td", { class: table.sign * (v - other) < 0 ? "n better" : "n" }, formatNumber(v, digits));
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
    const row = rows[search.favourite()], at = table.number ? table.number[row] - 1 : row;
    showMessage(`Your answers lead to ${pointName(row)}, which is marked in the figures and in the table: result.X[${at}] in Python.`, "Start again");
    box.dataset.chosen = at;
    pick(id, row, null);
  };
  showMessage("A few questions about pairs of points lead to the one that suits you; brushed ranges count. Nothing leaves this page.", "Start");
}
