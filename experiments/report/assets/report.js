"use strict";
// Sorts and filters tables and draws the interactive curves; without it the page is complete.
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
    if (table.tBodies[0].rows.length >= 6) filterable(table);
  }

  // ---- curves ------------------------------------------------------------------------------------

  const svg = (name, attributes = {}, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const ring = (corners, turn, inner = 1) =>
    [...Array(inner === 1 ? corners : 2 * corners).keys()].map((k) => {
      const angle = turn + (2 * Math.PI * k) / (inner === 1 ? corners : 2 * corners);
      const radius = inner !== 1 && k % 2 ? inner : 1;
      return [radius * Math.sin(angle), -radius * Math.cos(angle)];
    });
  const SHAPES = {
    o: ring(16, 0), s: ring(4, Math.PI / 4), D: ring(4, 0), "^": ring(3, 0), v: ring(3, Math.PI),
    "<": ring(3, -Math.PI / 2), ">": ring(3, Math.PI / 2), p: ring(5, 0), "*": ring(5, 0, 0.45),
    P: ring(4, 0, 0.5), X: ring(4, Math.PI / 4, 0.5),
  };
  const digits = (value) => (value === null ? "" : String(Number(value.toPrecision(3))));

  class Chart {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(root.querySelector("script").textContent);
      this.chosen = new Set();
      this.at = null;
      this.controls();
      root.hidden = false;
      this.choose();
      new ResizeObserver(() => { if (this.plot.clientWidth !== this.drawnAt) this.draw(); }).observe(this.plot);
    }

    controls() {
      const select = (name, entries) => {
        const box = make("select", {}, ...entries.map((entry, k) => make("option", { value: k }, entry)));
        return [make("label", {}, name + " ", box), box];
      };
      const [taskLabel, task] = select("Task", this.data.tasks.map((each) => each.name));
      const [metricLabel, metric] = select("Metric", []);
      const bands = make("input", { type: "checkbox" });
      bands.checked = true;
      Object.assign(this, { task, metric, bands });
      this.list = make("div", { class: "choices" });
      const quick = (text, which) => {
        const button = make("button", { type: "button" }, text);
        button.addEventListener("click", () => { this.chosen = new Set(which()); this.boxes(); this.draw(); });
        return button;
      };
      const group = make("fieldset", {}, make("legend", {}, "Encoders"),
        quick("All", () => this.series()), quick("None", () => []), quick("Reset", () => this.usual()), this.list);
      this.plot = make("div", { class: "plot" });
      this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" });
      this.readout = make("output", { class: "readout", "aria-live": "polite" });
      const bandLabel = make("label", {}, bands, " 95 % intervals");
      this.root.append(make("div", { class: "pick" }, taskLabel, metricLabel, bandLabel), group, this.plot, this.readout);
      task.addEventListener("change", () => this.choose());
      metric.addEventListener("change", () => this.draw());
      bands.addEventListener("change", () => this.draw());
    }

    series() { return Object.keys(this.data.looks).filter((series) => this.ofTask().series.includes(series)); }
    usual() { return this.ofTask().first; }
    ofTask() { return this.data.tasks[Number(this.task.value)]; }
    ofMetric() { return this.ofTask().metrics[Number(this.metric.value) || 0]; }

    choose() {
      const before = this.metric.selectedOptions[0]?.textContent;
      const names = this.ofTask().metrics.map((each) => each.name);
      this.metric.replaceChildren(...names.map((name, k) => make("option", { value: k }, name)));
      this.metric.value = Math.max(0, names.indexOf(before));
      this.chosen = new Set(this.usual());
      this.boxes();
      this.draw();
    }

    boxes() {
      this.list.replaceChildren(...this.series().map((series) => {
        const box = make("input", { type: "checkbox" });
        box.checked = this.chosen.has(series);
        box.addEventListener("change", () => {
          this.chosen[box.checked ? "add" : "delete"](series);
          this.draw();
        });
        const key = svg("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" });
        const look = this.data.looks[series];
        key.append(svg("path", this.stroke(look, "M1 7H33")), this.mark(look, 17, 7));
        return make("label", {}, box, " ", key, " " + series + (this.ofTask().marked.includes(series) ? " †" : ""));
      }));
    }

    stroke(look, d) {
      return { d, fill: "none", stroke: look.colour, "stroke-width": 2, "stroke-dasharray": look.dash.join(" ") };
    }

    mark(look, x, y, size = 4.5) {
      const points = SHAPES[look.marker].map(([h, v]) => (x + size * h).toFixed(1) + "," + (y + size * v).toFixed(1));
      return svg("polygon", { points: points.join(" "), fill: look.hollow ? "#ffffff" : look.colour, stroke: look.colour });
    }

    draw() {
      const task = this.ofTask(), metric = this.ofMetric(), width = Math.max(280, this.plot.clientWidth), height = 380;
      this.drawnAt = this.plot.clientWidth;
      const lines = this.series().filter((series) => this.chosen.has(series) && metric.lines[series]);
      const box = { left: 58, right: width - 14, top: 26, bottom: height - 46 };
      const lengths = metric.lengths, low = Math.log2(lengths[0] / 1.1), high = Math.log2(lengths.at(-1) * 1.1);
      const values = lines.flatMap((series) => metric.lines[series].flatMap((point) => [point[0], point[1], point[2]]));
      const top = metric.up ? 1.02 : 1.06 * Math.max(...values.filter(Number.isFinite), 0.1);
      const bottom = metric.up ? -0.02 : 0;
      this.x = (length) => box.left + ((Math.log2(length) - low) / (high - low)) * (box.right - box.left);
      this.y = (value) => box.bottom - ((value - bottom) / (top - bottom)) * (box.bottom - box.top);
      const picture = svg("svg", {
        width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-describedby": "chart-keys",
        "aria-label": `${metric.name} over length, ${task.name}: ${lines.join(", ") || "no encoder chosen"}`,
      });
      this.axes(picture, box, task, metric, top);
      const clip = svg("clipPath", { id: "plot-area" });
      const area = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
      clip.append(svg("rect", area));
      const inside = svg("g", { "clip-path": "url(#plot-area)" });
      picture.append(clip, inside);
      this.points = lines.map((series) => this.line(inside, picture, series, metric));
      this.halo = svg("circle", { r: 8, fill: "none", stroke: "#111111", "stroke-width": 2, visibility: "hidden" });
      picture.append(this.halo);
      this.listen(picture);
      this.plot.replaceChildren(picture, this.tip);
      this.show(null);
    }

    axes(picture, box, task, metric, top) {
      const text = (x, y, words, anchor = "middle") =>
        picture.append(svg("text", { x, y, "text-anchor": anchor, "font-size": 12, fill: "#333333" }, words));
      for (const trained of task.trained) {
        const x = this.x(trained), side = { x: box.left, y: box.top, width: x - box.left, height: box.bottom - box.top };
        picture.append(svg("rect", { ...side, fill: "#f1f1ec" }));
        picture.append(svg("path", { d: `M${x} ${box.top}V${box.bottom}`, stroke: "#555555", "stroke-dasharray": "5 3", class: "boundary" }));
        text(Math.max(x, box.left + 100), box.top - 8, "trained up to " + trained, "end");
      }
      const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100].find((each) => top / each <= 6) || top / 5;
      for (let value = 0; value <= top + 1e-9; value += metric.up ? 0.2 : step) {
        const y = this.y(value);
        picture.append(svg("path", { d: `M${box.left} ${y}H${box.right}`, stroke: "#e2e2e2" }));
        text(box.left - 6, y + 4, digits(value), "end");
      }
      let last = Infinity;
      for (const length of [...metric.lengths].reverse()) {
        const x = this.x(length);
        picture.append(svg("path", { d: `M${x} ${box.bottom}v5`, stroke: "#555555" }));
        if (last - x > 9 * String(length).length + 6) { text(x, box.bottom + 19, length); last = x; }
      }
      text((box.left + box.right) / 2, box.bottom + 38, "length measured (logarithmic)");
      const y = (box.top + box.bottom) / 2;
      const name = svg("text", { x: 14, y, transform: `rotate(-90 14 ${y})`, "text-anchor": "middle", "font-size": 12, fill: "#333333" });
      name.textContent = metric.unit ? `${metric.name} (${metric.unit})` : metric.name;
      picture.append(name);
      const guess = metric.lengths.map((length, k) => [length, metric.chance[k]]).filter((pair) => pair[1] !== null);
      const d = guess.map(([length, value], k) => `${k ? "L" : "M"}${this.x(length)} ${this.y(value)}`).join("");
      if (d) picture.append(svg("path", { d, fill: "none", stroke: "#777777", "stroke-dasharray": "1 4", "stroke-width": 2, class: "chance" }));
      const under = d && box.bottom - this.y(guess.at(-1)[1]) > 18;
      if (d) text(box.right, this.y(guess.at(-1)[1]) + (under ? 14 : -5), "guessing without reading", "end");
    }

    line(inside, picture, series, metric) {
      const look = this.data.looks[series];
      const points = metric.lines[series].map((point, k) => ({ series, length: metric.lengths[k], point }))
        .filter((each) => each.point.length > 1 && each.point[0] !== null);
      for (const each of points) { each.x = this.x(each.length); each.y = this.y(each.point[0]); }
      const banded = points.filter((each) => each.point[1] !== null);
      if (this.bands.checked && banded.length > 1) {
        const edge = (list, k) => list.map((each) => `${each.x} ${this.y(each.point[k])}`).join("L");
        const d = `M${edge(banded, 2)}L${edge([...banded].reverse(), 1)}Z`;
        inside.append(svg("path", { d, fill: look.colour, "fill-opacity": 0.15, class: "band" }));
      }
      const d = points.map((each, k) => `${k ? "L" : "M"}${each.x} ${each.y}`).join("");
      inside.append(svg("path", { ...this.stroke(look, d), class: "curve" }));
      points.forEach((each) => picture.append(this.mark(look, each.x, each.y)));
      return points;
    }

    listen(picture) {
      const nearest = (event) => {
        const area = picture.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
        const far = (each) => Math.hypot(each.x - x, each.y - y);
        const all = this.points.flat().sort((a, b) => far(a) - far(b));
        this.show(all.length && far(all[0]) < 40 ? all[0] : null);
      };
      picture.addEventListener("pointermove", nearest);
      picture.addEventListener("pointerdown", nearest);
      picture.addEventListener("pointerleave", () => this.show(null));
      picture.addEventListener("blur", () => this.show(null));
      picture.addEventListener("focus", () => { if (picture.matches(":focus-visible")) this.show(this.points.find((line) => line.length)?.[0]); });
      picture.addEventListener("keydown", (event) => {
        const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
        const filled = this.points.filter((line) => line.length);
        if (event.key === "Escape") this.show(null);
        if (!steps || !filled.length) return;
        event.preventDefault();
        const line = Math.max(0, filled.findIndex((each) => each.includes(this.at)));
        const place = Math.max(0, filled[line].indexOf(this.at));
        const next = filled[(line + steps[0] + filled.length) % filled.length];
        this.show(next[Math.min(next.length - 1, Math.max(0, place + steps[1]))]);
      });
    }

    show(each) {
      this.at = each || null;
      this.tip.hidden = !each;
      this.halo.setAttribute("visibility", each ? "visible" : "hidden");
      if (!each) { this.readout.textContent = ""; return; }
      const [mean, low, high, seeds] = each.point;
      const interval = low === null ? "no interval" : `95 % interval ${digits(low)} to ${digits(high)}`;
      const text = `${each.series}, length ${each.length}: ${digits(mean)} (${interval}, ${seeds} seed${seeds === 1 ? "" : "s"})`;
      this.tip.textContent = this.readout.textContent = text;
      this.halo.setAttribute("cx", each.x);
      this.halo.setAttribute("cy", each.y);
      const room = this.plot.clientWidth - this.tip.offsetWidth - 4;
      this.tip.style.left = Math.max(0, Math.min(room, each.x - this.tip.offsetWidth / 2)) + "px";
      const above = each.y - this.tip.offsetHeight - 14;
      this.tip.style.top = (above < 0 ? each.y + 14 : above) + "px";
    }
  }

  for (const root of document.querySelectorAll(".chart")) new Chart(root);

  // ---- print -------------------------------------------------------------------------------------

  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details:not([open])")) {
      folded.open = true;
      addEventListener("afterprint", () => { folded.open = false; }, { once: true });
    }
  });
})();
