// Parallel coordinates: one axis for each parameter and one for the metric, one line for each trial.
import { h, svg } from "./dom.js";
import { line, number } from "./text.js";

const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 18;
const MOST_LINES = 1500;

/** The place of a value on its axis, 0 (bottom) to 1. */
function placer(dimension, values) {
  const known = values.filter((value) => value !== null);
  const isLog = dimension.log && known.every((value) => value > 0);
  const scale = isLog ? Math.log : (value) => value;
  let [low, high] = [Math.min(...known.map(scale)), Math.max(...known.map(scale))];
  if (dimension.kind === "category") [low, high] = [0, Math.max(1, dimension.labels.length - 1)];
  return (value) => (high > low ? (scale(value) - low) / (high - low) : 0.5);
}

export function parallel(target, data, metrics, metric, isMax, onOpen) {
  const axes = data.dimensions.map((dimension, d) => ({ dimension, values: data.points.map((point) => point[d] ?? null) }));
  axes.push({ dimension: { name: metric, kind: "real", log: false, labels: [] }, values: metrics });
  if (axes.length < 2 || metrics.every((value) => value === null)) {
    target.replaceChildren(h("p", { className: "dim" }, "No trial has reported yet."));
    return;
  }
  const width = Math.max(90 * axes.length, target.clientWidth || 600);
  const x = (axis) => 45 + (axis * (width - 90)) / (axes.length - 1);
  const y = (place) => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  const places = axes.map(({ dimension, values }) => placer(dimension, values));
  const drawing = svg("svg", { width, height: HEIGHT, class: "parallel", role: "img", "aria-label": "Parallel coordinates" });
  let trials = data.trials.map((trial, i) => ({ trial, i, quality: metrics[i] === null ? null : places.at(-1)(metrics[i]) })).filter(({ quality }) => quality !== null);
  const goodness = ({ quality }) => (isMax ? quality : 1 - quality);
  trials.sort((a, b) => goodness(a) - goodness(b)); // the best on top
  trials = trials.slice(-MOST_LINES);
  for (const each of trials) {
    const points = axes.flatMap(({ values }, axis) => (values[each.i] === null ? [] : [`${x(axis).toFixed(1)},${y(places[axis](values[each.i])).toFixed(1)}`]));
    const good = goodness(each);
    const path = svg("polyline", { points: points.join(" "), class: "trial", "data-trial": each.trial.name, stroke: `hsl(${(220 - 180 * (1 - good)).toFixed(0)} 75% 50%)`, "stroke-opacity": (0.15 + 0.75 * good).toFixed(2) },
      svg("title", {}, line(`${each.trial.name}: ${metric} ${number(metrics[each.i])}`, 300)));
    path.addEventListener("click", () => onOpen(each.trial));
    drawing.append(path);
  }
  axes.forEach(({ dimension, values }, axis) => {
    const known = values.filter((value) => value !== null);
    const labels = dimension.kind === "category" ? dimension.labels.map((label, i) => [i, label]) : [...new Set([Math.min(...known), Math.max(...known)])].map((value) => [value, number(value, 3)]);
    drawing.append(svg("line", { x1: x(axis), x2: x(axis), y1: y(0), y2: y(1), class: "axis" }), svg("text", { x: x(axis), y: 14, "text-anchor": "middle", class: "title" }, line(dimension.name, 18)));
    for (const [value, text] of known.length ? labels.slice(0, 12) : []) drawing.append(svg("text", { x: x(axis) + 4, y: y(places[axis](value)) + 3, class: "tick" }, line(text, 14)));
  });
  target.replaceChildren(h("div", { className: "wide" }, drawing));
}
