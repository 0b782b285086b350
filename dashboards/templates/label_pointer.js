// The stage: the picture with its boxes, drawn, moved and resized by mouse, touch and keyboard, and zoomed.

import { clamp, moveEdges } from "./label_boxes.js";

const EDGES = ["nw", "n", "ne", "e", "se", "s", "sw", "w"];
const MIN_DRAG_PIXELS = 4; // on the screen: a shorter drag is a click
const MAX_ZOOM = 16;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Stage {
  constructor({ area, stage, picture, layer }, list, { colorOf, newLabel }) {
    Object.assign(this, { area, stage, picture, layer, list, colorOf, newLabel });
    Object.assign(this, { zoom: 1, pointers: new Map(), gesture: null, drawsOver: false });
    if (!list) return;
    stage.addEventListener("pointerdown", (event) => this.onDown(event));
    // no gestures of the browser's own: after a quick drag it would take the next tap on a button for the end of a fling
    stage.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    stage.addEventListener("pointermove", (event) => this.onMove(event));
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, (event) => this.onUp(event));
    stage.addEventListener("focusin", ({ target }) => this.list.select(target.dataset?.id ? Number(target.dataset.id) : null));
  }

  // pixels of the picture per pixel of the screen
  get scale() {
    return this.size.width / this.stage.clientWidth;
  }

  toPicture({ clientX, clientY }) {
    const { left, top } = this.stage.getBoundingClientRect();
    return { x: clamp((clientX - left) * this.scale, 0, this.size.width), y: clamp((clientY - top) * this.scale, 0, this.size.height) };
  }

  show(size) {
    this.size = size;
    this.picture.classList.toggle("tiny", size.width <= 256);
    this.setZoom(1);
  }

  // zoom relative to the whole picture, keeping the point of the screen `at` where it is
  setZoom(zoom, at = null) {
    if (!this.size) return;
    const before = at && this.toPicture(at);
    this.zoom = clamp(zoom, 1, MAX_ZOOM);
    const { width, height } = this.size, { clientWidth, clientHeight } = this.area;
    const factor = Math.min((clientWidth - 4) / width, (clientHeight - 4) / height) * this.zoom;
    Object.assign(this.stage.style, { width: `${width * factor}px`, height: `${height * factor}px` });
    if (!before) return;
    const { left, top } = this.stage.getBoundingClientRect();
    this.area.scrollLeft += left + before.x / this.scale - at.clientX;
    this.area.scrollTop += top + before.y / this.scale - at.clientY;
  }

  zoomBy(factor, at = null) {
    const { left, top, width, height } = this.area.getBoundingClientRect();
    this.setZoom(this.zoom * factor, at ?? { clientX: left + width / 2, clientY: top + height / 2 });
  }

  // make the elements of the boxes those of the list; elements stay, so that focus and drags do
  render() {
    const elements = new Map([...this.layer.children].map((element) => [Number(element.dataset.id), element]));
    for (const box of this.list.boxes) {
      const element = elements.get(box.id) ?? this.layer.appendChild(createBoxElement(box.id));
      elements.delete(box.id);
      this.place(element, box);
    }
    for (const element of elements.values()) element.remove();
  }

  place(element, box) {
    const { width, height } = this.size, isSelected = box.id === this.list.selected;
    const percent = { left: box.x / width, top: box.y / height, width: box.width / width, height: box.height / height };
    for (const [name, share] of Object.entries(percent)) element.style[name] = `${share * 100}%`;
    element.style.setProperty("--color", this.colorOf(box.label));
    element.classList.toggle("selected", isSelected);
    element.classList.toggle("guessed", box.score !== undefined);
    element.setAttribute("aria-pressed", isSelected);
    const isGuess = box.score !== undefined, text = isGuess ? `${box.label} ${Math.round(box.score * 100)} %` : box.label;
    const [x, y, wide, high] = [box.x, box.y, box.width, box.height].map(Math.round);
    element.setAttribute("aria-label", `${text}${isGuess ? " guessed" : ""}, ${wide} by ${high} pixels at ${x}, ${y}`); // begins with what is seen
    element.firstChild.textContent = text;
  }

  elementOf(id) {
    return this.layer.querySelector(`[data-id="${id}"]`);
  }

  focusSelected() {
    (this.elementOf(this.list.selected) ?? this.stage).focus({ preventScroll: true });
  }

  onDown(event) {
    if (event.button !== 0 || !this.size) return;
    this.pointers.set(event.pointerId, event);
    this.stage.setPointerCapture(event.pointerId);
    event.preventDefault(); // no text selection; focus is set below
    if (this.pointers.size === 2) return this.startPinch();
    const element = this.drawsOver || event.shiftKey ? null : event.target.closest(".box"), start = this.toPicture(event);
    const edges = event.target.dataset?.edge ?? "";
    if (element) {
      this.list.select(Number(element.dataset.id));
      this.focusSelected();
      this.gesture = { kind: edges ? "resize" : "move", start, event, edges, box: this.list.selectedBox };
    } else {
      this.stage.focus({ preventScroll: true });
      this.list.select(null);
      this.gesture = { kind: "draw", start, event };
    }
  }

  onMove(event) {
    if (!this.pointers.has(event.pointerId)) return;
    this.pointers.set(event.pointerId, event);
    const { gesture } = this;
    if (gesture?.kind === "pinch") return this.pinch();
    if (!gesture) return;
    const at = this.toPicture(event), dx = at.x - gesture.start.x, dy = at.y - gesture.start.y;
    const moved = Math.hypot(event.clientX - gesture.event.clientX, event.clientY - gesture.event.clientY);
    if (!gesture.isDragged && moved < MIN_DRAG_PIXELS) return;
    this.drag(gesture, dx, dy);
  }

  drag(gesture, dx, dy) {
    const { list } = this;
    if (!gesture.isDragged) {
      gesture.isDragged = true;
      if (gesture.kind === "draw") {
        gesture.box = list.add({ label: this.newLabel(), ...gesture.start, width: 1, height: 1 }, false);
        gesture.box = { ...gesture.box, ...gesture.start, width: 0, height: 0 };
      } else list.remember();
    }
    const { box, kind } = gesture;
    const edges = kind === "draw" ? "se" : gesture.edges;
    list.preview(box.id, kind === "move" ? { x: box.x + dx, y: box.y + dy } : moveEdges(box, edges, dx, dy, list));
  }

  onUp(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    const { gesture } = this;
    this.gesture = null;
    if (!gesture?.isDragged) return;
    const { width, height } = this.list.selectedBox, shortest = Math.min(width, height) / this.scale;
    if (event.type === "pointercancel" || (gesture.kind === "draw" && shortest < MIN_DRAG_PIXELS)) return this.list.undo();
    this.list.onChange(true);
    this.focusSelected();
  }

  // a second finger ends what the first one began, and pans and zooms
  startPinch() {
    if (this.gesture?.isDragged) this.list.undo();
    this.gesture = { kind: "pinch", ...this.measurePinch(), zoom: this.zoom };
  }

  measurePinch() {
    const [a, b] = [...this.pointers.values()];
    const middle = { clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 };
    return { middle, distance: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) };
  }

  pinch() {
    if (this.pointers.size < 2) return;
    const { middle, distance } = this.measurePinch(), { gesture } = this;
    this.area.scrollLeft -= middle.clientX - gesture.middle.clientX;
    this.area.scrollTop -= middle.clientY - gesture.middle.clientY;
    gesture.middle = middle;
    this.setZoom((gesture.zoom * distance) / gesture.distance, middle);
  }

  // move or resize the selected box by an arrow key; returns whether the key did something
  onArrow(event) {
    const direction = ARROWS[event.key], box = this.list?.selectedBox;
    if (!direction || !box) return false;
    const step = Math.max(1, this.scale) * (event.ctrlKey || event.altKey ? 10 : 1), [dx, dy] = direction.map((sign) => sign * step);
    const change = event.shiftKey
      ? { width: clamp(box.width + dx, 1, this.size.width - box.x), height: clamp(box.height + dy, 1, this.size.height - box.y) }
      : { x: box.x + dx, y: box.y + dy };
    this.list.update(box.id, change, `${event.shiftKey ? "resize" : "move"} ${box.id}`);
    return true;
  }

  // a box in the middle of what is visible, for those who do not drag
  addInMiddle() {
    const area = this.area.getBoundingClientRect(), at = this.toPicture({ clientX: area.left + area.width / 2, clientY: area.top + area.height / 2 });
    const width = this.size.width / 4 / this.zoom, height = this.size.height / 4 / this.zoom;
    this.list.add({ label: this.newLabel(), x: at.x - width / 2, y: at.y - height / 2, width, height });
    this.focusSelected();
  }
}

const createBoxElement = (id) => {
  const element = document.createElement("div"), tag = document.createElement("span");
  Object.assign(element, { className: "box", tabIndex: 0 });
  Object.assign(element.dataset, { id });
  element.setAttribute("role", "button");
  tag.className = "tag";
  const handles = EDGES.map((edge) => {
    const handle = document.createElement("span");
    handle.className = "handle";
    handle.dataset.edge = edge;
    return handle;
  });
  element.append(tag, ...handles);
  return element;
};
