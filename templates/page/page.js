"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const table = find("rules"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows], step = Number(table.dataset.shown);
  const search = find("search"), tree = find("tree"), count = find("count"), more = find("more");
  const boxes = [...document.querySelectorAll("#classes input")];
  const searched = heads.flatMap((head, k) => ("search" in head.dataset ? [k] : []));
  let order = rows, limit = step, texts = null;

  // What search reads, gathered when it is first asked.
  const textOf = (row) => searched.map((k) => row.cells[k].textContent).join(" ").toLowerCase();

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && !texts) texts = new Map(rows.map((row) => [row, textOf(row)]));
    const off = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    const only = tree ? tree.value : "";
    let fit = 0;
    for (const row of order) {
      const shown = !off.has(row.dataset.c) && (!only || row.dataset.t === only) &&
        words.every((word) => texts.get(row).includes(word));
      fit += shown;
      if (row.hidden === shown) row.hidden = !shown;  // to set what is set costs a layout
      const later = shown && fit > limit;
      if (row.classList.contains("later") !== later) row.classList.toggle("later", later);
    }
    const said = { shown: Math.min(fit, limit), all: rows.length };
    count.textContent = count.dataset.text.replace(/\{(shown|all)\}/g, (_, key) => said[key]);
    more.hidden = fit <= limit;
    find("none").hidden = fit > 0;
  }

  function valueOf(row, k, numeric) {
    const cell = row.cells[k], text = cell.dataset.v ?? cell.textContent.trim();
    return numeric ? (text === "" ? NaN : Number(text)) : text;
  }

  function sort(k) {
    const numeric = heads[k].dataset.kind === "number";
    const up = heads[k].getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
    const keyed = rows.map((row, at) => ({ row, at, key: valueOf(row, k, numeric) }));
    const collator = new Intl.Collator(document.documentElement.lang, { numeric: true });
    keyed.sort((a, b) => {
      if (!numeric) return sign * collator.compare(a.key, b.key) || a.at - b.at;
      const last = Number.isNaN(a.key) - Number.isNaN(b.key);  // what has no value, in either order
      return last || sign * (a.key - b.key) || a.at - b.at;
    });
    for (const head of heads) head.setAttribute("aria-sort", "none");
    heads[k].setAttribute("aria-sort", up ? "ascending" : "descending");
    arrange(keyed.map((entry) => entry.row));
  }

  function arrange(rows) {
    order = rows;
    const all = document.createDocumentFragment();
    for (const row of order) all.append(row);
    body.append(all);
    limit = step;
    show();
  }

  heads.forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.title = table.dataset.hint.replace("{column}", () => head.textContent);
    button.addEventListener("click", () => sort(k));
    head.dataset.head = head.textContent;  // for print: browsers repeat no buttons on each page
    head.replaceChildren(button);
    head.setAttribute("aria-sort", k ? "none" : "ascending");
  });
  const anew = () => { limit = step; show(); };
  search.addEventListener("input", anew);
  for (const control of [tree, ...boxes]) control?.addEventListener("change", anew);
  more.addEventListener("click", () => { limit += step; show(); });
  find("reset").addEventListener("click", () => {
    search.value = "";
    if (tree) tree.value = "";
    for (const box of boxes) box.checked = true;
    heads.forEach((head, k) => head.setAttribute("aria-sort", k ? "none" : "ascending"));
    arrange(rows);
    search.focus();
  });
  find("controls").hidden = false;
  show();
})();
