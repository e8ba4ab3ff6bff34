// What the workers of a running run use, while somebody looks.
import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, number } from "./text.js";

const EVERY = 2000;

export function resourceView(id) {
  const table = h("table", { className: "list", id: "workers" });
  const node = h("p", { className: "facts" });
  const element = h("div", {}, node, h("div", { className: "wide" }, table));
  let before = new Map();
  let timer = 0;

  async function read() {
    if (document.hidden) return;
    const { seconds, workers, node: machine } = await get("resources", { id });
    if (!timer) return;
    element.parentElement.hidden = workers.length === 0;
    node.textContent = `This machine: ${machine.cores} cores, ${bytes(machine.available)} of ${bytes(machine.memory)} memory free`;
    const head = ["Process", "Rank", "CPU", "Memory", "Threads"];
    table.replaceChildren(h("thead", {}, h("tr", {}, ...head.map((each, i) => h("th", { className: i ? "number" : "" }, each)))),
      h("tbody", {}, ...workers.map((worker) => {
        const last = before.get(worker.pid);
        const share = last ? (100 * (worker.cpu_seconds - last.cpu)) / (seconds - last.seconds) : null;
        const cells = [worker.rank ?? "–", share === null ? "…" : `${number(Math.max(0, share), 3)} %`, bytes(worker.memory), worker.threads];
        return h("tr", { data: { pid: worker.pid } }, h("td", {}, String(worker.pid)), ...cells.map((text) => h("td", { className: "number" }, String(text))));
      })));
    before = new Map(workers.map((worker) => [worker.pid, { cpu: worker.cpu_seconds, seconds }]));
  }

  return {
    element,
    setRunning(on) {
      if (on === Boolean(timer)) {
        if (!on && element.parentElement) element.parentElement.hidden = true;
        return;
      }
      clearInterval(timer);
      timer = on ? setInterval(() => read().catch(() => {}), EVERY) : 0;
      if (on) read().catch(() => {});
      else if (element.parentElement) element.parentElement.hidden = true;
    },
  };
}
