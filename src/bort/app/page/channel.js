// The page of a channel: the test images that excite it most, the classes, its pattern, and what the network says without it.
import { ask, url } from "./api.js";
import { say, set, show } from "./app.js";
import { forgetAll, isOpen, line, startAgain, statusOf, watch } from "./atlas.js";
import { signed } from "./channels.js";
import { element, figureOf, fill, load, slot } from "./elements.js";
import { chosenImage, open } from "./picker.js";
import { cardsOfLayers, input, layers } from "./shared.js";
import { chosen, info, layerOf, state, withLast } from "./state.js";

const FIRST = 64;  // so many images are enough for a first portrait, while the rest are looked at
const CLASSES = 10;  // bars; the others are counted

export async function channel(panel, current) {
  await cardsOfLayers(panel, [layers(), element("p", { class: "wide-note", "data-control": "channel.note" }, "A channel is one of the things that a layer looks for. Which ones it has found is seen from what excites it.")], (run, body) => card(run, body, current));
}

async function card(run, body, current) {
  const layer = layerOf(run);
  const status = statusOf(run, layer.name);
  try { await drawCard(run, layer, status, body, current); } catch (error) {
    if (error.status !== 503 || !status) throw error;
    forgetAll();
    if (current()) await drawCard(run, layer, null, body, current);
  }
}

async function drawCard(run, layer, status, body, current) {
  const shown = await shownChannel(run, layer, status);
  if (!current()) return;
  if (status == null || isOpen(status)) look(run, layer.name);
  const { channel: number, alike } = shown;
  const here = { run: run.name, layer: layer.name, channel: number };
  const facts = status?.known ? await ask("channel", { ...here, known: status.known }) : null;
  const known = facts == null ? 0 : !isOpen(status) ? facts.known : facts.known >= FIRST ? FIRST : 0;
  const pattern = url("channel.png", { ...here, image: state.image });
  await load([pattern]);
  if (!current()) return;
  const place = (portrait) => fill(body, [head(run, body, layer, number, alike), progress(body, run, layer, status), facts && sentence(body, facts, number), patterns(body, pattern, portrait),
    ...(facts ? [tiles(body, run, number, facts.excited, portrait), histogram(body, facts)] : []), portrait?.changes.length ? without(body, portrait) : null]);
  const made = known && facts.excited.length ? ask("portrait", { ...here, known }) : null;
  const isShown = body.dataset.shown === JSON.stringify([here, known]);
  place(isShown ? await made : null);
  made?.then((portrait) => {
    if (!current()) return;
    place(portrait);
    body.dataset.shown = JSON.stringify([here, known]);
  }).catch((error) => {
    if (error.status === 503) forgetAll();
    if (current()) say(error.message);
  });
}

// The channel that is chosen; of a run without a choice the one most like another run's, or its most salient one.
async function shownChannel(run, layer, status) {
  if (chosen(run) != null) return { channel: chosen(run), alike: null };
  const other = info.runs.find((one) => chosen(one) != null);
  if (other && status?.known && statusOf(other, layerOf(other).name)?.known) {
    const found = await ask("alike", { run: other.name, layer: layerOf(other).name, channel: chosen(other), other: run.name, other_layer: layer.name, known: Math.min(status.known, statusOf(other, layerOf(other).name).known) });
    if (found.channel != null) return { channel: found.channel, alike: { run: other, ...found } };
  }
  const { channels } = await ask("channels", { run: run.name, image: state.image, layer: layer.name, k: 1 });
  return { channel: channels[0].channel, alike: null };
}

function look(run, layer) {
  watch(run, layer, () => {
    const isShown = state.view === "channel" && layerOf(run)?.name === layer;
    if (isShown) show();
    return isShown;
  });
}

const choose = (run, channel) => set({ channel: withLast(run, channel) });

// Which channel, the ones before and after it, and the way back.
function head(run, body, layer, number, alike) {
  const node = slot(body, "head", () => element("div", { class: "channel-head" }, element("button", { type: "button", class: "plain before", "aria-label": "Previous channel" }, "‹"), element("h3"),
    element("button", { type: "button", class: "plain after", "aria-label": "Next channel" }, "›"), element("button", { type: "button", class: "plain edit" }, "Edit it in Look inside"), element("p")));
  const [before, title, after, edit, words] = node.children;
  title.textContent = `channel ${number} of ${layer.channels} in ${layer.name}`;
  before.onclick = () => choose(run, (number + layer.channels - 1) % layer.channels);
  after.onclick = () => choose(run, (number + 1) % layer.channels);
  node.onkeydown = (event) => {
    const step = { ArrowLeft: before, ArrowRight: after }[event.key];
    if (step) { event.preventDefault(); step.focus(); step.click(); }
  };
  edit.onclick = () => set({ view: "inside", channel: withLast(run, number) });
  words.textContent = alike ? `The one most like channel ${chosen(alike.run)} of ${alike.run.name}: what excites them has a correlation of ${alike.correlation.toFixed(2)} over ${alike.known} test images.` : "";
  words.hidden = !alike;
  return node;
}

function progress(body, run, layer, status) {
  const node = slot(body, "progress", () => element("div", { class: "found" }));
  const isDone = status?.state === "done" && status.images > 0;
  node.replaceChildren(...(status && !isDone ? [line(status, layer.channels, async () => { await startAgain(run, layer.name); show(); })] : []));
  return node;
}

function sentence(body, { active, known, strongest }, number) {
  const node = slot(body, "sentence", () => element("p", { class: "sentence" }));
  node.textContent = active ? `Active on ${active} of ${known} test images; its strongest activation is ${strongest.toFixed(2)}.`
    : `Channel ${number} is dead: not one of ${known} test images excites it.`;
  node.classList.toggle("caution", !active);
  return node;
}

function patterns(body, pattern, portrait) {
  const node = slot(body, "patterns", () => element("div", { class: "pair two" }));
  const list = [["own", pattern, "its pattern in this image"]];
  if (portrait?.mean) list.push(["mean", portrait.mean, portrait.is_whole ? "mean pattern of the images below" : "mean pattern at the places below"]);
  fill(node, list.map(([name, source, words]) => {
    const figure = slot(node, name, () => figureOf());
    const [image, caption] = figure.children;
    if (image.getAttribute("src") !== source) image.src = source;
    caption.textContent = words;
    return figure;
  }));
  return node;
}

// The images that excite it most, cut to the strongest place; the whole image while the mouse or the focus is on it.
function tiles(body, run, number, excited, portrait) {
  const node = slot(body, "tiles", () => element("div", { class: "tiles" }));
  const content = JSON.stringify([excited, Boolean(portrait)]);
  if (node.dataset.content === content) return node;
  node.dataset.content = content;
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.image : null;
  const places = new Map((portrait?.places ?? []).map((one) => [one.image, one]));
  node.replaceChildren(...excited.map(({ image, value, name }) => tile(run, number, image, value, name, places.get(image))));
  [...node.children].find(({ dataset }) => dataset.image === focused)?.focus();
  return node;
}

function tile(run, number, image, value, name, at) {
  const [left, top, width, height] = at?.box ?? [0, 0, 1, 1];
  const along = (start, size) => (size < 1 ? (100 * start) / (1 - size) : 0);
  const cut = { "background-image": `url("${input(image)}")`, "background-size": `${100 / width}% ${100 / height}%`, "background-position": `${along(left, width)}% ${along(top, height)}%` };
  const words = `${image}${name ? `, ${name}` : ""}: activation ${value.toFixed(2)}`;
  return element("button", { type: "button", class: "tile", "data-image": image, title: `${words}. Look inside it.`, "aria-label": words,
    onclick: async () => { await open(image); set({ view: "inside", ...chosenImage(image), channel: withLast(run, number) }); } },
  element("span", { class: "cut", style: cut }),
  element("span", { class: "whole", style: { "background-image": `url("${input(image)}")` } },
    element("i", { style: { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * width}%`, height: `${100 * height}%` } })),
  at ? element("span", { class: "cut pattern", style: { "background-image": `url("${at.pattern}")`, "background-size": "100% 100%" } }) : null,
  element("b", {}, value.toFixed(2)), element("small", {}, name));
}

// How strongly the images of each class excite it, the strongest class first.
function histogram(body, { classes, by_label: byLabel }) {
  const node = slot(body, "histogram", () => element("section", { class: "histogram" }, element("h3"), element("ol", { class: "levels" }), element("p")));
  const [title, list, rest] = node.children;
  title.textContent = byLabel ? "Classes that excite it: mean of its largest activation" : "Predicted classes that excite it: mean of its largest activation";
  const highest = Math.max(...classes.map(({ mean }) => Math.abs(mean)), 1e-12);
  list.replaceChildren(...classes.slice(0, CLASSES).map(({ name, mean, images }) => element("li", { title: `${images} images` }, element("span", {}, name),
    element("span", { class: "bar", role: "img", "aria-label": `${name}: ${mean.toFixed(2)}`, style: { "--part": Math.max(0, mean) / highest } }, element("i")), element("b", {}, mean.toFixed(2)))));
  rest.textContent = classes.length > CLASSES ? `and ${classes.length - CLASSES} classes that excite it less` : "";
  return node;
}

// The classes whose logits change most when the channel is switched off, of the images above.
function without(body, { changes, places }) {
  const node = slot(body, "without", () => element("section", { class: "histogram" }, element("h3"), element("ol", { class: "levels signed" })));
  const [title, list] = node.children;
  title.textContent = `Without it the logits of these ${places.length} images change by`;
  const largest = Math.max(...changes.map(({ change }) => Math.abs(change)), 1e-12);
  list.replaceChildren(...changes.map(({ name, change }) => element("li", {}, element("span", {}, name),
    element("span", { class: change < 0 ? "change less" : "change", role: "img", "aria-label": `${name}: ${signed(change)}`, style: { "--part": Math.abs(change) / largest } }, element("i")), element("b", {}, signed(change)))));
  return node;
}
