// The view in a sentence, which the server makes of the view's numbers. It comes after the view, and once more when the numbers
// of many images have come.
import { fetchJson, url } from "./api.js";
import { changed, state } from "./state.js";
import { views } from "./views.js";

let newest = 0;
export async function tell() {
  const mine = ++newest;
  const place = document.getElementById("story");
  if (place.dataset.view !== state.view) place.textContent = "";
  [place.dataset.view, place.hidden] = [state.view, Boolean(views[state.view].silent)];
  if (place.hidden) return;
  await wait(120);  // a slider that is dragged asks for every view on its way
  for (let pause = 400; mine === newest; pause = Math.min(2 * pause, 3000)) {
    const { text, pending } = await fetchJson(url("story", Object.fromEntries(changed()))).catch(({ status }) => (
      status === 503 ? { text: place.textContent, pending: true } : { text: "", pending: false }));  // 503: busy, so asked again
    if (mine !== newest) return;
    if (place.textContent !== text) place.textContent = text;
    if (!pending) return;
    await wait(pause);
  }
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
