// Evidence: a saliency map, and what deletion and insertion say of it.
import { ask } from "./api.js";
import { set } from "./app.js";
import { calculationOf, forget, line } from "./calculations.js";
import { cards, check, choice, element, figureOf, fill, fixed, loadPictures, predictions, runName, slider, slot } from "./elements.js";
import { methodOptions } from "./options.js";
import { makePlot } from "./plot.js";
import { input } from "./shared.js";
import { info, range, state, topOf } from "./state.js";

const scores = { relative: "relative logit", logit: "logit", probability: "probability" };
let plot = null;

export async function evidence(panel, current, dragged) {
  const isSat = state.method === "sat";
  const most = Math.min(info.most_tracked, Math.max(...info.runs.map((run) => topOf(run)?.channels ?? 1)));
  const controls = [
    choice("Method", "method", info.methods.map((name) => [name, info.titles[name] + (info.slow.includes(name) ? " (slow)" : "")]), { change: (method) => set({ method, options: "" }) }),
    choice("Class", "target", [["", "what the network says"], ...info.classes.map((name, number) => [String(number), name])],
      { title: isSat ? "of the score: SAT's map follows what excites the layer, whatever the class" : "" }),
    isSat ? slider("channels", "tracked", { min: 1, max: most, step: 1 }) : null,
    isSat ? slider("threshold", "threshold", { ...range("threshold"), step: 0.05 }) : null,
    ...methodOptions(),
    slider("strength", "strength", { ...range("strength"), step: 0.05 }),
    choice("Score", "score", Object.entries(scores)),
    info.runs.length > 1 ? check("difference", "difference") : null,
  ];
  if (!panel.querySelector(".plot")) plot = makePlot((step) => set({ step: String(step) }));
  const card = slot(panel, "curves", () => element("section", { class: "card curves", "aria-label": "Deletion and insertion" }, plot.node, element("div", { class: "cautions" })));
  const dock = slot(panel, "dock", () => element("div", { class: "dock" }));
  fill(dock, [choice("Show", "which", [["deletion", "deletion"], ["insertion", "insertion"]]), slider("step", "step", { ...range("step"), step: 1 })]);
  const curves = await cards(panel, controls, (run, body) => drawRun(run, body, current, dragged), [card, dock]);
  if (!current() || curves.includes("dragged")) return;
  drawLegend(panel.querySelector(".runs"));
  plot.update({ curves: info.runs.map((run, number) => ({ run, curve: curves[number]?.[state.score] })), steps: info.defaults.steps, step: Number(state.step), which: state.which, scoreName: scores[state.score] });
  card.querySelector(".cautions").replaceChildren(...info.runs.flatMap((run, number) => caution(run, curves[number])));
  await drawDifferences(panel, current);
}

// What is asked of a run's map.
function mapOf(run) {
  const sat = state.method === "sat" ? { k: Math.min(Number(state.tracked), info.most_tracked, topOf(run)?.channels ?? 1), threshold: state.threshold } : {};
  return { run: run.name, image: state.image, method: state.method, target: state.target, options: state.options, ...sat };
}

// A run's map, and its image at the step. Returns the run's curves, null if it has none (yet).
async function drawRun(run, body, current, dragged) {
  const classes = await ask("predict", { run: run.name, image: state.image });
  if (!current()) return null;
  const isSlow = info.slow.includes(state.method);
  if (isSlow) {
    const status = await calculationOf(run.name);
    const placePictures = await loadPictures(body, [[input(state.image), "input"]]);
    if (!current()) return null;
    if (status.state !== "done") { fill(body, [predictions(body, classes), placePictures(), line(run, status, body.querySelector(".job"))]); return null; }
  }
  const here = mapOf(run);
  try {
    const overlay = await ask("saliency", { ...here, strength: state.strength });
    if (!current()) return null;
    // Another map of SAT needs no pass through the network, its curve does: the curve waits until the slider rests.
    const shown = body.querySelectorAll(".pair img");
    if (["tracked", "threshold"].includes(dragged) && shown.length === 2) { shown[0].src = overlay.picture; return "dragged"; }
    const [curve, at] = await Promise.all([ask("curve", here), ask("step", { ...here, step: state.step, which: state.which })]);
    if (!current()) return null;
    const score = curve[state.score][state.which][state.step];
    const words = `${state.which}, step ${state.step} of ${info.defaults.steps}: ${scores[state.score]} ${score === null ? "n/a" : fixed(score, 3)}`;
    const placePictures = await loadPictures(body, [[overlay.picture, info.titles[state.method]], [at.picture, words]]);
    if (!current()) return null;
    fill(body, [predictions(body, classes), placePictures()]);
    return curve;
  } catch (error) {
    if (isSlow && error.status === 404) forget(run.name);  // the server no longer has the map: the next time it is computed again
    if (error.status !== 400) throw error;
    if (current()) fill(body, [predictions(body, classes), element("p", { class: "caution" }, error.message)]);  // this network has no such map
    return null;
  }
}

// What the colours of the maps mean.
function drawLegend(runs) {
  const signed = info.signed.includes(state.method);
  const node = slot(runs, "legend", () => runs.appendChild(element("p", { class: "scale" }, element("span"), element("i", { "aria-hidden": true }), element("span"))));
  const [low, bar, high] = node.children;
  [low.textContent, high.textContent] = signed ? ["against the class", "for it"] : ["counts little", "counts much"];
  bar.className = signed ? "" : "heat";
}

// The first run's map less each other run's, where both are there.
async function drawDifferences(panel, current) {
  const runs = panel.querySelector(".runs");
  const present = runs.querySelector(".differences");
  const [first, ...others] = info.runs;
  const isReady = [...runs.querySelectorAll("article.run .pair")].filter((pair) => pair.children.length === 2).length === info.runs.length;
  if (state.difference !== "1" || !others.length || !isReady) { present?.remove(); return; }
  const { run, ...here } = mapOf(first);
  const answers = await Promise.all(others.map((other) => ask("saliency/difference", { run, against: other.name, ...here, k: state.method === "sat" ? state.tracked : "", strength: state.strength })
    .catch((error) => { if (error.status !== 400) throw error; return { message: error.message }; })));
  if (!current()) return;
  const figures = answers.map(({ picture, message }, number) => {
    if (message) return element("p", { class: "caution" }, message);
    const figure = figureOf(picture);
    figure.lastChild.append(runName(first), " less ", runName(others[number]));
    return figure;
  });
  const words = others.length === 1 ? [`more in ${others[0].name}`, `more in ${first.name}`] : ["more in the other", `more in ${first.name}`];
  const card = element("section", { class: "card differences", "aria-label": "Differences of the maps" }, element("div", { class: "pair" }, ...figures),
    element("p", { class: "scale" }, element("span", {}, words[0]), element("i", { "aria-hidden": true }), element("span", {}, words[1]), element("span", {}, "Each map is first brought to the range from 0 (or −1) to 1.")));
  if (present) present.replaceWith(card); else { runs.append(card); card.scrollIntoView({ block: "nearest" }); }
}

// There is no relative logit where the clean image's logit, which it is divided by, is near 0 or negative; it says little where that is small.
function caution(run, curve) {
  if (state.score !== "relative" || !curve) return [];
  const clean = curve.logit.deletion[0];
  const heights = [...curve.relative.deletion, ...curve.relative.insertion];
  const exists = heights[0] !== null;
  if (exists && Math.max(...heights.map(Math.abs)) <= 2) return [];
  return [element("p", { class: "caution" }, `${run.name}: the clean image's logit of this class is ${clean.toFixed(2)}: ${exists ? "divided by it, the curve says little" : "too small to divide by"}. `
    + "Look at the logit or the probability.")];
}
