// Look inside: a layer's channels, the image that is reconstructed from them, and what changes when channels are edited.
import { ask, url } from "./api.js";
import { say, set, show } from "./app.js";
import { isOpen, line, startAgain, statusOf, watch } from "./atlas.js";
import { bars } from "./bars.js";
import { grid, pager, startOf } from "./channels.js";
import { editor } from "./editor.js";
import { button, check, choice, element, figureOf, fill, load, scaleBar, slider, slot } from "./elements.js";
import { cardsOfLayers, count, input, layers } from "./shared.js";
import { chosen, edits, editsOf, info, layerOf, state, widest } from "./state.js";

export async function inside(panel, current) {
  const whole = state.part === "all";
  const controls = [
    layers(),
    choice("Order of channels", "rank", [["strength", "by strength"], ["effect", "by effect on a class"]], { change: (rank) => set({ rank, start: "0" }) }),
    state.rank === "effect" ? choice("Class", "target", [["", "what the network says"], ...info.classes.map((name, number) => [String(number), name])], { change: (target) => set({ target, start: "0" }) }) : null,
    choice("Reconstruct from", "part", [["all", "the whole map"], ["k", "the most salient features"]]),
    slider("features", "k", { min: 1, max: widest(), step: 1 }, { disabled: whole, title: whole ? "of the whole map all count" : "" }),
    check("binarised", "binary", { disabled: whole }),
    check("clusters in colour", "clusters"),
    button("Undo all edits", "reset", { disabled: !state.edits, click: () => set({ edits: "" }) }),
  ];
  await cardsOfLayers(panel, controls, (run, body) => card(run, body, current));
}

async function card(run, body, current) {
  const { name: layer, channels } = layerOf(run);
  const here = { run: run.name, image: state.image, layer };
  const from = { k: state.part === "all" ? "" : count(run), binary: state.binary === "1" };
  const start = startOf(channels);
  const { patterns, clusters } = info.defaults;
  const part = (number) => ({ ...here, k: Math.min(run.patterns, patterns - number * run.patterns), start: start + number * run.patterns, rank: state.rank, target: state.rank === "effect" ? state.target : "" });
  const [classes, first, before, after, groups] = await Promise.all([
    ask("predict", { run: run.name, image: state.image }),
    ask("channels", part(0)),
    ask("reconstruct", { ...here, ...from }),
    edits(run).size ? ask("edit", { ...here, ...from, edits: editsOf(run) }) : null,
    state.clusters === "1" ? ask("clusters", { ...here, k: Math.min(patterns, count(run)), groups: clusters }) : null,
  ]);
  if (!current()) return;
  const pictures = [
    ["input", input(state.image), "input"],
    ["reconstruction", before.picture, "reconstruction"],
    after ? ["after", after.picture, after.weaker === 1 ? "after the edits" : `after, ${rounded(after.weaker)} × weaker`] : null,
    after ? ["difference", after.difference, "difference"] : null,
    chosen(run) != null && !after ? ["channel", url("channel.png", { ...here, channel: chosen(run) }), `channel ${chosen(run)}`] : null,
    groups ? ["clusters", groups.picture, `clusters of ${groups.groups.length} channels`] : null,
  ].filter(Boolean);
  await load(pictures.map(([, source]) => source));
  if (!current()) return;
  const bench = slot(body, "bench", () => element("div", { class: "bench" }));
  const shelf = slot(body, "shelf", () => element("div", { class: "shelf" }));
  const stay = keptInPlace(shelf);
  bench.classList.toggle("edited", Boolean(after));
  bench.classList.toggle("fresh", !after && chosen(run) == null);
  const said = after?.classes ?? classes.map(({ name, probability }) => ({ name, before: probability, after: null }));
  fill(bench, [frames(bench, run, pictures), legend(bench, run, before, after), bars(bench, said), editor(run, bench)]);
  const status = statusOf(run, layer);
  const dead = new Set(status?.state === "done" ? status.dead : []);
  const sheets = partsOf(shelf, JSON.stringify(part(0)), first);
  const place = () => fill(shelf, [grid(run, shelf, sheets, dead), pager(shelf, sheets, start), keys(shelf), found(shelf, run, layer, status)]);
  place();
  fill(body, [bench, shelf]);
  stay();
  if (!status || isOpen(status)) setTimeout(() => look(run, layer), 400);  // after what this view shows
  more(sheets, Math.ceil(Math.min(patterns, channels - start) / run.patterns), part, current, place);
}

// The channel that has the focus stays where it is on the screen when the bench above it grows: a function to call afterwards.
function keptInPlace(shelf) {
  const pattern = shelf.contains(document.activeElement) ? document.activeElement : null;
  const before = pattern?.getBoundingClientRect().top;
  return () => { if (pattern?.isConnected) scrollBy(0, pattern.getBoundingClientRect().top - before); };
}

// The other parts of a page of channels, one after another. They are not waited for: the view can be used without them.
async function more(sheets, count, part, current, place) {
  try {
    for (let number = sheets.length; number < count; number++) {
      const next = await ask("channels", { ...part(number), scale: sheets[0].scale });  // of the first ones, so that colours mean the same
      if (!current()) return;
      if (sheets.length === number) sheets.push(next);
      place();
    }
  } catch (error) {
    if (current()) say(error.message);
  }
}

const known = new WeakMap();  // by card: the parts of the page of channels that it shows

// The parts that have come, the first one at least.
function partsOf(shelf, key, first) {
  if (known.get(shelf)?.key !== key) known.set(shelf, { key, sheets: [first] });
  return known.get(shelf).sheets;
}

// The atlas of the layer that is shown is made while one looks at it.
function look(run, layer) {
  watch(run, layer, (status) => {
    const isShown = state.view === "inside" && layerOf(run)?.name === layer;
    if (!isShown) return false;
    const shelf = [...document.querySelectorAll("article.run")].find(({ dataset }) => dataset.run === run.name)?.querySelector(".shelf");
    if (shelf) found(shelf, run, layer, status);
    if (status.state === "done" && status.dead.length) show();
    return true;
  });
}

function found(shelf, run, layer, status) {
  const node = slot(shelf, "found", () => element("div", { class: "found" }));
  const text = JSON.stringify(status);
  if (node.dataset.status !== text) {
    node.dataset.status = text;
    node.replaceChildren(...(status ? [line(status, layerOf(run).channels, async () => { await startAgain(run, layer); look(run, layer); })] : []));
  }
  return node;
}

// The pictures, each in its own place. Beside a channel's pattern there is room for what an edit of it will show.
function frames(bench, run, pictures) {
  const pair = slot(bench, "pictures", () => element("div", { class: "pair" }));
  const figures = pictures.map(([name, source, words]) => {
    const figure = slot(pair, name, () => figureOf());
    const [image, caption] = figure.children;
    if (image.getAttribute("src") !== source) image.src = source;
    if (caption.textContent !== words) caption.textContent = words;
    return figure;
  });
  const names = pictures.map(([name]) => name);
  const hint = slot(pair, "hint", () => element("p", { class: "hint" }, "Switch the channel off or scale it: what changes is shown here."));
  fill(pair, names.includes("channel") ? figures.toSpliced(names.indexOf("channel") + 1, 0, hint) : figures);
  return pair;
}

const KEYS = [["←↑↓→", "walk"], ["Space", "chooses"], ["Enter", "shows what excites a channel"], ["0", "switches off"], ["+", ""], ["−", "scale"], ["1", "undoes it"]];
const keys = (shelf) => slot(shelf, "keys", () => element("p", { class: "keys" }, "In the grid: ", ...KEYS.flatMap(([key, words]) => [element("kbd", {}, key), ` ${words} `])));

// What the colours of the pictures mean, and how strong the difference is.
function legend(bench, run, before, after) {
  const node = slot(bench, "legend", () => element("div", { class: "legend" }));
  const text = JSON.stringify([before.scale, before.correlation, after?.correlation, after?.largest, after?.stronger]);
  if (node.dataset.text !== text) {
    node.dataset.text = text;
    const { name: layer } = layerOf(run);
    const like = `${layer === state.layer ? "" : `from ${layer}, since it has no ${state.layer}: `}correlation with the input ${before.correlation.toFixed(2)}${after ? ` → ${after.correlation.toFixed(2)}` : ""}`;
    node.replaceChildren(scaleBar(before.scale, { channels: run.colours }), element("p", {}, like), ...(after ? [element("p", { class: "strength" }, difference(after))] : []));
  }
  return node;
}

const rounded = (value) => Number(value.toPrecision(2)).toLocaleString("en");
function difference({ largest, stronger }) {
  if (!largest) return "no difference";
  if (largest > 255) return `difference: up to ${rounded(largest / 255)} times the strongest colour of the picture before`;
  return `difference: largest change ${rounded(largest)} of 255 levels, shown ${rounded(stronger)} × stronger`;
}
