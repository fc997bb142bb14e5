// Slow saliency maps in the server's queue that this page waits for.
import { fetchJson, url } from "./api.js";
import { show } from "./app.js";
import { element } from "./elements.js";
import { info, state } from "./state.js";

const page = crypto.getRandomValues(new Uint32Array(2)).join("-");  // tells the server which page waits for a calculation
const calculations = new Map();  // by key: the status of a calculation, or the promise of its first one
const isOpen = ({ state: now }) => now === "waiting" || now === "running";
const keyOf = (run) => JSON.stringify([run, state.image, state.method, state.target, state.options]);

// The calculation of the run's map that is shown now, started if there is none.
export async function calculationOf(run) {
  const key = keyOf(run);
  if (!calculations.has(key)) {
    const [, image, method, target, options] = JSON.parse(key);
    const starting = fetchJson(url("jobs", { run, image, method, target, options, page }), { method: "POST" });
    calculations.set(key, starting);
    let status;
    try { status = await starting; } catch (error) { if (calculations.get(key) === starting) calculations.delete(key); throw error; }
    if (calculations.get(key) !== starting) return status;  // the page has left it meanwhile, and leave() tells the server
    calculations.set(key, status);
    watch(key, status);
  }
  return calculations.get(key);
}

export const forget = (run) => calculations.delete(keyOf(run));

// Asks how far it is until it has ended, or until another calculation has taken its place.
async function watch(key, { job, state: first }) {
  let status = { state: first };
  while (isOpen(status)) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (calculations.get(key)?.job !== job) return;
    status = await fetchJson(url(`jobs/${job}`, { page })).catch((error) => ({ job, state: "failed", message: error.message, done: 0, total: 0 }));
    if (calculations.get(key)?.job !== job) return;
    calculations.set(key, status);
    for (const line of document.querySelectorAll(".job")) if (line.dataset.job === job) update(line, status);
  }
  show();
}

// Stops waiting for calculations that this page no longer shows. The server stops them unless another page waits for them.
export function leave() {
  const shown = new Set(info.runs.map(({ name }) => keyOf(name)));
  for (const [key, calculation] of calculations) {
    if (shown.has(key) || calculation.state === "done") continue;
    calculations.delete(key);
    Promise.resolve(calculation)
      .then((status) => isOpen(status) && tellThatLeft(status.job))
      .catch(() => {});
  }
}
const tellThatLeft = (job) => fetchJson(url(`jobs/${job}`, { page }), { method: "DELETE" });

// The same for one that is shown, which this page then calls cancelled, whether or not another page still waits for it.
function cancel(run, { job }) {
  const key = keyOf(run);
  if (calculations.get(key)?.job !== job) return;
  calculations.set(key, { ...calculations.get(key), job: "", state: "cancelled" });
  tellThatLeft(job).catch(() => {});
  show();
}

function update(line, { state: now, done, total }) {
  const [bar, words] = line.children;
  [bar.max, bar.value] = [total || 1, done];
  words.textContent = total ? `${Math.round((100 * done) / total)}%` : now;
}

// A line with the progress and a button to cancel; or how it ended, with a button to start again. A present line is updated.
export function line(run, status, present) {
  if (isOpen(status)) {
    const node = present?.dataset.job === status.job && present.tagName === "DIV" ? present
      : element("div", { class: "job", "data-job": status.job }, element("progress", { max: 1, value: 0, "aria-label": `${state.method} of ${run.name}` }), element("span"),
        element("button", { class: "plain cancel", onclick: () => cancel(run.name, status) }, "Cancel"));
    update(node, status);
    return node;
  }
  return element("p", { class: "job" }, status.state === "cancelled" ? "Cancelled. " : `${status.message} `,
    element("button", { class: "plain again", onclick: () => { forget(run.name); show(); } }, "Start again"));
}
