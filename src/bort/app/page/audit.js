// Audit: what is true of each layer, of all runs in one table. Each column has a part for each run, with small bars on one scale.
import { ask } from "./api.js";
import { set } from "./app.js";
import { check, colourOf, element, fill, heading, slot } from "./elements.js";
import { explain } from "./help.js";
import { info, state } from "./state.js";

export async function audit(panel, current) {
  const answers = [];
  for (const run of info.runs) {  // one after another: the server computes one at a time, and refuses who has waited for half a minute
    answers.push(await ask("audit", { run: run.name }));
    if (!current()) return;
  }
  if (panel.dataset.view !== "audit") {
    panel.dataset.view = "audit";
    panel.replaceChildren(element("div", { class: "controls" }), element("section", { class: "card audit" }));
  }
  const [controls, card] = panel.children;
  fill(controls, [info.runs.length > 1 ? check("difference", "difference") : null]);
  const names = slot(card, "names", () => element("div", { class: "names" }, ...info.runs.map(heading)));
  const box = slot(card, "table", () => element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Audit of the layers" }, element("table", { class: "paired" })));
  const note = slot(card, "note", () => element("p", { class: "wide-note" }));
  note.textContent = about(answers);
  fill(card, [names, box, note]);
  drawTable(box.firstChild, columnsOf(answers), layersOf(answers));
}

function about(answers) {
  const n = Math.max(...answers.map((answer) => answer.n));
  const measured = n ? `Ratio, cosine, claim and agreement are over ${n} test images.` : "There are no test images for ratio, cosine, claim and agreement.";
  const leftOut = Math.max(...answers.map((answer) => answer.left_out));
  const unread = leftOut ? ` ${leftOut} more cannot be read and ${leftOut === 1 ? "is" : "are"} left out.` : "";
  return `${measured}${unread} Bars in a column have one scale. A click below a column's title sorts by it.`;
}

// --- what is in the table

// Layers by name, in the order of the first run that has them: for each run its row, or nothing.
function layersOf(answers) {
  const rows = new Map();
  answers.forEach(({ layers }, number) => layers.forEach((layer) => {
    if (!rows.has(layer.name)) rows.set(layer.name, info.runs.map(() => null));
    rows.get(layer.name)[number] = layer;
  }));
  return sorted([...rows].map(([name, runs]) => ({ name, runs })));
}

// Columns with their parts. What all runs have in common is one part; otherwise one a run, or the differences to the first run.
function columnsOf(answers) {
  const rows = layersOf(answers);
  return answers[0].columns.filter(({ key }) => key !== "name").map((column) => {
    const isSame = rows.every(({ runs }) => new Set(runs.filter(Boolean).map(({ shown }) => shown[column.key])).size <= 1);
    const isMeasured = rows.some(({ runs }) => runs.some((layer) => typeof numbers(layer, column.key)?.[0] === "number"));
    const all = info.runs.map((_, number) => number);
    const parts = isSame ? [{ of: all }] : state.difference === "1" && isMeasured ? all.slice(1).map((other) => ({ of: [0], less: other })) : all.map((number) => ({ of: [number] }));
    const values = rows.flatMap(({ runs }) => runs.flatMap((layer) => numbers(layer, column.key) ?? []));
    return { ...column, parts, isMeasured, most: Math.max(...values.map(Math.abs), 1e-12) };
  });
}

// A cell's numbers: one, or the two ends of a range; nothing if there are none.
function numbers(layer, key) {
  const value = layer?.[key];
  if (key === "shape" || value == null || typeof value === "boolean") return null;
  return Array.isArray(value) ? value : [value];
}

// The numbers in a part of a layer's row.
function valueOf({ of, less }, runs, key) {
  const values = numbers(of.map((number) => runs[number]).find(Boolean), key);
  if (less == null || values == null) return values;
  const others = numbers(runs[less], key);
  return others && values.map((value, end) => value - others[end]);
}

// By the column and run in the state ("ratio.1", "-ratio.1" the largest first), or by the difference to that run; those without a number last.
function sorted(rows) {
  const [, minus, key, run] = state.sort.match(/^(-?)(\w+)\.(\d+)$/) ?? [];
  if (!key) return rows;
  const part = state.difference === "1" && Number(run) > 0 ? { of: [0], less: Number(run) } : { of: [Number(run)] };
  const value = ({ runs }) => valueOf(part, runs, key)?.at(-1) ?? null;
  const order = (a, b) => (a == null) - (b == null) || (minus ? b - a : a - b);
  return [...rows].sort((a, b) => order(value(a), value(b)));
}

// --- the table itself

function drawTable(table, columns, rows) {
  const focused = document.activeElement?.closest?.("table.paired") === table ? document.activeElement.dataset.sort : null;
  const title = (column) => element("th", { scope: "colgroup", colspan: column.parts.length, class: "title" }, column.title, " ", explain(`audit-${column.key}`, column.title, column.meaning));
  const head = [element("tr", {}, element("th", { scope: "col", rowspan: 2, class: "layer" }, "layer"), ...columns.map(title)), element("tr", {}, ...columns.flatMap((column) => column.parts.map((part) => header(column, part))))];
  const body = rows.map(({ name, runs }) => element("tr", {}, layerCell(name, runs), ...columns.flatMap((column) => column.parts.map((part, number) => cell(column, part, runs, number)))));
  table.replaceChildren(element("thead", {}, ...head), element("tbody", {}, ...body));
  if (focused) table.querySelector(`[data-sort="${focused}"]`)?.focus();
}

// The name of a part: of a run, and a button that sorts by it.
function header(column, { of, less }) {
  if (of.length > 1) return element("td");
  const [number, isDifference] = [less ?? of[0], less != null];
  const run = info.runs[number];
  const key = `${column.key}.${number}`;
  const title = isDifference ? `${info.runs[0].name} less ${run.name}` : run.name;
  const name = info.runs.length > 1 ? element("span", { class: "part", title }, isDifference ? "− " : "", dot(number), run.name) : "⇅";
  if (!column.isMeasured) return element("th", { scope: "col" }, info.runs.length > 1 ? name : "");
  const direction = state.sort === key ? "ascending" : state.sort === `-${key}` ? "descending" : "none";
  const next = { none: `-${key}`, descending: key, ascending: "" }[direction];
  return element("th", { scope: "col", "aria-sort": direction }, element("button", { type: "button", class: "sort", "data-sort": key, "aria-label": `Sort by ${column.title} of ${title}`, onclick: () => set({ sort: next }) },
    name, element("span", { "aria-hidden": true }, { none: "", ascending: " ↑", descending: " ↓" }[direction])));
}

const dot = (number) => element("i", { class: "dot", "aria-hidden": true, style: { "--run": colourOf(info.runs[number]) } });

function layerCell(name, runs) {
  const only = runs.filter(Boolean).length < runs.length ? info.runs.filter((_, number) => runs[number]).map((run) => run.name).join(", ") : "";
  return element("th", { scope: "row", class: "layer" }, ...name.split(/(?<=[._])/).flatMap((piece) => [piece, element("wbr")]), only ? element("small", {}, ` only in ${only}`) : null);
}

function cell(column, part, runs, number) {
  const layer = part.of.map((run) => runs[run]).find(Boolean);
  const values = valueOf(part, runs, column.key);
  const text = part.less == null ? layer?.shown[column.key] ?? "" : values ? values.map((value) => signed(value, layer.shown[column.key])).join(" … ") : "";
  const node = element("td", { class: `${values ? "number" : ""} ${number ? "" : "first"}` }, text);
  if (!values || text === "–" || (part.of.length > 1 && info.runs.length > 1)) return node;
  const [low, high] = values.length === 2 && part.less == null ? values : [0, values.at(-1)];
  const run = part.less != null && high < 0 ? part.less : part.of[0];  // a difference has the colour of the larger one
  node.append(element("span", { class: "bar", "aria-hidden": true, style: { "--from": Math.abs(low) / column.most, "--part": Math.abs(high - low) / column.most, "--run": colourOf(info.runs[run]) } }, element("i")));
  return node;
}

// With its sign, and with as many decimals as the column has.
function signed(value, like) {
  const decimals = like.match(/\.(\d+)/)?.[1].length ?? 2;
  const text = Math.abs(value).toFixed(decimals);
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}
