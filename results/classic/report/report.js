"use strict";
// Sorts and filters tables, shows one series alone, unfolds for print; without it the page is complete.
(() => {
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // ---- tables ------------------------------------------------------------------------------------

  const number = /^[×<> ]{0,2}([+\-−]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)/i;

  /** The sort key of a cell: its first number, else its text; empty cells are always last. */
  function sortKey(cell) {
    const text = cell.textContent.trim();
    const found = number.exec(text);
    if (found) return [0, Number(found[1].replace(/,/g, "").replace("−", "-"))];
    return text === "" || /^(not measured|unsupported|diverged)/.test(text) ? [2, text] : [1, text.toLowerCase()];
  }

  function compare(one, other, sign) {
    if (one[0] !== other[0]) return one[0] === 2 || other[0] === 2 ? one[0] - other[0] : sign * (one[0] - other[0]);
    return sign * (one[1] < other[1] ? -1 : one[1] > other[1] ? 1 : 0);
  }

  function sortable(table) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" };
        const order = next[head.getAttribute("aria-sort") || "none"];
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        if (order !== "none") head.setAttribute("aria-sort", order);
        const keyed = rows.map((row) => [row, sortKey(row.cells[column])]);
        if (order !== "none") keyed.sort((a, b) => compare(a[1], b[1], order === "ascending" ? 1 : -1));
        body.append(...keyed.map((pair) => pair[0]));
      });
    });
  }

  function filterable(table) {
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    if (!table.closest(".data")) return;
    const input = make("input", { type: "search", autocomplete: "off" });
    const count = make("output", { "aria-live": "polite" });
    const label = make("label", {}, "Filter rows of “" + table.caption.textContent.trim() + "” ", input);
    table.closest(".data").prepend(make("div", { class: "filter" }, label, count));
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      const shown = rows.filter(([row, text]) => !(row.hidden = !words.every((word) => text.includes(word))));
      count.textContent = input.value.trim() ? shown.length + " of " + rows.length + " rows" : "";
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    sortable(table);
    if (table.tBodies[0].rows.length > 20) filterable(table);
  }

  // ---- pictures ----------------------------------------------------------------------------------

  /** Pointing at a series in a board, or at its name in a picture, shows it alone. */
  function pick(name) {
    document.body.classList.toggle("pick", name !== null);
    for (const element of document.querySelectorAll("[data-e]")) {
      element.classList.toggle("sel", element.dataset.e === name);
    }
  }
  for (const element of document.querySelectorAll(".board [data-e], text[data-e]")) {
    element.addEventListener("mouseenter", () => pick(element.dataset.e));
    element.addEventListener("mouseleave", () => pick(null));
    element.addEventListener("focusin", () => pick(element.dataset.e));
    element.addEventListener("focusout", () => pick(null));
  }

  // ---- folded parts ------------------------------------------------------------------------------

  /** Open what a link leads into. */
  function reveal() {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) opened.push(part);
    for (const part of opened) part.open = true;
    for (const image of document.images) image.loading = "eager";
  });
  addEventListener("afterprint", () => {
    for (const part of opened.splice(0)) part.open = false;
  });
})();
