// What views are made of. Present nodes are updated, not replaced: a slider that is being dragged stays under the mouse.
import { live, set } from "./app.js";
import { help } from "./help.js";
import { info, place, state } from "./state.js";

export const fixed = (value, digits = 2) => value.toFixed(digits).replace(/^-(0\.0*)$/, "$1");  // no -0.00
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

// The control of this name in the current view, made when it is first asked for: a label, a "?", and what is used.
export function control(name, words, make) {
  const key = `${state.view}.${name}`;
  const present = document.querySelector(`#view [data-control="${key}"]`);
  if (present) return present;
  const used = make(key);
  const label = used.tagName === "BUTTON" ? null : element("label", { for: key }, words);
  return element("div", { class: used.type === "checkbox" ? "control check" : "control", "data-control": key }, label, help(state.view, name, words), used);
}

export function choice(words, key, values, { title = "", change = (value) => set({ [key]: value }) } = {}) {
  const node = control(key, words, (id) => element("select", { id, name: key }));
  const list = node.querySelector("select");
  list.onchange = () => change(list.value);
  const text = JSON.stringify(values);
  if (list.dataset.values !== text) {
    list.dataset.values = text;
    list.replaceChildren(...values.map(([value, shown]) => element("option", { value }, shown)));
  }
  list.value = state[key];
  list.title = title;
  return node;
}

export function slider(words, key, { min, max, step }, { disabled = false, title = "" } = {}) {
  const node = control(key, words, (id) => element("input", { type: "range", id, name: key, step, "aria-label": words, oninput: (event) => live({ [key]: event.target.value }, key) }));
  const input = node.querySelector("input");
  [input.min, input.max] = [min, max];
  const value = String(Math.min(max, Math.max(min, Number(state[key]))));
  if (input.value !== value) input.value = value;
  const label = node.querySelector("label");
  if (!label.querySelector("output")) label.append(" ", element("output"));
  label.querySelector("output").textContent = value;
  input.disabled = disabled;
  input.title = title;
  return node;
}

export function check(words, key, { disabled = false, change = (value) => set({ [key]: value }) } = {}) {
  const node = control(key, words, (id) => element("input", { type: "checkbox", id, name: key, onchange: (event) => change(event.target.checked ? "1" : "0") }));
  const input = node.querySelector("input");
  [input.checked, input.disabled] = [state[key] === "1", disabled];
  return node;
}

export function button(words, name, { disabled = false, click }) {
  const node = control(name, words, () => element("button", { type: "button", class: "plain", id: name }, words));
  const pressed = node.querySelector(".plain");
  pressed.onclick = click;
  if (disabled && document.activeElement === pressed) document.getElementById("view").focus();  // a disabled button loses the focus
  pressed.disabled = disabled;
  return node;
}

// --- runs: a colour and a name each, everywhere

export const colourOf = (run) => `var(--run-${place(run)})`;
export const runName = (run) => element("span", { class: "run-name", style: { "--run": colourOf(run) } }, element("i", { class: "dot", "aria-hidden": true }), run.name);

// --- cards: one a run, beside each other; below them what belongs to all runs

export function cards(panel, controls, draw, others = []) {
  const present = panel.dataset.view === state.view ? [...panel.querySelectorAll("article.run > div")] : [];
  if (present.length === info.runs.length) {
    fill(panel.querySelector(".controls"), controls);
    return Promise.all(info.runs.map((run, number) => draw(run, present[number])));
  }
  panel.dataset.view = state.view;
  const bodies = info.runs.map(() => element("div", {}));
  const articles = info.runs.map((run, number) => element("article", { class: "run", "data-run": run.name, style: { "--run": colourOf(run) } }, heading(run), bodies[number]));
  panel.replaceChildren(element("div", { class: "controls" }, ...controls.filter(Boolean)), element("div", { class: "runs" }, ...articles), ...others);
  return Promise.all(info.runs.map((run, number) => draw(run, bodies[number])));
}

export const heading = (run) => element("h2", {}, runName(run), " ",
  element("small", { title: "of the test images" }, run.accuracy == null ? "" : `${percent(run.accuracy)} right`));

// --- pictures

// Pictures with words below: [source, words] each. They are loaded first, so that the view changes at once; the function that
// is returned puts them into the card.
export async function loadPictures(body, list) {
  const pair = slot(body, "pictures", () => element("div", { class: "pair" }));
  await load(list.map(([source]) => source));
  return () => {
    while (pair.children.length > list.length) pair.lastChild.remove();
    list.forEach(([source, words], number) => {
      const figure = pair.children[number] ?? pair.appendChild(figureOf());
      const [image, caption] = figure.children;
      if (image.getAttribute("src") !== source) image.src = source;
      if (caption.textContent !== words) caption.textContent = words;
    });
    return pair;
  };
}

export const load = (sources) => Promise.all(sources.map(async (source) => {
  const loaded = new Image();
  loaded.src = source;
  try { await loaded.decode(); } catch { throw new Error("A picture did not come. Try again in a moment."); }
}));

// A figure whose picture is as large as there is room for.
export function figureOf(source = null, words = "") {
  const figure = element("figure", {}, element("img", { alt: "", src: source, onload: () => enlarge(figure) }), element("figcaption", {}, words));
  rooms.observe(figure);
  return figure;
}

// Small pictures get a whole number of screen pixels for each of theirs, so that all their pixels are of one size; those that
// would leave much of the room empty then, as photographs may, get all of it.
const rooms = new ResizeObserver((entries) => { for (const { target } of entries) enlarge(target); });
function enlarge(figure) {
  const [image] = figure.children;
  if (!image.naturalWidth || !figure.clientWidth) return;
  const most = 0.4 * innerHeight * image.naturalWidth / image.naturalHeight;  // it stays in sight together with its controls
  const room = Math.min(figure.clientWidth, most) * devicePixelRatio;
  const whole = Math.floor(room / image.naturalWidth) * image.naturalWidth;
  const isWhole = whole >= 0.8 * room;
  image.style.imageRendering = isWhole ? "" : "auto";
  image.style.width = `${(isWhole ? whole : room) / devicePixelRatio}px`;
}

// What signed colours mean: a bar from -scale to scale. With three channels, grey is zero.
export function scaleBar(scale, { channels = 1, words = "" } = {}) {
  const end = Number(scale.toPrecision(2));
  return element("p", { class: "scale" }, element("span", {}, `−${end}`), element("i", { class: channels === 3 ? "rgb" : "", role: "img", "aria-label": `Colours from −${end} to ${end}, zero in the middle` }),
    element("span", {}, `+${end}`), words ? element("span", {}, words) : null);
}

// --- what the network says

export const bar = (part, words) => element("span", { class: "bar", role: "img", "aria-label": words, style: { "--part": part } }, element("i"));

export function predictions(body, list) {
  const node = slot(body, "said", () => element("ol", { class: "said", "aria-label": "What the network says" }));
  node.replaceChildren(...list.slice(0, 3).map(({ name, probability }) => element("li", {}, element("span", {}, name),
    bar(probability, `${name}: ${percent(probability)}`), element("b", {}, percent(probability)))));
  return node;
}
