// How values look. Everything goes through visible(): names, metrics and logs are not ours.

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Control characters and those that change the direction of writing become signs that can be seen. */
export function visible(text) {
  return String(text).replace(ODD, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\u27e8${code.toString(16).padStart(4, "0")}\u27e9`;
  });
}

/** The same in one line, at most `most` characters. */
export function line(text, most = 200) {
  const shown = visible(text).replaceAll("\n", "\u240a").replaceAll("\t", " ");
  return shown.length > most ? `${shown.slice(0, most - 1)}\u2026` : shown;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return line(value, 40);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)}s`;
  const [minutes, rest] = [Math.floor(seconds / 60), Math.floor(seconds % 60)];
  if (minutes < 60) return `${minutes}m ${String(rest).padStart(2, "0")}s`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(minutes / 1440)}d ${Math.floor((minutes % 1440) / 60)}h`;
}

export function age(unixSeconds) {
  return unixSeconds ? `${duration(Math.max(0, Date.now() / 1000 - unixSeconds))} ago` : "–";
}

export function time(unixSeconds) {
  return unixSeconds ? new Date(unixSeconds * 1000).toLocaleString() : "–";
}

/** [["a/b", 1], ...] of {a: {b: 1}}. */
export function flat(value, prefix = "", out = []) {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0)
    for (const [key, inner] of Object.entries(value)) flat(inner, prefix ? `${prefix}/${key}` : key, out);
  else out.push([prefix, value]);
  return out;
}

export function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
