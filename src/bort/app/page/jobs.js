// Calculations in the server's queue that this page waits for.
import { address, asked } from "./ask.js";
import { show } from "./app.js";
import { element } from "./parts.js";
import { info, state } from "./state.js";

const page = crypto.getRandomValues(new Uint32Array(2)).join("-");  // tells the server which page it is that waits, or waits no more
const jobs = new Map();
const isOpen = ({ state: now }) => now === "waiting" || now === "running";
const keyOf = (run) => JSON.stringify([run, state.image, state.method, state.target]);

// The job of what is looked at, started if there is none.
export async function jobOf(run) {
  const key = keyOf(run);
  if (!jobs.has(key)) {
    const [, image, method, target] = JSON.parse(key);
    const started = asked(address("jobs", { run, image, method, target, page }), { method: "POST" });
    jobs.set(key, started);
    let job;
    try { job = await started; } catch (error) { if (jobs.get(key) === started) jobs.delete(key); throw error; }
    if (jobs.get(key) !== started) return job;  // left meanwhile: leave() sees to it
    jobs.set(key, job);
    watch(key, job);
  }
  return jobs.get(key);
}

export const forget = (run) => jobs.delete(keyOf(run));

// Until it is finished, or another one has taken its place.
async function watch(key, { job, state: first }) {
  let now = { state: first };
  while (isOpen(now)) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (jobs.get(key)?.job !== job) return;
    now = await asked(address(`jobs/${job}`, { page })).catch((error) => ({ job, state: "failed", message: error.message, done: 0, total: 0 }));
    if (jobs.get(key)?.job !== job) return;
    jobs.set(key, now);
    for (const line of document.querySelectorAll(".job")) if (line.dataset.job === job) update(line, now);
  }
  show();
}

// Nobody looks at it here any more: it is stopped, unless another page waits for it.
export function leave() {
  const wanted = new Set(info.runs.map(({ name }) => keyOf(name)));
  for (const [key, job] of jobs) {
    if (wanted.has(key) || job.state === "done") continue;
    jobs.delete(key);
    Promise.resolve(job).then((found) => isOpen(found) && asked(address(`jobs/${found.job}`, { leave: page }), { method: "DELETE" })).catch(() => {});
  }
}

function update(line, { state: now, done, total }) {
  const [bar, words] = line.children;
  [bar.max, bar.value] = [total || 1, done];
  words.textContent = total ? `${Math.round((100 * done) / total)}%` : now;
}

// How far it is, with a way to stop it; or how it ended. The one that is there is changed.
export function line(run, job, there) {
  if (isOpen(job)) {
    const made = there?.dataset.job === job.job && there.tagName === "DIV" ? there
      : element("div", { class: "job", "data-job": job.job }, element("progress", { max: 1, value: 0, "aria-label": `${state.method} of ${run.name}` }), element("span"),
        element("button", { class: "plain cancel", onclick: () => asked(address(`jobs/${job.job}`), { method: "DELETE" }).catch(() => {}) }, "Cancel"));
    update(made, job);
    return made;
  }
  return element("p", { class: "job" }, job.state === "cancelled" ? "Cancelled. " : `${job.message} `,
    element("button", { class: "plain again", onclick: () => { forget(run.name); show(); } }, "Start again"));
}
