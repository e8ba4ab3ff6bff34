// The page of one experiment: its trials, and what they say about the parameters.
import { follow, get, listen } from "./api.js";
import { Chart } from "./chart.js";
import { byId, choice, h } from "./dom.js";
import { runLink } from "./list.js";
import { parallel } from "./parallel.js";
import { duration, flat, line, number, plain, visible } from "./text.js";

const MOST_ROWS = 1000;

const valueAt = (result, metric) => {
  if (result === null || typeof result !== "object") return null;
  if (metric in result) return result[metric];
  const slash = metric.indexOf("/");
  return slash < 0 ? null : valueAt(result[metric.slice(0, slash)] ?? null, metric.slice(slash + 1));
};
const numberAt = (trial, metric) => {
  const value = valueAt(trial.last_result, metric);
  return typeof value === "number" ? value : null;
};

export async function showExperiment(page, signal, id) {
  document.title = `${line(id.split("/").pop(), 60)} – Lockstep`;
  let data = null;
  let metric = "";
  let sort = { by: "", down: false };
  const history = new Chart("history", { kind: "points", xTitle: "trial" });
  const pareto = new Chart("Pareto front", { kind: "points" });
  const head = h("div", { className: "head" });
  const tools = h("div", { className: "tools" });
  const lines = h("div", { id: "parallel" });
  const bars = h("div", { id: "importance" });
  const paretoTools = h("div", { className: "tools" });
  const paretoSection = h("section", { hidden: true }, h("h2", {}, "Pareto front"), paretoTools, pareto.element);
  const table = h("div", { className: "wide" });
  page.replaceChildren(head, tools, h("h2", {}, "History"), history.element, h("h2", {}, "Parallel coordinates"), lines,
    h("h2", {}, "Importance"), bars, paretoSection, h("h2", {}, "Trials"), table);
  const axes = { x: "", y: "" };

  const isMax = () => data.modes[data.metrics.indexOf(metric)] === "max";
  const allMetrics = () => {
    const names = new Set(data.metrics);
    for (const trial of data.trials) for (const [name, value] of flat(trial.last_result ?? {})) if (typeof value === "number" && names.size < 200) names.add(name);
    return [...names];
  };

  function drawHistory() {
    const trials = data.trials.filter((trial) => numberAt(trial, metric) !== null);
    const x = trials.map((trial) => trial.number);
    const y = trials.map((trial) => numberAt(trial, metric));
    let best = null;
    const bests = y.map((value) => (best = best === null || (isMax() ? value > best : value < best) ? value : best));
    history.show([{ label: metric || "–", x, y, line: false }, { label: "best so far", x, y: bests, colour: "#22a55a" }]);
  }

  async function drawImportance() {
    try {
      const plot = await get("plot", { id, kind: "importance", metric });
      const rows = plot.dimensions.map((dimension, i) => ({ name: dimension.name, ...plot.importance[i] })).sort((a, b) => b.total - a.total);
      bars.replaceChildren(h("table", { className: "pairs bars" }, ...rows.map((row) => h("tr", { data: { parameter: row.name } }, h("th", {}, line(row.name, 60)),
        h("td", {}, h("span", { className: "bar", style: { width: `${100 * row.total}%` } }, h("span", { className: "alone", style: { width: `${row.total > 0 ? (100 * row.alone) / row.total : 0}%` } }))),
        h("td", { className: "number", title: "alone, and with its interactions" }, `${number(row.alone, 2)} / ${number(row.total, 2)}`)))));
    } catch (error) {
      bars.replaceChildren(h("p", { className: "dim" }, line(error.message, 300)));
    }
  }

  async function drawPareto() {
    const names = allMetrics();
    paretoSection.hidden = data.metrics.length < 2 && !(axes.x && axes.y);
    const [first, second] = [axes.x || data.metrics[0] || "", axes.y || data.metrics[1] || ""];
    paretoTools.replaceChildren(
      choice("Metric across", names.map((name) => [name, line(name, 40)]), first, (value) => ((axes.x = value), drawPareto())),
      choice("Metric upwards", names.map((name) => [name, line(name, 40)]), second, (value) => ((axes.y = value), drawPareto())));
    if (paretoSection.hidden || !first || !second || first === second) return;
    const plot = await get("plot", { id, kind: "pareto", x: first, y: second });
    const points = (trials) => {
      const all = trials.map((trial) => [numberAt(trial, first), numberAt(trial, second)]).filter(([x, y]) => x !== null && y !== null);
      all.sort((a, b) => a[0] - b[0]);
      return { x: all.map(([x]) => x), y: all.map(([, y]) => y) };
    };
    pareto.xTitle = line(first, 40);
    pareto.show([{ label: "trials", line: false, ...points(data.trials) }, { label: "front", colour: "#e0433a", ...points(plot.front.map((i) => data.trials[i])) }]);
  }

  function drawTable() {
    const parameters = [...new Set(data.trials.slice(0, 200).flatMap((trial) => flat(trial.config ?? {}).map(([name]) => name)))].filter(Boolean).slice(0, 30);
    const columns = [
      ["trial", (trial) => trial.number], ["state", (trial) => trial.state],
      ...data.metrics.concat(data.metrics.includes(metric) || !metric ? [] : [metric]).map((name) => [name, (trial) => numberAt(trial, name)]),
      ...parameters.map((name) => [`⚙ ${name}`, (trial) => valueAt(trial.config, name)]),
      ["reports", (trial) => trial.iterations], ["failures", (trial) => trial.failures],
      ["time", (trial) => (trial.started ? (trial.ended ?? Date.now() / 1000) - trial.started : null)],
    ];
    const by = columns.find(([name]) => name === sort.by) ?? columns[0];
    const rows = [...data.trials].sort((a, b) => {
      const [one, other] = [by[1](a), by[1](b)];
      if (one === null || one === undefined || other === null || other === undefined) return (one ?? null) === (other ?? null) ? 0 : (one ?? null) === null ? 1 : -1;
      return (one < other ? -1 : one > other ? 1 : a.number - b.number) * (sort.down ? -1 : 1);
    });
    const cell = (name, value) => (name === "time" ? duration(value) : typeof value === "number" ? number(value) : value === null || value === undefined ? "–" : line(plain(value), 60));
    table.replaceChildren(h("table", { className: "list", id: "trials" },
      h("thead", {}, h("tr", {}, ...columns.map(([name]) => h("th", {}, h("button", { on: { click: () => ((sort = { by: name, down: sort.by === name && !sort.down }), drawTable()) } }, line(name, 40), sort.by === name ? (sort.down ? " ↓" : " ↑") : ""))))),
      h("tbody", {}, ...rows.slice(0, MOST_ROWS).map((trial) => h("tr", { data: { trial: trial.name } },
        ...columns.map(([name, value], i) => (i === 0 ? h("td", {}, h("a", { href: runLink(id === "." ? trial.name : `${id}/${trial.name}`), title: line(trial.name, 200) }, String(trial.number)), trial.error ? h("span", { className: "error", title: visible(trial.error) }, " failed") : null) : h("td", { className: name === "state" ? "" : "number" }, cell(name, value(trial))))))))));
    if (rows.length > MOST_ROWS) table.append(h("p", { className: "dim" }, `The first ${MOST_ROWS} of ${rows.length} trials.`));
  }

  function drawTools() {
    const names = allMetrics();
    tools.replaceChildren(choice("Metric", names.map((name) => [name, line(name, 40)]), metric, (value) => ((metric = value), draw())));
  }

  function draw() {
    const states = {};
    for (const trial of data.trials) states[trial.state] = (states[trial.state] ?? 0) + 1;
    head.replaceChildren(h("h1", {}, line(data.name || id, 120)), h("p", { className: "facts" },
      [`${data.trials.length} trials`, ...Object.entries(states).map(([state, count]) => `${count} ${state}`), `searcher ${line(plain(data.searcher.kind ?? ""), 40)}`, `scheduler ${line(plain(data.scheduler.kind ?? ""), 40)}`].join(" · ")));
    drawHistory();
    parallel(lines, data, data.trials.map((trial) => numberAt(trial, metric)), metric, isMax(), (trial) => (location.hash = runLink(id === "." ? trial.name : `${id}/${trial.name}`)));
    drawTable();
    drawImportance();
    drawPareto().catch(() => {});
  }

  async function read() {
    data = await get("experiment", { id });
    if (signal.aborted) return;
    metric ||= data.metrics[0] ?? allMetrics()[0] ?? "";
    drawTools();
    draw();
  }

  let waiting = 0;
  const stop = listen((changes) => {
    if (changes === null || changes[id]?.some((file) => file.startsWith("experiment.sqlite"))) waiting ||= setTimeout(() => ((waiting = 0), read().catch(() => {})), 1000);
  });
  byId("page").keys = {};
  signal.addEventListener("abort", () => {
    stop();
    clearTimeout(waiting);
    history.destroy();
    pareto.destroy();
  });
  follow([id]);
  await read();
}
