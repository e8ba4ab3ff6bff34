// Several runs on the same charts.
import { follow, listen } from "./api.js";
import { colour } from "./chart.js";
import { chartTools } from "./chart_tools.js";
import { byId, h } from "./dom.js";
import { badge, catalog, loadCatalog, runLink } from "./list.js";
import { Charts } from "./run.js";
import { Series } from "./series.js";
import { line, number } from "./text.js";

const MOST = 20;

export async function showCompare(page, signal, ids) {
  document.title = "Compare – Lockstep";
  const runs = ids.slice(0, MOST).map((id, i) => ({ id, label: id, colour: colour(i), series: new Series(id) }));
  const charts = new Charts(runs);
  const legend = h("table", { className: "pairs", id: "compared" });
  page.replaceChildren(h("h1", {}, `${runs.length} runs`), legend, chartTools(charts), charts.element);

  async function read(which) {
    await Promise.all(which.map(({ series }) => series.update().catch(() => {})));
    if (!signal.aborted) charts.update();
  }
  function drawLegend() {
    legend.replaceChildren(...runs.map((run) => {
      const known = catalog.runs.get(run.id);
      return h("tr", {}, h("th", {}, h("span", { className: "key", style: { background: run.colour } }), h("a", { href: runLink(run.id) }, line(run.id, 100))),
        h("td", {}, known ? badge(known.state) : "gone"), h("td", {}, known?.best ? `best ${line(known.best.metric, 30)} ${number(known.best.value)}` : ""));
    }));
  }
  const stop = listen((changes) => read(runs.filter(({ id }) => changes === null || changes[id]?.includes("result.json"))));
  byId("page").keys = charts.keys;
  signal.addEventListener("abort", () => {
    stop();
    charts.destroy();
  });
  follow(runs.map(({ id }) => id));
  await loadCatalog(ids);
  drawLegend();
  await read(runs);
}
