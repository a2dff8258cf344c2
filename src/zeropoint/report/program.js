const steps = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("details"), body = document.getElementById("steps").tBodies[0];
const rowOf = new Map(Array.from(body.rows, row => [Number(row.id.slice(5)), row]));
const blocks = document.querySelectorAll(".block");

function made(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function link(number) {
  const element = made("a", number + " " + steps[number].op);
  element.href = "#step=" + number;
  return element;
}

function list(title, items) {
  if (!items.length) return [];
  const all = made("ul");
  for (const parts of items) {
    const item = made("li");
    item.append(...parts);
    all.append(item);
  }
  return [made("h4", title), all];
}

function pairs(rows) {
  const all = made("dl");
  for (const [key, value] of rows) all.append(made("dt", key), made("dd", value));
  return all;
}

// How values are spread: a bar for each part of their range.
function bars(counts) {
  const most = Math.max(...counts), drawn = made("div", undefined, "bars");
  for (const count of counts) drawn.append(Object.assign(made("i"), { style: "height:" + 100 * count / most + "%" }));
  return drawn;
}

function choose(number) {
  const step = steps[number];
  for (const element of document.querySelectorAll(".chosen, .feeds, .uses"))
    element.classList.remove("chosen", "feeds", "uses");
  panel.classList.toggle("open", Boolean(step));
  document.body.classList.toggle("sheet", Boolean(step));
  if (!step) {
    panel.replaceChildren(made("p", "Click a step or a memory block to see its inputs, attributes and neighbors.", "hint"));
    return;
  }
  const close = made("button", "Close", "close");
  close.type = "button";
  close.addEventListener("click", () => { history.pushState(null, "", "#none"); go(); });
  const inputs = step.inputs.map(([name, text, from]) => {
    const parts = from >= 0 ? [link(from), " "] : [];
    return [...parts, made("span", name, "mono"), made("small", text)];
  });
  const spread = step.histogram.length ? [made("h4", "Weights"), bars(step.histogram)] : [];
  const attributes = step.attributes.length ? [made("h4", "Attributes"), pairs(step.attributes)] : [];
  panel.replaceChildren(
    close, made("h3", step.path || number + " " + step.op), made("div", number + " " + step.op + ": " + step.names.join(", "), "name mono"), pairs(step.rows),
    ...list("Inputs", inputs), ...list("Used by", step.users.map(user => [link(user), " ", made("span", steps[user].names[0] || "", "mono")])),
    ...spread, ...attributes);
  panel.scrollTop = 0;
  const feeds = new Set(step.inputs.map(input => input[2])), users = new Set(step.users);
  for (const other of feeds) if (rowOf.has(other)) rowOf.get(other).classList.add("feeds");
  for (const other of users) if (rowOf.has(other)) rowOf.get(other).classList.add("uses");
  rowOf.get(number).classList.add("chosen");
  mark("chosen", other => other === number);
  if (boxes.has(number)) graph.bring(boxes.get(number)[0]);
  mark("feeds", other => feeds.has(other));
  mark("uses", other => users.has(other));
  for (const block of blocks) {
    const owner = Number(block.dataset.step);
    if (owner === number) block.classList.add("chosen");
    else if (feeds.has(owner)) block.classList.add("feeds");
  }
}

// The text of a row, or what it is called with: all words must occur in it.
const texts = new Map(Array.from(rowOf, ([number, row]) => [row,
  (row.textContent + " " + steps[number].inputs.map(input => input[0] + " " + input[1]).join(" ")
    + " " + steps[number].attributes.map(pair => pair[0] + " " + pair[1]).join(" ")).toLowerCase()]));
const box = document.getElementById("search"), count = document.getElementById("count");

function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of texts) {
    row.hidden = !words.every(word => text.includes(word));
    shown += !row.hidden;
  }
  count.textContent = shown + " of " + texts.size;
  mark("missed", step => rowOf.get(step).hidden);
}

function go() {
  const asked = /^#(step|search)=(.*)$/.exec(location.hash);
  if (asked && asked[1] === "search") {
    box.value = decodeURIComponent(asked[2]);
    search();
  } else {
    choose(asked && /^\d+$/.test(asked[2]) ? Number(asked[2]) : -1);
  }
}

function show(number) {
  if (number < 0 || number >= steps.length) return;
  history.pushState(null, "", "#step=" + number);
  go();
}

box.addEventListener("input", search);
body.addEventListener("click", event => {
  const row = event.target.closest("tr");
  if (row && !event.target.closest("a")) show(Number(row.id.slice(5)));
});
panel.addEventListener("click", event => {
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  show(Number(link.hash.slice(6)));
});
for (const block of blocks) block.addEventListener("click", () => show(Number(block.dataset.step)));
document.addEventListener("keydown", event => {
  if (event.target === box) {
    if (event.key === "Escape") { box.value = ""; search(); box.blur(); }
    return;
  }
  if (event.key === "/") { event.preventDefault(); box.focus(); }
  if (event.key === "Escape") location.hash = "#none";
});
addEventListener("hashchange", go);
addEventListener("popstate", go);
search();
go();
