// What several views show alike.
import { url } from "./api.js";
import { set } from "./app.js";
import { choice } from "./elements.js";
import { info, layerOf, state } from "./state.js";

export const input = (image) => url("input.png", { image });
export const count = (run) => Math.min(Number(state.k), layerOf(run).channels);
export const layers = () => choice("Layer", "layer",
  info.runs[0].layers.map(({ name, channels, height, width }) => [name, `${name} (${channels} × ${height} × ${width})`]),
  { change: (layer) => set({ layer, edits: "", channel: "", start: "0" }) });
