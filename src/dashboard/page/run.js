// The page of one run.
import { follow, get, listen } from "./api.js";
import { Chart, options } from "./chart.js";
import { chartTools } from "./chart_tools.js";
import { byId, h } from "./dom.js";
import { badge } from "./list.js";
import { logView } from "./logs.js";
import { resourceView } from "./resources.js";
import { Series, groupOf } from "./series.js";
import { age, bytes, duration, flat, line, number, plain, time, visible } from "./text.js";
import { timeline } from "./timeline.js";

const GROUPS = [["reported", "Metrics"], ["data", "Waiting for data"], ["time", "Time per report"]];

/** Charts of all metrics of some runs; update() after each change of their series. */
export class Charts {
  constructor(runs) {
    this.runs = runs; // [{label, series}]
    this.charts = new Map();
    this.filter = "";
    this.sections = new Map(GROUPS.map(([group, title]) => {
      const grid = h("div", { className: "charts" });
      return [group, { grid, element: h("section", { hidden: true, data: { group } }, h("h2", {}, title), grid) }];
    }));
    this.element = h("div", {}, ...[...this.sections.values()].map((section) => section.element));
  }

  update() {
    const metrics = [...new Set(this.runs.flatMap(({ series }) => series.metrics))];
    for (const metric of metrics) {
      const group = groupOf(metric);
      if (group === null || this.charts.has(metric)) continue;
      const chart = new Chart(metric);
      this.charts.set(metric, chart);
      this.sections.get(group).grid.append(chart.element);
      this.sections.get(group).element.hidden = false;
    }
    for (const [metric, chart] of this.charts) {
      chart.element.hidden = !metric.toLowerCase().includes(this.filter);
      const curves = this.runs.filter(({ series }) => metric in series.columns)
        .map(({ label, series, colour }) => ({ label: this.runs.length > 1 ? label : metric, colour, ...series.curve(metric, options.axis) }));
      chart.show(curves);
    }
  }

  destroy() {
    for (const chart of this.charts.values()) chart.destroy();
  }
}

function tableOf(rows, className = "") {
  return h("table", { className: `pairs ${className}` }, ...rows.map(([name, value]) => h("tr", {}, h("th", {}, visible(name)), h("td", {}, value instanceof Node ? value : visible(value)))));
}

function configuration(run) {
  const rows = [...flat(run.params ?? {}).map(([name, value]) => [name || "train_loop_config", plain(value)]), ...flat(run.record.config_run ?? {}).map(([name, value]) => [`run/${name}`, plain(value)])];
  const facts = [
    ["path", run.path], ["trainer", run.record.trainer], ["created", time(run.record.created)], ["updated", time(run.record.updated)],
    ["trial_id", run.record.trial_id], ["driver", run.record.driver ? `pid ${run.record.driver.pid} on ${run.record.driver.hostname}` : ""],
    ...flat(run.record.versions ?? {}).map(([name, value]) => [`version/${name}`, plain(value)]),
    ...flat(run.record.metadata ?? {}).filter(([name]) => name).map(([name, value]) => [`metadata/${name}`, plain(value)]),
  ];
  return [tableOf(facts.filter(([, value]) => value)), h("h3", {}, "train_loop_config, and the run's settings"), tableOf(rows, "config")];
}

function checkpoints(run) {
  if (run.checkpoints.length === 0) return [h("p", { className: "dim" }, "No checkpoint on disk.")];
  const scores = run.checkpoints.map((each) => each.score).filter((score) => score !== null);
  const best = run.score_order === "min" ? Math.min(...scores) : Math.max(...scores);
  const head = ["Checkpoint", run.score_attribute ? `Score: ${line(run.score_attribute, 30)} (${run.score_order})` : "Score", "Size", "Files", "Report", "Attempt", "Ranks", "Age"];
  return [h("div", { className: "wide" }, h("table", { className: "list", id: "checkpoints" },
    h("thead", {}, h("tr", {}, ...head.map((each, i) => h("th", { className: i ? "number" : "" }, each)))),
    h("tbody", {}, ...run.checkpoints.toReversed().map((each) => h("tr", { className: each.score !== null && each.score === best ? "best" : "" },
      h("td", {}, each.name, each.problem ? h("div", { className: "error" }, line(each.problem, 300)) : null),
      ...[number(each.score), bytes(each.size), String(each.files), String(each.iteration || "–"), String(each.attempt), String(each.world_size), age(each.created)].map((text) => h("td", { className: "number" }, text))))))) ];
}

function failures(run) {
  return (run.record.failures ?? []).toReversed().map((failure, i) => h("details", { className: "failure", open: i === 0 },
    h("summary", {}, h("b", {}, line(failure.kind, 30)), ` attempt ${failure.attempt}`, failure.rank >= 0 ? `, rank ${failure.rank}` : "", failure.node ? ` on ${line(failure.node, 60)}` : "", failure.time ? `, ${age(failure.time)}` : "", h("div", { className: "error" }, line(failure.message, 300))),
    failure.traceback ? h("pre", {}, visible(failure.traceback)) : null,
    failure.log_lines?.length ? [h("h4", {}, "Last lines of its log"), h("pre", {}, visible(failure.log_lines.join("\n")))] : null));
}

function stacks(run) {
  const names = run.logs.map((log) => log.name).filter((name) => /^stacks_attempt_\d+\.txt$/.test(name));
  return names.map((name) => {
    const text = h("pre", { className: "log" }, "…");
    const element = h("details", { className: "stacks", data: { name } }, h("summary", {}, `Stacks of attempt ${name.match(/\d+/)[0]}, which hung`), text);
    element.addEventListener("toggle", async () => {
      if (element.open) text.textContent = visible((await get("log", { id: run.id, name, from: 0, most: 1 << 20 })).text);
    });
    return element;
  });
}

export async function showRun(page, signal, id) {
  document.title = `${line(id.split("/").pop(), 60)} – Lockstep`;
  const series = new Series(id);
  const charts = new Charts([{ label: id, series }]);
  const head = h("div", { className: "head" });
  const warnings = h("div");
  const attempts = h("section");
  const tabs = { Checkpoints: h("div"), Configuration: h("div"), Failures: h("div"), Stacks: h("div") };
  const logs = logView(id);
  const resources = resourceView(id);
  const section = (title, body) => h("section", { data: { section: title } }, h("h2", {}, title), body);
  page.replaceChildren(head, warnings, attempts, chartTools(charts), charts.element,
    section("Workers", resources.element), section("Checkpoints", tabs.Checkpoints), section("Failures", tabs.Failures), section("Stacks of hung ranks", tabs.Stacks),
    section("Logs", logs.element), section("Configuration", tabs.Configuration));
  let run = null;

  async function readRun() {
    run = await get("run", { id });
    if (signal.aborted) return;
    const record = run.record;
    const last = (record.attempts ?? []).at(-1);
    head.replaceChildren(h("h1", {}, line(run.name, 120), " ", badge(run.state)),
      h("p", { className: "facts" }, [
        `${record.training_iteration} reports`, `took ${duration(run.duration)}`, `started ${age(record.created)}`,
        `${last?.world_size ?? record.num_workers} workers`, last?.nodes?.length ? `nodes: ${line(last.nodes.join(", "), 120)}` : null,
        `attempt ${record.attempt + 1}`, `${record.failures?.length ?? 0} failures`].filter(Boolean).join(" · ")),
      record.error ? h("pre", { className: "error" }, visible(record.error)) : "");
    warnings.replaceChildren(...(record.warnings ?? []).map((text) => h("p", { className: "warning" }, visible(text))));
    attempts.replaceChildren(h("h2", {}, "Attempts"), timeline(run));
    tabs.Checkpoints.replaceChildren(...checkpoints(run));
    tabs.Configuration.replaceChildren(...configuration(run));
    replaceSection(tabs.Failures, failures(run));
    replaceSection(tabs.Stacks, stacks(run));
    logs.setFiles(run.logs);
    resources.setRunning(run.state === "running");
  }

  function replaceSection(body, elements) {
    body.parentElement.hidden = elements.length === 0;
    if (body.childElementCount !== elements.length) body.replaceChildren(...elements);
  }

  async function readSeries() {
    if (await series.update()) charts.update();
    charts.element.dataset.rows = series.rows;
  }

  let waiting = 0;
  const stop = listen(async (changes) => {
    const files = changes === null ? null : changes[id];
    if (files === undefined) return;
    if (files === null || files.includes("result.json")) readSeries().catch(() => {});
    if (files === null || files.some((file) => file.startsWith("logs/"))) logs.changed(files);
    if (files === null || files.some((file) => /^(run\.json|checkpoint_\d+|logs\/[^/]*)$/.test(file)))
      waiting ||= setTimeout(() => ((waiting = 0), readRun().catch(() => {})), 500);
  });
  byId("page").keys = { ...charts.keys };
  signal.addEventListener("abort", () => {
    stop();
    clearTimeout(waiting);
    logs.stop();
    resources.setRunning(false);
    charts.destroy();
  });
  follow([id]);
  await Promise.all([readRun(), readSeries()]);
  await logs.start();
}
