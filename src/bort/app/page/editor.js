// The editor of the chosen channels: switched off, scaled one by one or together, or left alone.
import { url } from "./api.js";
import { live, set } from "./app.js";
import { element, fill, slot } from "./elements.js";
import { chosenAll, edits, factorOf, OTHERS, layerOf, state, withChosen, withEdits, withLast } from "./state.js";

const RANGE = { min: -4, max: 4, step: 0.1 };
const PRESETS = [["Off", 0], ["× 1", 1], ["× 2", 2], ["× 4", 4], ["× −1", -1]];

let isSeveral = false;  // whether a click chooses a channel beside the others: for touch, which has no Shift key
export const several = () => isSeveral;

export const openChannel = (run, channel) => set({ view: "channel", channel: withLast(run, channel) });

// The state's change if these channels get the factor, a function of the present one.
export function scaled(run, channels, factor) {
  const factors = edits(run);
  for (const channel of channels) factors.set(channel, Math.min(100, Math.max(-100, factor(factorOf(factors, channel)))));
  return { edits: withEdits(run, factors) };
}

export function editor(run, body) {
  const node = slot(body, "editor", () => element("section", { class: "editor", "aria-label": `Edit channels of ${run.name}` }));
  const channels = chosenAll(run);
  fill(node, [head(run, node, channels), ...(channels.length ? [list(run, node, channels), presets(run, node, channels)] : []), tools(run, node, channels)]);
  return node;
}

function head(run, node, channels) {
  const line = slot(node, "head", () => element("p", {}));
  const edited = [...edits(run)].filter(([channel]) => channel !== OTHERS && !channels.includes(channel)).length;
  line.textContent = channels.length ? "" : `Choose a channel below, then switch it off or scale it.${edited ? ` Edited: ${edited}.` : ""}`;
  line.hidden = !line.textContent;
  return line;
}

// A slider for each chosen channel, and one for all of them if there are several.
function list(run, node, channels) {
  const rows = slot(node, "rows", () => element("div", { class: "rows" }));
  const factors = edits(run);
  const each = channels.map((channel) => row(rows, `channel-${channel}`, `channel ${channel}`, factorOf(factors, channel), (value) => scaled(run, [channel], () => value), {
    picture: url("channel.png", { run: run.name, image: state.image, layer: layerOf(run).name, channel }),
    remove: () => set({ channel: withChosen(run, channels.filter((other) => other !== channel)) }),
    open: () => openChannel(run, channel),
  }));
  const common = new Set(channels.map((channel) => factorOf(factors, channel)));
  const all = row(rows, "all", `all ${channels.length} of them`, common.size === 1 ? [...common][0] : null, (value) => scaled(run, channels, () => value), {});
  fill(rows, [...(channels.length > 1 ? [all] : []), ...each]);
  return rows;
}

function row(rows, name, words, factor, change, { picture, remove, open }) {
  const node = slot(rows, name, () => element("div", { class: picture ? "row" : "row all" }, picture ? element("img", { alt: "" }) : element("i"),
    open ? element("button", { type: "button", class: "open", title: `What excites ${words}?` }) : element("span"),
    element("output"), element("button", { type: "button", class: "remove", hidden: !remove, "aria-label": `Leave ${words} out of the choice` }, "×"),
    element("input", { type: "range", ...RANGE })));
  const [image, label, output, cross, range] = node.children;
  if (picture && image.getAttribute("src") !== picture) image.src = picture;
  label.textContent = words;
  label.onclick = open ?? null;
  range.setAttribute("aria-label", `Scale ${words}`);
  cross.onclick = remove;
  const shown = factor ?? 1;
  if (document.activeElement !== range || Number(range.value) !== shown) range.value = shown;
  range.oninput = () => { output.textContent = `× ${range.value}`; live(change(Number(range.value)), "edits"); };
  output.textContent = factor == null ? "mixed" : `× ${Number(factor.toFixed(2))}`;
  return node;
}

function presets(run, node, channels) {
  const line = slot(node, "presets", () => element("div", { class: "presets", role: "group", "aria-label": "Scale the chosen channels" },
    ...PRESETS.map(([words, value]) => element("button", { type: "button", class: "plain", "data-factor": value }, words))));
  const factors = edits(run);
  for (const preset of line.children) {
    const value = Number(preset.dataset.factor);
    preset.setAttribute("aria-pressed", String(channels.every((channel) => factorOf(factors, channel) === value)));
    preset.onclick = () => set(scaled(run, channels, () => value));
  }
  return line;
}

function tools(run, node, channels) {
  const line = slot(node, "tools", () => element("div", { class: "presets" },
    element("button", { type: "button", class: "plain only" }), element("button", { type: "button", class: "plain several", title: "A click chooses a channel beside the others, as with Shift or Ctrl" }, "Select several"),
    element("button", { type: "button", class: "plain undo" }, "Undo")));
  const [only, mode, undo] = line.children;
  const factors = edits(run);
  const isOnly = factors.get(OTHERS) === 0;
  only.textContent = isOnly ? "Others on" : "All but these";
  only.title = isOnly ? "Switch the other channels on again" : "Switch all other channels off";
  only.hidden = !channels.length && !isOnly;
  only.onclick = () => set({ edits: withEdits(run, isOnly ? withoutOthers(factors) : onlyThese(factors, channels)) });
  mode.setAttribute("aria-pressed", String(isSeveral));
  mode.onclick = () => {
    isSeveral = !isSeveral;
    for (const other of document.querySelectorAll(".editor .several")) other.setAttribute("aria-pressed", String(isSeveral));
  };
  undo.hidden = !factors.size;
  undo.onclick = () => { node.querySelector("input, .several").focus(); set({ edits: withEdits(run, new Map()) }); };
  return line;
}

// All channels but these are switched off; those of them that were off are on.
function onlyThese(factors, channels) {
  return new Map([[OTHERS, 0], ...channels.map((channel) => [channel, factorOf(factors, channel) || 1])]);
}

function withoutOthers(factors) {
  return new Map([...factors].filter(([channel]) => channel !== OTHERS));
}
