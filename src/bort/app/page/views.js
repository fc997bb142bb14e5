// One function a view. Each fills the panel, then its pictures as they come.
import { address, ask, element, info, set, state } from "./app.js";

const percent = (value) => `${(100 * value).toFixed(1)}%`;
const image = (source, alt) => element("img", { src: source, alt, width: 148, height: 148 });
const figure = (source, words) => element("figure", {}, image(source, words), element("figcaption", {}, words));

function choice(words, key, values, changed = (value) => set({ [key]: value })) {
  const list = element("select", { name: key, onchange: (event) => changed(event.target.value) },
    ...values.map(([value, text]) => element("option", { value, selected: value === state[key] }, text)));
  return element("label", {}, words, list);
}

function slider(words, key, { min, max, step }, shown = (value) => value) {
  const output = element("output", {}, shown(state[key]));
  const input = element("input", { type: "range", name: key, min, max, step, value: state[key], "aria-label": words });
  input.addEventListener("input", () => { output.textContent = shown(input.value); });
  input.addEventListener("change", () => set({ [key]: input.value }));
  return element("label", {}, element("span", {}, `${words} `, output), input);
}

const check = (words, key) => element("label", { class: "check" },
  element("input", { type: "checkbox", name: key, checked: state[key] === "1", onchange: (event) => set({ [key]: event.target.checked ? "1" : "" }) }), words);

// What is there stays until the new is there: no flicker between two answers.
function cards(panel, controls, fill) {
  const there = panel.dataset.view === state.view ? [...panel.querySelectorAll("article.run > div")] : [];
  if (there.length === info.runs.length) {
    panel.querySelector(".controls").replaceChildren(...controls);
    return Promise.all(info.runs.map((run, number) => fill(run, there[number])));
  }
  panel.dataset.view = state.view;
  const made = info.runs.map((run) => {
    const body = element("div", {});
    return { run, body, card: element("article", { class: "run", "data-run": run.name }, element("h2", {}, run.name, " ",
      element("small", {}, run.accuracy == null ? "" : `${percent(run.accuracy)} of the test images`)), body) };
  });
  panel.replaceChildren(element("div", { class: "controls" }, ...controls), element("div", { class: "runs" }, ...made.map(({ card }) => card)));
  return Promise.all(made.map(({ run, body }) => fill(run, body)));
}

const layerOf = (run) => run.layers.find(({ name }) => name === state.layer) ?? run.layers.find(({ name }) => name === run.top);
const count = (run, k) => Math.min(Number(k), layerOf(run).channels);

function said(list) {
  return element("ol", { class: "said", "aria-label": "What the network says" }, ...list.slice(0, 3).map(({ name, probability }) =>
    element("li", {}, element("span", { title: name }, name), element("meter", { min: 0, max: 1, value: probability }), element("b", {}, percent(probability)))));
}

// --- look inside

// Channel 12 of one network has nothing to do with channel 12 of the other: what is chosen and edited is each run's own.
const place = (run) => info.runs.indexOf(run);
const chosen = (run) => (state.channel.startsWith(`${place(run)}.`) ? state.channel.split(".")[1] : "");
export const editsOf = (run) => state.edits.split(";")[place(run)] ?? "";
const edits = (run) => new Map(editsOf(run).split(",").filter(Boolean).map((part) => part.split(":").map(Number)));
function write(run, map) {
  const all = info.runs.map(editsOf);
  all[place(run)] = [...map].map(([channel, factor]) => `${channel}:${factor}`).join(",");
  return all.some(Boolean) ? all.join(";") : "";
}

async function inside(panel, current) {
  const widest = Math.max(...info.runs.map((run) => layerOf(run)?.channels ?? 1));
  const controls = [
    choice("Layer", "layer", info.runs[0].layers.map(({ name, channels, height, width }) => [name, `${name} (${channels} × ${height} × ${width})`]),
      (layer) => set({ layer, edits: "", channel: "" })),
    choice("Reconstruct from", "part", [["all", "the whole map"], ["k", "the most salient features"]]),
    slider("k", "k", { min: 1, max: widest, step: 1 }),
    check("binarised", "binary"),
    check("clusters in colour", "clusters"),
    element("button", { class: "plain", id: "reset", disabled: !state.edits, onclick: () => set({ edits: "" }) }, "Undo all edits"),
  ];
  await cards(panel, controls, async (run, body) => {
    const here = { run: run.name, image: state.image, layer: layerOf(run).name };
    const k = count(run, state.k);
    const drawn = Math.min(256, k);  // patterns; the reconstruction takes all of k
    const [list, found, back, groups] = await Promise.all([
      ask("predict", { run: run.name, image: state.image }),
      ask("channels", { ...here, k: drawn }),
      ask("reconstruct", { ...here, k: state.part === "k" ? k : "", binary: state.binary === "1", edits: editsOf(run) }),
      state.clusters === "1" ? ask("clusters", { ...here, k: drawn, groups: Math.min(4, drawn) }) : null,
    ]);
    if (!current()) return;
    const pictures = element("div", { class: "pair" }, figure(address("input.png", { image: state.image }), "input"),
      figure(back.picture, `reconstruction, correlation ${back.correlation.toFixed(2)}`));
    if (chosen(run)) pictures.append(figure(address("channel.png", { ...here, channel: chosen(run) }), `channel ${chosen(run)}`));
    if (groups) pictures.append(figure(groups.picture, "clusters"));
    body.replaceChildren(said(list), pictures, channelGrid(run, found), editor(run, found));
  });
}

function channelGrid(run, { sheet, columns, channels }) {
  const changed = edits(run);
  const rows = Math.ceil(channels.length / columns);
  return element("div", { class: "channels", role: "group", "aria-label": "Channels, most salient first" }, ...channels.map(({ channel, value }, number) => {
    const factor = changed.get(channel);
    const [row, column] = [Math.floor(number / columns), number % columns];
    return element("button", {
      "data-channel": channel, "aria-pressed": String(channel) === chosen(run), title: `channel ${channel}: ${value.toFixed(2)}`,
      "aria-label": `channel ${channel}, activation ${value.toFixed(2)}`, class: factor === 0 ? "off" : factor != null ? "changed" : "",
      onclick: () => set({ channel: `${place(run)}.${channel}` }),
      style: {
        "background-image": `url("${sheet}")`, "background-size": `${100 * columns}% ${100 * rows}%`,
        "background-position": `${columns > 1 ? (100 * column) / (columns - 1) : 0}% ${rows > 1 ? (100 * row) / (rows - 1) : 0}%`,
      },
    });
  }));
}

function editor(run, { channels }) {
  const one = channels.find(({ channel }) => String(channel) === chosen(run));
  if (!one) return element("p", { class: "edit" }, "Choose a channel to see its pattern, to switch it off or to scale it.");
  const map = edits(run);
  const factor = map.get(one.channel) ?? 1;
  const change = (value) => { if (value === 1) map.delete(one.channel); else map.set(one.channel, value); set({ edits: write(run, map) }); };
  const output = element("output", {}, `${factor} ×`);
  const range = element("input", { type: "range", min: 0, max: 4, step: 0.1, value: factor, "aria-label": `Scale channel ${one.channel}` });
  range.addEventListener("input", () => { output.textContent = `${range.value} ×`; });
  range.addEventListener("change", () => change(Number(range.value)));
  return element("div", { class: "edit" }, `channel ${one.channel}`,
    element("button", { class: "plain toggle", onclick: () => change(factor === 0 ? 1 : 0) }, factor === 0 ? "Switch on" : "Switch off"), range, output);
}

// --- evidence

async function evidence(panel, current) {
  const isSat = state.method === "sat";
  const controls = [
    choice("Method", "method", info.methods.map((name) => [name, info.slow.includes(name) ? `${name} (slow)` : name])),
    choice("Class", "target", [["", "what the network says"], ...info.classes.map((name, number) => [String(number), name])]),
    isSat ? slider("k", "k", { min: 1, max: 256, step: 1 }) : null,
    isSat ? slider("threshold", "threshold", { min: 0, max: 0.95, step: 0.05 }) : null,
    slider("strength", "strength", { min: 0, max: 1, step: 0.05 }),
    choice("Score", "score", [["relative", "relative logit"], ["logit", "logit"], ["probability", "probability"]]),
    choice("Show", "which", [["deletion", "deletion"], ["insertion", "insertion"]]),
    slider("step", "step", { min: 0, max: 28, step: 1 }),
  ].filter(Boolean);
  await cards(panel, controls, async (run, body) => {
    const k = isSat ? Math.min(Number(state.k), run.layers.find(({ name }) => name === run.top)?.channels ?? 64) : "";
    const here = { run: run.name, image: state.image, method: state.method, target: state.target, k, threshold: isSat ? state.threshold : "" };
    const list = await ask("predict", { run: run.name, image: state.image });
    if (!current()) return;
    if (info.slow.includes(state.method)) {
      body.replaceChildren(said(list));
      if (!(await computed(run, here, body, current))) return;
    }
    const [map, curve, at] = await Promise.all([
      ask("saliency", { ...here, strength: state.strength }), ask("curve", here), ask("step", { ...here, step: state.step, which: state.which }),
    ]);
    if (!current()) return;
    body.replaceChildren(said(list), element("div", { class: "pair" }, figure(map.picture, state.method),
      figure(at.picture, `${state.which}, step ${state.step} of 28: ${percent(at.probability)}`)), plot(curve[state.score]));
  });
}

async function computed(run, here, body, current) {
  let job = await ask("jobs", { run: run.name, image: state.image, method: state.method, target: state.target }, { method: "POST" });
  const bar = element("progress", { max: 1, value: 0, "aria-label": `${state.method} of ${run.name}` });
  const words = element("span", {}, "waiting");
  const stop = element("button", { class: "plain cancel", onclick: () => ask(`jobs/${job.job}`, {}, { method: "DELETE" }) }, "Cancel");
  const line = element("div", { class: "job" }, bar, words, stop);
  if (job.state !== "done") body.append(line);
  while (job.state === "waiting" || job.state === "running") {
    if (job.total) { bar.max = job.total; bar.value = job.done; words.textContent = `${job.done} of ${job.total}`; }
    await new Promise((resolve) => setTimeout(resolve, 250));
    job = await ask(`jobs/${job.job}`);
    if (!current()) { if (job.state === "waiting" || job.state === "running") ask(`jobs/${job.job}`, {}, { method: "DELETE" }); return false; }
  }
  line.remove();
  if (job.state === "done") return true;
  body.append(element("p", {}, job.state === "cancelled" ? "Cancelled. " : `${job.message} `,
    element("button", { class: "plain again", onclick: () => set({}) }, "Start again")));
  return false;
}

function plot({ deletion, insertion, areas }) {
  const [width, height, left, top] = [420, 200, 36, 10];
  const all = [...deletion, ...insertion, 0];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const x = (step) => left + ((width - left - 8) * step) / (deletion.length - 1);
  const y = (value) => top + (height - top - 28) * (1 - (value - low) / (high - low || 1));
  const path = (values) => values.map((value, step) => `${step ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join(" ");
  const make = (name, attributes, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  };
  const svg = make("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Deletion area ${areas[0].toFixed(3)}, insertion area ${areas[1].toFixed(3)}` });
  svg.append(make("line", { x1: left, x2: width - 8, y1: y(0), y2: y(0) }), make("line", { class: "now", x1: x(state.step), x2: x(state.step), y1: top, y2: height - 28 }),
    make("path", { class: "deletion", d: path(deletion) }), make("path", { class: "insertion", d: path(insertion) }),
    make("text", { x: 2, y: y(high) + 4 }, high.toFixed(2)), make("text", { x: 2, y: y(low) + 4 }, low.toFixed(2)),
    make("text", { x: left, y: height - 8 }, `deletion ${areas[0].toFixed(3)} (solid, lower is better), insertion ${areas[1].toFixed(3)} (dashed, higher)`));
  return svg;
}

// --- transplant

async function transplant(panel, current) {
  const names = info.images.map(({ name, label }) => [name, label ? `${name}: ${label}` : name]);
  const widest = Math.max(...info.runs.map((run) => layerOf(run)?.channels ?? 1));
  const controls = [
    choice("Target", "other", names),
    slider("k", "k", { min: 1, max: widest, step: 1 }),
    choice("Whose path", "path", [["none", "none (deconvolution)"], ["source", "the source's"], ["target", "the target's"]]),
  ];
  await cards(panel, controls, async (run, body) => {
    const made = await ask("transplant", { run: run.name, source: state.image, target: state.other, layer: layerOf(run).name, k: count(run, state.k), path: state.path });
    if (!current()) return;
    body.replaceChildren(element("div", { class: "pair" },
      figure(address("input.png", { image: state.image }), `source: “${made.source}”`),
      figure(address("input.png", { image: state.other }), `target: “${made.target}”`),
      figure(made.picture, `made: the image is “${made.image}”, the map “${made.map}”`)),
      element("p", {}, `Correlation with the source ${made.like_source.toFixed(2)}, with the target ${made.like_target.toFixed(2)}.`));
  });
}

// --- audit

async function audit(panel, current) {
  const columns = [["residual", 3], ["ratio", 2], ["floor", 2], ["cosine", 2], ["claim", 2]];
  const number = (value, digits) => (value == null ? "–" : value.toFixed(digits));
  await cards(panel, [], async (run, body) => {
    const layers = await ask("audit", { run: run.name });
    if (!current()) return;
    const head = ["layer", "matrix", "invertible", "σ", "‖row‖", ...columns.map(([name]) => name)];
    body.replaceChildren(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Audit of ${run.name}` }, element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...layers.map((layer) => element("tr", {}, element("th", { scope: "row" }, layer.name),
        ...[layer.shape.join(" × "), layer.invertible ? "yes" : "no, wide", layer.sigma.map((s) => s.toFixed(2)).join(" … "),
          layer.row_norms.map((s) => s.toFixed(2)).join(" … "), ...columns.map(([name, digits]) => number(layer[name], digits))]
          .map((text) => element("td", {}, text))))))));
  });
}

export const views = { inside, evidence, transplant, audit };
