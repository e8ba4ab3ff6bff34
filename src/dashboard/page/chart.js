// One chart of several curves over a common axis, with uPlot.
import uPlot from "uplot";
import { h } from "./dom.js";
import { line, number, time, duration } from "./text.js";

const COLOURS = ["#3b82f6", "#f97316", "#22a55a", "#e0433a", "#9b5de5", "#a0714f", "#e377c2", "#8a8f98", "#b5a516", "#17aebf"];
export const colour = (index) => COLOURS[index % COLOURS.length];

/** What all charts share; kept for the next visit in this tab. */
export const options = { smoothing: 0, log: false, axis: "training_iteration" };

/** An exponential moving average that begins without bias; null stays null. */
export function smooth(values, weight) {
  if (!(weight > 0)) return values;
  let sum = 0;
  let scale = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return sum / scale;
  });
}

/** Joins curves [{x, y}] to uPlot's form: one sorted axis, and null where a curve has no point. */
export function join(curves) {
  if (curves.length === 1) return [curves[0].x, curves[0].y];
  const axis = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const at = new Map(axis.map((x, i) => [x, i]));
  const columns = curves.map((curve) => {
    const column = new Array(axis.length).fill(undefined); // undefined: the line goes on; null would break it
    curve.x.forEach((x, i) => (column[at.get(x)] = curve.y[i]));
    return column;
  });
  return [axis, ...columns];
}

/** A colour of the style sheet as canvases understand it. */
function css(name) {
  const probe = document.body.appendChild(h("i", { style: { color: `var(${name})` } }));
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function axisText(axis) {
  if (axis === "timestamp") return (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString());
  if (axis === "time_total_s") return (_, ticks) => ticks.map((tick) => duration(tick));
  return (_, ticks) => ticks.map((tick) => number(tick));
}

export class Chart {
  /** `kind`: "line" or "points". */
  constructor(title, { kind = "line", height = 220, xTitle = "" } = {}) {
    this.kind = kind;
    this.height = height;
    this.xTitle = xTitle;
    this.body = h("div", { className: "plot" });
    this.value = h("span", { className: "value" });
    this.reset = h("button", { className: "small", title: "Show everything again", hidden: true, on: { click: () => this.zoomOut() } }, "reset");
    this.element = h(
      "figure",
      { className: "chart", data: { metric: title } },
      h("figcaption", {}, h("span", { className: "name", title: line(title, 500) }, line(title, 80)), this.value, this.reset),
      this.body,
    );
    this.curves = [];
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.body);
  }

  /** curves: [{label, x, y}]. Data of an unchanged set of curves is exchanged without a new plot. */
  show(curves) {
    this.curves = curves;
    // For tests and people at the console: what is drawn.
    this.element.chartData = curves.map(({ label, x, y }) => ({ label, x, y }));
    const last = curves.length === 1 ? curves[0].y.findLast((value) => value !== null && value !== undefined) : undefined;
    this.value.textContent = last === undefined ? "" : number(last);
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    const weight = this.kind === "line" ? options.smoothing : 0;
    const isLog = options.log && this.kind === "line" && this.curves.some((curve) => curve.y.some((value) => value > 0));
    const prepared = this.curves.map((curve) => ({
      x: curve.x,
      y: smooth(curve.y, weight).map((value) => (isLog && !(value > 0) ? null : value)),
    }));
    const data = prepared.length > 0 ? join(prepared) : [[]];
    const shape = JSON.stringify([this.curves.map((curve) => [curve.label, curve.colour]), isLog, options.axis, css("--ink")]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.redraw();
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.setZoomed(false);
    this.plot = new uPlot(this.settings(isLog), data, this.body);
  }

  settings(isLog) {
    const grid = { stroke: css("--line"), width: 1 };
    const axis = { stroke: css("--dim"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const points = this.kind === "points";
    return {
      width: Math.max(160, this.body.clientWidth || 320),
      height: this.height,
      legend: { show: this.curves.length > 1 || points, live: true },
      cursor: { drag: { x: true, y: false, setScale: true }, points: { size: 6 } },
      scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
      axes: [
        { ...axis, values: axisText(points ? "" : options.axis), label: this.xTitle || undefined, labelSize: 18, labelFont: "11px system-ui" },
        { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 3))) },
      ],
      series: [
        { label: this.xTitle || "x", value: (_, value) => (options.axis === "timestamp" && !points ? time(value) : number(value)) },
        ...this.curves.map((curve, index) => ({
          label: line(curve.label, 60),
          stroke: curve.colour ?? colour(index),
          width: curve.line === false ? 0 : 1.5,
          paths: curve.line === false ? () => null : undefined,
          points: { show: points ? curve.line === false : curve.x.length < 2 ? true : undefined, size: points ? 7 : 5 },
          spanGaps: false,
          value: (_, value) => number(value, 6),
        })),
      ],
      hooks: {
        setSelect: [(plot) => plot.select.width > 0 && this.setZoomed(true)],
      },
    };
  }

  setZoomed(on) {
    this.zoomed = on;
    this.reset.hidden = !on;
  }

  zoomOut() {
    this.setZoomed(false);
    if (this.plot) this.plot.setData(this.plot.data, true);
  }

  resize() {
    const width = this.body.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
  }

  destroy() {
    this.observer.disconnect();
    cancelAnimationFrame(this.waiting);
    this.plot?.destroy();
  }
}
