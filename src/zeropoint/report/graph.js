// The graph: drag to move, wheel or buttons to zoom, a click opens a step. Nothing here knows what boxes mean.
const graph = document.querySelector("svg.graph");
const boxes = new Map();
if (graph) {
  const whole = graph.dataset.whole.split(" ").map(Number);
  let view = whole.slice(), from = null, moved = false;
  const look = () => graph.setAttribute("viewBox", view.map(n => n.toFixed(1)).join(" "));
  const start = () => {
    const wide = graph.clientWidth, high = graph.clientHeight, scale = Math.max(0.8, Math.min(whole[2] / wide, wide < 600 ? 1 : 1.4));
    view = [Number(graph.dataset.first) - wide * scale / 2, whole[1], wide * scale, high * scale];
    look();
  };
  const zoom = (factor, x, y) => {
    const box = graph.getBoundingClientRect();
    const px = x === undefined ? 0.5 : (x - box.left) / box.width, py = y === undefined ? 0.5 : (y - box.top) / box.height;
    const wide = Math.min(Math.max(view[2] * factor, 150), 4 * Math.max(whole[2], whole[3]));
    const real = wide / view[2];
    view = [view[0] + view[2] * (1 - real) * px, view[1] + view[3] * (1 - real) * py, wide, view[3] * real];
    look();
  };
  for (const box of graph.querySelectorAll(".box")) {
    const step = Number(box.dataset.step);
    boxes.set(step, [...(boxes.get(step) || []), box]);
    box.addEventListener("click", () => { if (!moved) show(step); });
  }
  graph.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, event.clientX, event.clientY);
  }, { passive: false });
  graph.addEventListener("pointerdown", event => { from = [event.clientX, event.clientY, view[0], view[1]]; moved = false; });
  addEventListener("pointermove", event => {
    if (!from) return;
    const scale = view[2] / graph.clientWidth;
    if (Math.abs(event.clientX - from[0]) + Math.abs(event.clientY - from[1]) > 4) moved = true;
    view[0] = from[2] - (event.clientX - from[0]) * scale;
    view[1] = from[3] - (event.clientY - from[1]) * scale;
    look();
  });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { from = null; });
  document.getElementById("closer").addEventListener("click", () => zoom(1 / 1.4));
  document.getElementById("further").addEventListener("click", () => zoom(1.4));
  document.getElementById("whole").addEventListener("click", () => { view = whole.slice(); look(); });
  document.getElementById("begin").addEventListener("click", start);
  start();
  graph.bring = box => {
    const at = box.getBBox(), x = at.x + at.width / 2, y = at.y + at.height / 2;
    if (x > view[0] && x < view[0] + view[2] && y > view[1] && y < view[1] + view[3]) return;
    view = [x - view[2] / 2, y - view[3] / 2, view[2], view[3]];
    look();
  };
}
// Mark boxes by a function of their step: the name of a class, or nothing.
function mark(name, wanted) {
  for (const [step, all] of boxes) for (const box of all) box.classList.toggle(name, Boolean(wanted(step)));
}
