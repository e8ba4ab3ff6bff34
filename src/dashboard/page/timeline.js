// Attempts and failures on a line of time.
import { h, svg } from "./dom.js";
import { duration, line, time } from "./text.js";

const HEIGHT = 22;

/** A drawing of the run's attempts, failures and checkpoints. */
export function timeline(run) {
  const attempts = run.record.attempts ?? [];
  const failures = run.record.failures ?? [];
  const now = run.state === "running" ? Date.now() / 1000 : run.record.updated;
  const begin = Math.min(run.record.created || now, ...attempts.map((attempt) => attempt.started));
  const end = Math.max(begin + 1e-3, run.record.finished || 0, now, ...attempts.map((attempt) => attempt.ended ?? 0));
  const share = (at) => `${(100 * Math.min(1, Math.max(0, (at - begin) / (end - begin)))).toFixed(3)}%`;
  const drawing = svg("svg", { class: "timeline", width: "100%", height: HEIGHT + 14, role: "img", "aria-label": "Attempts and failures over time" });
  const titled = (element, text) => (element.append(svg("title", {}, text)), element);
  for (const attempt of attempts) {
    const stop = attempt.ended ?? (run.state === "running" ? now : end);
    const width = `${(100 * Math.max(0.002, (stop - attempt.started) / (end - begin))).toFixed(3)}%`;
    const text = `attempt ${attempt.number}: ${attempt.outcome}, ${attempt.world_size} workers on ${attempt.nodes.join(", ")}, ${duration(stop - attempt.started)}, from ${time(attempt.started)}`;
    drawing.append(titled(svg("rect", { x: share(attempt.started), y: 4, width, height: HEIGHT - 4, rx: 3, class: `attempt ${/^\w+$/.test(attempt.outcome) ? attempt.outcome : ""}`, "data-attempt": attempt.number }), line(text, 500)));
  }
  for (const each of run.checkpoints)
    if (each.created) drawing.append(titled(svg("circle", { cx: share(each.created), cy: HEIGHT + 7, r: 3, class: "checkpoint" }), `${each.name}, ${time(each.created)}`));
  for (const failure of failures)
    if (failure.time) drawing.append(titled(svg("circle", { cx: share(failure.time), cy: HEIGHT / 2 + 2, r: 5, class: "failure" }), line(`${failure.kind}, attempt ${failure.attempt}, rank ${failure.rank}: ${failure.message}`, 500)));
  const rows = attempts.map((attempt) => h("span", {}, `${attempt.number}: ${line(attempt.outcome, 20)}${attempt.ended ? `, ${duration(attempt.ended - attempt.started)}` : ""}`));
  return h("div", {}, drawing, h("p", { className: "facts" }, ...rows.slice(-12).flatMap((row, i) => (i ? [" · ", row] : [row]))));
}
