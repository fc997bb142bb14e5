// Find images: the test set by class, by what the networks say, by where they differ.
import { fetchJson, url } from "./api.js";
import { set } from "./app.js";
import { button, check, choice, colourOf, element, fill, percent, runName, slot } from "./elements.js";
import { chosenImage, inSheet, open, SMALL } from "./picker.js";
import { info, state } from "./state.js";

const POLL = 500;  // milliseconds
let timer = 0;
let shown = {};  // the answer that the page shows

const question = () => ({
  label: state.find_label, said: state.find_said, wrong: state.find_wrong, disagree: state.find_disagree === "1", order: state.find_order, page: state.find_page,
});

export async function find(panel, current, _, again = false) {
  clearTimeout(timer);
  const found = await fetchJson(url("find", { ...question(), again }));
  if (!current()) return;
  draw(panel, found);
  shown = found;
  wait(panel, current);
}

// While the index is computed, its progress follows; the images do when a page is not full yet, or when a part is complete.
function wait(panel, current) {
  if (shown.state !== "running") return;
  timer = setTimeout(async () => {
    if (!current() || state.view !== "find") return;
    let found;
    try { found = await fetchJson(url("find", question())); } catch { found = shown; }  // a busy server: the next time
    if (!current() || state.view !== "find") return;
    const isNew = found.state !== shown.state || found.images.length > shown.images.length || (found.predicted === found.count && shown.predicted < found.count);
    if (isNew) draw(panel, found); else progress(panel, found);
    shown = isNew ? found : { ...shown, state: found.state };
    wait(panel, current);
  }, POLL);
}

function draw(panel, found) {
  if (panel.dataset.view !== "find") {
    panel.dataset.view = "find";
    panel.replaceChildren(element("div", { class: "controls" }), element("p", { class: "indexing", role: "status" }), legend(),
      element("div", { class: "found", role: "group", "aria-label": "Images" }), element("div", { class: "pager" }));
  }
  const [controls, , , grid, pages] = panel.children;
  fill(controls, found.count ? questions(found) : []);
  progress(panel, found);
  images(grid, found);
  pager(pages, grid, found);
}

const legend = () => element("p", { class: "legend" }, ...info.runs.map(runName));
const asked = (changes) => set({ ...changes, find_page: "0" });

function questions({ labels, said, no_correlations: none }) {
  const several = info.runs.length > 1;
  const names = (list, key) => [["", "any"], ...[...new Set([...list, state[key]])].filter(Boolean).map((name) => [name, name])];
  const filter = (words, key, values, title = "") => choice(words, key, values, { title, change: (value) => asked({ [key]: value }) });
  const wrong = [["", "right or wrong"], ...(several ? [["any", "a network is wrong"], ["all", "all networks are wrong"]] : []),
    ...info.runs.map(({ name }, number) => [String(number), `${name} is wrong`])];
  const orders = [["report", "as in the report"], ...(several ? [["confidence", "largest difference in confidence"]] : []),
    ...(several && !none ? [["correlation", "largest difference in correlation"]] : []), ["sure", "most confident"], ["unsure", "least confident"]];
  const isAsked = ["find_label", "find_said", "find_wrong"].some((key) => state[key]) || state.find_disagree === "1" || state.find_order !== "report";
  return [
    labels.length ? filter("True class", "find_label", names(labels, "find_label")) : null,
    filter("Predicted class", "find_said", names(said, "find_said"), several ? "by any of the networks" : ""),
    labels.length ? filter("Right or wrong", "find_wrong", wrong) : null,
    several ? check("networks disagree", "find_disagree", { change: (value) => asked({ find_disagree: value }) }) : null,
    filter("Order", "find_order", orders, ORDER_WORDS[state.find_order]),
    button("All images", "find-all", { disabled: !isAsked, click: () => asked({ find_label: "", find_said: "", find_wrong: "", find_disagree: "0", find_order: "report" }) }),
  ];
}

const ORDER_WORDS = {
  report: "test-0, test-1, …: the images of the report come first",
  confidence: "between the networks' probabilities of the true class; of their predicted classes where it is not known",
  correlation: "between the networks' correlations of the reconstruction from the top layer with the image",
  sure: "the probability of the predicted class: of the network that is wrong if one is chosen, otherwise the mean over the networks",
  unsure: "the probability of the predicted class: of the network that is wrong if one is chosen, otherwise the mean over the networks",
};

// How far the index is, and how many images are found.
function progress(panel, { state: now, message, predicted, count, correlated, correlated_count: most, no_correlations: none, matches }) {
  const node = panel.querySelector(".indexing");
  const bar = slot(node, "bar", () => element("progress", { "aria-label": "Images that have been asked about" }));
  const words = slot(node, "words", () => element("span"));
  const again = slot(node, "again", () => element("button", { class: "plain", onclick: () => find(panel, () => state.view === "find", "", true) }, "Start again"));
  const number = (value) => value.toLocaleString("en");
  const isIndexing = now === "running";
  const isPredicting = predicted < count;
  [bar.max, bar.value] = isPredicting ? [count, predicted] : [most || 1, correlated];
  const parts = [count ? `${number(matches)} of ${number(predicted)} test images` : "There are no test images to look through: give some with images=FOLDER (in a command --images FOLDER)"];
  if (now === "failed") parts.push(`the others could not be asked about: ${message}`);
  else if (isIndexing) parts.push(isPredicting ? `${number(count - predicted)} more are being looked at` : `correlations of the first ${number(most)}: ${number(correlated)} so far`);
  else if (none) parts.push(`without correlations: ${none}`);
  else if (count) parts.push(`correlations are known of the first ${number(most)}`);
  words.textContent = `${parts.join("; ")}.`;
  fill(node, [words, isIndexing ? bar : null, now === "failed" ? again : null]);
}

function images(grid, { images: list, sheet, columns, predicted }) {
  const content = JSON.stringify([list, state.find_order === "correlation", predicted > 0]);
  if (grid.dataset.content === content) return;
  grid.dataset.content = content;
  grid.classList.toggle("smooth", info.image_side > SMALL);
  const focused = grid.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  grid.replaceChildren(...list.map((image, number) => element("button", {
    class: "found-image", "data-name": image.name, tabindex: number ? -1 : 0, title: described(image), "aria-label": described(image), onclick: () => look(image),
  }, element("span", { class: "thumb", style: { "background-image": `url("${sheet}")`, ...inSheet(number, list.length, columns) } }),
  element("span", { class: "truth" }, image.label || image.name), ...image.runs.map(said))));
  if (!list.length) grid.replaceChildren(element("p", {}, predicted ? "No image is like that." : ""));  // nothing is known yet, or there are none
  if (focused !== null) (grid.querySelector(`[data-name="${focused}"]`) ?? grid.querySelector("button"))?.focus();
}

// "✓ right 7, 99%" with the run's colour at its side.
function said({ said: name, probability, right, correlation }, number) {
  const value = state.find_order === "correlation" && correlation !== null ? `r ${correlation.toFixed(2).replace("-0.00", "0.00")}` : percent(probability).replace(/\.\d/, "");
  const verdict = right === null ? null : element("b", { class: right ? "right" : "wrong" }, right ? "✓ right " : "✗ wrong ");
  return element("span", { class: "said-by of-run", style: { "--run": colourOf(info.runs[number]) } }, verdict, `${name} `, element("span", { class: "value" }, value));
}

function described({ name, label, runs }) {
  const verdicts = runs.map(({ said: what, probability, right, correlation }, number) =>
    `${info.runs[number].name} says ${what}, ${percent(probability)}${right === null ? "" : right ? ", right" : ", wrong"}${correlation === null ? "" : `, correlation ${correlation.toFixed(2)}`}`);
  return `${name}${label ? `, true class ${label}` : ""}. ${verdicts.join(". ")}.`;
}

async function look({ name }) {
  await open(name);
  await set({ view: "inside", ...chosenImage(name) });
}

function pager(node, grid, { page, pages }) {
  const go = (to, focus) => { if (to >= 0 && to < pages) set({ find_page: String(to) }).then(() => focus && [...grid.querySelectorAll("button")].at(focus === "last" ? -1 : 0)?.focus()); };
  const make = (name, words, sign) => slot(node, name, () => element("button", { class: `plain ${name}`, "aria-label": words }, sign));
  const [before, after, words] = [make("before", "Page before", "‹"), make("after", "Next page", "›"), slot(node, "words", () => element("span"))];
  words.textContent = `page ${page + 1} of ${pages}`;
  fill(node, pages > 1 ? [before, words, after] : []);
  [before.onclick, after.onclick] = [() => go(page - 1), () => go(page + 1)];
  const focusedBefore = document.activeElement;
  [before.disabled, after.disabled] = [page === 0, page === pages - 1];
  if (focusedBefore === before && before.disabled) after.focus();
  if (focusedBefore === after && after.disabled) before.focus();
  grid.onkeydown = (event) => walk(event, grid, go, page);
}

// Arrow keys walk through the grid and on to the pages beside this one; Page Up and Page Down turn pages.
function walk(event, grid, go, page) {
  const all = [...grid.querySelectorAll("button")];
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const row = all.filter((node) => node.offsetTop === all[0].offsetTop).length;
  const isInLastRow = all[at].offsetTop === all.at(-1).offsetTop;
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: isInLastRow ? at + row : Math.min(at + row, all.length - 1), ArrowUp: at - row, Home: 0, End: all.length - 1, PageDown: Infinity, PageUp: -Infinity }[event.key];
  if (next == null) return;
  event.preventDefault();
  if (next >= all.length) { go(page + 1, "first"); return; }
  if (next < 0) { go(page - 1, event.key === "PageUp" ? "first" : "last"); return; }
  for (const node of all) node.tabIndex = node === all[next] ? 0 : -1;
  all[next].focus();
}
