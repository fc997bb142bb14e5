// The images above the view: a strip to choose from, files that are sent, and the offer to invert one of them.
import { fetchJson, url } from "./api.js";
import { live, say, set, show } from "./app.js";
import { element } from "./elements.js";
import { fit, images, info, opened, state } from "./state.js";
import { views } from "./views.js";

const fileNames = new Map();  // of uploads, which the server knows by their digests
const MOST_OPENED = 16;
let learned = 0;  // how many times the server has been asked what there is
export const SMALL = 64;  // pixels of an image's side, up to which each of them is shown as a square
export const chosenImage = (image) => ({ image, start: "0" });  // chosen channels and edits stay: one compares them over images

// Asks what there is: after an upload the oldest one may be gone, and with the first image layers become known.
export async function learn() {
  Object.assign(info, await fetchJson(url("info")));
  learned += 1;
  document.title = `${info.runs.map(({ name }) => name).join(" and ")} – bort explorer`;
  for (const image of info.images) image.label ||= fileNames.get(image.name) ?? "";
}

// Puts a test image that the strip does not show among the images. One that is not there is left to `fit`.
export async function open(name) {
  if (!name || images().some((image) => image.name === name)) return;
  try { opened.push(await fetchJson(url("image", { image: name }))); } catch { return; }
  if (opened.length > MOST_OPENED) opened.shift();
}

// A row of images to choose from, with the mouse or the arrow keys. The choice is the state's ``key``.
export function thumbnails(list, key, words) {
  const all = images();
  const names = all.map(({ name }) => name).join();
  const changes = (name) => (key === "image" ? chosenImage(name) : { [key]: name });
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.classList.toggle("smooth", info.image_side > SMALL);
    const hasLabels = all.some(({ label }) => label);
    list.replaceChildren(...all.map(({ name, label }) => element("button", {
      role: "option", "data-name": name, title: label ? `${name}: ${label}` : name, "aria-label": label ? `${name}, ${label}` : name,
      onclick: () => set(changes(name)),
    }, element("span", { class: "thumb", style: background(name) }), hasLabels ? element("span", { class: "label" }, label) : null)));
    list.setAttribute("aria-label", words[0].toUpperCase() + words.slice(1));
    list.onkeydown = (event) => moveFocus(event, [...list.children], (option) => live(changes(option.dataset.name)));  // live: a key that is held down does not pile up requests
  }
  for (const option of list.children) {
    const isChosen = option.dataset.name === state[key];
    if (isChosen && option.getAttribute("aria-selected") !== "true") reveal(list, option);
    option.setAttribute("aria-selected", isChosen);
    option.tabIndex = isChosen ? 0 : -1;
  }
}

// Where the image is in the sheet of all that the server offers; images that were opened have a picture of their own.
function background(name) {
  const [number, count, columns] = [info.images.findIndex((image) => image.name === name), info.images.length, info.image_columns];
  if (number < 0) return { "background-image": `url("${url("input.png", { image: name })}")`, "background-size": "100% 100%" };
  const sheet = url("strip.png", { learned });  // another address after each upload, since browsers cache pictures
  return { "background-image": `url("${sheet}")`, ...inSheet(number, count, columns) };
}

// The place of the number-th picture of a sheet, as a background of its node.
export function inSheet(number, count, columns) {
  const [width, height] = [Math.min(count, columns), Math.ceil(count / columns)];
  const [row, column] = [Math.floor(number / columns), number % columns];
  return {
    "background-size": `${100 * width}% ${100 * height}%`,
    "background-position": `${width > 1 ? (100 * column) / (width - 1) : 0}% ${height > 1 ? (100 * row) / (height - 1) : 0}%`,
  };
}

// Scrolls the strip alone: scrollIntoView would scroll the page too.
function reveal(list, option) {
  const [left, right] = [option.offsetLeft - list.offsetLeft, option.offsetLeft - list.offsetLeft + option.offsetWidth];
  if (left < list.scrollLeft) list.scrollLeft = left - 8;
  else if (right > list.scrollLeft + list.clientWidth) list.scrollLeft = right - list.clientWidth + 8;
}

// Arrow keys, Home and End choose among nodes and move the focus with the choice.
export function moveFocus(event, nodes, choose) {
  const at = nodes.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + nodes.length, Home: 0, End: nodes.length - 1 }[event.key];
  if (at < 0 || next == null) return;
  event.preventDefault();
  choose(nodes[next % nodes.length]);
  nodes[next % nodes.length].focus();
}

export async function upload(picture) {
  if (!picture) return;
  const before = state.image;
  say("Reading the image …", "note");
  try {
    const { image } = await fetchJson(url("upload"), { method: "POST", body: picture });
    fileNames.set(image, picture.name);
    await learn();
    const isElsewhere = state.image !== before;  // who has chosen another image meanwhile is not taken away from it
    fit();
    if (isElsewhere) { say(`${picture.name} is among the images now.`, "note"); await show(); return; }
    await set({ ...chosenImage(image), ...(views[state.view].free ? { view: "inside" } : {}) });  // where it can be seen
  } catch (error) {
    say(error.message);
  }
}

// An image that is dark on bright where the networks' own are bright on dark, or the other way round, can be inverted.
export function offer() {
  const node = document.getElementById("offer");
  const { name, contrast, inverse_of: original } = images().find((image) => image.name === state.image) ?? {};
  const key = (contrast || original) && !views[state.view].alone ? `${name} ${contrast}` : "";
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  if (!key) { node.replaceChildren(); return; }
  const whose = info.runs.length > 1 ? "the networks'" : "the network's";
  const other = contrast.split(" on ").reverse().join(" on ");
  node.replaceChildren(...(contrast
    ? [`This image is ${contrast}, ${whose} images are ${other}. `, element("button", { class: "plain", id: "invert", onclick: () => invert(name) }, "Invert it")]
    : [`Dark and bright are exchanged, so that it is like ${whose} images. `, element("button", { class: "plain", id: "undo-invert", onclick: () => set(chosenImage(original)) }, "Undo")]));
}

async function invert(name) {
  try {
    const { image } = await fetchJson(url("invert", { image: name }), { method: "POST" });
    if (fileNames.has(name)) fileNames.set(image, `${fileNames.get(name)}, inverted`);
    await learn();
    await set(chosenImage(image));
    document.getElementById("undo-invert")?.focus();
  } catch (error) {
    say(error.message);
  }
}
