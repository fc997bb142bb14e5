// The page: reacts to clicks, keys and dropped files, and draws the current view.
import { fetchFile, fetchJson, url } from "./api.js";
import { leave } from "./calculations.js";
import { element } from "./elements.js";
import { changed, fit, info, read, remember, state } from "./state.js";
import { views } from "./views.js";

// Changes the state and draws it. Another view or image is a new entry in the browser's history.
export function set(changes) {
  say("");
  const push = ["view", "image"].some((key) => key in changes && changes[key] !== state[key]);
  Object.assign(state, changes);
  remember({ push });
  return show();
}

// Changes the state while a slider is dragged or a key is held: drawings follow one after another, the last one of the last state.
let drawing = false;
let pending = false;
export async function live(changes, dragged = "") {
  say("");
  Object.assign(state, changes);
  if (drawing) { pending = true; return; }
  drawing = true;
  do { pending = false; remember(); await show(dragged); } while (pending);
  drawing = false;
  if (dragged) await show();
}

// A message stays until the next click; the message that a view failed stays until a view is drawn.
export function say(text, kind = "warning") {
  const message = document.getElementById("message");
  message.textContent = text;
  message.className = kind;
}

// Draws the current view. A newer call overtakes this one: `current` is then false, and its answers are dropped.
let newest = 0;
export async function show(dragged = "") {
  const mine = ++newest;
  const current = () => mine === newest;
  for (const tab of document.querySelectorAll("#tabs button")) {
    const selected = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
  }
  thumbnails(document.getElementById("images"), "image", "image");
  leave();
  const panel = document.getElementById("view");
  panel.setAttribute("aria-labelledby", `tab-${state.view}`);
  if (!state.image && state.view !== "audit") {
    delete panel.dataset.view;
    panel.classList.remove("stale");
    panel.setAttribute("aria-busy", "false");
    panel.replaceChildren(element("p", {}, "Choose an image, or drop one."));
    return;
  }
  panel.setAttribute("aria-busy", "true");
  try {
    await views[state.view].draw(panel, current, dragged);
    if (current() && panel.classList.contains("stale")) { say(""); panel.classList.remove("stale"); }
  } catch (error) {
    if (current()) { say(error.message); panel.classList.add("stale"); }  // it still shows the view before
  } finally {
    if (current()) panel.setAttribute("aria-busy", "false");
  }
}

// A row of images to choose from, with the mouse or the arrow keys. The choice is the state's ``key``.
export function thumbnails(list, key, words) {
  const names = info.images.map(({ name }) => name).join();
  const changes = (name) => (key === "image" ? { image: name, edits: "", channel: "", start: "0" } : { [key]: name });
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    const count = info.images.length;
    const strip = `url("${url("strip.png", { until: info.images.at(-1)?.name })}")`;  // another address after each upload, since browsers cache pictures
    list.replaceChildren(...info.images.map(({ name, label }, number) => element("button", {
      role: "option", "data-name": name, title: label ? `${name}: ${label}` : name, "aria-label": label ? `${name}, ${label}` : name,
      onclick: () => set(changes(name)),
      style: { "background-image": strip, "background-size": `${100 * count}% 100%`, "background-position": `${count > 1 ? (100 * number) / (count - 1) : 0}% 0` },
    })));
    list.setAttribute("aria-label", words[0].toUpperCase() + words.slice(1));
    list.onkeydown = (event) => moveFocus(event, [...list.children], (option) => live(changes(option.dataset.name)));  // live: a key that is held down does not pile up requests
  }
  for (const option of list.children) {
    option.setAttribute("aria-selected", option.dataset.name === state[key]);
    option.tabIndex = option.dataset.name === state[key] ? 0 : -1;
  }
}

// Arrow keys, Home and End choose among nodes and move the focus with the choice.
function moveFocus(event, nodes, choose) {
  const at = nodes.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + nodes.length, Home: 0, End: nodes.length - 1 }[event.key];
  if (at < 0 || next == null) return;
  event.preventDefault();
  choose(nodes[next % nodes.length]);
  nodes[next % nodes.length].focus();
}

const fileNames = new Map();  // of uploads, which the server knows by their digests
async function upload(picture) {
  if (!picture) return;
  const before = state.image;
  say("Reading the image …", "note");
  try {
    const { image } = await fetchJson(url("upload"), { method: "POST", body: picture });
    fileNames.set(image, picture.name);
    await learn();
    fit();
    if (state.image !== before) { say(`${picture.name} is among the images now.`, "note"); await show(); return; }
    await set({ image, edits: "", channel: "", start: "0" });
  } catch (error) {
    say(error.message);
  }
}

// Asks what there is: after an upload the oldest one may be gone, and with the first image layers become known.
async function learn() {
  Object.assign(info, await fetchJson(url("info")));
  for (const image of info.images) image.label ||= fileNames.get(image.name) ?? "";
}

async function save(name, path) {
  say("Working …", "note");
  try {
    const link = element("a", { href: URL.createObjectURL(await fetchFile(url(path, Object.fromEntries(changed())))), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
    say(`${name} is saved.`, "note");
  } catch (error) {
    say(error.message);
  }
}

function makeTabs() {
  document.getElementById("tabs").replaceChildren(...Object.entries(views).map(([view, { title }]) =>
    element("button", { role: "tab", id: `tab-${view}`, "aria-controls": "view", "data-view": view }, title)));
}

function listen() {
  const tabs = document.getElementById("tabs");
  for (const tab of tabs.children) tab.addEventListener("click", () => set({ view: tab.dataset.view }));
  tabs.addEventListener("keydown", (event) => moveFocus(event, [...tabs.children], (tab) => set({ view: tab.dataset.view })));
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  input.addEventListener("change", () => { upload(input.files[0]); input.value = ""; });
  for (const name of ["dragover", "dragleave", "drop"]) document.addEventListener(name, (event) => {
    event.preventDefault();  // anywhere on the page: the browser would open a file that is dropped beside the box
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") upload(event.dataTransfer.files[0]);
  });
  document.getElementById("link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); say("The address is on the clipboard.", "note"); }
    catch { say(location.href, "note"); }
  });
  document.getElementById("export").addEventListener("click", () => save("bort-view.zip", "export.zip"));
  document.getElementById("page").addEventListener("click", () => save("bort-view.html", "export.html"));
  window.addEventListener("popstate", async () => { const wrong = [...read(location.search), ...fit()]; await show(); warn(wrong); });
}

async function begin() {
  makeTabs();
  for (let tries = 5; ; tries--) {
    try { await learn(); break; } catch (error) {
      say(error.message);
      if (error.status !== 503 || !tries) return;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  const wrong = [...read(location.search), ...fit()];
  listen();
  remember();  // without the token, which is in a cookie now
  await show();
  warn(wrong);
  document.body.dataset.ready = "1";
}

function warn(wrong) {
  if (wrong.length) say(`The address asks for ${wrong.join(", ")}, which is not there.`);
}

begin();
