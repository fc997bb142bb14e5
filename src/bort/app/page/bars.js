// What the network says, as bars: before the edits, and after them if there are any.
import { bar, element, percent, slot } from "./elements.js";

// Classes are {name, before, after}; after is null where nothing is edited. Both have the same order of classes.
export function bars(body, classes) {
  const node = slot(body, "said", () => element("ol", { class: "said changes", "aria-label": "What the network says" }));
  node.classList.toggle("edited", classes.some(({ after }) => after != null));
  node.replaceChildren(...classes.map(({ name, before, after }) => (after == null
    ? element("li", {}, element("span", {}, name), bar(before, `${name}: ${percent(before)}`), element("b", {}, percent(before)))
    : element("li", {}, element("span", {}, name), both(name, before, after), element("b", {}, `${points(before)} → ${percent(after)}`), change(after - before)))));
  return node;
}

const points = (part) => (100 * part).toFixed(1);

function both(name, before, after) {
  return element("span", { class: "both", role: "img", "aria-label": `${name}: ${percent(before)} before the edits, ${percent(after)} after` },
    element("i", { class: "before", style: { "--part": before } }), element("i", { style: { "--part": after } }));
}

function change(difference) {
  const rounded = Math.round(1000 * difference) / 10;
  const words = rounded ? `${rounded > 0 ? "+" : "−"}${Math.abs(rounded).toFixed(1)}` : "±0.0";
  return element("em", { title: "change in percentage points", class: rounded > 0 ? "more" : rounded < 0 ? "less" : "" }, words);
}
