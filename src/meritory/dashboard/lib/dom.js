// The one way anything gets onto a page: elements with text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "hidden", "selected", "indeterminate"]);

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** An element; attributes named `on...` are listeners, children are elements, texts or lists. */
export function h(tag, attributes, ...children) {
  return make(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function s(tag, attributes, ...children) {
  return make(document.createElementNS(SVG, tag), attributes, children);
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Puts new children in place of the old ones; the focus and what was folded out stay where they were. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const held = focused !== element && element.contains(focused) ? mark(element, focused) : null;
  const open = [...element.querySelectorAll("details[open]")].map((one) => mark(element, one));
  element.replaceChildren();
  append(element, children);
  for (const one of open) found(element, one)?.setAttribute("open", "");
  if (held) found(element, held)?.focus({ preventScroll: true });
  return element;
}

// An element is known again by its kind, its name and how many alike come before it.
function nameOf(one) {
  return one.getAttribute("aria-label") ?? (one.querySelector("summary") ?? one).textContent;
}

function alike(root, tag, name) {
  return [...root.querySelectorAll(tag)].filter((one) => nameOf(one) === name);
}

function mark(root, one) {
  const [tag, name] = [one.tagName, nameOf(one)];
  return { tag, name, place: alike(root, tag, name).indexOf(one) };
}

function found(root, { tag, name, place }) {
  return alike(root, tag, name)[place];
}

let ids = 0;
/** An id that no other element has. */
export function freshId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

export function heading(title, ...beside) {
  return h(
    "div",
    { class: "page-head" },
    h("h1", { tabindex: "-1" }, title),
    h("div", { class: "row" }, beside),
  );
}

export function card(title, ...children) {
  const id = freshId("card");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** A figure with what it is. */
export function stat(label, value, note) {
  return h(
    "div",
    { class: "stat" },
    h("dt", {}, label),
    h("dd", {}, value, note ? h("small", {}, note) : null),
  );
}

export function stats(...entries) {
  return h("dl", { class: "stats" }, entries);
}

export function empty(text, ...more) {
  return h("p", { class: "empty" }, text, more);
}

export function badge(text, tone) {
  return h("span", { class: "badge", data: { tone: tone ?? "plain" } }, text);
}

export function button(label, onclick, attributes) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

export function loading() {
  return h("p", { class: "loading", role: "status" }, "Loading …");
}

export function link(href, ...children) {
  return h("a", { href }, children);
}
