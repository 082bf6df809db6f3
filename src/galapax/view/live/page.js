// When to draw; run state, facts, frames and contours from the server; the controls. The run state comes as server-sent events; the
// page fetches a frame when it has drawn the one before.

function requestDraw(...names) {
  for (const name of names) dirty.add(name);
  if (!isDrawPending) { isDrawPending = true; requestAnimationFrame(paint); }
}
// Points move five times a second; curves and maps change slowly and are drawn less often, which spares the machine that
// may be running the run.
const SLOW_CHARTS = new Set(["curve", "feasible", "spread", "genome", "fitness", "best"]);
let slowDrawnAt = 0;
function paint() {
  isDrawPending = false;
  if (!facts) return;
  const now = performance.now(), wait = slowDrawnAt + 220 - now, due = dirty;
  dirty = new Set();
  let drawn = false;
  for (const name of due) {
    if (SLOW_CHARTS.has(name) && wait > 0) dirty.add(name);
    else if (!$("card-" + name).hidden) { draw[name](); drawn = drawn || SLOW_CHARTS.has(name); }
  }
  if (drawn) slowDrawnAt = now;
  if (dirty.size && !waiting) waiting = setTimeout(() => { waiting = 0; requestDraw(); }, wait + 5);
}
let waiting = 0;
const redrawAll = () => { slowDrawnAt = 0; return requestDraw("curve", "feasible", "spread", "front", "scatter", "genome", "fitness", "best"); };

// ---- news, facts, frames, contours

function options(id, names, chosen) {
  $(id).replaceChildren(...names.map((name, k) => new Option(name, k, k === chosen, k === chosen)));
}

async function loadFacts(session) {
  facts = null; frame = null; contours = null; firstRange = null;
  for (const id of Object.keys(views)) delete views[id];
  const answer = await fetch(address("facts"));
  if (!answer.ok) return;
  facts = await answer.json();
  const s = facts.settings;
  document.title = `${facts.name} · galapax`;
  $("title").textContent = facts.title;
  $("subtitle").textContent = (facts.title === facts.name ? "" : `${facts.name} · `) + `${s.algorithm} · ${count(facts.population)} individuals, ${facts.dim} variables` +
    (s.runs > 1 ? `, ${count(s.runs)} runs` : "") + ` · seed ${s.seed} · ${s.dtype} on ${s.device}`;
  $("best-name").textContent = s.maximize ? "best (largest) value" : "best value";
  $("violation-box").hidden = $("share-box").hidden = $("card-feasible").hidden = !facts.constrained;
  $("runs-box").hidden = $("run-label").hidden = s.runs === 1;
  $("run").max = s.runs - 1;
  $("limit").textContent = facts.generations ? ` of ${count(facts.generations)}` : "";
  options("scatter-x", facts.variables, 0);
  options("scatter-y", facts.variables, Math.min(1, facts.variables.length - 1));
  $("card-scatter").hidden = facts.variables.length < 2;
  $("anew").hidden = facts.dim < 3 || !facts.contours;
  const rows = Object.entries(s).flatMap(([name, value]) => value && typeof value === "object"
    ? Object.entries(value).map(([k, v]) => [`${name === "hyperparameters" ? "" : name + ", "}${k}`, v]) : [[name, value]]);
  $("settings").replaceChildren(...rows.filter(([, v]) => v !== null).map(([name, value]) => {
    const row = document.createElement("div"), words = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    for (const [kind, t] of [["dt", name.replaceAll("_", " ")], ["dd", words]]) {
      const cell = document.createElement(kind);
      cell.textContent = t;
      row.append(cell);
    }
    return row;
  }));
  $("footer").textContent = "The run does not wait for this page, which shows at most five frames per second. " +
    "Long curves are thinned to 2000 points. " + thinningNote(true);
  $("fitness-k").replaceChildren();  // another run may have other objectives
  prepareObjectives(facts.objectives.length || 1);
  redrawAll();
}

function prepareObjectives(m) {
  if ($("fitness-k").options.length === m) return;
  const names = Array.from({ length: m }, (_, k) => facts.objectives[k] || (m > 1 ? `objective ${k + 1}` : "fitness"));
  for (const id of ["front-x", "fitness-k", "scatter-k"]) options(id, names, 0);
  options("front-y", names, Math.min(1, m - 1));
  $("card-front").hidden = $("fitness-k-label").hidden = $("scatter-k-label").hidden = m < 2;
  $("best-box").hidden = m > 1;  // with several objectives no value is the best; a hypervolume may take its place
  $("card-spread").hidden = m > 1 || facts.settings.runs === 1;
  const cards = [...document.querySelectorAll("main > article")].filter((card) => !card.hidden && !card.classList.contains("whole"));
  document.querySelector("main").dataset.cards = cards.length;
  if (runState) showRunState();
}

async function fetchFrame() {
  if (fetching || !facts) return;
  fetching = true;
  try {
    const data = await (await fetch(address("frame"))).arrayBuffer();
    if (data.byteLength && facts) {
      const length = new DataView(data).getUint32(0, true);
      const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
      let at = 4 + length;
      const { shown: n, variables: v, objectives: m } = head;
      const values = new Float64Array(data, at, n * m);
      at += 8 * n * m;
      const violation = head.violation ? new Float64Array(data, at, n) : null;
      at += head.violation ? 8 * n : 0;
      frame = { ...head, hasViolation: head.violation, values, violation, x: new Float32Array(data, at, n * v) };
      firstRange = firstRange || Array.from({ length: m }, (_, k) => range([Array.from({ length: n }, (_, r) => values[r * m + k])]));
      prepareObjectives(m);
      $("genome").dataset.generation = head.generation;
      if (!contours && facts.variables.length > 1) fetchContours(false);
      requestDraw("front", "scatter", "genome", "fitness", "best");
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;  // a connection that broke shows in the state
  } finally {
    fetching = false;
  }
  if (runState && frame && runState.frame > frame.frame && document.visibilityState === "visible") setTimeout(fetchFrame, 60);
}

async function fetchContours(recompute) {
  const first = Number($("scatter-x").value), second = Number($("scatter-y").value), objective = Number($("scatter-k").value || 0);
  const session = lastSession, query = { a: first, b: second, k: objective };
  if (recompute) query.anew = 1;
  contours = { first: -1, second: -1 };
  requestDraw("scatter");
  const answer = await fetch(address("contours", query));
  const grid = await answer.json();
  if (session !== lastSession || first !== Number($("scatter-x").value) || second !== Number($("scatter-y").value)) return;
  contours = { ...grid, first, second, picture: grid.values ? contourPicture(grid, first, second) : null };
  requestDraw("scatter");
}

function showNote(words, bad) {
  $("note").hidden = !words;
  $("note").textContent = words;
  $("note").classList.toggle("bad", !!bad);
}

async function onMessage(event) {
  const message = JSON.parse(event.data);
  if (message.session !== lastSession) {
    lastSession = message.session;
    points = [];
    showNote("");
    runState = message;
    await loadFacts(message.session);
  }
  if (message.session !== lastSession) return;
  if (message.is_full) points = [];
  for (const p of message.points) points.push(p);
  runState = message;
  showRunState();
  if (!frame || message.frame > frame.frame) fetchFrame();
  requestDraw("curve", "feasible", "spread");
}

function setText(id, words) {
  if ($(id).textContent !== words) $(id).textContent = words;
}
function showRunState() {
  const ended = runState.state === "finished" || runState.state === "failed";
  const state = ended || runState.state === "starting" ? runState.state : runState.paused ? "paused" : "running";
  setText("state", state === "starting" ? "compiling" : state);
  $("state").className = "pill " + state;
  if (ended) showNote(runState.message, runState.state === "failed");
  else if (runState.replay) showNote("");
  for (const id of ["pause", "step", "stop", "speed"]) $(id).disabled = ended && !runState.replay && !(id === "pause" && runState.can_replay);
  setText("pause", (runState.replay || runState.can_replay) && ended ? "Play again" : runState.paused ? "Resume" : "Pause");
  if (runState.saved && savedRunsOf !== runState.session + runState.state) { savedRunsOf = runState.session + runState.state; fetchSavedRuns(); }
  if (document.activeElement !== $("speed")) {
    const k = SPEEDS.findIndex((s) => s === runState.speed);
    $("speed").value = k < 0 ? SPEEDS.length - 1 : k;
  }
  setText("speed-text", runState.slow_start ? "slow start" : runState.speed === null ? "fastest" : `${runState.speed} generations/s`);
  setText("generation", count(runState.generation));
  $("generation").dataset.value = runState.generation;
  $("done").style.width = facts && facts.generations ? `${100 * runState.generation / facts.generations}%` : "0";
  const volume = latestHypervolume();
  if (volume !== null) { $("best-box").hidden = false; setText("best-name", "hypervolume"); }
  setText("best", text(volume === null ? runState.best : volume, 6));
  $("best").title = volume === null ? formatExact(runState.best) : formatExact(volume);
  setText("violation", runState.violation === undefined ? "–" : text(runState.violation, 3));
  setText("share", runState.share === undefined ? "–" : `${(100 * runState.share).toFixed(runState.share < 0.1 ? 1 : 0)} %`);
  setText("runs", runState.runs_done === undefined ? "–" : `${count(runState.runs_done)} of ${count(runState.batch_runs)}`);
  setText("nfev", count(runState.nfev));
  $("rate").parentNode.hidden = $("left").parentNode.hidden = $("footer").hidden = !!runState.replay;
  setText("rate", runState.replay ? "–" : runState.evaluations_per_second === undefined ? "–" : formatShort(runState.evaluations_per_second));
  setText("seconds", formatDuration(runState.seconds));
  setText("in-all", ended || runState.total_seconds === undefined || runState.total_seconds < 10 ? "" : ` of about ${formatRoughDuration(runState.total_seconds)}`);
  setText("left", ended ? "–" : formatDuration(runState.left));
}

function latestHypervolume() {  // the last one measured, of several objectives with a reference point
  const m = frame ? frame.objectives : facts ? facts.objectives.length : 0;
  for (let i = points.length - 1; m > 1 && i >= 0; i--) if (typeof points[i][2 + 3 * m] === "number") return points[i][2 + 3 * m];
  return null;
}

async function command(name, value) {
  const body = JSON.stringify(value === undefined ? { command: name } : { command: name, value });
  try {
    const answer = await fetch(address("command"), { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok && runState && runState.state !== "finished") showNote(await answer.text(), true);
  } catch {
    showNote("The connection to the run is lost.", true);
  }
}

let savedRunsOf = "";
async function fetchSavedRuns() {  // the report, and the runs that were saved beside this one
  const past = await (await fetch(address("runs"))).json(), cell = (kind, words) => { const out = document.createElement(kind); out.textContent = words; return out; };
  const link = (name, words) => { const out = document.createElement("a"); out.href = address("report", name ? { run: name } : {}); out.target = "_blank"; out.rel = "noopener"; out.textContent = words; return out; };
  $("after").hidden = !past.some((run) => run.shown && run.report);
  $("report").href = address("report");
  $("card-past").hidden = past.length < 2;
  const line = (kind, list) => { const out = document.createElement("tr"); out.append(...list.map((words) => { const c = cell(kind, ""); c.append(words); return c; })); return out; };
  const value = (run) => Array.isArray(run.fun) ? run.fun.map(formatShort).join(", ") : text(run.fun, 7);
  $("past-rows").replaceChildren(line("th", ["run", "problem", "algorithm", "best", "feasible", "evaluations", "runs", "seed", ""]),
    ...past.map((run) => Object.assign(line("td", [run.name + (run.shown ? " (this one)" : ""), run.problem, run.algorithm, value(run), run.feasible ? "yes" : "no", count(run.nfev),
      count(run.runs), String(run.seed), run.report && !run.shown ? link(run.name, "report") : ""]), { className: run.shown ? "shown" : "" })));
}
$("pause").onclick = () => command(runState && (runState.paused || ((runState.replay || runState.can_replay) && runState.state === "finished")) ? "resume" : "pause");
$("step").onclick = () => command("step");
$("stop").onclick = () => command("stop");
$("speed").oninput = () => {
  const speed = SPEEDS[Number($("speed").value)];
  $("speed-text").textContent = speed === null ? "fastest" : `${speed} generations/s`;
  command("speed", speed);
};
$("run").onchange = () => command("run", Number($("run").value));
$("log").onchange = redrawAll;
for (const id of ["genome-form", "genome-scale", "fitness-scale", "fitness-k"]) $(id).onchange = redrawAll;
for (const id of ["front-x", "front-y"]) $(id).onchange = () => requestDraw("front");
for (const id of ["scatter-x", "scatter-y", "scatter-k"]) $(id).onchange = () => fetchContours(false);
$("anew").onclick = () => fetchContours(true);
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") { event.preventDefault(); $("pause").click(); }
  if (event.key === "ArrowRight") { event.preventDefault(); $("step").click(); }
});
window.addEventListener("resize", redrawAll);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") { fetchFrame(); redrawAll(); } });
function recolour() {
  readColours();
  if (contours && contours.values) contours.picture = contourPicture(contours, contours.first, contours.second);
  redrawAll();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
matchMedia("print").addEventListener("change", () => { recolour(); paint(); });  // at once: no frame comes before the print
readColours();
const source = new EventSource(address("events"));
let messageQueue = Promise.resolve();
source.onmessage = (event) => { messageQueue = messageQueue.then(() => onMessage(event)); };
source.onerror = () => {
  if (runState && (runState.state === "finished" || runState.state === "failed")) { $("state").textContent = runState.state + ", page closed"; return; }
  $("state").textContent = "no connection";
  $("state").className = "pill lost";
};
