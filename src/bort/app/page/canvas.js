// A canvas to draw on with mouse, finger, pen or keys. Ink is white on black, whatever the page shows.
import { element } from "./elements.js";

const MOST_UNDO = 40;

// Calls `changed(isDown)` after each change; while `isDown`, the pen is on the canvas.
export class Canvas {
  constructor({ rows, columns, scale, paper }, changed) {
    Object.assign(this, { rows, columns, scale, changed, pen: 2.5, erasing: false, undoable: [], down: null, row: Math.floor(rows / 2), column: Math.floor(columns / 2) });
    this.node = element("canvas", { width: columns * scale, height: rows * scale, class: paper === "bright" ? "bright" : "" });
    this.context = this.node.getContext("2d", { willReadFrequently: true });
    this.cursor = element("div", { class: "cursor", hidden: true });
    this.live = element("p", { class: "hidden", "aria-live": "polite" });
    this.area = element("div", {
      class: "canvas", tabindex: 0, role: "application", "aria-roledescription": "drawing area", "aria-describedby": "draw-keys",
      "aria-label": `Drawing, ${columns} × ${rows} pixels`, style: { "aspect-ratio": `${columns} / ${rows}` },
    }, this.node, this.cursor, this.live);
    this.erase();
    this.listen();
  }

  // The ink as bytes, row by row.
  bytes() {
    const { data } = this.context.getImageData(0, 0, this.node.width, this.node.height);
    const ink = new Uint8Array(data.length / 4);
    for (let at = 0; at < ink.length; at++) ink[at] = data[4 * at];
    return ink;
  }

  isEmpty() { return this.bytes().every((ink) => ink < 8); }

  // --- changes that can be undone

  remember() {
    this.undoable.push(this.context.getImageData(0, 0, this.node.width, this.node.height));
    if (this.undoable.length > MOST_UNDO) this.undoable.shift();
  }

  undo() {
    if (!this.undoable.length) return;
    this.context.putImageData(this.undoable.pop(), 0, 0);
    this.changed(false);
  }

  clear() {
    this.remember();
    this.erase();
    this.changed(false);
  }

  // Another drawing, which is not undone to the one before.
  load(picture) {
    this.undoable = [];
    this.erase();
    if (picture) this.context.drawImage(picture, 0, 0, this.node.width, this.node.height);
  }

  erase() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.node.width, this.node.height);
  }

  // --- pointers: one stroke from press to release, wherever the pointer goes meanwhile

  listen() {
    this.area.addEventListener("pointerdown", (event) => this.press(event));
    this.area.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) this.area.addEventListener(name, (event) => this.release(event));
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => { this.cursor.hidden = true; });
  }

  press(event) {
    if (this.down !== null || event.button !== 0) return;
    this.cursor.hidden = true;
    this.down = event.pointerId;
    try { this.area.setPointerCapture(event.pointerId); } catch { /* a pointer that has just left */ }
    this.remember();
    this.last = this.at(event);
    this.line(this.last, this.last);
    this.changed(true);
  }

  move(event) {
    if (event.pointerId !== this.down) return;
    for (const each of event.getCoalescedEvents?.() ?? []) this.to(each);
    this.to(event);
    this.changed(true);
  }

  release(event) {
    if (event.pointerId !== this.down) return;
    this.down = null;
    this.changed(false);
  }

  to(event) {
    const place = this.at(event);
    this.line(this.last, place);
    this.last = place;
  }

  at({ clientX, clientY }) {
    const { left, top, width, height } = this.node.getBoundingClientRect();
    return [((clientX - left) * this.node.width) / width, ((clientY - top) * this.node.height) / height];
  }

  line([x, y], [toX, toY]) {
    Object.assign(this.context, { strokeStyle: this.erasing ? "#000" : "#fff", lineWidth: this.pen * this.scale * (this.erasing ? 1.6 : 1), lineCap: "round", lineJoin: "round" });
    this.context.beginPath();
    this.context.moveTo(x, y);
    this.context.lineTo(toX + 0.01, toY);  // a line of no length is not drawn
    this.context.stroke();
  }

  // --- keys: a cursor over the network's own pixels

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey)) this.undo();
    else if (event.key === " ") this.paint();
    else if (step) {
      this.row = Math.min(this.rows - 1, Math.max(0, this.row + step[0]));
      this.column = Math.min(this.columns - 1, Math.max(0, this.column + step[1]));
      if (event.shiftKey) this.paint(); else this.tell();
    } else return;
    event.preventDefault();
    this.showCursor();
  }

  paint() {
    const side = Math.max(1, Math.round(this.pen));
    const [row, column] = [this.row - Math.floor((side - 1) / 2), this.column - Math.floor((side - 1) / 2)];
    this.remember();
    this.context.fillStyle = this.erasing ? "#000" : "#fff";
    this.context.fillRect(column * this.scale, row * this.scale, side * this.scale, side * this.scale);
    this.tell(this.erasing ? "erased" : "painted");
    this.changed(false);
  }

  tell(what) {
    const [ink] = this.context.getImageData((this.column + 0.5) * this.scale, (this.row + 0.5) * this.scale, 1, 1).data;
    this.live.textContent = `Row ${this.row + 1}, column ${this.column + 1}: ${what ?? (ink > 127 ? "ink" : "empty")}`;
  }

  showCursor() {
    this.cursor.hidden = false;
    const places = { left: this.column / this.columns, top: this.row / this.rows, width: 1 / this.columns, height: 1 / this.rows };
    for (const [name, part] of Object.entries(places)) this.cursor.style.setProperty(name, `${100 * part}%`);
  }
}
