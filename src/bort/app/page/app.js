// The page: what is chosen, what is dropped, and drawing it.
import { address, asked, file } from "./ask.js";
import { leave } from "./jobs.js";
import { element } from "./parts.js";
import { changed, fit, info, read, remember, state } from "./state.js";
import { views } from "./views.js";

export function set(changes) {
  say("");
  const push = ["view", "image"].some((key) => key in changes && changes[key] !== state[key]);
  Object.assign(state, changes);
  remember({ push });
  return show();
}

// While something is dragged, one drawing at a time, and always of the last place.
let flying = false;
let waiting = false;
export async function live(changes, dragged = "") {
  say("");
  Object.assign(state, changes);
  if (flying) { waiting = true; return; }
  flying = true;
  do { waiting = false; remember(); await show(dragged); } while (waiting);
  flying = false;
  if (dragged) await show();
}

// A message stays until somebody does something; that a view failed, until one is drawn.
export function say(text, kind = "warning") {
  const message = document.getElementById("message");
  message.textContent = text;
  message.className = kind;
}

// Answers to questions that have been overtaken are dropped: the last click wins.
let turn = 0;
export async function show(dragged = "") {
  const mine = ++turn;
  const current = () => mine === turn;
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
    await views[state.view](panel, current, dragged);
    if (current() && panel.classList.contains("stale")) { say(""); panel.classList.remove("stale"); }
  } catch (error) {
    if (current()) { say(error.message); panel.classList.add("stale"); }  // what is seen is not what is chosen
  } finally {
    if (current()) panel.setAttribute("aria-busy", "false");
  }
}

// A row of images to choose from, by the mouse or by the arrow keys.
export function thumbnails(list, key, words) {
  const names = info.images.map(({ name }) => name).join();
  const changes = (name) => (key === "image" ? { image: name, edits: "", channel: "", start: "0" } : { [key]: name });
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    const all = info.images.length;
    const strip = `url("${address("strip.png", { until: info.images.at(-1)?.name })}")`;  // another address after each upload: browsers keep pictures
    list.replaceChildren(...info.images.map(({ name, label }, number) => element("button", {
      role: "option", "data-name": name, title: label ? `${name}: ${label}` : name, "aria-label": label ? `${name}, ${label}` : name,
      onclick: () => set(changes(name)),
      style: { "background-image": strip, "background-size": `${100 * all}% 100%`, "background-position": `${all > 1 ? (100 * number) / (all - 1) : 0}% 0` },
    })));
    list.setAttribute("aria-label", words[0].toUpperCase() + words.slice(1));
    list.onkeydown = (event) => along(event, [...list.children], (each) => live(changes(each.dataset.name)));  // one that is held down does not pile up questions
  }
  for (const each of list.children) {
    each.setAttribute("aria-selected", each.dataset.name === state[key]);
    each.tabIndex = each.dataset.name === state[key] ? 0 : -1;
  }
}

function along(event, all, choose) {
  const at = all.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
  if (at < 0 || next == null) return;
  event.preventDefault();
  choose(all[next % all.length]);
  all[next % all.length].focus();
}

const fileNames = new Map();
async function upload(picture) {
  if (!picture) return;
  const before = state.image;
  say("Reading the image …", "note");
  try {
    const { image } = await asked(address("upload"), { method: "POST", body: picture });
    fileNames.set(image, picture.name);
    await learn();
    if (state.image !== before) { say(`${picture.name} is among the images now.`, "note"); await show(); return; }
    await set({ image, edits: "", channel: "", start: "0" });
  } catch (error) {
    say(error.message);
  }
}

// What there is: the oldest upload may have gone, and layers may be known now.
async function learn() {
  Object.assign(info, await asked(address("info")));
  for (const each of info.images) each.label ||= fileNames.get(each.name) ?? "";
  return fit();
}

async function save(name, path) {
  say("Working …", "note");
  try {
    const link = element("a", { href: URL.createObjectURL(await file(address(path, Object.fromEntries(changed())))), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
    say(`${name} is saved.`, "note");
  } catch (error) {
    say(error.message);
  }
}

function listen() {
  const tabs = document.getElementById("tabs");
  for (const tab of tabs.children) tab.addEventListener("click", () => set({ view: tab.dataset.view }));
  tabs.addEventListener("keydown", (event) => along(event, [...tabs.children], (tab) => set({ view: tab.dataset.view })));
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  input.addEventListener("change", () => { upload(input.files[0]); input.value = ""; });
  for (const name of ["dragover", "dragleave", "drop"]) document.addEventListener(name, (event) => {
    event.preventDefault();  // anywhere on the page: beside the box the browser would leave it
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
  const wrong = read(location.search);
  listen();
  for (let rest = 5; ; rest--) {
    try { wrong.push(...await learn()); break; } catch (error) {
      say(error.message);
      if (error.status !== 503 || !rest) return;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  remember();  // without the token, which is a cookie now
  await show();
  warn(wrong);
  document.body.dataset.ready = "1";
}

function warn(wrong) {
  if (wrong.length) say(`The address asks for ${wrong.join(", ")}, which is not there.`);
}

begin();
