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
  reset: "Makes all channels as strong as they were.",
  method: "How the map is made: each method says in its own way which pixels count.",
  target: "The class that is asked about: the one that the network names, or one that you choose.",
  tracked: "How many of the top layer's strongest channels SAT follows back to the image.",
  threshold: "Weaker pixels than this part of a channel's strongest one are left out of SAT's map.",
  strength: "How much of the map covers the image.",
  score: "What the curves show: the class's logit divided by that of the whole image, the logit itself, or the probability.",
  which: "Deletion takes the most important pixels away first; insertion puts them into an empty image first.",
  step: "How far pixels have been taken away or put in; the pictures show the image at this point.",
  path: "Whose way back through the network the picture takes: this decides which of the two images it looks like.",
  difference: "Also shows the first network less each other one.",
};

let open = null;  // the "?" whose text is shown

// The "?" of a control, or nothing if there is no text for it. Both names are tried, the longer first.
export function help(view, name, words) {
  const text = texts[`${view}.${name}`] ?? texts[name];
  if (!text) return null;
  const id = `help-${view}-${name}`;
  const button = element("button", { type: "button", class: "help", "aria-label": `What is “${words}”?`, "aria-expanded": false, "aria-controls": id,
    onclick: () => (open === button ? close() : show(button, element("span", { class: "explained", id, role: "note" }, text))) }, "?");
  return button;
}

function show(button, words) {
  close();
  open = button;
  button.after(words);
  button.setAttribute("aria-expanded", true);
  const box = words.getBoundingClientRect();
  if (box.bottom > innerHeight && button.getBoundingClientRect().top > box.height) words.classList.add("above");
  if (box.right > innerWidth - 8) words.style.left = `${innerWidth - 8 - box.right}px`;
}

function close() {
  if (!open) return;
  open.setAttribute("aria-expanded", false);
  open.nextElementSibling?.remove();
  open = null;
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
document.addEventListener("pointerdown", (event) => { if (open && !open.parentNode.contains(event.target)) close(); });
document.addEventListener("focusin", (event) => { if (open && !open.parentNode.contains(event.target)) close(); });
