// Page on which people label pictures: the queue, the keys, and what is saved when.
// A finished change is kept as a draft in this browser; Enter saves the labels on the server and opens the next picture.

import { BoxList } from "./label_boxes.js";
import { Stage } from "./label_pointer.js";
import { connectSources } from "./label_sources.js";

const byId = (id) => document.getElementById(id);
const { kind, token, csrf, session } = document.body.dataset;
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a", "#F0E442"]; // Okabe and Ito's
const RENEW_MILLISECONDS = 60_000; // well within the minutes for which a picture is lent
const MAX_HOLDERS = 20;
const RELOAD_MILLISECONDS = 2000;

const state = {
  holder: "", // id of this tab: who has the picture
  document: null, // the open picture, as the server sent it
  queue: { total: 0, labelled: 0, with_others: 0, broken: {}, classes: [] },
  label: null, // chosen class of the whole picture
  newLabel: "", // class of the next box
  skipped: [],
  history: [], // pictures that were open before, and `place` in them
  place: -1,
  isBusy: true,
};

const list = kind === "boxes" ? new BoxList((isFinal) => onChange(isFinal)) : null;
const colorOf = (label) => COLORS[Math.max(0, state.queue.classes.indexOf(label)) % COLORS.length];
const parts = { area: byId("area"), stage: byId("stage"), picture: byId("picture"), layer: byId("boxes") };
const stage = new Stage(parts, list, { colorOf, newLabel: () => state.newLabel });

// ---- the server

class ReplyError extends Error {
  constructor(status, content) {
    super(content.error ?? `the server answers ${status}`);
    Object.assign(this, { status, content });
  }
}

const request = async (path, body, type = "application/json", options = {}) => {
  const headers = { "content-type": type, ...(token ? { authorization: `Bearer ${token}` } : {}), ...(csrf ? { "x-csrf-token": csrf } : {}) };
  let reply;
  try {
    reply = await fetch(path, body === undefined ? { headers: {} } : { method: "POST", headers, body, ...options });
  } catch {
    throw new Error("the server does not answer; what you drew is kept in this browser: try again");
  }
  const content = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new ReplyError(reply.status, content);
  return content;
};

const post = (path, body, options) => request(path, JSON.stringify(body), "application/json", options);

// ---- who holds the picture: each tab has an id that survives a reload, and that a new tab takes over from a killed one

const lockHolder = (id, options = { ifAvailable: true }) =>
  new Promise((resolve) => {
    const keep = (lock) => {
      resolve(Boolean(lock));
      return lock ? new Promise(() => {}) : undefined; // held until the tab ends, however it ends
    };
    navigator.locks.request(`equipoise-label-${id}`, options, keep).catch(() => resolve(false));
  });

const claimHolder = async () => {
  const key = `equipoise-label-holders:${session}`, own = sessionStorage.getItem(key);
  const stored = [own, ...JSON.parse(localStorage.getItem(key) ?? "[]")].filter(Boolean);
  const known = [...new Set(stored)];
  // a page that is loaded anew may start before its predecessor has let go
  if (navigator.locks && own && (await lockHolder(own, { signal: AbortSignal.timeout(RELOAD_MILLISECONDS) }))) return own;
  if (navigator.locks) for (const id of known) if (await lockHolder(id)) return id;
  if (!navigator.locks && own) return own; // a page without TLS has no locks
  const id = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (navigator.locks) await lockHolder(id);
  localStorage.setItem(key, JSON.stringify([id, ...known].slice(0, MAX_HOLDERS)));
  sessionStorage.setItem(key, id);
  return id;
};

// ---- drafts

const draftKey = (picture) => `equipoise-label-draft:${session}:${picture}`;

const keepDraft = () => {
  const { picture, revision } = state.document, key = draftKey(picture);
  if (list.isChanged) localStorage.setItem(key, JSON.stringify({ revision, boxes: list.plain() }));
  else localStorage.removeItem(key);
};

const restoreDraft = () => {
  const { picture, revision } = state.document, draft = JSON.parse(localStorage.getItem(draftKey(picture)) ?? "null");
  if (draft === null) return;
  list.replaceAll(draft.boxes);
  const isOlder = draft.revision !== revision ? " Somebody saved this picture since: Undo shows that." : "";
  showStatus(`What you drew before is here again, and not saved yet.${isOlder}`);
};

// ---- what is shown

const showStatus = (text) => {
  byId("status").textContent = text;
};

const showAlert = (text) => {
  const alert = byId("alert");
  alert.textContent = text;
  alert.hidden = !text;
};

const showQueue = (queue) => {
  Object.assign(state.queue, queue);
  const { labelled, total, with_others: others, broken, classes } = state.queue, names = Object.keys(broken);
  byId("progress").textContent = `${labelled} of ${total} labelled${others ? `, ${others} with others` : ""}`;
  byId("broken").hidden = !names.length;
  byId("broken").firstElementChild.textContent = `${names.length} ${names.length === 1 ? "file" : "files"} left out: cannot be read`;
  byId("broken").lastElementChild.replaceChildren(...names.map((name) => createElement("li", `${name}: ${broken[name]}`)));
  if (!classes.includes(state.newLabel)) state.newLabel = classes[0] ?? "";
  showClasses();
};

const createElement = (tag, text, properties = {}) => Object.assign(document.createElement(tag), { textContent: text, ...properties });

const activeLabel = () => (kind === "boxes" ? (list.selectedBox?.label ?? state.newLabel) : (state.label ?? state.document?.guess?.label));

const showClasses = () => {
  const { classes } = state.queue, holder = byId("classes");
  if (holder.dataset.names !== JSON.stringify(classes)) {
    holder.dataset.names = JSON.stringify(classes);
    const buttons = classes.map((name, index) => {
      const button = createElement("button", name, { type: "button" });
      button.style.setProperty("--color", colorOf(name));
      if (index < 10) button.append(createElement("kbd", String((index + 1) % 10)));
      button.addEventListener("click", () => chooseClass(name));
      return button;
    });
    holder.replaceChildren(...buttons, createClassForm());
  }
  [...holder.querySelectorAll(":scope > button")].forEach((button, index) => button.setAttribute("aria-pressed", classes[index] === activeLabel()));
};

const createClassForm = () => {
  const form = document.createElement("form"), input = createElement("input", "", { type: "text", maxLength: 100, placeholder: "new class", required: true });
  input.setAttribute("aria-label", "name of a new class");
  form.append(input, createElement("button", "Add class"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(async () => {
      showQueue(await post("classes", { name: input.value }));
      stage.stage.focus();
    });
  });
  return form;
};

const showTools = () => {
  const isOpen = Boolean(state.document);
  for (const id of ["accept", "skip", "add", "over"]) if (byId(id)) byId(id).disabled = !isOpen;
  byId("previous").disabled = state.place < 1 && !(state.history.length && !isOpen);
  if (!list) {
    byId("accept").disabled = !isOpen || !activeLabel();
    return;
  }
  byId("undo").disabled = !list.past.length;
  byId("redo").disabled = !list.future.length;
  byId("delete").disabled = !list.selectedBox;
};

const onChange = (isFinal) => {
  if (!state.document) return;
  stage.render();
  showClasses();
  showTools();
  if (isFinal) keepDraft();
};

const showDocument = async (opened) => {
  state.document = opened;
  showAlert(opened?.is_taken ? "Somebody else is labelling this picture." : "");
  byId("stage").hidden = !opened;
  byId("empty").hidden = Boolean(opened);
  if (!opened) return showEmpty();
  const { picture, width, height, guess, boxes, author, revision } = opened;
  state.label = opened.label;
  const image = byId("picture");
  image.hidden = false;
  image.src = `picture?name=${encodeURIComponent(picture)}`;
  image.alt = picture;
  list?.load(boxes ?? guess?.boxes ?? [], { width, height });
  stage.show({ width, height });
  const guessed = guess ? (guess.label ? `, guessed ${guess.label} ${Math.round(guess.score * 100)} %` : `, ${guess.boxes.length} guessed`) : "";
  showStatus(`${picture}, ${width} by ${height} pixels${revision ? `, labelled by ${author || "somebody"}` : guessed}`);
  if (list) restoreDraft();
  list ? stage.render() : null;
  showClasses();
  showTools();
  await image.decode().catch(() => showAlert(`${picture} cannot be shown`));
  stage.stage.setAttribute("aria-label", `picture ${picture}`);
  stage.stage.focus({ preventScroll: true });
};

const showEmpty = () => {
  const { total, labelled, with_others: others } = state.queue, left = total - labelled - Object.keys(state.queue.broken).length;
  const skipped = state.skipped.length ? `${state.skipped.length} skipped: press Look again for them. ` : "";
  const text = !total ? `There are no pictures yet${byId("files") ? ": add some" : ""}.` : left <= 0 ? "All pictures are labelled." : others ? `The last ${others} are with other people.` : "";
  byId("empty").firstElementChild.textContent = `${skipped}${text}`;
  showStatus("");
  showClasses();
  showTools();
  byId("recheck").focus();
};

// ---- from picture to picture

// do one thing at a time, so that a key that is pressed twice does not accept a picture that nobody has seen
const run = async (action) => {
  if (state.isBusy) return;
  state.isBusy = true;
  document.body.dataset.busy = "";
  try {
    await action();
  } catch (error) {
    showAlert(error.status === 401 ? "The server was started anew: reload this page." : error.message);
  } finally {
    state.isBusy = false;
    delete document.body.dataset.busy;
  }
};

const openNext = async () => {
  if (state.place < state.history.length - 1) return openPlace(state.place + 1);
  const { document: opened, queue } = await post("next", { holder: state.holder, skip: state.skipped });
  showQueue(queue);
  if (opened && state.history.at(-1) !== opened.picture) state.history.push(opened.picture);
  state.place = opened ? state.history.length - 1 : state.history.length;
  await showDocument(opened);
};

const openPlace = async (place) => {
  const opened = await post("open", { holder: state.holder, picture: state.history[place] });
  state.place = place;
  await showDocument(opened);
};

const openPrevious = async () => {
  if (state.place < 1) return;
  if (list?.isChanged) await save();
  await openPlace(Math.min(state.place, state.history.length) - 1);
};

const save = async () => {
  const { picture, width, height, revision } = state.document;
  const given = kind === "boxes" ? { boxes: list.plain() } : { label: state.label };
  const body = { holder: state.holder, picture, width, height, base_revision: revision, author: byId("author").value.trim(), ...given };
  try {
    const saved = await post("save", body);
    if (!revision) state.queue.labelled += 1;
    state.document = { ...state.document, ...saved };
  } catch (error) {
    if (error.status !== 409 || !error.content.current) throw error;
    adoptConflict(error.content.current);
    const remedy = kind === "boxes" ? "Undo brings back yours." : "Press a number to change it.";
    throw new Error(`${error.content.current.author || "Somebody"} saved this picture in the meantime, as you see it now. ${remedy}`);
  }
  localStorage.removeItem(draftKey(picture));
};

// somebody else has saved this picture: show their labels; undo brings back the own ones, which can then be saved
const adoptConflict = (current) => {
  Object.assign(state.document, current);
  if (list) {
    const [mine, theirs] = [list.plain(), current.boxes ?? []];
    list.load(theirs, list);
    list.past.push({ boxes: mine.map((box) => list.withId(box)), selected: null });
    onChange(true);
  } else {
    state.label = current.label;
    showClasses();
  }
};

const accept = () =>
  run(async () => {
    if (!state.document) return;
    if (kind === "class") {
      if (!activeLabel()) return showAlert("Choose a class by its number.");
      state.label = activeLabel();
      const isNew = state.label !== state.document.label;
      if (isNew) await save();
    } else if (!state.document.revision || list.isChanged) await save();
    await openNext();
  });

const skip = () =>
  run(async () => {
    if (!state.document) return;
    if (!state.document.revision && !state.skipped.includes(state.document.picture)) state.skipped.push(state.document.picture);
    await openNext();
  });

const chooseClass = (name) => {
  if (!name || state.isBusy) return;
  if (kind === "class") {
    if (!state.document) return;
    state.label = name;
    return run(async () => {
      try {
        if (name !== state.document.label) await save();
      } catch (error) {
        state.label = state.document.label;
        showClasses();
        throw error;
      }
      await openNext();
    });
  }
  state.newLabel = name;
  const box = list.selectedBox;
  if (box && box.label !== name) list.update(box.id, { label: name });
  showClasses();
  stage.focusSelected();
};

// ---- keys and buttons

const removeSelected = () => {
  if (!list?.selectedBox) return;
  list.remove(list.selected);
  stage.focusSelected();
};

const toggleOver = () => {
  stage.drawsOver = !stage.drawsOver;
  byId("stage").classList.toggle("over", stage.drawsOver);
  byId("over").setAttribute("aria-pressed", stage.drawsOver);
};

const deselect = () => {
  list?.select(null);
  stage.stage.focus({ preventScroll: true });
};

const whenOpen = (action) => () => (state.document && !state.isBusy ? action() : undefined);
const ACTIONS = {
  accept,
  skip,
  previous: () => run(openPrevious),
  undo: list ? whenOpen(() => (list.undo(), stage.focusSelected())) : () => run(openPrevious),
  redo: whenOpen(() => (list?.redo(), stage.focusSelected())),
  delete: whenOpen(removeSelected),
  add: whenOpen(() => stage.addInMiddle()),
  over: whenOpen(toggleOver),
  smaller: whenOpen(() => stage.zoomBy(1 / 1.5)),
  larger: whenOpen(() => stage.zoomBy(1.5)),
  fit: whenOpen(() => stage.setZoom(1)),
  recheck: () => run(() => ((state.skipped = []), openNext())),
};
const KEYS = { enter: "accept", s: "skip", p: "previous", pageup: "previous", z: "undo", y: "redo", delete: "delete", backspace: "delete", b: "add", d: "over", "-": "smaller", "+": "larger", "=": "larger", f: "fit" };

const onKey = (event) => {
  if (event.target.matches("input, dialog *") || event.metaKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.repeat || event.target.matches("button, summary"))) return;
  if (event.key === " " && event.target.matches(".box")) event.preventDefault();
  if (event.key === "Escape") return deselect();
  if (stage.onArrow(event)) return event.preventDefault();
  const key = event.key.toLowerCase();
  if (/^[0-9]$/.test(key) && !event.ctrlKey && !event.altKey && !event.repeat) return chooseClass(state.queue.classes[(Number(key) + 9) % 10]);
  const name = event.ctrlKey && key === "z" && event.shiftKey ? "redo" : KEYS[key];
  if (!name || event.altKey || (event.ctrlKey && !["undo", "redo"].includes(name)) || !(name in ACTIONS)) return;
  if (!list && ["redo", "delete", "add", "over"].includes(name)) return;
  event.preventDefault();
  ACTIONS[name]();
};

const onWheel = (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  stage.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event);
};

const connect = () => {
  document.addEventListener("keydown", onKey);
  byId("area").addEventListener("wheel", onWheel, { passive: false });
  new ResizeObserver(() => stage.setZoom(stage.zoom)).observe(byId("area"));
  for (const [id, action] of Object.entries(ACTIONS)) {
    byId(id)?.addEventListener("click", async (event) => {
      await action();
      if (event.detail && state.document) list ? stage.focusSelected() : stage.stage.focus(); // not a press of a key: Enter is to save again
    });
  }
  const author = byId("author"), key = "equipoise-label-author";
  author.value = localStorage.getItem(key) ?? "";
  author.addEventListener("change", () => localStorage.setItem(key, author.value.trim()));
  if (byId("files")) connectSources((blob, name) => request(`upload?name=${encodeURIComponent(name)}`, blob, "application/octet-stream"), onAdded);
  addEventListener("pagehide", () => post("release", { holder: state.holder }, { keepalive: true }).catch(() => {}));
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  setInterval(renew, RENEW_MILLISECONDS);
};

const renew = async () => {
  if (!state.document || state.document.is_taken) return;
  const { picture } = state.document;
  const { is_taken: isTaken } = await post("renew", { holder: state.holder, picture }).catch(() => ({}));
  if (isTaken && picture === state.document?.picture) showAlert("Somebody else is labelling this picture now.");
};

const onAdded = (names, problems) => {
  showAlert(problems.join("; "));
  run(async () => {
    if (!state.document) await openNext();
    else showQueue(await request(`queue?holder=${state.holder}`));
    showStatus(`${names.length} ${names.length === 1 ? "picture" : "pictures"} added.`);
    if (problems.length) showAlert(problems.join("; "));
  });
};

const start = async () => {
  connect();
  state.holder = await claimHolder();
  state.isBusy = false;
  await run(openNext);
  document.body.dataset.drawn = "";
};

start();
