// Evidence: a saliency map, and what deletion and insertion say of it.
import { ask } from "./api.js";
import { calculationOf, forget, line } from "./calculations.js";
import { cards, choice, element, fill, loadPictures, plot, predictions, slider, slot } from "./elements.js";
import { input } from "./shared.js";
import { info, state, topOf } from "./state.js";

export async function evidence(panel, current, dragged) {
  const isSat = state.method === "sat";
  const isSlow = info.slow.includes(state.method);
  const most = Math.min(info.most_tracked, Math.max(...info.runs.map((run) => topOf(run)?.channels ?? 1)));
  const controls = [
    choice("Method", "method", info.methods.map((name) => [name, info.slow.includes(name) ? `${name} (slow)` : name])),
    choice("Class", "target", [["", "what the network says"], ...info.classes.map((name, number) => [String(number), name])],
      { title: isSat ? "of the score: SAT's map follows what excites the layer, whatever the class" : "" }),
    isSat ? slider("channels", "tracked", { min: 1, max: most, step: 1 }) : null,
    isSat ? slider("threshold", "threshold", { min: 0, max: 0.95, step: 0.05 }) : null,
    slider("strength", "strength", { min: 0, max: 1, step: 0.05 }),
    choice("Score", "score", [["relative", "relative logit"], ["logit", "logit"], ["probability", "probability"]]),
    choice("Show", "which", [["deletion", "deletion"], ["insertion", "insertion"]]),
    slider("step", "step", { min: 0, max: info.defaults.steps, step: 1 }),
  ];
  await cards(panel, controls, async (run, body) => {
    const classes = await ask("predict", { run: run.name, image: state.image });
    if (!current()) return;
    if (isSlow) {
      const status = await calculationOf(run.name);
      const placePictures = await loadPictures(body, [[input(state.image), "input"]]);
      if (!current()) return;
      if (status.state !== "done") { fill(body, [predictions(body, classes), placePictures(), line(run, status, body.querySelector(".job"))]); return; }
    }
    const sat = isSat ? { k: Math.min(Number(state.tracked), info.most_tracked, topOf(run).channels), threshold: state.threshold } : {};
    const here = { run: run.name, image: state.image, method: state.method, target: state.target, ...sat };
    try {
      const overlay = await ask("saliency", { ...here, strength: state.strength });
      if (!current()) return;
      // Another map of SAT needs no pass through the network, its curve does: the curve waits until the slider rests.
      const shown = body.querySelectorAll(".pair img");
      if (["tracked", "threshold"].includes(dragged) && shown.length === 3) { shown[1].src = overlay.picture; return; }
      const [curve, at] = await Promise.all([ask("curve", here), ask("step", { ...here, step: state.step, which: state.which })]);
      if (!current()) return;
      const score = curve[state.score][state.which][state.step];
      const words = `${state.which}, step ${state.step} of ${info.defaults.steps}: ${state.score === "relative" ? "relative logit" : state.score} ${score === null ? "–" : score.toFixed(3)}`;
      const placePictures = await loadPictures(body, [[input(state.image), "input"], [overlay.picture, state.method], [at.picture, words]]);
      if (!current()) return;
      const curves = slot(body, "curve", () => element("div"));
      curves.replaceChildren(...(score === null ? [] : [plot(curve[state.score], Number(state.step))]), ...caution(curve));
      fill(body, [predictions(body, classes), placePictures(), curves]);
    } catch (error) {
      if (isSlow && error.status === 404) forget(run.name);  // the server no longer has the map: the next time it is computed again
      throw error;
    }
  });
}

// There is no relative logit where the clean image's logit, which it is divided by, is near 0 or negative; it says little where that is small.
function caution(curve) {
  if (state.score !== "relative") return [];
  const clean = curve.logit.deletion[0];
  const heights = [...curve.relative.deletion, ...curve.relative.insertion];
  const exists = heights[0] !== null;
  if (exists && Math.max(...heights.map(Math.abs)) <= 2) return [];
  return [element("p", { class: "caution" }, `The clean image's logit of this class is ${clean.toFixed(2)}: ${exists ? "divided by it, the curve says little" : "too small to divide by"}. `
    + "Look at the logit or the probability.")];
}
