// Tables whose headers hold buttons are sorted by a click.
"use strict";
function sortBy(header, order) {
  const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
  const direction = order || (header.getAttribute("aria-sort") === "descending" ? "ascending" : "descending");
  const key = row => {
    const value = row.cells[column].dataset.value;
    return header.classList.contains("text") ? value : Number(value);
  };
  const rows = Array.from(body.rows).sort((a, b) => {
    const x = key(a), y = key(b);
    return x < y ? -1 : x > y ? 1 : 0;
  });
  if (direction === "descending") rows.reverse();
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", direction);
  body.append(...rows);
}
for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", () => sortBy(button.parentNode));
