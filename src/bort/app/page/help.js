// What each control does, in one sentence, behind a "?" beside it. Texts by the controls' names; a view's own text for a name
// that several views use is under "view.name".
import { element } from "./elements.js";

export const texts = {
  layer: "Which layer of the network is looked at: early ones see edges, late ones whole shapes.",
  part: "Whether the picture is made from everything that the layer holds, or from its strongest channels alone.",
  k: "How many of the layer's strongest channels count.",
  "transplant.k": "How many of the target's strongest channels are moved to the source's places.",
  binary: "Whether each channel counts as a single 1 at its strongest place, as in the paper, or with its real strength.",
  clusters: "Puts channels with similar patterns into groups and shows each group in a colour.",
  rank: "The order of the channels: by their largest activation, or by how much a class's logit changes when a channel is switched off.",
  "inside.target": "The class whose logit channels are ranked by: the one that the network names, or one that you choose.",
  reset: "Makes all channels as strong as they were.",
  method: "How the map is made: each method says in its own way which pixels count.",
  target: "The class that is asked about: the one that the network names, or one that you choose.",
  tracked: "How many of the top layer's strongest channels SAT follows back to the image.",
  threshold: "Pixels that are weaker than this part of a channel's strongest pixel are left out of SAT's map.",
  "options.ig.steps": "How many images between an empty one and this one the gradients are averaged over: more are more exact and take longer.",
  "options.guided-ig.steps": "How many steps the path from an empty image to this one takes: more are more exact and take longer.",
  "options.rise.masks": "How many random masks the image is seen through: more give a smoother map and take longer.",
  "options.rise.cells": "Cells of a mask along a side: more show finer parts and need more masks.",
  "options.rise.keep": "The part of the image that a mask lets through, on average.",
  "options.xrai.min_pixels": "Regions with fewer pixels than this are left out.",
  strength: "How much of the map covers the image.",
  score: "What the curves show: the class's logit divided by that of the whole image, the logit itself, or the probability.",
  which: "Deletion takes the most important pixels away first; insertion puts them into an empty image first.",
  step: "How far pixels have been taken away or put in; the pictures show the image at this point.",
  path: "Whose way back through the network the picture takes: this decides which of the two images it looks like.",
  "evidence.difference": "Also shows the first network's map less the other's.",
  "transplant.difference": "Also shows what the transplant has changed: the made picture less the source.",
  centre: "Scales the ink to a box of 20 of 28 pixels and moves its centre of mass to the middle, as MNIST's digits were made. Without it the networks see the drawing where it is.",
  find_label: "Only images that show this class.",
  find_said: "Only images that one of the networks takes for this class.",
  find_wrong: "Only images that a network names wrongly: any of them, all of them, or one that you choose.",
  find_disagree: "Only images of which the networks do not name the same class.",
  find_order: "As in the report; or those first on which the networks' confidence (the probability of the true class) or their reconstructions differ most; or by how sure the networks are.",
  "find-all": "Takes all filters back, so that every test image is listed.",
  "audit.difference": "Shows the first network's numbers less the other's, instead of both.",
};

let open = null;  // the "?" whose text is shown, and the text

// The "?" of a control, or nothing if there is no text for it.
export function help(view, name, words) {
  const text = texts[`${view}.${name}`] ?? texts[name];
  return text ? explain(`help-${view}-${name}`, words, text) : null;
}

// A "?" that shows and hides a text. `id` is the text's, `words` what it explains.
export function explain(id, words, text) {
  const button = element("button", { type: "button", class: "help", "aria-label": `What is “${words}”?`, "aria-expanded": false, "aria-controls": id,
    onclick: () => (open?.button === button ? close() : show(button, element("div", { class: "explained", id, role: "note" }, text))) }, "?");
  return button;
}

// Below the "?", or above it where there is no room. Fixed: boxes that scroll would cut it off.
function show(button, note) {
  close();
  open = { button, note };
  button.after(note);
  button.setAttribute("aria-expanded", true);
  const [at, { width, height }] = [button.getBoundingClientRect(), note.getBoundingClientRect()];
  note.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - 8 - width))}px`;
  note.style.top = `${at.bottom + 6 + height > innerHeight ? at.top - 6 - height : at.bottom + 6}px`;
}

function close() {
  open?.button.setAttribute("aria-expanded", false);
  open?.note.remove();
  open = null;
}

function closeOutside({ target }) {
  if (open && !open.button.contains(target)) close();
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
document.addEventListener("pointerdown", closeOutside);
document.addEventListener("focusin", closeOutside);
document.addEventListener("scroll", close, { capture: true, passive: true });
