// What several views show alike.
import { url } from "./api.js";
import { set } from "./app.js";
import { choice } from "./elements.js";
import { info, layerOf, state } from "./state.js";

export const input = (image) => url("input.png", { image });
export const count = (run) => Math.min(Number(state.k), layerOf(run).channels);
// All layers of the first run, then those that only others have.
export const layers = () => choice("Layer", "layer", info.runs.flatMap((run, number) => run.layers
  .filter(({ name }) => !info.runs.slice(0, number).some((before) => before.layers.some((layer) => layer.name === name)))
  .map(({ name, channels, height, width }) => [name, `${name} (${channels} × ${height} × ${width})${number ? `, of ${run.name}` : ""}`])),
{ change: (layer) => set({ layer, edits: "", channel: "", start: "0" }) });
