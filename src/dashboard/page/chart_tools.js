// What all charts of a page have in common: filter, smoothing, scale, axis.
import { options } from "./chart.js";
import { check, choice, h } from "./dom.js";

const AXES = [["training_iteration", "by report"], ["time_total_s", "by running time"], ["timestamp", "by time of day"]];

export function chartTools(charts) {
  const redraw = () => charts.update();
  const shown = h("output", {}, options.smoothing.toFixed(2));
  const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: options.smoothing, "aria-label": "Smoothing", id: "smoothing",
    on: { input: () => ((options.smoothing = Number(slider.value)), (shown.textContent = options.smoothing.toFixed(2)), redraw()) } });
  const filter = h("input", { type: "search", placeholder: "Filter metrics", "aria-label": "Filter metrics", on: { input: () => ((charts.filter = filter.value.toLowerCase()), redraw()) } });
  const log = check("log scale", options.log, (on) => ((options.log = on), redraw()));
  log.firstChild.id = "log";
  charts.keys = {
    l: () => log.firstChild.click(),
    s: () => slider.focus(),
    r: () => { for (const chart of charts.charts.values()) chart.zoomOut(); },
    f: () => filter.focus(),
  };
  return h("div", { className: "tools" }, filter, h("label", { className: "check" }, "smoothing", slider, shown), log,
    choice("Axis", AXES, options.axis, (value) => ((options.axis = value), redraw())), h("span", { className: "dim" }, "drag: zoom, double click: back"));
}
