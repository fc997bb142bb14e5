// What the page shows is its address: one object of strings, read from the address and written to it. Names, defaults, choices
// and bounds come from the server (PageState in _page_state.py).
export const info = { runs: [], images: [], classes: [], methods: [], slow: [] };  // the answer of /api/info
export const state = {};
export const opened = [];  // test images that this page has opened besides those that are always offered

// All images to choose from: test images first, then those that were sent or drawn.
export function images() {
  const isTest = ({ name }) => name.startsWith("test-");
  const offered = new Set(info.images.map(({ name }) => name));
  return [...info.images.filter(isTest), ...opened.filter(({ name }) => !offered.has(name)), ...info.images.filter((image) => !isTest(image))];
}

function isValid(key, value) {
  const { state: defaults, choices, bounds, forms } = info.defaults;
  if (value === defaults[key]) return true;
  if (Object.hasOwn(choices, key)) return choices[key].includes(value);
  if (Object.hasOwn(bounds, key)) return isWithin(value, bounds[key].min ?? -Infinity, bounds[key].max ?? Infinity, bounds[key].is_integer);
  return !Object.hasOwn(forms, key) || new RegExp(forms[key]).test(value);
}

const isWithin = (text, min, max, isInteger) => text !== "" && Number(text) >= min && Number(text) <= max && (!isInteger || Number.isInteger(Number(text)));

// Takes over the parameters of an address. Returns those with impossible values, which keep their defaults.
export function read(search) {
  Object.assign(state, info.defaults.state);
  const wrong = [];
  for (const [key, value] of new URLSearchParams(search)) {
    if (!Object.hasOwn(info.defaults.state, key)) continue;
    if (isValid(key, value)) state[key] = value; else wrong.push(`${key}=${value}`);
  }
  return wrong;
}

// Replaces what these runs and images do not have by what they have, and returns what was replaced.
export function fit() {
  const wrong = [];
  const drop = (key, words) => { wrong.push(`${words} ${state[key]}`); state[key] = info.defaults.state[key]; };
  const names = images().map(({ name }) => name);
  const layers = info.runs.flatMap((run) => run.layers.map(({ name }) => name));
  if (state.image && !names.includes(state.image)) drop("image", "the image");
  if (state.layer && layers.length && !layers.includes(state.layer)) drop("layer", "the layer");
  if (!info.methods.includes(state.method)) drop("method", "the method");
  if (![...options()].every(isOption)) drop("options", "the options");
  state.image ||= names[0] ?? "";
  state.layer ||= info.runs.find(({ top }) => top)?.top ?? "";
  if (!names.includes(state.other)) state.other = names[1] ?? state.image;
  const channelsOf = (run) => (run && layerOf(run)?.channels) ?? 0;
  const chosenAreThere = state.channel.split(",").filter(Boolean).map((one) => one.split(".").map(Number)).every(([run, channel]) => channel < channelsOf(info.runs[run]));
  if (!chosenAreThere) drop("channel", "the channel");
  const haveChannels = (one) => [...edits(one)].every(([number, factor]) => (number === OTHERS || number < channelsOf(one)) && Math.abs(factor) <= 100);
  if (!info.runs.every(haveChannels)) drop("edits", "the edits");
  if (state.target && !(Number(state.target) < info.classes.length)) drop("target", "the class");
  if (/^\d/.test(state.find_wrong) && !info.runs[state.find_wrong]) drop("find_wrong", "the mistakes of network");
  if (info.runs.length === 1 && ["confidence", "correlation"].includes(state.find_order)) drop("find_order", "the order by a difference in");
  if (Number(state.start) >= widest()) state.start = info.defaults.state.start;
  return wrong;
}

export const range = (key) => ({ min: info.defaults.bounds[key].min, max: info.defaults.bounds[key].max });
export const layerOf = (run) => run.layers.find(({ name }) => name === state.layer) ?? run.layers.find(({ name }) => name === run.top);
export const widest = () => Math.max(1, ...info.runs.map((run) => layerOf(run)?.channels ?? 1));
export const topOf = (run) => run.layers.find(({ name }) => name === run.top);

export const changed = () => Object.entries(state).filter(([key, value]) => value !== info.defaults.state[key]);
export function remember({ push = false } = {}) {
  const query = new URLSearchParams(changed());
  const address = query.size ? `?${query}` : location.pathname;
  try { history[push ? "pushState" : "replaceState"](null, "", address); }
  catch { /* some browsers allow a hundred changes in half a minute: a later one will go through */ }
}

// --- options of the saliency method: steps:32,signed:1

export const options = () => new Map(state.options.split(",").filter(Boolean).map((part) => [...part.split(":"), ""].slice(0, 2)));
export const withOptions = (values) => [...values].map((pair) => pair.join(":")).join(",");
function isOption([name, value]) {
  const option = info.options[state.method].find((each) => each.name === name);
  return option && isWithin(value, Number(option.least), Number(option.most), option.kind !== "number");
}

// --- channels: channel 12 of one network has nothing to do with channel 12 of another, so each run has its own choice and edits

export const place = (run) => info.runs.findIndex(({ name }) => name === run.name);

// The chosen channels of a run; the last one is shown large.
export const chosenAll = (run) => state.channel.split(",").filter((one) => one.startsWith(`${place(run)}.`)).map((one) => Number(one.split(".")[1]));
export const chosen = (run) => chosenAll(run).at(-1) ?? null;
export function withChosen(run, channels) {
  const others = state.channel.split(",").filter((one) => one && !one.startsWith(`${place(run)}.`));
  return [...others, ...channels.map((channel) => `${place(run)}.${channel}`)].join(",");
}

export const withLast = (run, channel) => withChosen(run, [...chosenAll(run).filter((other) => other !== channel), channel]);

// A factor for each channel that is edited, and one under OTHERS for all that are not named.
export const OTHERS = "*";
export const editsOf = (run) => state.edits.split(";")[place(run)] ?? "";
export const edits = (run) => new Map(editsOf(run).split(",").filter(Boolean).map((part) => part.split(":"))
  .map(([channel, factor]) => [channel === OTHERS ? OTHERS : Number(channel), Number(factor)]));
export const factorOf = (factors, channel) => factors.get(channel) ?? factors.get(OTHERS) ?? 1;
export function withEdits(run, factors) {
  const all = info.runs.map(editsOf);
  const others = factors.get(OTHERS) ?? 1;
  const named = [...factors].filter(([channel, factor]) => (channel === OTHERS ? factor !== 1 : factor !== others));
  all[place(run)] = named.map(([channel, factor]) => `${channel}:${Number(factor.toFixed(3))}`).join(",");
  return all.some(Boolean) ? all.join(";") : "";
}
