// What views are made of. Present nodes are updated, not replaced: a slider that is being dragged stays under the mouse.
import { info, state } from "./state.js";
import { live, set } from "./app.js";

export const percent = (value) => `${(100 * value).toFixed(1)}%`;

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
    else if (key.startsWith("aria-")) node.setAttribute(key, String(value));
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

// Makes these nodes the parent's children. A node that stays keeps the focus.
export function fill(parent, nodes) {
  const children = nodes.filter(Boolean);
  if (children.length === parent.childNodes.length && children.every((node, number) => node === parent.childNodes[number])) return;
  const focused = document.activeElement;
  parent.replaceChildren(...children);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus();
}

// The part of a card with this name, made when it is first asked for.
export function slot(body, name, make) {
  const present = [...body.children].find((child) => child.dataset.slot === name);
  if (present) return present;
  const node = make();
  node.dataset.slot = name;
  return node;
}

// --- controls

// The control of this name in the current view, made when it is first asked for.
function control(name, make) {
  const present = document.querySelector(`.controls [data-control="${state.view}.${name}"]`);
  if (present) return present;
  const node = make();
  node.dataset.control = `${state.view}.${name}`;
  return node;
}

export function choice(words, key, values, { title = "", change = (value) => set({ [key]: value }) } = {}) {
  const label = control(key, () => element("label", {}, words, element("select", { name: key })));
  const list = label.querySelector("select");
  list.onchange = () => change(list.value);
  const text = JSON.stringify(values);
  if (list.dataset.values !== text) {
    list.dataset.values = text;
    list.replaceChildren(...values.map(([value, shown]) => element("option", { value }, shown)));
  }
  list.value = state[key];
  label.title = title;
  return label;
}

export function slider(words, key, { min, max, step }, { disabled = false, title = "" } = {}) {
  const label = control(key, () => element("label", {}, element("span", {}, `${words} `, element("output")),
    element("input", { type: "range", name: key, "aria-label": words, step, oninput: (event) => live({ [key]: event.target.value }, key) })));
  const input = label.querySelector("input");
  [input.min, input.max] = [min, max];
  const value = String(Math.min(max, Math.max(min, Number(state[key]))));
  if (input.value !== value) input.value = value;
  label.querySelector("output").textContent = value;
  input.disabled = disabled;
  label.title = title;
  return label;
}

export function check(words, key, { disabled = false } = {}) {
  const label = control(key, () => element("label", { class: "check" },
    element("input", { type: "checkbox", name: key, onchange: (event) => set({ [key]: event.target.checked ? "1" : "0" }) }), words));
  const input = label.querySelector("input");
  [input.checked, input.disabled] = [state[key] === "1", disabled];
  return label;
}

export function button(words, name, { disabled = false, click }) {
  const node = control(name, () => element("button", { class: "plain", id: name }, words));
  node.onclick = click;
  if (disabled && document.activeElement === node) document.getElementById("view").focus();  // a disabled button loses the focus
  node.disabled = disabled;
  return node;
}

// --- cards: one a run, beside each other

export function cards(panel, controls, draw, { stacked = false } = {}) {
  const present = panel.dataset.view === state.view ? [...panel.querySelectorAll("article.run > div")] : [];
  if (present.length === info.runs.length) {
    fill(panel.querySelector(".controls"), controls);
    return Promise.all(info.runs.map((run, number) => draw(run, present[number])));
  }
  panel.dataset.view = state.view;
  const bodies = info.runs.map(() => element("div", {}));
  const articles = info.runs.map((run, number) => element("article", { class: "run", "data-run": run.name }, element("h2", {}, run.name, " ",
    element("small", {}, run.accuracy == null ? "" : `${percent(run.accuracy)} of the test images`)), bodies[number]));
  panel.replaceChildren(element("div", { class: "controls" }, ...controls.filter(Boolean)), element("div", { class: stacked ? "runs stacked" : "runs" }, ...articles));
  return Promise.all(info.runs.map((run, number) => draw(run, bodies[number])));
}

// Loads the pictures of a list of [source, words]. Returns a function that places them, so that pictures and words change together.
export async function loadPictures(body, list) {
  const pair = slot(body, "pictures", () => element("div", { class: "pair" }));
  await Promise.all(list.map(async ([source]) => {
    const loaded = new Image();
    loaded.src = source;
    try { await loaded.decode(); } catch { throw new Error("A picture did not come. Try again in a moment."); }
  }));
  return () => {
    while (pair.children.length > list.length) pair.lastChild.remove();
    list.forEach(([source, words], number) => {
      const figure = pair.children[number] ?? pair.appendChild(element("figure", {}, element("img", { alt: "", width: 148, height: 148 }), element("figcaption")));
      const [image, caption] = figure.children;
      if (image.getAttribute("src") !== source) image.src = source;
      if (caption.textContent !== words) caption.textContent = words;
    });
    return pair;
  };
}

export function predictions(body, list) {
  const node = slot(body, "said", () => element("ol", { class: "said", "aria-label": "What the network says" }));
  node.replaceChildren(...list.slice(0, 3).map(({ name, probability }) => element("li", {}, element("span", { title: name }, name),
    element("meter", { min: 0, max: 1, value: probability, "aria-label": `${name}: ${percent(probability)}` }), element("b", {}, percent(probability)))));
  return node;
}

// Both curves as an SVG, with a line at the step that is shown.
export function plot({ deletion, insertion, areas }, step) {
  const [width, height, left, top] = [420, 190, 40, 10];
  const heights = [...deletion, ...insertion, 0];
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  const x = (at) => left + ((width - left - 8) * at) / (deletion.length - 1);
  const y = (value) => top + (height - top - 8) * (1 - (value - low) / (high - low || 1));
  const path = (values) => values.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join(" ");
  const make = (name, attributes, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  };
  const words = `deletion ${areas[0].toFixed(3)} (solid, lower is better), insertion ${areas[1].toFixed(3)} (dashed, higher is better)`;
  const svg = make("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Areas: ${words}` });
  svg.append(make("line", { x1: left, x2: width - 8, y1: y(0), y2: y(0) }), make("line", { class: "now", x1: x(step), x2: x(step), y1: top, y2: height - 8 }),
    make("path", { class: "deletion", d: path(deletion) }), make("path", { class: "insertion", d: path(insertion) }),
    make("text", { x: 0, y: y(high) + 4 }, high.toFixed(2)), make("text", { x: 0, y: y(low) }, low.toFixed(2).replace("-0.00", "0.00")));
  return element("figure", {}, svg, element("figcaption", {}, `Areas: ${words}.`));
}
