// Transplant: the target's features at the source's places.
import { ask } from "./api.js";
import { thumbnails } from "./app.js";
import { cards, choice, element, fill, loadPictures, slider, slot } from "./elements.js";
import { count, input, layers } from "./shared.js";
import { layerOf, state, widest } from "./state.js";

export async function transplant(panel, current) {
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
