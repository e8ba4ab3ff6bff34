// The frame around the pages: routes, theme, keyboard, connection.
import { connection, follow } from "./api.js";
import { showCompare } from "./compare.js";
import { byId, h } from "./dom.js";
import { showExperiment } from "./experiment.js";
import { showList } from "./list.js";
import { showRun } from "./run.js";
import { line } from "./text.js";

const HELP = [
  ["/", "search"], ["j k", "next, previous run"], ["Enter", "open"], ["x", "choose to compare"], ["c", "compare the chosen"],
  ["Esc", "back to the list"], ["f", "filter metrics"], ["l", "log scale"], ["s", "smoothing"], ["r", "zoom out"], ["t", "light or dark"], ["?", "this help"],
];
let current = new AbortController();

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("lockstep-theme", theme);
  } catch {
    // private windows may forbid it
  }
}

function toggleTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  setTheme(isDark ? "light" : "dark");
  route(); // charts take their colours when they are made
}

function help() {
  const dialog = h("dialog", { id: "help", on: { click: () => dialog.close(), close: () => dialog.remove() } },
    h("h2", {}, "Keys"), h("table", { className: "pairs" }, ...HELP.map(([key, what]) => h("tr", {}, h("th", {}, h("kbd", {}, key)), h("td", {}, what)))));
  document.body.append(dialog);
  dialog.showModal();
}

function drawBar() {
  const state = h("span", { id: "live", className: "dim", role: "status" });
  connection.onChange = (up) => {
    state.textContent = up ? "live" : "connection lost; retrying";
    state.className = up ? "live" : "error";
  };
  byId("bar").replaceChildren(h("a", { href: "#/", className: "brand" }, "Lockstep"), h("span", { className: "space" }), state,
    h("button", { className: "small", title: "Light or dark (t)", id: "theme", on: { click: toggleTheme } }, "◐"),
    h("button", { className: "small", title: "Keys (?)", on: { click: help } }, "?"));
}

export function notice(text) {
  const element = byId("notice");
  element.textContent = line(text, 500);
  element.hidden = !text;
}

async function route() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const page = byId("page");
  page.keys = {};
  notice("");
  const [, kind, rest = ""] = location.hash.match(/^#\/(\w*)\/?(.*)$/) ?? [null, "", ""];
  try {
    if (kind === "run") await showRun(page, signal, decodeURIComponent(rest));
    else if (kind === "experiment") await showExperiment(page, signal, decodeURIComponent(rest));
    else if (kind === "compare") await showCompare(page, signal, rest.split(",").map(decodeURIComponent));
    else await showList(page, signal);
  } catch (error) {
    if (!signal.aborted) notice(error.message);
  }
  if (!signal.aborted) page.dataset.ready = location.hash;
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (isTyping) event.target.blur();
    else location.hash = "#/";
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target.matches("a, button, summary, input")) return;
  const page = byId("page");
  const keys = { "/": () => byId("search")?.focus(), t: toggleTheme, "?": help, ...page.keys };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});

try {
  const theme = localStorage.getItem("lockstep-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // as above
}
drawBar();
window.addEventListener("hashchange", route);
follow([]);
route();
