// What the page shows is its address: one object of strings, read from it and written to it.
export const info = { runs: [], images: [], classes: [], methods: [], slow: [], steps: 28, most_tracked: 256 };
export const defaults = {
  view: "inside", image: "", layer: "", part: "all", k: "64", binary: "1", start: "0", channel: "", edits: "", clusters: "0",
  method: "sat", target: "", tracked: "64", threshold: "0.2", strength: "0.6", score: "relative", which: "deletion", step: "0",
  other: "", path: "none",
};
export const state = { ...defaults };

const choices = {
  view: ["inside", "evidence", "transplant", "audit"], part: ["all", "k"], binary: ["0", "1"], clusters: ["0", "1"],
  score: ["relative", "logit", "probability"], which: ["deletion", "insertion"], path: ["none", "source", "target"],
};
const bounds = { k: [1, 1e5], start: [0, 1e6], tracked: [1, 1e5], threshold: [0, 0.95], strength: [0, 1], step: [0, 1e5] };
const whole = ["k", "start", "tracked", "step"];
const shapes = { channel: /^\d+\.\d+$/, edits: /^[\d.,:;-]*$/, target: /^\d+$/ };

// Addresses come from anywhere. What cannot be meant is left out, and said.
export function read(search) {
  Object.assign(state, defaults);
  const wrong = [];
  for (const [key, value] of new URLSearchParams(search)) {
    if (!Object.hasOwn(defaults, key)) continue;
    const number = Number(value);
    const good = choices[key] ? choices[key].includes(value)
      : bounds[key] ? value !== "" && number >= bounds[key][0] && number <= bounds[key][1] && (!whole.includes(key) || Number.isInteger(number))
        : shapes[key] ? shapes[key].test(value) : true;
    if (good) state[key] = value; else wrong.push(`${key}=${value}`);
  }
  return wrong;
}

// What the runs do not have is brought to what they have.
export function fit() {
  const wrong = [];
  const drop = (key, words) => { wrong.push(`${words} ${state[key]}`); state[key] = defaults[key]; };
  const images = info.images.map(({ name }) => name);
  const layers = info.runs[0].layers.map(({ name }) => name);
  if (state.image && !images.includes(state.image)) drop("image", "the image");
  if (state.layer && layers.length && !layers.includes(state.layer)) drop("layer", "the layer");
  if (!info.methods.includes(state.method)) drop("method", "the method");
  state.image ||= images[0] ?? "";
  state.layer ||= info.runs[0].top;
  if (!images.includes(state.other)) state.other = images[1] ?? state.image;
  const channelsOf = (run) => (run && layerOf(run)?.channels) ?? 0;
  const [run, channel] = state.channel.split(".").map(Number);
  if (state.channel && !(channel < channelsOf(info.runs[run]))) drop("channel", "the channel");
  const isGood = (each) => [...edits(each)].every(([number, factor]) => number < channelsOf(each) && Math.abs(factor) <= 100);
  if (!info.runs.every(isGood)) drop("edits", "the edits");
  if (state.target && !(Number(state.target) < info.classes.length)) drop("target", "the class");
  if (Number(state.step) > info.steps) drop("step", "the step");
  if (Number(state.start) >= widest()) state.start = defaults.start;
  return wrong;
}

export const layerOf = (run) => run.layers.find(({ name }) => name === state.layer) ?? run.layers.find(({ name }) => name === run.top);
export const widest = () => Math.max(1, ...info.runs.map((run) => layerOf(run)?.channels ?? 1));
export const topOf = (run) => run.layers.find(({ name }) => name === run.top);

export const changed = () => Object.entries(state).filter(([key, value]) => value !== defaults[key]);
export function remember({ push = false } = {}) {
  const query = new URLSearchParams(changed());
  const address = query.size ? `?${query}` : location.pathname;
  try { history[push ? "pushState" : "replaceState"](null, "", address); }
  catch { /* some browsers allow a hundred in half a minute: the next one will be right */ }
}

// --- channels: 12 of one network has nothing to do with 12 of the other, so what is chosen and edited is each run's own

export const place = (run) => info.runs.findIndex(({ name }) => name === run.name);
export const chosen = (run) => (state.channel.startsWith(`${place(run)}.`) ? state.channel.split(".")[1] : "");
export const editsOf = (run) => state.edits.split(";")[place(run)] ?? "";
export const edits = (run) => new Map(editsOf(run).split(",").filter(Boolean).map((part) => part.split(":").map(Number)));
export function withEdits(run, map) {
  const all = info.runs.map(editsOf);
  all[place(run)] = [...map].map(([channel, factor]) => `${channel}:${factor}`).join(",");
  return all.some(Boolean) ? all.join(";") : "";
}
