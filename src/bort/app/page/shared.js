// What several views show alike.
import { url } from "./api.js";
import { set } from "./app.js";
import { cards, choice, element, fill, slot } from "./elements.js";
import { info, layerOf, state } from "./state.js";

export const input = (image) => url("input.png", { image });
export const count = (run) => Math.min(Number(state.k), layerOf(run).channels);
// The cards of a view that shows a layer; a network without one says so.
export const cardsOfLayers = (panel, controls, draw, others) => cards(panel, controls, (run, body) => (layerOf(run) ? draw(run, body) : fill(body, [noLayer(body)])), others);
export const noLayer = (body) => slot(body, "none", () => element("p", { class: "caution" }, "This network has no layer with a feature map."));

// All layers of the first run, then those that only others have; nothing if there are none.
export const layers = () => info.runs.some((run) => run.layers.length) && choice("Layer", "layer", info.runs.flatMap((run, number) => run.layers
  .filter(({ name }) => !info.runs.slice(0, number).some((before) => before.layers.some((layer) => layer.name === name)))
  .map(({ name, channels, height, width }) => [name, `${name} (${channels} × ${height} × ${width})${number ? `, of ${run.name}` : ""}`])),
{ change: (layer) => set({ layer, edits: "", channel: "", start: "0" }) });
