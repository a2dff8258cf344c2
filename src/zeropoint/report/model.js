const rows = Array.from(document.getElementById("operators").tBodies[0].rows);
const box = document.getElementById("search"), count = document.getElementById("count");

function show(number) { location.hash = "#step=" + number; }

// Rows that have all words, and their boxes.
function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean), missed = new Set();
  for (const row of rows) {
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    if (row.hidden) missed.add(Number(row.id.slice(5)));
  }
  count.textContent = rows.length - missed.size + " of " + rows.length;
  mark("missed", step => missed.has(step));
}

function go() {
  const asked = /^#(step|search)=(.*)$/.exec(location.hash);
  if (asked && asked[1] === "search") {
    box.value = decodeURIComponent(asked[2]);
    search();
    return;
  }
  const number = asked && /^\d+$/.test(asked[2]) ? Number(asked[2]) : -1;
  mark("chosen", step => step === number);
  for (const row of rows) row.classList.toggle("chosen", row.id === "step=" + number);
}

box.addEventListener("input", search);
addEventListener("hashchange", go);
search();
go();
