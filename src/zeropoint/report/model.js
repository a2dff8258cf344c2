const rows = document.getElementById("operators").tBodies[0].rows;

function show(number) { location.hash = "#step=" + number; }

function go() {
  const asked = /^#step=(\d+)$/.exec(location.hash), number = asked ? Number(asked[1]) : -1;
  mark("chosen", step => step === number);
  for (const row of rows) row.classList.toggle("chosen", row.id === "step=" + number);
}

addEventListener("hashchange", go);
go();
