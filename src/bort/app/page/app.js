// The state of the page is its address; what is seen follows from it.
import { editsOf, views } from "./views.js";

export const info = { runs: [], images: [], classes: [], methods: [], slow: [] };
const defaults = {
  view: "inside", image: "", layer: "", k: "64", binary: "1", part: "all", channel: "", edits: "", clusters: "",
  method: "sat", target: "", threshold: "0.2", strength: "0.6", score: "relative", which: "deletion", step: "0",
  other: "", path: "none",
};
export const state = { ...defaults };

export function set(changes, { quiet = false } = {}) {
  Object.assign(state, changes);
  const query = new URLSearchParams(Object.entries(state).filter(([key, value]) => value !== defaults[key]));
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  if (!quiet) show();
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [property, given] of Object.entries(value)) made.style.setProperty(property, given);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export function say(text) {
  document.getElementById("message").textContent = text;
}

// The same question has the same answer (but for calculations under way): a click asks only for what is new.
const answers = new Map();
export function ask(path, parameters = {}, options = {}) {
  const question = address(path, parameters);
  if (options.method || path.startsWith("jobs")) return fetched(question, options);
  if (!answers.has(question)) {
    if (answers.size > 200) answers.delete(answers.keys().next().value);
    answers.set(question, fetched(question, options).catch((error) => { answers.delete(question); throw error; }));
  }
  return answers.get(question);
}

async function fetched(question, options) {
  const response = await fetch(question, options);
  const answer = await response.json().catch(() => ({ message: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(answer.message || `The server answered ${response.status}.`);
  return answer;
}

export const address = (path, parameters) =>
  `api/${path}?${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null))}`;

// Drawing anew must not take the focus away from who uses the keyboard.
function focused() {
  const now = document.activeElement;
  if (!now?.closest("#view")) return () => {};
  const run = now.closest("article")?.dataset.run;
  const mark = now.name ? `[name="${now.name}"]` : now.dataset.channel ? `[data-channel="${now.dataset.channel}"]`
    : now.id ? `#${now.id}` : now.type === "range" ? ".edit input" : `.${[...now.classList].join(".")}`;
  return () => {
    if (document.activeElement !== document.body && document.activeElement?.isConnected) return;
    const place = run == null ? document.getElementById("view") : [...document.querySelectorAll("article.run")].find((each) => each.dataset.run === run);
    if (mark !== ".") place?.querySelector(mark)?.focus();
  };
}

// Answers to questions that have been overtaken are dropped: the last click wins.
let asked = 0;
export async function show() {
  const mine = ++asked;
  const refocus = focused();
  const current = () => mine === asked;
  for (const tab of document.querySelectorAll("#tabs button")) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  for (const each of document.querySelectorAll("#images button")) each.setAttribute("aria-selected", each.dataset.name === state.image);
  const panel = document.getElementById("view");
  panel.setAttribute("aria-labelledby", `tab-${state.view}`);
  const isSat = state.method === "sat" || info.slow.includes(state.method);
  const seen = {
    image: state.image, layer: state.layer, method: isSat ? "sat" : state.method, target: state.target,
    k: isSat ? Math.min(...info.runs.map((run) => run.layers.find(({ name }) => name === run.top)?.channels ?? 64), Number(state.k)) : "",
    threshold: isSat ? state.threshold : "",
  };
  document.getElementById("export").href = address("export.zip", { ...seen, run: info.runs[0]?.name, edits: editsOf(info.runs[0]) });
  document.getElementById("page").href = address("export.html", { ...seen, edits: state.edits });
  say("");
  if (!state.image && state.view !== "audit") {
    delete panel.dataset.view;
    panel.replaceChildren(element("p", {}, "Choose an image, or drop one."));
    return;
  }
  try {
    await views[state.view](panel, current);
    if (current()) refocus();
  } catch (error) {
    if (current()) say(error.message);
  }
}

function thumbnails() {
  const list = document.getElementById("images");
  list.replaceChildren(...info.images.map(({ name, label }) => element("button", {
    role: "option", "data-name": name, "aria-selected": name === state.image, title: label ? `${name}: ${label}` : name,
    "aria-label": label ? `${name}, ${label}` : name, onclick: () => set({ image: name, edits: "", channel: "" }),
  }, element("img", { src: address("input.png", { image: name }), alt: "", width: 46, height: 46, loading: "lazy" }))));
}

async function upload(file) {
  if (!file) return;
  try {
    const { image } = await ask("upload", {}, { method: "POST", body: file });
    if (!info.images.some(({ name }) => name === image)) info.images.push({ name: image, label: file.name });
    thumbnails();
    set({ image, edits: "", channel: "" });
  } catch (error) {
    say(error.message);
  }
}

function listen() {
  for (const tab of document.querySelectorAll("#tabs button")) tab.addEventListener("click", () => set({ view: tab.dataset.view }));
  document.getElementById("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...document.querySelectorAll("#tabs button")];
    const next = all[(all.findIndex((tab) => tab.dataset.view === state.view) + step + all.length) % all.length];
    set({ view: next.dataset.view });
    next.focus();
  });
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  input.addEventListener("change", () => { upload(input.files[0]); input.value = ""; });
  for (const name of ["dragover", "dragleave", "drop"]) drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") upload(event.dataTransfer.files[0]);
  });
  document.getElementById("link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); say("The address is on the clipboard."); }
    catch { say(location.href); }
  });
}

async function begin() {
  Object.assign(state, Object.fromEntries(new URLSearchParams(location.search)));
  delete state.token;
  try { Object.assign(info, await ask("info")); } catch (error) { say(error.message); return; }
  const names = info.images.map(({ name }) => name);
  if (!names.includes(state.image)) state.image = names[0] ?? "";
  if (!info.runs[0].layers.some(({ name }) => name === state.layer)) state.layer = info.runs[0].top || "";
  if (!names.includes(state.other)) state.other = names[1] ?? state.image;
  thumbnails();
  listen();
  await show();
  document.body.dataset.ready = "1";
}

begin();
