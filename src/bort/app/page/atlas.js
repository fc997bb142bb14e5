// How far the server's atlases are: which test images excite which channels of a layer.
import { fetchJson, url } from "./api.js";
import { element } from "./elements.js";

const known = new Map();  // by run and layer: the last status
const watched = new Map();  // by run and layer: what is called with each new status
const keyOf = (run, layer) => JSON.stringify([run.name, layer]);
export const isOpen = ({ state }) => state === "waiting" || state === "running";

export const statusOf = (run, layer) => known.get(keyOf(run, layer)) ?? null;

// Asks until the atlas is there, as long as the function that is called with each status returns true.
export async function watch(run, layer, tell) {
  const key = keyOf(run, layer);
  const isWatched = watched.has(key);
  watched.set(key, tell);
  if (isWatched) return;
  for (let again = false; ; again = true) {
    if (again) await new Promise((resolve) => setTimeout(resolve, 700));
    const status = await fetchJson(url("atlas", { run: run.name, layer })).catch((error) => ({ state: "failed", message: error.message, known: 0, images: 0, dead: [] }));
    known.set(key, status);
    if (!watched.get(key)(status) || !isOpen(status)) break;
  }
  watched.delete(key);
}

// The server has let go of what was known, or has been started anew: it has to look at the images again.
export const forgetAll = () => known.clear();

export async function startAgain(run, layer) {
  known.set(keyOf(run, layer), await fetchJson(url("atlas", { run: run.name, layer, again: true })));
}

// One line: the progress, or what has been found out.
export function line({ state, message, known: done, images, dead }, channels, again) {
  if (!images && state !== "failed") return element("p", { class: "atlas" }, "There are no test images to look at: give some with images=FOLDER (in a command --images FOLDER).");
  if (isOpen({ state })) return element("p", { class: "atlas" }, element("progress", { max: images, value: done, "aria-label": "Test images that have been looked at" }), ` looking at the test images: ${done} of ${images}`);
  if (state === "failed") return element("p", { class: "atlas" }, `${message} `, element("button", { type: "button", class: "plain again", onclick: again }, "Start again"));
  const found = dead.length ? `${dead.length} of ${channels} channels are dead: not one of ${done} test images excites them.` : `Each of the ${channels} channels is excited by some of ${done} test images.`;
  return element("p", { class: "atlas" }, found);
}
