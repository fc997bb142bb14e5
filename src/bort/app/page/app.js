// The page: what is chosen, what is dropped, and drawing it.
import { address, asked, file } from "./ask.js";
import { leave } from "./jobs.js";
import { element } from "./parts.js";
import { changed, fit, info, read, remember, state } from "./state.js";
import { views } from "./views.js";

export function set(changes) {
  const push = ["view", "image"].some((key) => key in changes && changes[key] !== state[key]);
  Object.assign(state, changes);
  remember({ push });
  return show();
}

// While something is dragged, one drawing at a time, and always of the last place.
let flying = false;
let waiting = false;
export async function live(changes) {
  Object.assign(state, changes);
  remember();
  if (flying) { waiting = true; return; }
  flying = true;
  do { waiting = false; await show(); } while (waiting);
  flying = false;
}

export function say(text, kind = "warning") {
  const message = document.getElementById("message");
  message.textContent = text;
  message.className = kind;
}

// Answers to questions that have been overtaken are dropped: the last click wins.
let turn = 0;
export async function show() {
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
    panel.replaceChildren(element("p", {}, "Choose an image, or drop one."));
    return;
  }
  panel.setAttribute("aria-busy", "true");
  try {
    await views[state.view](panel, current);
    if (current()) { say(""); panel.classList.remove("stale"); }
  } catch (error) {
    if (current()) { say(error.message); panel.classList.add("stale"); }  // what is seen is not what is chosen
  } finally {
    if (current()) panel.setAttribute("aria-busy", "false");
  }
}

// A row of images to choose from, by the mouse or by the arrow keys.
export function thumbnails(list, key, words) {
  const names = info.images.map(({ name }) => name).join();
  const pick = (name) => set(key === "image" ? { image: name, edits: "", channel: "", start: "0" } : { [key]: name });
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...info.images.map(({ name, label }) => element("button", {
      role: "option", "data-name": name, title: label ? `${name}: ${label}` : name, "aria-label": label ? `${name}, ${label}` : name, onclick: () => pick(name),
    }, element("img", { src: address("input.png", { image: name }), alt: "", width: 46, height: 46, loading: "lazy" }))));
    list.setAttribute("aria-label", words[0].toUpperCase() + words.slice(1));
    list.onkeydown = (event) => along(event, [...list.children], (each) => pick(each.dataset.name));
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

async function upload(picture) {
  if (!picture) return;
  try {
    const { image } = await asked(address("upload"), { method: "POST", body: picture });
    const known = info.images.some(({ name }) => name === image);
    Object.assign(info, await asked(address("info")), {});  // the oldest upload may have gone, and layers may be known now
    if (!known) info.images.find(({ name }) => name === image).label ||= picture.name;
    fit();
    await set({ image, edits: "", channel: "", start: "0" });
  } catch (error) {
    say(error.message);
  }
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
  window.addEventListener("popstate", () => { read(location.search); fit(); show(); });
}

async function begin() {
  const wrong = read(location.search);
  try { Object.assign(info, await asked(address("info"))); } catch (error) { say(error.message); return; }
  wrong.push(...fit());
  remember();  // without the token, which is a cookie now
  listen();
  await show();
  if (wrong.length) say(`The address asks for ${wrong.join(", ")}, which is not there.`);
  document.body.dataset.ready = "1";
}

begin();
