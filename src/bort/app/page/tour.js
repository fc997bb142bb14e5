// A tour of the page in four steps. It opens by itself on the first visit, unless the address asks for a view: who follows a link
// wants to see what it leads to. It never covers what it explains, and the page can be used meanwhile.
import { element } from "./elements.js";
import { explain } from "./help.js";

const steps = [
  ["#picker", "An image", "Everything below is about the image that is chosen here. Choose another one, or bring your own."],
  ["#tabs", "A question", "Each of these asks the networks something else: what a layer has kept of the image, which pixels count, how to fool them, and what is true of each layer."],
  ["#story", "The answer in a sentence", "What the view shows, in numbers: of this image and, a moment later, over many test images. What did not improve is said too."],
  ["#view .controls", "Try something", "Pictures and numbers follow every setting. A “?” says what a setting does. “Copy link” keeps what you see."],
];
const key = "bort-tour";
let seen = false;  // where the browser keeps nothing
let open = null;  // the panel, the step, and what had the focus before
const growth = new ResizeObserver(() => open && put());  // of what is explained, or of anything above it: a sentence may become longer

export function setUpTour({ isLink }) {
  const button = document.getElementById("tour");
  button.addEventListener("click", () => start(button));
  document.querySelector(".tools").append(explain("help-tools", "Copy link, Export, Save page",
    "Copy link: the address of exactly this view. Export: its pictures and numbers as files. Save page: the view as one page that needs no server. Tour: what is where."));
  if (!isLink && !wasSeen()) start(document.activeElement);
}

function wasSeen() {
  try { return localStorage.getItem(key) !== null; } catch { return seen; }
}

function start(focused) {
  if (open) return;
  const shown = steps.filter(([selector]) => document.querySelector(selector)?.offsetHeight);
  const panel = element("div", { class: "tour", role: "dialog", "aria-labelledby": "tour-title", "aria-describedby": "tour-words" });
  open = { panel, shown, at: 0, focused };
  document.body.append(panel);
  for (const [name, listener] of listeners) addEventListener(name, listener, { capture: true, passive: name === "scroll" });
  show(0);
}

function show(at) {
  const { panel, shown } = open;
  if (at < 0) return;
  if (at >= shown.length) { end(); return; }
  open.at = at;
  const [selector, title, words] = shown[at];
  for (const node of document.querySelectorAll(".toured")) node.classList.remove("toured");
  const target = document.querySelector(selector);
  target?.classList.add("toured");
  target?.scrollIntoView({ block: "nearest" });
  growth.disconnect();
  for (const node of [target, document.body]) if (node) growth.observe(node);
  const button = (name, label, click, disabled = false) => element("button", { type: "button", class: `plain ${name}`, disabled, onclick: click }, label);
  const next = button("next", at + 1 < shown.length ? "Next" : "Done", () => show(open.at + 1));
  panel.replaceChildren(element("p", { class: "count" }, `${at + 1} of ${shown.length}`), element("h2", { id: "tour-title" }, title), element("p", { id: "tour-words" }, words),
    element("div", { class: "buttons" }, button("end", "End the tour", end), button("back", "Back", () => show(open.at - 1), at === 0), next));
  put();
  next.focus({ preventScroll: true });
}

// Below what is explained, else above it, else at the bottom or the top of the window: wherever it covers nothing of it. Where
// there is no such place, what is explained goes to the top of the window, unless it is the reader who scrolls.
function put(event) {
  const { panel, shown, at } = open;
  const node = document.querySelector(shown[at][0]);
  if (!node) return;
  let place = placeBeside(node, panel);
  if (place.covers && !event) {
    node.scrollIntoView({ block: "start" });
    place = placeBeside(node, panel);
  }
  panel.style.left = `${place.left}px`;
  panel.style.top = `${place.top}px`;
}

function placeBeside(node, panel) {
  const target = node.getBoundingClientRect();
  const { width, height } = panel.getBoundingClientRect();
  const left = Math.max(8, Math.min(target.left, document.documentElement.clientWidth - width - 8));
  const places = [target.bottom + 12, target.top - height - 12, innerHeight - height - 8, 8];
  const fits = (top) => top >= 0 && top + height <= innerHeight && (top >= target.bottom || top + height <= target.top);
  const top = places.find(fits);
  return { left, top: top ?? places[2], covers: top === undefined };
}

function end() {
  const { panel, focused } = open;
  for (const [name, listener] of listeners) removeEventListener(name, listener, { capture: true });
  for (const node of document.querySelectorAll(".toured")) node.classList.remove("toured");
  growth.disconnect();
  panel.remove();
  open = null;
  seen = true;
  try { localStorage.setItem(key, "seen"); } catch { /* then it is only remembered until the page is left */ }
  if (focused?.isConnected && focused !== document.body) focused.focus();
}

function press(event) {
  if (event.key === "Escape") end();
  else if (!open.panel.contains(document.activeElement)) return;
  else if (event.key === "ArrowRight") show(open.at + 1);
  else if (event.key === "ArrowLeft") show(open.at - 1);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

const listeners = [["keydown", press], ["resize", put], ["scroll", put]];
