// The server. The token comes with the page's address and goes back in a header; it is never stored.

const token = new URLSearchParams(location.search).get("token") ?? "";
const headers = { Authorization: `Bearer ${token}` };

export class ServerError extends Error {}

function query(parameters) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of Array.isArray(value) ? value : [value]) pairs.append(name, each);
  return pairs.toString();
}

export async function get(what, parameters = {}) {
  const response = await fetch(`/api/${what}?${query(parameters)}`, { headers, cache: "no-store" });
  const body = await response.json();
  if (!response.ok) throw new ServerError(body.error ?? response.statusText);
  return body;
}

const listeners = new Set();
let places = [];
let abort = null;
let wasConnected = false;
export const connection = { up: null, onChange: () => {} };

/** Calls listener({id: [file, ...]}) for changes on disk, and listener(null) when some may have been missed. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The runs whose every file matters. */
export function follow(ids) {
  if (places.join("\n") === ids.join("\n") && abort) return;
  places = ids;
  abort?.abort();
  abort = new AbortController();
  stream(abort.signal);
}

function tell(changes) {
  for (const listener of [...listeners]) listener(changes);
}

function setUp(up) {
  if (connection.up === up) return;
  connection.up = up;
  connection.onChange(up);
}

async function stream(signal) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    try {
      const response = await fetch(`/api/events?${query({ place: places })}`, { headers, signal, cache: "no-store" });
      if (!response.ok) throw new ServerError((await response.json()).error);
      setUp(true);
      wait = 500;
      if (wasConnected) tell(null);
      wasConnected = true;
      await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (signal.aborted) return;
    }
    setUp(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function readEvents(reader) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) tell(JSON.parse(event.slice(6)));
  }
}
