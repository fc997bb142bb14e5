// One function a view, each in a file of its own. It fills the panel, then its pictures as they come.
import { audit } from "./audit.js";
import { channel } from "./channel.js";
import { draw, settle } from "./draw.js";
import { evidence } from "./evidence.js";
import { find } from "./find.js";
import { inside } from "./inside.js";
import { info } from "./state.js";
import { transplant } from "./transplant.js";

// By their names in the page's address (PageState.view), in the order of the tabs. _export.py has the same views for exports.
// `free`: it needs no image. `alone`: the images above have no part in it. `refusal`: why these networks do not have it. `settle`: what links and exports wait for.
// `silent`: there is no sentence about it.
export const views = {
  inside: { title: "Look inside", draw: inside },
  channel: { title: "One channel", draw: channel, silent: true },
  evidence: { title: "Which pixels count", draw: evidence },
  transplant: { title: "Mix two images", draw: transplant },
  draw: { title: "Draw", draw, settle, free: true, alone: true, silent: true, refusal: () => info.no_drawing },
  find: { title: "Find images", draw: find, free: true, alone: true },
  audit: { title: "Layer by layer", draw: audit, free: true },
};
