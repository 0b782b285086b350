// Boxes of one picture: what they are, what is selected, and what was done, to undo it. Nothing here draws.

const MERGE_MILLISECONDS = 1000; // repeated presses of one key are undone as one change

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export class BoxList {
  // `onChange(isFinal)` is called after every change; isFinal is false while a box is being dragged
  constructor(onChange) {
    this.onChange = onChange;
    this.load([], { width: 1, height: 1 });
  }

  load(boxes, { width, height }) {
    Object.assign(this, { width, height, past: [], future: [], selected: null, lastTag: "", lastTime: 0, nextId: 1 });
    this.boxes = boxes.map((box) => this.withId(box));
    this.original = this.serialize();
  }

  withId(box) {
    return { ...box, id: this.nextId++ };
  }

  // what is saved: without ids and scores
  plain() {
    return this.boxes.map(({ label, x, y, width, height, is_crowd }) => ({ label, x, y, width, height, ...(is_crowd ? { is_crowd } : {}) }));
  }

  serialize() {
    return JSON.stringify(this.plain());
  }

  get isChanged() {
    return this.serialize() !== this.original;
  }

  find(id) {
    return this.boxes.find((box) => box.id === id);
  }

  get selectedBox() {
    return this.find(this.selected);
  }

  // remember the state before a change; changes with the same tag that follow at once are undone together
  remember(tag = "") {
    const now = performance.now(), isRepeated = tag && tag === this.lastTag && now - this.lastTime < MERGE_MILLISECONDS;
    if (!isRepeated) this.past.push({ boxes: this.boxes, selected: this.selected });
    Object.assign(this, { future: [], lastTag: tag, lastTime: now });
  }

  replaceAll(boxes) {
    this.remember();
    this.boxes = boxes.map((box) => this.withId(box));
    this.selected = null;
    this.onChange(true);
  }

  add(box, isFinal = true) {
    this.remember();
    const added = this.withId(this.fitInside(box));
    this.boxes = [...this.boxes, added];
    this.selected = added.id;
    this.onChange(isFinal);
    return added;
  }

  update(id, change, tag = "") {
    this.remember(tag);
    this.preview(id, change);
    this.onChange(true);
  }

  // a change that is not finished, such as during a drag: it is not remembered
  preview(id, change) {
    this.boxes = this.boxes.map((box) => (box.id === id ? this.fitInside({ ...box, ...change, score: undefined }) : box));
    this.onChange(false);
  }

  remove(id) {
    this.remember();
    const index = this.boxes.findIndex((box) => box.id === id);
    this.boxes = this.boxes.filter((box) => box.id !== id);
    this.selected = (this.boxes[index] ?? this.boxes[index - 1])?.id ?? null;
    this.onChange(true);
  }

  select(id) {
    if (this.selected === id) return;
    Object.assign(this, { selected: id, lastTag: "" });
    this.onChange(false);
  }

  step(from, to) {
    if (!from.length) return;
    to.push({ boxes: this.boxes, selected: this.selected });
    Object.assign(this, from.pop(), { lastTag: "" });
    if (!this.selectedBox) this.selected = null;
    this.onChange(true);
  }

  undo() {
    this.step(this.past, this.future);
  }

  redo() {
    this.step(this.future, this.past);
  }

  // a box of at least a pixel inside the picture, to a hundredth of a pixel
  fitInside(box) {
    const round = (value) => Math.round(value * 100) / 100;
    const width = clamp(box.width, Math.min(1, this.width), this.width), height = clamp(box.height, Math.min(1, this.height), this.height);
    const x = round(clamp(box.x, 0, this.width - width)), y = round(clamp(box.y, 0, this.height - height));
    return { ...box, x, y, width: Math.min(round(width), this.width - x), height: Math.min(round(height), this.height - y) };
  }
}

// the box after its edges named in `edges` (n, e, s, w) have moved by dx, dy; edges may pass each other
export const moveEdges = (box, edges, dx, dy, bounds) => {
  let left = box.x, right = box.x + box.width, top = box.y, bottom = box.y + box.height;
  if (edges.includes("w")) left = clamp(left + dx, 0, bounds.width);
  if (edges.includes("e")) right = clamp(right + dx, 0, bounds.width);
  if (edges.includes("n")) top = clamp(top + dy, 0, bounds.height);
  if (edges.includes("s")) bottom = clamp(bottom + dy, 0, bounds.height);
  return { x: Math.min(left, right), y: Math.min(top, bottom), width: Math.abs(right - left), height: Math.abs(bottom - top) };
};
