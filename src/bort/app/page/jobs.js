// Calculations in the server's queue that this page waits for.
import { address, asked } from "./ask.js";
import { show } from "./app.js";
import { element } from "./parts.js";
import { info, state } from "./state.js";

const jobs = new Map();
const isOpen = ({ state: now }) => now === "waiting" || now === "running";
const keyOf = (run) => JSON.stringify([run, state.image, state.method, state.target]);

// The job of what is looked at, started if there is none.
export async function jobOf(run) {
  const key = keyOf(run);
  if (!jobs.has(key)) {
    const [, image, method, target] = JSON.parse(key);
    const started = asked(address("jobs", { run, image, method, target }), { method: "POST" });
    jobs.set(key, started);
    try { jobs.set(key, await started); } catch (error) { jobs.delete(key); throw error; }
    watch(key);
  }
  return jobs.get(key);
}

export const forget = (run) => jobs.delete(keyOf(run));

async function watch(key) {
  while (jobs.has(key) && isOpen(await jobs.get(key))) {
    const { job } = jobs.get(key);
    await new Promise((resolve) => setTimeout(resolve, 200));
    const now = await asked(address(`jobs/${job}`)).catch((error) => ({ job, state: "failed", message: error.message, done: 0, total: 0 }));
    if (!jobs.has(key)) return;
    jobs.set(key, now);
    for (const line of document.querySelectorAll(".job")) if (line.dataset.job === job) update(line, now);
    if (!isOpen(now)) show();
  }
}

// Nobody looks at it any more: it is stopped, unless another page waits for it too.
export function leave() {
  const wanted = new Set(info.runs.map(({ name }) => keyOf(name)));
  for (const [key, job] of jobs) {
    if (wanted.has(key)) continue;
    Promise.resolve(job).then((found) => { if (isOpen(found)) asked(address(`jobs/${found.job}`, { leave: 1 }), { method: "DELETE" }).catch(() => {}); });
    if (job.state !== "done") jobs.delete(key);
  }
}

function update(line, { done, total }) {
  const [bar, words] = line.children;
  if (total) { [bar.max, bar.value] = [total, done]; words.textContent = percentOf(done, total); }
}
const percentOf = (done, total) => `${Math.round((100 * done) / total)}%`;

// How far it is, with a way to stop it; or how it ended.
export function line(run, job) {
  if (isOpen(job)) {
    const made = element("div", { class: "job", "data-job": job.job }, element("progress", { max: 1, value: 0, "aria-label": `${state.method} of ${run.name}` }),
      element("span", {}, job.state === "waiting" ? "waiting" : "running"),
      element("button", { class: "plain cancel", onclick: () => asked(address(`jobs/${job.job}`), { method: "DELETE" }) }, "Cancel"));
    update(made, job);
    return made;
  }
  return element("p", { class: "job" }, job.state === "cancelled" ? "Cancelled. " : `${job.message} `,
    element("button", { class: "plain again", onclick: () => { forget(run.name); show(); } }, "Start again"));
}
