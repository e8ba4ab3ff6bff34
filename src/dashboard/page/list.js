// The list of runs and experiments: search, filter, sort, compare.
import { follow, get, listen } from "./api.js";
import { byId, choice, h } from "./dom.js";
import { age, duration, line, number, visible } from "./text.js";

const FIRST_ROWS = 150;
export const STATES = ["running", "finished", "failed", "interrupted", "stopped", "preempted", "died", "unreadable"];

/** Everything that the server lists, kept up to date while the page is open. */
export const catalog = { root: "", runs: new Map(), experiments: new Map(), loaded: false };
/** How the list was left. */
const view = { search: "", state: "", metric: "", sort: "created", down: true, rows: FIRST_ROWS, chosen: new Set(), at: 0 };

export async function loadCatalog(ids = []) {
  const all = await get("list", { id: ids });
  if (ids.length === 0) {
    catalog.runs.clear();
    catalog.experiments.clear();
  }
  for (const id of ids) {
    catalog.runs.delete(id);
    catalog.experiments.delete(id);
  }
  catalog.root = all.root;
  catalog.loaded = true;
  for (const run of all.runs) catalog.runs.set(run.id, run);
  for (const experiment of all.experiments) catalog.experiments.set(experiment.id, experiment);
}

export const runLink = (id) => `#/run/${encodeURIComponent(id)}`;
export const experimentLink = (id) => `#/experiment/${encodeURIComponent(id)}`;
export const compareLink = (ids) => `#/compare/${[...ids].map(encodeURIComponent).join(",")}`;
export const badge = (state) => h("span", { className: `badge ${STATES.includes(state) ? state : ""}` }, line(state || "?", 20));

function metricOf(run) {
  const name = view.metric || run.best?.metric || Object.keys(run.metrics)[0];
  return name === undefined ? null : { name, value: run.metrics[name] };
}

/** The least and greatest values of runs that do not say what is best, by id, for the rows on the screen. */
const extremes = new Map();
const LESS_IS_BETTER = /loss|err|mae|mse|perplexity|ppl|wer|cer|nll|regret|time|latency/i;

/** The best score of its checkpoints, else the best value of the metric that is shown. */
function bestOf(run) {
  if (run.best && (!view.metric || view.metric === run.best.metric)) return run.best;
  const name = metricOf(run)?.name;
  const found = extremes.get(run.id)?.values[name];
  if (!found) return null;
  return { metric: name, value: LESS_IS_BETTER.test(name) ? found[0] : found[1] };
}

const SORTS = {
  name: (run) => run.name,
  state: (run) => STATES.indexOf(run.state),
  progress: (run) => run.progress ?? -1,
  best: (run) => bestOf(run)?.value ?? -Infinity,
  metric: (run) => metricOf(run)?.value ?? -Infinity,
  iteration: (run) => run.iteration ?? 0,
  workers: (run) => run.workers ?? 0,
  nodes: (run) => run.nodes.length,
  failures: (run) => run.failures ?? 0,
  created: (run) => run.created ?? 0,
};

function shownRuns() {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (run) => {
    const text = `${run.id} ${run.name} ${run.trainer} ${run.state} ${run.error ?? ""} ${run.nodes.join(" ")}`.toLowerCase();
    return (!view.state || run.state === view.state) && words.every((word) => text.includes(word));
  };
  const key = SORTS[view.sort];
  const sign = view.down ? -1 : 1;
  return [...catalog.runs.values()].filter(fits).sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    return (one < other ? -1 : one > other ? 1 : a.id < b.id ? -sign : sign) * sign;
  });
}

function progressOf(run) {
  if (run.progress === null || run.progress === undefined) return h("span", {}, run.iteration ? `${run.iteration} reports` : "–");
  const percent = `${Math.round(run.progress * 100)} %`;
  return h("span", { className: "progress", title: `${percent}, ${run.iteration} reports` }, h("span", { className: "done", style: { width: `${run.progress * 100}%` } }), h("b", {}, percent));
}

function rowOf(run, update) {
  const box = h("input", {
    type: "checkbox",
    checked: view.chosen.has(run.id),
    "aria-label": `Compare ${line(run.name, 80)}`,
    on: {
      change: () => {
        if (box.checked) view.chosen.add(run.id);
        else view.chosen.delete(run.id);
        update();
      },
    },
  });
  const metric = metricOf(run);
  const parent = run.id.includes("/") ? run.id.slice(0, run.id.lastIndexOf("/") + 1) : "";
  const known = bestOf(run);
  const best = known ? [h("b", {}, number(known.value)), h("small", {}, ` ${line(known.metric, 24)}`)] : ["–"];
  return h(
    "tr",
    { data: { id: run.id, state: run.state } },
    h("td", { className: "tick" }, box),
    h("td", { className: "name" }, h("a", { href: runLink(run.id), title: line(run.id, 400) }, h("small", {}, line(parent, 60)), line(run.name, 80)), run.error ? h("div", { className: "error", title: visible(run.error) }, line(run.error, 90)) : null),
    h("td", {}, badge(run.state)),
    h("td", {}, progressOf(run)),
    h("td", { className: "number best" }, ...best),
    h("td", { className: "number", title: metric ? line(metric.name, 200) : "" }, metric ? [number(metric.value), h("small", {}, ` ${line(metric.name, 24)}`)] : "–"),
    h("td", { className: "number" }, String(run.workers ?? "–")),
    h("td", { className: "number", title: line(run.nodes.join(", "), 400) }, String(run.nodes.length || "–")),
    h("td", { className: `number ${run.failures ? "bad" : ""}` }, String(run.failures ?? "–")),
    h("td", { className: "number", title: `took ${duration(run.duration)}` }, age(run.created)),
  );
}

function experimentRow(experiment) {
  const states = Object.entries(experiment.states ?? {}).map(([state, count]) => `${count} ${state}`);
  const best = experiment.best;
  return h(
    "tr",
    { data: { experiment: experiment.id } },
    h("td", { className: "name" }, h("a", { href: experimentLink(experiment.id) }, line(experiment.id === "." ? experiment.name : experiment.id, 100)), experiment.error ? h("div", { className: "error" }, line(experiment.error, 200)) : null),
    h("td", {}, line(states.join(", ") || "–", 120)),
    h("td", { className: "number" }, best ? [h("b", {}, number(best.value)), h("small", {}, ` ${line(best.metric, 30)} (${best.order})`)] : "–"),
    h("td", { className: "number" }, age(experiment.created)),
  );
}

const COLUMNS = [
  ["name", "Run"], ["state", "State"], ["progress", "Progress"], ["best", "Best"], ["metric", "Last"],
  ["workers", "Workers"], ["nodes", "Nodes"], ["failures", "Failures"], ["created", "Age"],
];

export async function showList(page, signal) {
  follow([]);
  document.title = "Lockstep";
  const search = h("input", { id: "search", type: "search", placeholder: "Search  /", value: view.search, "aria-label": "Search runs", on: { input: () => ((view.search = search.value), (view.rows = FIRST_ROWS), draw()) } });
  const compare = h("button", { id: "compare", on: { click: () => (location.hash = compareLink(view.chosen)) } }, "Compare");
  const count = h("span", { className: "dim", id: "count" });
  const head = h("tr");
  const body = h("tbody", { id: "runs" });
  const more = h("button", { hidden: true, on: { click: () => ((view.rows *= 4), draw()) } }, "Show more");
  const metric = h("span");
  const experiments = h("section", { hidden: true });
  const state = choice("State", [["", "all states"], ...STATES.map((each) => [each, each])], view.state, (value) => ((view.state = value), draw()));
  page.replaceChildren(
    h("div", { className: "tools" }, search, state, metric, compare, count),
    experiments,
    h("div", { className: "wide" }, h("table", { className: "list runs" }, h("thead", {}, head), body)),
    more,
  );

  function drawMetricChoice() {
    const names = new Set();
    for (const run of catalog.runs.values()) for (const name of Object.keys(run.metrics)) if (names.size < 300) names.add(name);
    const known = [...names].sort();
    if (metric.known === known.join("\n")) return;
    metric.known = known.join("\n");
    metric.replaceChildren(choice("Metric in the column Last", [["", "first metric"], ...known.map((name) => [name, line(name, 40)])], view.metric, (value) => ((view.metric = value), draw())));
  }

  function draw() {
    if (signal.aborted) return;
    drawMetricChoice();
    const runs = shownRuns();
    for (const id of [...view.chosen]) if (!catalog.runs.has(id)) view.chosen.delete(id);
    compare.disabled = view.chosen.size < 2;
    compare.textContent = view.chosen.size ? `Compare ${view.chosen.size}` : "Compare";
    count.textContent = runs.length === catalog.runs.size ? `${runs.length} runs` : `${runs.length} of ${catalog.runs.size} runs`;
    head.replaceChildren(
      h("th"),
      ...COLUMNS.map(([name, title]) =>
        h("th", { className: ["name", "state", "progress"].includes(name) ? "" : "number", ariaSort: view.sort === name ? (view.down ? "descending" : "ascending") : "none" },
          h("button", { on: { click: () => ((view.down = view.sort === name ? !view.down : name !== "name"), (view.sort = name), draw()) } }, title, view.sort === name ? (view.down ? " ↓" : " ↑") : "")),
      ),
    );
    body.replaceChildren(...runs.slice(0, view.rows).map((run) => rowOf(run, draw)));
    if (runs.length === 0) body.append(h("tr", {}, h("td", { colSpan: 10, className: "dim" }, catalog.runs.size ? "No run fits." : `No runs in ${visible(catalog.root)} yet. They appear here when they start.`)));
    more.hidden = runs.length <= view.rows;
    const all = [...catalog.experiments.values()].sort((a, b) => (b.created ?? 0) - (a.created ?? 0));
    experiments.hidden = all.length === 0;
    experiments.replaceChildren(h("h2", {}, "Experiments"), h("div", { className: "wide" }, h("table", { className: "list", id: "experiments" }, h("tbody", {}, ...all.map(experimentRow)))), h("h2", {}, "Runs"));
    mark(0);
    readExtremes();
  }

  /** Asks for what is best in the rows on the screen, one run at a time. */
  async function readExtremes() {
    if (readExtremes.running) return;
    readExtremes.running = true;
    try {
      for (let again = true; again && !signal.aborted && !document.hidden; ) {
        again = false;
        for (const row of body.querySelectorAll("tr[data-id]")) {
          const run = catalog.runs.get(row.dataset.id);
          const at = row.getBoundingClientRect();
          const isKnown = !run || (run.best && !view.metric) || !run.iteration || extremes.get(run.id)?.iteration === run.iteration;
          if (isKnown || at.bottom < 0 || at.top > window.innerHeight) continue;
          extremes.set(run.id, { iteration: run.iteration, values: await get("extremes", { id: run.id }).catch(() => ({})) });
          if (row.isConnected) row.querySelector(".best").replaceWith(rowOf(run, draw).querySelector(".best"));
          again = true;
          break;
        }
      }
    } finally {
      readExtremes.running = false;
    }
  }

  /** Moves the marked row, for the keyboard. */
  function mark(step) {
    const rows = [...body.querySelectorAll("tr[data-id]")];
    view.at = Math.max(0, Math.min(rows.length - 1, view.at + step));
    rows.forEach((row, i) => row.classList.toggle("at", i === view.at));
    if (step !== 0) rows[view.at]?.scrollIntoView({ block: "nearest" });
    return rows[view.at];
  }

  const keys = {
    j: () => mark(1),
    k: () => mark(-1),
    Enter: () => mark(0)?.querySelector("a").click(),
    x: () => mark(0)?.querySelector("input").click(),
    c: () => compare.disabled || compare.click(),
  };
  byId("page").keys = keys;

  let changed = new Set();
  let waiting = 0;
  const stop = listen((changes) => {
    if (changes === null) changed = null;
    else if (changed !== null) Object.keys(changes).forEach((id) => changed.add(id));
    waiting ||= setTimeout(async () => {
      const ids = changed === null ? [] : [...changed];
      changed = new Set();
      waiting = 0;
      await loadCatalog(ids.length > 200 ? [] : ids).catch(() => {});
      if (!document.hidden) draw();
    }, 200);
  });
  const clock = setInterval(() => document.hidden || draw(), 30_000); // ages
  const redraw = () => document.hidden || draw();
  document.addEventListener("visibilitychange", redraw);
  document.addEventListener("scrollend", readExtremes, { signal });
  signal.addEventListener("abort", () => {
    stop();
    clearInterval(clock);
    clearTimeout(waiting);
    document.removeEventListener("visibilitychange", redraw);
  });
  if (catalog.loaded) draw();
  await loadCatalog();
  draw();
}
