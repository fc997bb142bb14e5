// Draw: what the networks say of a drawing while it is drawn.
import { fetchJson, url } from "./api.js";
import { say, set } from "./app.js";
import { Canvas } from "./canvas.js";
import { cards, check, colourOf, element, fill, loadPictures, percent, scaleBar, slot } from "./elements.js";
import { chosenImage, learn } from "./picker.js";
import { layers, noLayer } from "./shared.js";
import { info, remember, state } from "./state.js";

const PAUSE = 50;  // milliseconds between requests, at least
let board = null;  // the canvas and its tools, which stay when another view is shown
let name = "";  // of the drawing that the canvas shows, as far as the server has it
let answer = null;  // to the newest drawing that was answered

export async function draw(panel, current) {
  board ??= makeBoard();
  if (panel.dataset.view !== "draw") {
    panel.dataset.view = "draw";
    panel.replaceChildren(element("div", { class: "controls" }), element("div", { class: "drawing" }, board.node, element("div", { class: "drawn" })));
  }
  fill(panel.querySelector(".controls"), [layers(), check("centre it, as MNIST's digits are", "centre")]);
  if (state.drawing !== name) await load();
  if (!current()) return;
  await follow();
}

// The drawing that the address names.
async function load() {
  let picture = null;
  if (state.drawing) {
    picture = new Image();
    picture.src = url("drawing.png", { drawing: state.drawing });
    try { await picture.decode(); } catch {
      picture = null;
      state.drawing = "";
      remember();
      say("The drawing that the address asks for is not there any more: draw it again.");
    }
  }
  name = state.drawing;
  board.canvas.load(picture);
}

// --- asking: one request at a time, of the newest drawing; until there is nothing newer

let asking = null;
let isOld = false;
let isDown = false;
function follow() {
  isOld = true;
  asking ??= (async () => {
    try {
      while (isOld) {
        const begun = performance.now();
        isOld = false;
        await ask();
        await drawCards();
        const left = PAUSE - (performance.now() - begun);
        if (isOld && left > 0) await new Promise((resolve) => setTimeout(resolve, left));
      }
    } finally { asking = null; }
  })();
  return asking;
}

async function ask() {
  const keep = !isDown;
  const ink = board.canvas.bytes();
  const isEmpty = ink.every((value) => value < 8);
  answer = isEmpty ? null : await fetchJson(url("draw", { layer: state.layer, centre: state.centre === "1", keep }), { method: "POST", body: ink, headers: { "Content-Type": "application/octet-stream" } });
  board.update(isEmpty);
  if (!keep || isOld) return;
  name = state.drawing = answer?.drawing ?? "";
  remember();
}

// Waits until the address has the drawing, for exports and links.
export async function settle() {
  await asking;
}

function changed(down) {
  isDown = down;
  say("");
  follow().catch((error) => say(error.message));
}

async function drawCards() {
  const cardsOf = document.querySelector("#view .drawn");
  if (!cardsOf) return;
  const now = answer;
  if (!now) { delete cardsOf.dataset.view; fill(cardsOf, [hint()]); board.verdicts.replaceChildren(); return; }
  verdicts(now);
  if (cardsOf.firstElementChild?.classList.contains("hint")) cardsOf.replaceChildren();
  await cards(cardsOf, [], async (run, body) => {
    const own = now.runs.find((one) => one.run === run.name);
    const placePictures = await loadPictures(body, [[now.picture, state.centre === "1" ? "as the network sees it, centred" : "as the network sees it"],
      ...(own.picture ? [[own.picture, `reconstruction from ${own.layer}, correlation ${own.correlation.toFixed(2)}`]] : [])]);
    const scale = slot(body, "scale", () => element("div"));
    scale.replaceChildren(own.picture ? scaleBar(own.scale) : noLayer(scale));
    fill(body, [bars(run, body, own.classes), placePictures(), scale]);
  });
}

function hint() {
  const few = info.classes.length > 1 && info.classes.length <= 12 ? ` one of ${info.classes.join(", ")}` : "";
  return board.hint ??= element("p", { class: "hint" }, `Draw${few} in the box, with mouse, finger, pen or keys. What the networks make of it appears here while you draw.`);
}

// A bar for each class in their order, so that bars stay in their places; of many classes the likeliest.
function bars(run, body, classes) {
  const inOrder = classes.length > 5 ? [...classes].sort((one, other) => one.class - other.class) : classes;
  const node = slot(body, "bars", () => element("ol", { class: "bars", "aria-label": "What the network says", style: { "--run": colourOf(run) } }));
  while (node.children.length > inOrder.length) node.lastChild.remove();
  inOrder.forEach(({ class: number, name: words, probability }, at) => {
    const line = node.children[at] ?? node.appendChild(element("li", {}, element("span"), element("i"), element("b")));
    const [label, bar, value] = line.children;
    [label.textContent, label.title, value.textContent] = [words, words, percent(probability)];
    bar.style.setProperty("--part", probability);
    line.classList.toggle("first", number === classes[0].class);
  });
  return node;
}

// What the networks say in a line each, for screens on which the cards are below the canvas.
function verdicts({ runs, picture: input }) {
  runs.forEach(({ run, classes: [{ name: words, probability }], picture }, number) => {
    const line = board.verdicts.children[number] ?? board.verdicts.appendChild(element("p", { class: "of-run", style: { "--run": colourOf({ name: run }) } }, element("img", { alt: "", width: 48, height: 48 }), element("span")));
    const [image, text] = line.children;
    [image.src, text.textContent] = [picture ?? input, `${run}: ${words}, ${percent(probability)}`];
  });
}

// --- the canvas and its tools

function makeBoard() {
  const canvas = new Canvas(info.drawing, changed);
  const tool = (words, id, click) => element("button", { class: "plain", id, onclick: click }, words);
  const width = element("input", { type: "range", id: "pen", min: 1, max: 5, step: 0.5, value: canvas.pen, oninput: () => { canvas.pen = Number(width.value); output.textContent = width.value; } });
  const output = element("output", {}, String(canvas.pen));
  const eraser = tool("Eraser", "eraser", () => { canvas.erasing = !canvas.erasing; eraser.setAttribute("aria-pressed", canvas.erasing); });
  eraser.setAttribute("aria-pressed", "false");
  const [undo, clear, look] = [tool("Undo", "undo", () => canvas.undo()), tool("Clear", "clear", () => canvas.clear()), tool("Look inside", "look", lookInside)];
  look.classList.add("main");
  const disable = (node, isDisabled) => { if (isDisabled && document.activeElement === node) canvas.area.focus(); node.disabled = isDisabled; };
  const update = (isEmpty) => { disable(undo, !canvas.undoable.length); disable(clear, isEmpty); disable(look, isEmpty); };
  update(true);
  const verdictLines = element("div", { class: "verdicts" });
  const node = element("section", { class: "board", "aria-label": "Drawing" }, canvas.area, verdictLines,
    element("div", { class: "tools-of-drawing" }, element("label", {}, element("span", {}, "pen ", output), width), eraser, undo, clear, look),
    element("p", { class: "keys", id: "draw-keys" }, "Keys in the box: the arrows move, Space paints a pixel, Shift with an arrow draws, Ctrl+Z undoes."));
  return { node, canvas, update, verdicts: verdictLines };
}

// Keeps the drawing as an image, like one that was sent, and shows it in the other views.
async function lookInside() {
  try {
    await follow();
    if (!name) return;
    const { image } = await fetchJson(url("drawing", { drawing: name, centre: state.centre === "1" }), { method: "POST" });
    await learn();
    await set({ view: "inside", ...chosenImage(image) });
  } catch (error) {
    say(error.message);
  }
}
