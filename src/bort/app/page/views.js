// One function a view. Each fills the panel, then its pictures as they come.
import { ask, url } from "./api.js";
import { live, set, thumbnails } from "./app.js";
import { calculationOf, forget, line } from "./calculations.js";
import { button, cards, check, choice, element, fill, loadPictures, plot, predictions, slider, slot } from "./elements.js";
import { chosen, edits, editsOf, info, layerOf, place, state, topOf, widest, withEdits } from "./state.js";

const input = (image) => url("input.png", { image });
const count = (run) => Math.min(Number(state.k), layerOf(run).channels);
const layers = () => choice("Layer", "layer",
  info.runs[0].layers.map(({ name, channels, height, width }) => [name, `${name} (${channels} × ${height} × ${width})`]),
  { change: (layer) => set({ layer, edits: "", channel: "", start: "0" }) });

// --- look inside

async function inside(panel, current) {
  const whole = state.part === "all";
  const controls = [
    layers(),
    choice("Reconstruct from", "part", [["all", "the whole map"], ["k", "the most salient features"]]),
    slider("features", "k", { min: 1, max: widest(), step: 1 }, { disabled: whole, title: whole ? "of the whole map all count" : "" }),
    check("binarised", "binary", { disabled: whole }),
    check("clusters in colour", "clusters"),
    button("Undo all edits", "reset", { disabled: !state.edits, click: () => set({ edits: "" }) }),
  ];
  await cards(panel, controls, async (run, body) => {
    const { name: layer, channels } = layerOf(run);
    const here = { run: run.name, image: state.image, layer };
    const start = startOf(channels);
    const { patterns, clusters } = info.defaults;
    const [classes, sheet, back, groups] = await Promise.all([
      ask("predict", { run: run.name, image: state.image }),
      ask("channels", { ...here, k: patterns, start }),
      ask("reconstruct", { ...here, k: whole ? "" : count(run), binary: state.binary === "1", edits: editsOf(run) }),
      state.clusters === "1" ? ask("clusters", { ...here, k: Math.min(patterns, count(run)), groups: clusters }) : null,
    ]);
    if (!current()) return;
    const shown = [[input(state.image), "input"], [back.picture, `reconstruction from ${layer}, correlation ${back.correlation.toFixed(2)}`]];
    if (chosen(run)) shown.push([url("channel.png", { ...here, channel: chosen(run) }), `channel ${chosen(run)}`]);
    if (groups) shown.push([groups.picture, `clusters of ${groups.groups.length} channels`]);
    const placePictures = await loadPictures(body, shown);
    if (!current()) return;
    fill(body, [predictions(body, classes), placePictures(), grid(run, body, sheet), pager(body, sheet, start), editor(run, body)]);
  });
}

// The patterns of the channels, each a button that chooses its channel.
function grid(run, body, { sheet, columns, channels }) {
  const node = slot(body, "channels", () => element("div", { class: "channels", role: "group", "aria-label": "Channels, most salient first" }));
  const content = JSON.stringify([state.image, channels]);
  if (node.dataset.content !== content) {
    node.dataset.content = content;
    const rows = Math.ceil(channels.length / columns);
    node.replaceChildren(...channels.map(({ channel, value }, number) => {
      const [row, column] = [Math.floor(number / columns), number % columns];
      return element("button", {
        "data-channel": channel, "data-words": `channel ${channel}, activation ${value.toFixed(2)}`,
        onclick: () => set({ channel: `${place(run)}.${channel}` }),
        style: {
          "background-image": `url("${sheet}")`, "background-size": `${100 * columns}% ${100 * rows}%`,
          "background-position": `${columns > 1 ? (100 * column) / (columns - 1) : 0}% ${rows > 1 ? (100 * row) / (rows - 1) : 0}%`,
        },
      });
    }));
  }
  const factors = edits(run);
  for (const pattern of node.children) {
    const factor = factors.get(Number(pattern.dataset.channel));
    pattern.setAttribute("aria-pressed", String(pattern.dataset.channel === chosen(run)));
    pattern.className = factor === 0 ? "off" : factor != null ? "changed" : "";
    pattern.title = pattern.dataset.words + (factor === 0 ? ", switched off" : factor != null ? `, times ${factor}` : "");
    pattern.setAttribute("aria-label", pattern.title);
  }
  return node;
}

// The first channel that is shown of so many: networks with fewer channels than another show their first page.
const startOf = (channels) => (Number(state.start) < channels ? Number(state.start) : 0);

// Buttons for more and for less salient channels. They go on from the page that was asked for last, which may not be drawn yet.
function pager(body, { channels, count: all }, start) {
  const node = slot(body, "pager", () => element("div", { class: "pager" }, element("button", { class: "plain before", "aria-label": "More salient channels" }, "‹"),
    element("span"), element("button", { class: "plain after", "aria-label": "Less salient channels" }, "›")));
  const [before, words, after] = node.children;
  words.textContent = `channels ${start + 1} to ${start + channels.length} of ${all}, most salient first`;
  const { patterns } = info.defaults;
  before.onclick = () => set({ start: String(Math.max(0, startOf(all) - patterns)) });
  after.onclick = () => set({ start: String(startOf(all) + patterns < all ? startOf(all) + patterns : startOf(all)) });
  const focused = document.activeElement;
  [before.disabled, after.disabled] = [start === 0, start + channels.length >= all];
  if (focused === before && before.disabled) after.focus();
  if (focused === after && after.disabled) before.focus();
  return node;
}

// Switches the chosen channel off, or scales it.
function editor(run, body) {
  const channel = chosen(run);
  if (!channel) return slot(body, "hint", () => element("p", { class: "edit" }, "Choose a channel to see its pattern, to switch it off or to scale it."));
  const node = slot(body, "editor", () => element("div", { class: "edit" }, element("span"), element("button", { class: "plain toggle" }),
    element("input", { type: "range", min: 0, max: 4, step: 0.1 }), element("output")));
  const [words, toggle, range, output] = node.children;
  const factor = edits(run).get(Number(channel)) ?? 1;
  const changes = (value) => {
    const factors = edits(run);
    if (value === 1) factors.delete(Number(channel)); else factors.set(Number(channel), value);
    return { edits: withEdits(run, factors) };
  };
  words.textContent = `channel ${channel}`;
  toggle.textContent = factor === 0 ? "Switch on" : "Switch off";
  toggle.onclick = () => set(changes(factor === 0 ? 1 : 0));
  range.setAttribute("aria-label", `Scale channel ${channel}`);
  if (Number(range.value) !== factor) range.value = factor;
  range.oninput = () => { output.textContent = `${range.value} ×`; live(changes(Number(range.value)), "edits"); };
  output.textContent = `${factor} ×`;
  return node;
}

// --- evidence

async function evidence(panel, current, dragged) {
  const isSat = state.method === "sat";
  const isSlow = info.slow.includes(state.method);
  const most = Math.min(info.most_tracked, Math.max(...info.runs.map((run) => topOf(run)?.channels ?? 1)));
  const controls = [
    choice("Method", "method", info.methods.map((name) => [name, info.slow.includes(name) ? `${name} (slow)` : name])),
    choice("Class", "target", [["", "what the network says"], ...info.classes.map((name, number) => [String(number), name])],
      { title: isSat ? "of the score: SAT's map follows what excites the layer, whatever the class" : "" }),
    isSat ? slider("channels", "tracked", { min: 1, max: most, step: 1 }) : null,
    isSat ? slider("threshold", "threshold", { min: 0, max: 0.95, step: 0.05 }) : null,
    slider("strength", "strength", { min: 0, max: 1, step: 0.05 }),
    choice("Score", "score", [["relative", "relative logit"], ["logit", "logit"], ["probability", "probability"]]),
    choice("Show", "which", [["deletion", "deletion"], ["insertion", "insertion"]]),
    slider("step", "step", { min: 0, max: info.defaults.steps, step: 1 }),
  ];
  await cards(panel, controls, async (run, body) => {
    const classes = await ask("predict", { run: run.name, image: state.image });
    if (!current()) return;
    if (isSlow) {
      const status = await calculationOf(run.name);
      const placePictures = await loadPictures(body, [[input(state.image), "input"]]);
      if (!current()) return;
      if (status.state !== "done") { fill(body, [predictions(body, classes), placePictures(), line(run, status, body.querySelector(".job"))]); return; }
    }
    const sat = isSat ? { k: Math.min(Number(state.tracked), info.most_tracked, topOf(run).channels), threshold: state.threshold } : {};
    const here = { run: run.name, image: state.image, method: state.method, target: state.target, ...sat };
    try {
      const overlay = await ask("saliency", { ...here, strength: state.strength });
      if (!current()) return;
      // Another map of SAT needs no pass through the network, its curve does: the curve waits until the slider rests.
      const shown = body.querySelectorAll(".pair img");
      if (["tracked", "threshold"].includes(dragged) && shown.length === 3) { shown[1].src = overlay.picture; return; }
      const [curve, at] = await Promise.all([ask("curve", here), ask("step", { ...here, step: state.step, which: state.which })]);
      if (!current()) return;
      const score = curve[state.score][state.which][state.step];
      const words = `${state.which}, step ${state.step} of ${info.defaults.steps}: ${state.score === "relative" ? "relative logit" : state.score} ${score === null ? "–" : score.toFixed(3)}`;
      const placePictures = await loadPictures(body, [[input(state.image), "input"], [overlay.picture, state.method], [at.picture, words]]);
      if (!current()) return;
      const curves = slot(body, "curve", () => element("div"));
      curves.replaceChildren(...(score === null ? [] : [plot(curve[state.score], Number(state.step))]), ...caution(curve));
      fill(body, [predictions(body, classes), placePictures(), curves]);
    } catch (error) {
      if (isSlow && error.status === 404) forget(run.name);  // the server no longer has the map: the next time it is computed again
      throw error;
    }
  });
}

// There is no relative logit where the clean image's logit, which it is divided by, is near 0 or negative; it says little where that is small.
function caution(curve) {
  if (state.score !== "relative") return [];
  const clean = curve.logit.deletion[0];
  const heights = [...curve.relative.deletion, ...curve.relative.insertion];
  const exists = heights[0] !== null;
  if (exists && Math.max(...heights.map(Math.abs)) <= 2) return [];
  return [element("p", { class: "caution" }, `The clean image's logit of this class is ${clean.toFixed(2)}: ${exists ? "divided by it, the curve says little" : "too small to divide by"}. `
    + "Look at the logit or the probability.")];
}

// --- transplant

async function transplant(panel, current) {
  const strip = slot(panel.querySelector(".controls") ?? panel, "targets", () => element("div", { class: "strip", role: "listbox", "aria-orientation": "horizontal" }));
  thumbnails(strip, "other", "target");
  const controls = [
    element("p", { class: "wide-note" }, "The source is the image chosen above. Target:"), strip, layers(),
    slider("features", "k", { min: 1, max: widest(), step: 1 }),
    choice("Whose path", "path", [["none", "none (deconvolution)"], ["source", "the source's"], ["target", "the target's"]]),
  ];
  const note = panel.querySelector(".wide-note");
  if (note) controls[0] = note;
  await cards(panel, controls, async (run, body) => {
    const { name: layer } = layerOf(run);
    const answer = await ask("transplant", { run: run.name, source: state.image, target: state.other, layer, k: count(run), path: state.path });
    if (!current()) return;
    const placePictures = await loadPictures(body, [[input(state.image), `source: “${answer.source}”`], [input(state.other), `target: “${answer.target}”`],
      [answer.picture, `made: the image is “${answer.image}”, the map “${answer.map}”`]]);
    if (!current()) return;
    const words = slot(body, "like", () => element("p"));
    words.textContent = `${count(run)} features of ${layer}. Correlation with the source ${answer.like_source.toFixed(2)}, with the target ${answer.like_target.toFixed(2)}.`;
    fill(body, [placePictures(), words]);
  });
}

// --- audit

async function audit(panel, current) {
  await cards(panel, [], async (run, body) => {
    const { columns, layers } = await ask("audit", { run: run.name });
    if (!current()) return;
    const kind = ({ is_number: isNumber }) => (isNumber ? "number" : "");
    const header = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", class: kind(column), title: column.meaning }, column.title)));
    const rows = layers.map(({ shown }) => element("tr", {}, ...columns.map((column, number) =>
      element(number ? "td" : "th", { scope: number ? null : "row", class: kind(column) }, shown[column.key]))));
    const table = element("table", {}, element("thead", {}, header), element("tbody", {}, ...rows));
    const legend = element("dl", { class: "columns" }, ...columns.flatMap(({ title, meaning }) => [element("dt", {}, title), element("dd", {}, meaning)]));
    body.replaceChildren(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Audit of ${run.name}` }, table),
      ...(run === info.runs.at(-1) ? [legend] : []));
  }, { stacked: true });
}

// By their names in the page's address (PageState.view), in the order of the tabs. _export.py has the same views for exports.
export const views = {
  inside: { title: "Look inside", draw: inside },
  evidence: { title: "Evidence", draw: evidence },
  transplant: { title: "Transplant", draw: transplant },
  audit: { title: "Audit", draw: audit },
};
