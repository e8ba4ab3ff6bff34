// The reports of one run, kept up to date: columns of numbers.
import { get } from "./api.js";

export class Series {
  constructor(id) {
    this.id = id;
    this.columns = {};
    this.rows = 0;
    this.generation = -1;
    this.badLines = 0;
    this.stride = 1;
  }

  /** Reads what is new. Returns whether there was anything. Calls at the same time are one call and one more. */
  async update() {
    if (this.running) {
      this.again = true;
      return this.running;
    }
    this.running = this.read().finally(() => (this.running = null));
    const changed = await this.running;
    if (this.again) {
      this.again = false;
      return (await this.update()) || changed;
    }
    return changed;
  }

  async read() {
    const part = await get("series", { id: this.id, from: this.rows, generation: this.generation });
    const isNew = part.generation !== this.generation || part.first === 0;
    if (!isNew && part.rows === this.rows) return false;
    if (isNew) this.columns = {};
    const before = isNew ? 0 : this.length ?? 0;
    const added = Math.max(0, ...Object.values(part.columns).map((column) => column.length));
    for (const [name, values] of Object.entries(part.columns)) {
      const column = (this.columns[name] ??= new Array(before).fill(null));
      while (column.length < before) column.push(null);
      for (const value of values) column.push(value);
    }
    this.length = before + added;
    this.rows = part.rows;
    this.generation = part.generation;
    this.badLines = part.bad_lines;
    if (isNew) this.stride = part.stride;
    return true;
  }

  get metrics() {
    return Object.keys(this.columns);
  }

  /** {x, y} over an axis that only rises: reports that a restart made again replace the earlier ones. */
  curve(metric, axis) {
    const xs = this.columns[axis] ?? [];
    const ys = this.columns[metric] ?? [];
    const x = [];
    const y = [];
    for (let i = 0; i < this.length; i++) {
      const at = xs[i] ?? (axis === "training_iteration" ? i + 1 : null);
      if (at === null || i >= ys.length) continue;
      while (x.length > 0 && x[x.length - 1] >= at) {
        x.pop();
        y.pop();
      }
      x.push(at);
      y.push(ys[i] ?? null);
    }
    return { x, y };
  }
}

/** Names of what Lockstep fills in; everything else was reported. */
const FILLED = new Set(["training_iteration", "time_this_iter_s", "time_total_s", "timestamp", "time_since_restore", "iterations_since_restore", "warmup_time", "_time_this_iter_s", "_time_total_s"]);

/** "reported", "data" (waits for data), "time", or null: not drawn. */
export function groupOf(metric) {
  const name = metric.toLowerCase();
  if (/stall|data_(wait|time|load)|wait_(s|time|seconds)|blocked|input_(wait|time)|loader/.test(name)) return "data";
  if (metric === "time_this_iter_s") return "time";
  if (FILLED.has(metric)) return null;
  return "reported";
}
