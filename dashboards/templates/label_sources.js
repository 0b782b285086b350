// Pictures that are added: from files, by drag and drop, and from a camera.

const byId = (id) => document.getElementById(id);

// `upload(blob, name)` sends one picture; `onAdded(names, problems)` is called when all are sent
export const connectSources = (upload, onAdded) => {
  const addFiles = async (files) => {
    const names = [], problems = [];
    for (const file of files) {
      try {
        names.push((await upload(file, file.name)).picture);
      } catch (error) {
        problems.push(`${file.name}: ${error.message}`);
      }
    }
    if (names.length || problems.length) onAdded(names, problems);
  };
  for (const id of ["chosen-files", "phone-camera"]) {
    byId(id).addEventListener("change", async ({ target }) => {
      await addFiles([...target.files]);
      target.value = "";
    });
  }
  byId("files").addEventListener("click", () => byId("chosen-files").click());
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    addFiles([...event.dataTransfer.files]);
  });
  connectCamera(addFiles);
};

const connectCamera = (addFiles) => {
  const dialog = byId("camera-dialog"), video = byId("video"), status = byId("camera-status");
  byId("camera").addEventListener("click", async () => {
    dialog.showModal();
    status.textContent = "";
    try {
      const size = { width: { ideal: 1920 }, height: { ideal: 1080 } };
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", ...size } });
    } catch (error) {
      const isInsecure = !navigator.mediaDevices; // browsers lend a camera to https and to this machine only
      status.textContent = isInsecure ? "The live camera needs https, or this machine: use the phone's camera." : `No camera: ${error.message}`;
    }
  });
  byId("shoot").addEventListener("click", async () => {
    if (!video.videoWidth) return;
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
    await addFiles([new File([blob], `camera-${new Date().toISOString().replace(/\D/g, "").slice(0, 17)}.jpg`, { type: "image/jpeg" })]);
    status.textContent = `Taken: ${canvas.width} by ${canvas.height} pixels.`;
  });
  byId("camera-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    for (const track of video.srcObject?.getTracks() ?? []) track.stop();
    video.srcObject = null;
  });
};
