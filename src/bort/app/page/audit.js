// Audit: what is true of each layer.
import { ask } from "./api.js";
import { cards, element } from "./elements.js";
import { info } from "./state.js";

export async function audit(panel, current) {
  await cards(panel, [], async (run, body) => {
    const { columns, layers } = await ask("audit", { run: run.name });
    if (!current()) return;
    const kind = ({ is_number: isNumber }) => (isNumber ? "number" : "");
    const header = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", class: kind(column), title: column.meaning }, column.title)));
    const rows = layers.map(({ shown }) => element("tr", {}, ...columns.map((column, number) =>
      element(number ? "td" : "th", { scope: number ? null : "row", class: kind(column) }, shown[column.key]))));
    const table = element("table", {}, element("thead", {}, header), element("tbody", {}, ...rows));
    const legend = element("dl", { class: "columns" }, ...columns.flatMap(({ title, meaning }) => [element("dt", {}, title), element("dd", {}, meaning)]));
    body.replaceChildren(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Audit of ${run.name}` }, table),
      ...(run === info.runs.at(-1) ? [legend] : []));
  });
}
