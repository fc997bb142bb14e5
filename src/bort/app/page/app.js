// The page: reacts to clicks, keys and dropped files, and draws the current view.
import { fetchFile, url } from "./api.js";
import { leave } from "./calculations.js";
import { element } from "./elements.js";
import { learn, moveFocus, offer, open, thumbnails, upload } from "./picker.js";
import { changed, fit, info, read, remember, state } from "./state.js";
import { tell } from "./story.js";
import { setUpTour } from "./tour.js";
import { views } from "./views.js";

export { thumbnails };

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
  document.getElementById("picker").hidden = Boolean(views[state.view].alone);
  thumbnails(document.getElementById("images"), "image", "image");
  offer();
  leave();
  const panel = document.getElementById("view");
  panel.setAttribute("aria-labelledby", `tab-${state.view}`);
  if (!state.image && !views[state.view].free) {
    delete panel.dataset.view;
    panel.classList.remove("stale");
    panel.setAttribute("aria-busy", "false");
    panel.replaceChildren(element("p", {}, "Choose an image, or drop one."));
    tell();
    return;
  }
  panel.setAttribute("aria-busy", "true");
  try {
    await views[state.view].draw(panel, current, dragged);
    if (current() && panel.classList.contains("stale")) { say(""); panel.classList.remove("stale"); }
    if (current()) tell();
  } catch (error) {
    if (current()) { say(error.message); panel.classList.add("stale"); }  // it still shows the view before
  } finally {
    if (current()) panel.setAttribute("aria-busy", "false");
  }
}

async function save(name, path) {
  say("Working …", "note");
  try {
    await views[state.view].settle?.();
    const link = element("a", { href: URL.createObjectURL(await fetchFile(url(path, Object.fromEntries(changed())))), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
    say(`${name} is saved.`, "note");
  } catch (error) {
    say(error.message);
  }
}

function makeTabs() {
  document.getElementById("tabs").replaceChildren(...Object.entries(views).filter(([, { refusal }]) => !refusal?.()).map(([view, { title }]) =>
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
    await views[state.view].settle?.();
    const token = info.needs_token ? " Whoever opens it is asked for the token, which is not in it." : "";
    try { await navigator.clipboard.writeText(location.href); say(`The address is on the clipboard.${token}`, "note"); }
    catch { say(`${location.href}${token}`, "note"); }  // over plain HTTP, browsers give the clipboard to pages of this machine alone
  });
  document.getElementById("export").addEventListener("click", () => save("bort-view.zip", "export.zip"));
  document.getElementById("page").addEventListener("click", () => save("bort-view.html", "export.html"));
  window.addEventListener("popstate", async () => { const wrong = await readAddress(); await show(); warn(wrong); });
}

// Takes over the address. Returns the sentences about what it asks for in vain.
async function readAddress() {
  const wrong = read(location.search);
  for (const image of [state.image, state.other]) await open(image);
  wrong.push(...fit());
  const refusal = views[state.view].refusal?.();
  const sentences = wrong.length ? [`The address asks for ${wrong.join(", ")}, which is not there.`] : [];
  if (refusal) { sentences.push(`The address asks for the view “${views[state.view].title}”. ${refusal}`); state.view = "inside"; }
  return sentences;
}

async function begin() {
  for (let tries = 5; ; tries--) {
    try { await learn(); break; } catch (error) {
      say(error.message);
      if (error.status !== 503 || !tries) return;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  makeTabs();
  const isLink = [...new URLSearchParams(location.search).keys()].some((key) => key in info.defaults.state);
  const wrong = await readAddress();
  listen();
  remember();  // without the token, which is in a cookie now
  await show();
  warn(wrong);
  setUpTour({ isLink });
  document.body.dataset.ready = "1";
}

function warn(sentences) {
  if (sentences.length) say(sentences.join(" "));
}

begin();
