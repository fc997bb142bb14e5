// The curves of all runs on the same axes: deletion solid, insertion dashed, a colour a run. The mouse or the arrow keys move a
// line over the steps, and the table below says the values there; a click or Enter chooses the step.
import { colourOf, element, fixed, runName } from "./elements.js";

const [height, left, right, top, bottom] = [220, 46, 14, 10, 38];

function make(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

const shown = (value) => (value == null ? "n/a" : fixed(value, 3));

// Four to eight round numbers from low to high.
export function ticks(low, high) {
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, number) => (first + number) * step);
}

// A plot and its table; `update` shows other curves in the same nodes, so that the focus stays. `choose` is called with a step.
export function makePlot(choose) {
  const svg = make("svg", { class: "curves", tabindex: 0, role: "slider", "aria-label": "Step of the curves. Arrow keys move, Enter chooses." });
  const table = element("table", { class: "values" });
  const node = element("div", { class: "plot" }, svg, element("div", { class: "wide" }, table), element("p", { class: "wide-note" }, "↓ lower is better: what was taken away mattered. ↑ higher is better: what was put in is enough."));
  let data = null;
  let cursor = null;  // the step under the mouse or reached by arrow keys; null: the step that is chosen
  const move = (step) => { cursor = step == null ? null : Math.min(data.steps, Math.max(0, step)); draw(); };
  const under = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.round(((event.clientX - box.left - left) / (box.width - left - right)) * data.steps);
  };
  svg.addEventListener("pointermove", (event) => data && move(under(event)));
  svg.addEventListener("pointerleave", () => data && move(null));
  svg.addEventListener("blur", () => data && move(null));
  svg.addEventListener("click", (event) => { if (data) { move(under(event)); choose(cursor); } });
  svg.addEventListener("keydown", (event) => {
    if (!data) return;
    const at = cursor ?? data.step;
    const next = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, PageUp: at + 5, PageDown: at - 5, Home: 0, End: data.steps }[event.key];
    if (next != null) move(next);
    else if (event.key === "Enter" || event.key === " ") choose(at);
    else if (event.key === "Escape") move(null);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => data && draw()).observe(svg);

  function draw() {
    const at = cursor ?? data.step;
    drawCurves(svg, data, at);
    drawTable(table, data, at);
  }
  return { node, update: (next) => { data = next; draw(); } };
}

function drawCurves(svg, { curves, steps, step, scoreName }, at) {
  const width = svg.clientWidth || 400;
  const drawn = curves.filter(({ curve }) => curve?.areas[0] != null);
  const values = drawn.flatMap(({ curve }) => [...curve.deletion, ...curve.insertion]);
  const [low, high] = [Math.min(0, ...values), Math.max(...(values.length ? values : [1]))];
  const x = (number) => left + ((width - left - right) * number) / steps;
  const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low || 1));
  const path = (list) => list.map((value, number) => `${number ? "L" : "M"}${x(number).toFixed(1)} ${y(value).toFixed(1)}`).join(" ");
  const decimals = high - low > 5 ? 0 : high - low > 0.5 ? 1 : 2;
  const nodes = [];
  for (const value of ticks(low, high)) nodes.push(make("line", { class: Math.abs(value) < 1e-9 ? "zero" : "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(decimals).replace("-", "−")));
  for (const percent of [0, 25, 50, 75, 100]) nodes.push(make("line", { class: "grid", x1: x(percent * steps / 100), x2: x(percent * steps / 100), y1: top, y2: height - bottom + 4 }),
    make("text", { x: x(percent * steps / 100), y: height - bottom + 17, "text-anchor": percent === 100 ? "end" : "middle" }, `${percent}%`));
  nodes.push(make("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, "of the pixels are taken away or put in"),
    make("text", { class: "axis", x: 11, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(top + height - bottom) / 2})` }, scoreName));
  nodes.push(make("line", { class: "chosen", x1: x(step), x2: x(step), y1: top, y2: height - bottom }));
  if (at !== step) nodes.push(make("line", { class: "cursor", x1: x(at), x2: x(at), y1: top, y2: height - bottom }));
  for (const { run, curve } of drawn) for (const which of ["deletion", "insertion"]) {
    const line = make("path", { class: which, d: path(curve[which]) });
    const dot = make("circle", { cx: x(at), cy: y(curve[which][at]), r: 3.5 });
    for (const part of [line, dot]) part.style.setProperty("--run", colourOf(run));
    nodes.push(line, dot);
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...nodes);
  const said = curves.map(({ run, curve }) => `${run.name}: deletion ${shown(curve?.deletion[at])}, insertion ${shown(curve?.insertion[at])}`).join("; ");
  const numbers = { "aria-valuemin": 0, "aria-valuemax": steps, "aria-valuenow": at, "aria-valuetext": `Step ${at} of ${steps}. ${said}` };
  for (const [name, value] of Object.entries(numbers)) svg.setAttribute(name, value);
}

function drawTable(table, { curves, steps, which }, at) {
  const sample = (name) => element("th", { scope: "col", class: name === which ? "number now" : "number" }, element("i", { class: `line ${name}`, "aria-hidden": true }), name);
  const area = (name, better) => element("th", { scope: "col", class: "number", title: `${better} is better` }, `${name} ${better === "lower" ? "↓" : "↑"}`);
  const best = (number, better) => better(...curves.map(({ curve }) => curve?.areas[number]).filter((value) => value != null));
  const [lowest, highest] = [best(0, Math.min), best(1, Math.max)];
  const cell = (value, isBest = false) => element("td", { class: "number" }, isBest && curves.length > 1 ? element("b", {}, shown(value)) : shown(value));
  const rows = curves.map(({ run, curve }) => element("tr", {}, element("th", { scope: "row" }, runName(run)), cell(curve?.deletion[at]), cell(curve?.insertion[at]),
    cell(curve?.areas[0], curve?.areas[0] === lowest), cell(curve?.areas[1], curve?.areas[1] === highest)));
  table.replaceChildren(
    element("thead", {}, element("tr", {}, element("td"), element("th", { scope: "colgroup", colspan: 2, class: "at" }, `step ${at} of ${steps}`), element("th", { scope: "colgroup", colspan: 2 }, "area under it")),
      element("tr", {}, element("td"), sample("deletion"), sample("insertion"), area("deletion", "lower"), area("insertion", "higher"))),
    element("tbody", {}, ...rows));
}
