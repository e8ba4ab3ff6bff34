// The log of one rank, which follows the file.
import { get } from "./api.js";
import { check, h } from "./dom.js";
import { bytes, line, visible } from "./text.js";

const PIECE = 64 << 10;
const MOST_PIECES = 16;

export function logView(id) {
  const text = h("pre", { className: "log", tabIndex: 0, "aria-label": "Log" });
  const select = h("select", { "aria-label": "Rank", id: "rank", on: { change: () => open(select.value) } });
  const follow = check("follow", true, (on) => on && toEnd());
  const size = h("span", { className: "dim" });
  const earlier = h("button", { className: "small", hidden: true, on: { click: () => readEarlier() } }, "earlier");
  const element = h("div", {}, h("div", { className: "tools" }, select, follow, earlier, size), text);
  const isFollowing = () => follow.firstChild.checked;
  let name = null;
  let from = 0;
  let next = 0;
  let busy = null;
  let stopped = false;

  const toEnd = () => (text.scrollTop = text.scrollHeight);
  const piece = (shown) => h("span", {}, visible(shown));

  async function open(chosen) {
    name = chosen;
    const first = await get("log", { id, name, from: -1, most: PIECE });
    if (stopped || name !== chosen) return;
    [from, next] = [first.from, first.next];
    text.replaceChildren(piece(first.text));
    note(first.size);
    toEnd();
  }

  function note(whole) {
    size.textContent = `${bytes(whole)}${from > 0 ? `, from ${bytes(from)} on` : ""}`;
    earlier.hidden = from === 0;
  }

  async function readEarlier() {
    const start = Math.max(0, from - PIECE);
    const part = await get("log", { id, name, from: start, most: from - start < 1024 ? 1024 : from - start });
    const height = text.scrollHeight;
    text.prepend(piece(part.text.slice(0, part.next > from ? part.text.length - (part.next - from) : undefined)));
    from = start;
    note(part.size);
    text.scrollTop += text.scrollHeight - height;
  }

  /** Reads to the end of the file; if very much came, only the last of it. */
  async function readOn() {
    const chosen = name;
    for (;;) {
      let part = await get("log", { id, name: chosen, from: next, most: PIECE });
      if (stopped || name !== chosen) return;
      if (part.size < next) return open(chosen); // replaced
      if (part.size - part.next > MOST_PIECES * PIECE) return open(chosen);
      if (part.next === next) return note(part.size);
      next = part.next;
      text.append(piece(part.text));
      while (text.childElementCount > MOST_PIECES * 4) text.firstChild.remove();
      note(part.size);
      if (isFollowing()) toEnd();
      if (next >= part.size) return;
    }
  }

  return {
    element,
    setFiles(logs) {
      const names = logs.map((log) => log.name).filter((each) => !each.startsWith("stacks_"));
      const isRank = (each) => /^rank_\d+\.log$/.test(each);
      names.sort((a, b) => isRank(b) - isRank(a) || a.localeCompare(b, "en", { numeric: true }));
      if (select.dataset.names === names.join("\n")) return;
      select.dataset.names = names.join("\n");
      const chosen = select.value;
      select.replaceChildren(...names.map((each) => h("option", { value: each }, line(each.replace(/^rank_(\d+)\.log$/, "rank $1"), 60))));
      if (names.includes(chosen)) select.value = chosen;
      else if (names.length > 0) open(names[0]).catch(() => {});
      element.parentElement.hidden = names.length === 0;
    },
    changed(files) {
      if (name === null || (files !== null && !files.includes(`logs/${name}`))) return;
      busy = (busy ?? Promise.resolve()).then(() => (isFollowing() ? readOn() : undefined)).catch(() => {});
    },
    async start() {
      if (name !== null) await readOn();
    },
    stop() {
      stopped = true;
    },
  };
}
