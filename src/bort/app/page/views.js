// One function a view, each in a file of its own. It fills the panel, then its pictures as they come.
import { audit } from "./audit.js";
import { evidence } from "./evidence.js";
import { inside } from "./inside.js";
import { transplant } from "./transplant.js";

// By their names in the page's address (PageState.view), in the order of the tabs. _export.py has the same views for exports.
export const views = {
  inside: { title: "Look inside", draw: inside },
  evidence: { title: "Evidence", draw: evidence },
  transplant: { title: "Transplant", draw: transplant },
  audit: { title: "Audit", draw: audit },
};
