// Elements are made from text only: nothing that comes from a run is ever parsed as HTML.

/** h("a", {href, class, on: {click}, data: {id}}, child, ...): strings become text. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  apply(element, properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function apply(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && name !== "list") element[name] = value;
    else if (value !== null && value !== false) element.setAttribute(name === "className" ? "class" : name, value);
  }
}

export const byId = (id) => document.getElementById(id);

/** A <select> of [value, text] pairs. */
export function choice(label, pairs, chosen, onChange) {
  const select = h("select", { "aria-label": label, title: label, on: { change: () => onChange(select.value) } });
  select.append(...pairs.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return select;
}

export function check(label, on, onChange, key = "") {
  const box = h("input", { type: "checkbox", checked: on, on: { change: () => onChange(box.checked) } });
  if (key) box.dataset.key = key;
  return h("label", { className: "check" }, box, label);
}
