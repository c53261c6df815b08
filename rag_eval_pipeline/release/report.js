(() => {
  "use strict";
  const table = document.getElementById("scorecard-table");
  const box = document.getElementById("scorecard-search");
  if (!table || !box) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const count = document.getElementById("scorecard-count");
  const texts = rows.map((row) => row.textContent.toLowerCase() + " " + (row.dataset.about || "").toLowerCase());
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = shown + " of " + rows.length + " rows";
  };
  const value = (row, column) => {
    const cell = row.cells[column];
    const given = cell.dataset.value;
    return given === undefined ? cell.textContent.trim().toLowerCase() : given === "" ? null : Number(given);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = rows.map((row, i) => [value(row, column), i, row]);
      order.sort(([a, i], [b, j]) => {
        if (a === null || b === null) return a === b ? i - j : a === null ? 1 : -1;
        return (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1) || i - j;
      });
      body.append(...order.map((entry) => entry[2]));
    });
  });
  box.addEventListener("input", filter);
  document.getElementById("scorecard-controls").hidden = false;
  filter();
})();
