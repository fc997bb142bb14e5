// Look inside: a layer's channels, their patterns, and the image that is reconstructed from them.
import { ask, url } from "./api.js";
import { live, set } from "./app.js";
import { button, cards, check, choice, element, fill, loadPictures, predictions, scaleBar, slider, slot } from "./elements.js";
import { count, input, layers } from "./shared.js";
import { chosen, edits, editsOf, info, layerOf, place, state, widest, withEdits } from "./state.js";

export async function inside(panel, current) {
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
    const scale = slot(body, "scale", () => element("div"));
    scale.replaceChildren(scaleBar(back.scale, { channels: run.colours }));
    fill(body, [predictions(body, classes), placePictures(), scale, grid(run, body, sheet), pager(body, sheet, start), editor(run, body)]);
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
