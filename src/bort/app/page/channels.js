// The grid of a layer's channels: to choose them with the mouse, by touch or by the keyboard.
import { set } from "./app.js";
import { openChannel, scaled, several } from "./editor.js";
import { element, slot } from "./elements.js";
import { inSheet } from "./picker.js";
import { chosen, chosenAll, edits, factorOf, info, state, withChosen } from "./state.js";

// The first channel that is shown of so many: networks with fewer channels than another show their first page.
export const startOf = (channels) => (Number(state.start) < channels ? Number(state.start) : 0);

// The patterns of the channels, each with its value in the order of the rank, from one or several sheets.
export function grid(run, body, sheets, dead) {
  const [{ target }] = sheets;
  const node = slot(body, "channels", () => element("div", { class: "channels", role: "listbox", "aria-multiselectable": true,
    onkeydown: (event) => pressed(event, run, node), onkeyup: (event) => { if (event.key === " ") event.preventDefault(); } }));  // Space would click
  node.setAttribute("aria-label", target == null ? "Channels, most salient first" : `Channels, largest effect on ${target} first`);
  const content = JSON.stringify([state.image, sheets.map(({ channels }) => channels)]);
  if (node.dataset.content !== content) {
    node.dataset.content = content;
    const focused = node.contains(document.activeElement) ? document.activeElement.dataset.channel : null;
    node.replaceChildren(...sheets.flatMap(({ sheet, columns, channels }) => channels.map(({ channel, value, effect }, number) => element("button", {
      type: "button", role: "option", tabindex: -1, "data-channel": channel, "data-words": words(channel, value, effect, target),
      onclick: (event) => { walkTo(node, event.currentTarget); choose(run, channel, event.shiftKey || event.ctrlKey || event.metaKey || several()); },
      ondblclick: () => openChannel(run, channel),
      style: { "background-image": `url("${sheet}")`, ...inSheet(number, channels.length, columns) },
    }, element("span", { "aria-hidden": true }, effect == null ? short(value) : signed(effect))))));
    const again = focused == null ? null : [...node.children].find(({ dataset }) => dataset.channel === focused) ?? node.firstChild;
    walkTo(node, again ?? [...node.children].find(({ dataset }) => Number(dataset.channel) === chosen(run)) ?? node.firstChild);
    again?.focus();
  }
  const [factors, all] = [edits(run), new Set(chosenAll(run))];
  for (const pattern of node.children) {
    const channel = Number(pattern.dataset.channel);
    const factor = factorOf(factors, channel);
    pattern.setAttribute("aria-selected", String(all.has(channel)));
    pattern.className = [factor === 0 ? "off" : factor !== 1 ? "changed" : "", dead.has(channel) ? "dead" : ""].join(" ").trim();
    pattern.title = pattern.dataset.words + (factor === 0 ? ", switched off" : factor !== 1 ? `, times ${factor}` : "") + (dead.has(channel) ? ", dead" : "");
    pattern.setAttribute("aria-label", pattern.title);
  }
  return node;
}

const short = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(2)).replace("-", "−");
export const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;
const words = (channel, value, effect, target) => `channel ${channel}, activation ${value.toFixed(2)}${effect == null ? "" : `, without it the logit of ${target} changes by ${signed(effect)}`}`;

// One of the patterns can be reached by Tab; arrow keys go on from there.
function walkTo(node, pattern) {
  for (const other of node.children) other.tabIndex = other === pattern ? 0 : -1;
}

// Chooses a channel instead of the others, or beside them; one that is among several is left out again.
function choose(run, channel, beside) {
  const before = chosenAll(run);
  const others = before.filter((other) => other !== channel);
  return set({ channel: withChosen(run, !beside ? [channel] : others.length < before.length ? others : [...before, channel]) });
}

function pressed(event, run, node) {
  const patterns = [...node.children];
  const at = patterns.indexOf(document.activeElement);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const across = getComputedStyle(node).gridTemplateColumns.split(" ").length;
  const channel = Number(patterns[at].dataset.channel);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: patterns.length - 1 }[event.key];
  const factor = { 0: () => 0, 1: () => 1, "+": (now) => now + 0.5, "=": (now) => now + 0.5, "-": (now) => now - 0.5 }[event.key];
  if (next != null) {
    if (patterns[next]) { walkTo(node, patterns[next]); patterns[next].focus(); }
  } else if (factor) set(withFocused(run, channel, factor));
  else if (event.key === " ") choose(run, channel, true);
  else if (event.key === "Enter") openChannel(run, channel);
  else if (event.key === "Escape" && chosenAll(run).length) set({ channel: withChosen(run, []) });
  else if (event.key === "PageDown" || event.key === "PageUp") node.parentNode.querySelector(event.key === "PageDown" ? ".after" : ".before").click();
  else return;
  event.preventDefault();
}

// A key scales the channel that has the focus; if it is among the chosen ones, all of them.
function withFocused(run, channel, factor) {
  const all = chosenAll(run).includes(channel) ? chosenAll(run) : [channel];
  return { ...scaled(run, all, factor), channel: withChosen(run, all) };
}

// Buttons for earlier and later channels of the order. They go on from the page that was asked for last, which may not be drawn yet.
export function pager(body, sheets, start) {
  const [{ count: all, target, is_exact: isExact }] = sheets;
  const count = sheets.reduce((sum, { channels }) => sum + channels.length, 0);
  const node = slot(body, "pager", () => element("div", { class: "pager" }, element("button", { type: "button", class: "plain before", "aria-label": "Earlier channels" }, "‹"),
    element("span"), element("button", { type: "button", class: "plain after", "aria-label": "Later channels" }, "›")));
  const [before, words, after] = node.children;
  const order = target == null ? "most salient first" : `by what the logit of “${target}” changes without them${isExact ? "" : " (approximately: gradient × activation)"}`;
  words.textContent = `channels ${start + 1} to ${start + count} of ${all}, ${order}`;
  const { patterns } = info.defaults;
  before.onclick = () => set({ start: String(Math.max(0, startOf(all) - patterns)) });
  after.onclick = () => set({ start: String(startOf(all) + patterns < all ? startOf(all) + patterns : startOf(all)) });
  const focused = document.activeElement;
  [before.disabled, after.disabled] = [start === 0, start + patterns >= all];
  if (focused === before && before.disabled) after.focus();
  if (focused === after && after.disabled) before.focus();
  return node;
}
