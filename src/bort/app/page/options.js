// Controls for the options of the chosen saliency method. In the page's address they are one text: steps:32,signed:1.
import { set } from "./app.js";
import { control, element } from "./elements.js";
import { info, options, state, withOptions } from "./state.js";

function change({ name, default: usual }, value) {
  const values = options();
  if (Number(value) === Number(usual)) values.delete(name); else values.set(name, value);
  set({ options: withOptions(values) });
}

export const methodOptions = () => info.options[state.method].map((option) => {
  const value = options().get(option.name) ?? String(Number(option.default));
  const [key, words] = [`options.${state.method}.${option.name}`, option.name.replaceAll("_", " ")];
  const node = control(key, words, (id) => (option.kind === "boolean" ? box(id, option) : slider(id, option, words)));
  const input = node.querySelector("input");
  if (option.kind === "boolean") input.checked = value === "1"; else input.value = value;
  if (option.kind !== "boolean") outputOf(node).textContent = value;
  return node;
});

const box = (id, option) => element("input", { type: "checkbox", id, name: option.name, onchange: (event) => change(option, event.target.checked ? "1" : "0") });

// Each value is a new calculation: it begins when the slider is let go.
const slider = (id, option, words) => element("input", { type: "range", id, name: option.name, "aria-label": words, min: option.least, max: option.most,
  step: option.kind === "integer" ? 1 : (option.most - option.least) / 100,
  oninput: (event) => { outputOf(event.target.closest(".control")).textContent = event.target.value; }, onchange: (event) => change(option, event.target.value) });

function outputOf(node) {
  const label = node.querySelector("label");
  if (!label.querySelector("output")) label.append(" ", element("output"));
  return label.querySelector("output");
}
