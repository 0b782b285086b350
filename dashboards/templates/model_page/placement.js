// Says where a picture lies in the input of a model, as equipoise.images.letterbox and .decode do, and moves boxes back.

export function roundHalfToEven(value) {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

export function fitLetterbox({ width, height }, size) {
  const scale = size / Math.max(width, height);
  const scaled = [width, height].map((side) => Math.max(roundHalfToEven(side * scale), 1));
  return {
    box: { left: 0, top: 0, right: width, bottom: height },
    width: scaled[0],
    height: scaled[1],
    left: Math.floor((size - scaled[0]) / 2),
    top: Math.floor((size - scaled[1]) / 2),
  };
}

export function fitCentreCrop({ width, height }, input) {
  const ratio = input.width / input.height, own = width / height;
  const cropped = { width, height };
  if (own > ratio) cropped.width = ratio * height;
  if (own < ratio) cropped.height = width / ratio;
  const left = (width - cropped.width) * 0.5, top = (height - cropped.height) * 0.5;
  return {
    box: { left, top, right: left + cropped.width, bottom: top + cropped.height },
    width: input.width,
    height: input.height,
    left: 0,
    top: 0,
  };
}

export function moveBoxToPicture(box, placement, picture) {
  const scale = { x: placement.width / picture.width, y: placement.height / picture.height };
  const cut = (value, limit) => Math.min(Math.max(value, 0), limit);
  const [left, top] = [(box[0] - placement.left) / scale.x, (box[1] - placement.top) / scale.y];
  const [x, y] = [cut(left, picture.width), cut(top, picture.height)];
  return {
    x,
    y,
    width: cut(left + box[2] / scale.x, picture.width) - x,
    height: cut(top + box[3] / scale.y, picture.height) - y,
  };
}
