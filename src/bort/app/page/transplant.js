// Transplant: the target's features at the source's places.
import { ask } from "./api.js";
import { thumbnails } from "./app.js";
import { check, choice, element, figureOf, fill, fixed, loadPictures, scaleBar, slider, slot } from "./elements.js";
import { cardsOfLayers, count, input, layers } from "./shared.js";
import { layerOf, state, widest } from "./state.js";

export async function transplant(panel, current) {
  const dock = slot(panel, "dock", () => element("div", { class: "dock" }));
  fill(dock, [slider("features", "k", { min: 1, max: widest(), step: 1 }),
    choice("Whose path", "path", [["none", "nobody's (deconvolution)"], ["source", "the source's"], ["target", "the target's"]])]);
  await cardsOfLayers(panel, [layers(), check("difference", "difference")], (run, body) => drawRun(run, body, current), [images(panel), dock]);
}

// Source and target, once for all runs; the target is chosen here.
function images(panel) {
  const card = slot(panel, "images", () => element("section", { class: "card sources", "aria-label": "The two images" },
    element("div", { class: "pair" }, figureOf(null, "source: chosen at the top of the page"), figureOf(null, "target: chosen here")),
    element("div", { class: "strip", role: "listbox", "aria-orientation": "horizontal" })));
  const [pair, strip] = card.children;
  [state.image, state.other].forEach((image, number) => {
    const shown = pair.children[number].firstChild;
    if (shown.getAttribute("src") !== input(image)) shown.src = input(image);
  });
  thumbnails(strip, "other", "target");
  return card;
}

async function drawRun(run, body, current) {
  const { name: layer } = layerOf(run);
  const answer = await ask("transplant", { run: run.name, source: state.image, target: state.other, layer, k: count(run), path: state.path, difference: state.difference });
  if (!current()) return;
  const shown = [[answer.picture, "made: the target's features at the source's places"]];
  if (answer.change) shown.push([answer.change.picture, "difference: made less source"]);
  const placePictures = await loadPictures(body, shown);
  if (!current()) return;
  const scale = slot(body, "scale", () => element("div"));
  scale.replaceChildren(...(answer.change ? [scaleBar(answer.change.scale, { channels: run.colours })] : []));
  const said = slot(body, "verdicts", () => element("dl", { class: "verdicts" }));
  said.replaceChildren(...verdicts(answer).flatMap(([what, name, words]) => [element("dt", {}, what), element("dd", {}, `“${name}”`, words ? element("small", {}, ` ${words}`) : null)]));
  const like = slot(body, "like", () => element("p", { class: "wide-note" }));
  like.textContent = `${count(run)} features of ${layer}. Correlation with the source ${fixed(answer.like_source)}, with the target ${fixed(answer.like_target)}.`;
  fill(body, [said, placePictures(), scale, like]);
}

// What the network says, and of what was made, whom it takes it for.
function verdicts({ source, target, image, map }) {
  const whose = (name) => (source === target ? "" : name === target ? "as the target: fooled" : name === source ? "as the source" : "neither");
  return [["source", source, ""], ["target", target, ""], ["made picture", image, whose(image)], ["its map", map, whose(map)]];
}
