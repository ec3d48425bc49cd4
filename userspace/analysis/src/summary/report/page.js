"use strict";
// Shows the data of the page. Everything in it may come from a hostile program: it is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const add = (parent, ...children) => { parent.append(...children); return parent; };

  // Numbers.
  const duration = (ns) => {
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (ns >= size * 0.9995) {
        const value = ns / size;
        return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + unit;
      }
    }
    return (Number.isInteger(ns) ? ns : ns.toFixed(1)) + " ns";
  };
  const count = (number) => number.toLocaleString("en-US");
  const bytes = (number) => {
    for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
      if (number >= size) return (number / size).toFixed(2) + " " + unit;
    }
    return number + " B";
  };
  const percent = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "-";
  // A standard error is shown with as many digits as it leaves.
  const withError = (ns, error) => {
    if (!error) return duration(ns);
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([size]) => Math.max(ns, error / 10) >= size * 0.9995) || [1, "ns"];
    const value = ns / size, wrong = error / size, digit = Math.floor(Math.log10(wrong));
    const least = unit === "ns" ? 0 : value < 9.995 ? -2 : value < 99.95 ? -1 : 0;
    const last = Math.max(wrong / 10 ** digit < 1.95 ? digit - 1 : digit, least), step = 10 ** last, decimals = Math.max(0, -last);
    const rounded = (number) => (Math.round(number / step) * step).toFixed(decimals);
    if (Math.round(wrong / step) === 0) return value.toFixed(decimals) + " " + unit + " ±<" + step.toFixed(decimals);
    return rounded(value) + " " + unit + " ±" + rounded(wrong);
  };
  // An estimate is no lower bound: the range says how far down it goes.
  const atLeast = (agent) => agent.meaning === "least" ? "\u2265 " : "";
  const range = ([least, most], whole) => least === most ? "" : " (" + percent(least, whole).replace(" %", "") + "–" + percent(most, whole).replace(" %", "") + ")";
  // By its status register, for any process.
  const active = (agent) => agent.active
    ? ". By its status register, the GPU was active for " + percent(agent.active.value, data.length) + " (standard error " + percent(agent.active.error, data.length) + "), for any process"
    : "";
  // Where nothing is known but the most, there is only the range.
  const busyShare = (agent) => agent.meaning === "nothing"
    ? percent(agent.range[0], data.length).replace(" %", "") + "–" + percent(agent.range[1], data.length)
    : atLeast(agent) + percent(agent.busy, data.length) + range(agent.range, data.length);
  const tone = (kind) => getComputedStyle(document.documentElement).getPropertyValue("--" + kind).trim();

  // Header.
  by("title").textContent = data.title;
  for (const [name, text] of [...data.facts, ["Recorded for", duration(data.length)]]) {
    const shown = name === "Began" ? new Date(Number(text)).toLocaleString() : text;
    add(by("facts"), add(make("div"), make("dt", name), make("dd", shown)));
  }

  // What the reader must know first.
  by("first").hidden = !data.failed.length && !data.nothing;
  data.failed.forEach((text) => add(by("first"), make("p", text, "bad")));
  if (data.nothing) {
    const hints = make("ul");
    data.nothing.hints.forEach((text) => add(hints, make("li", text)));
    add(by("first"), make("p", data.nothing.text, "bad"), hints);
  }

  // Figures.
  const figure = (label, value, more, mood) => {
    const card = make("div", undefined, "card figure");
    add(card, make("div", label, "label"), make("div", value, "value " + (mood || "")), make("div", more || "", "more"));
    add(by("cards"), card);
  };
  const table = (id) => data.tables.find((one) => one.id === id);
  const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0);
  const kernels = table("kernels"), copies = table("copies");
  if (data.agents.length) {
    const busiest = data.agents.reduce((a, b) => a.busy >= b.busy ? a : b);
    const isSure = data.agents.every((one) => one === busiest || one.range[1] <= busiest.range[0]);
    figure("GPU busy", busyShare(busiest), busiest.title + (data.agents.length > 1 ? (isSure ? ", the busiest of " : ", most likely the busiest of ") + data.agents.length : ""));
  }
  const plural = (number, one, many) => count(number) + " " + (number === 1 ? one : many || one + "s");
  if (kernels) {
    const all = sum(kernels.rows, "count"), timed = sum(kernels.rows, "timed");
    const total = withError(sum(kernels.rows, "total"), Math.hypot(...kernels.rows.map((row) => row.error || 0)));
    figure("Kernels", count(all), plural(kernels.rows.length, "name") + ", " + (timed ? (timed < all ? "≥ " : "") + total : "durations not known"));
  }
  if (copies) figure("Copied", bytes(copies.rows.reduce((total, row) => total + row.bytes[0], 0)), plural(sum(copies.rows, "count"), "copy", "copies"));
  const calls = data.tables.filter((one) => one !== kernels && one !== copies);
  const called = calls.reduce((total, one) => total + sum(one.rows, "count"), 0);
  figure("API calls", count(called), data.unfinished_calls ? count(data.unfinished_calls) + " had not returned" : called ? "all returned" : "none was recorded", data.unfinished_calls ? "warn" : "");
  const whole = data.losses[data.losses.length - 1];
  if (whole) figure("Lost", count(whole.lost), "of " + plural(whole.seen, "record") + " of all kinds", whole.lost ? "bad" : whole.seen ? "good" : "");
  else figure("Lost", "?", "the capture has no account", "bad");

  // Timeline.
  const canvas = by("canvas"), tip = by("tip"), context = canvas.getContext("2d");
  const ROW = 22, GROUP = 24, AXIS = 26;
  // Labels of rows leave room for the rows on a phone.
  let LABEL = 210;
  let view = { from: 0, to: data.length };
  const rows = [];
  {
    let y = AXIS, last = null;
    data.lanes.forEach((lane, index) => {
      if (lane.group !== last) { rows.push({ y, group: lane.group }); y += GROUP; last = lane.group; }
      rows.push({ y, lane, index, spans: [] });
      y += ROW;
    });
    canvas.dataset.height = Math.max(y + 8, 80);
  }
  const laneRows = rows.filter((row) => row.lane);
  for (const [lane, name, begin, length, doubtful] of data.spans) {
    laneRows[lane].spans.push({ begin, end: begin + length, name: data.names[name], doubtful });
  }
  for (const row of laneRows) row.longest = row.spans.reduce((most, span) => Math.max(most, span.end - span.begin), 0);
  // Colours of names: the same name has the same shade everywhere.
  const shade = (name) => {
    let hash = 0;
    for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) | 0;
    return 0.62 + (Math.abs(hash) % 38) / 100;
  };
  const width = () => canvas.clientWidth - LABEL;
  const x = (time) => LABEL + (time - view.from) / (view.to - view.from) * width();
  const timeAt = (pixel) => view.from + (pixel - LABEL) / width() * (view.to - view.from);
  // The first span that can reach `time`.
  const firstAt = (row, time) => {
    let low = 0, high = row.spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.spans[middle].begin < time - row.longest) low = middle + 1; else high = middle;
    }
    return low;
  };
  // The beginning of a text that fits.
  const cut = (text, room) => {
    if (context.measureText(text).width <= room) return text;
    let end = text.length;
    while (end > 1 && context.measureText(text.slice(0, end) + "\u2026").width > room) end--;
    return text.slice(0, end) + "\u2026";
  };
  const draw = () => {
    const scale = window.devicePixelRatio || 1, height = Number(canvas.dataset.height);
    LABEL = Math.min(210, Math.round(canvas.clientWidth * 0.35));
    canvas.style.height = height + "px";
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const [ink, soft, line] = ["ink", "soft", "line"].map(tone);
    // The axis: as many ticks as there is room for labels.
    const length = view.to - view.from, most = Math.max(1, Math.floor(width() / 80));
    let tick = Math.pow(10, Math.floor(Math.log10(length / most)));
    tick *= [1, 2, 5, 10].find((factor) => length / (tick * factor) <= most) || 10;
    let free = 0;
    context.lineWidth = 1;
    for (let time = Math.ceil(view.from / tick) * tick; time <= view.to; time += tick) {
      context.strokeStyle = line;
      context.beginPath(); context.moveTo(x(time), AXIS - 6); context.lineTo(x(time), height); context.stroke();
      const label = duration(Math.round(time)), from = x(time) + 4, to = from + context.measureText(label).width;
      if (from < free || to > canvas.clientWidth) continue;
      free = to + 6;
      context.fillStyle = soft;
      context.fillText(label, from, 11);
    }
    for (const row of rows) {
      if (row.group !== undefined) {
        context.fillStyle = ink;
        context.font = "600 12px system-ui, sans-serif";
        context.fillText(row.group, 4, row.y + GROUP / 2 + 3, canvas.clientWidth - 8);
        context.font = "12px system-ui, sans-serif";
        continue;
      }
      context.fillStyle = soft;
      context.fillText(cut(row.lane.title, LABEL - 22), 14, row.y + ROW / 2);
      context.fillStyle = line;
      context.fillRect(LABEL, row.y + ROW - 1, width(), 1);
      context.save();
      context.beginPath(); context.rect(LABEL, row.y, width(), ROW); context.clip();
      const colour = tone(row.lane.kind);
      // How busy, by steps; behind the spans, which are exact.
      const first = Math.max(0, Math.floor(view.from / data.step));
      const last = Math.min(row.lane.busy.length, Math.ceil(view.to / data.step));
      const perPixel = Math.max(1, Math.floor(length / width() / data.step));
      context.fillStyle = colour;
      for (let step = first; step < last; step += perPixel) {
        let most = 0;
        for (let at = step; at < Math.min(step + perPixel, last); at++) most = Math.max(most, row.lane.busy[at]);
        if (!most) continue;
        context.globalAlpha = 0.35;
        const tall = Math.max(2, (ROW - 4) * most / 1000);
        context.fillRect(x(step * data.step), row.y + ROW - 2 - tall, Math.max(1, x((step + perPixel) * data.step) - x(step * data.step)), tall);
      }
      let drawnTo = -1;
      for (let at = firstAt(row, view.from); at < row.spans.length; at++) {
        const span = row.spans[at];
        if (span.begin > view.to) break;
        if (span.end < view.from) continue;
        const left = Math.max(x(span.begin), LABEL - 1), right = Math.min(x(span.end), canvas.clientWidth + 1);
        if (right - left < 1 && left < drawnTo) continue;
        drawnTo = Math.max(left + 1, right);
        context.globalAlpha = shade(span.name);
        context.fillStyle = colour;
        context.fillRect(left, row.y + 3, Math.max(1, right - left - (right - left > 3 ? 0.5 : 0)), ROW - 7);
        if (span.doubtful) {
          context.globalAlpha = 1;
          context.strokeStyle = ink;
          context.setLineDash([3, 2]);
          if (right - left > 4) context.strokeRect(left + 0.5, row.y + 3.5, right - left - 1, ROW - 8);
          context.setLineDash([]);
        }
        if (right - left > 46) {
          context.globalAlpha = 1;
          context.fillStyle = "#fff";
          let text = span.name;
          const room = right - left - 8;
          const fits = Math.floor(room / 6.2);
          if (text.length > fits) text = text.slice(0, Math.max(1, fits - 1)) + "\u2026";
          context.fillText(text, left + 4, row.y + ROW / 2 - 0.5, room);
        }
      }
      context.restore();
    }
    by("range").textContent = duration(Math.round(view.from)) + " - " + duration(Math.round(view.to));
  };
  const show = (from, to) => {
    let length = Math.min(Math.max(to - from, 20), data.length);
    from = Math.min(Math.max(from, 0), data.length - length);
    view = { from, to: from + length };
    draw();
  };
  const zoom = (factor, around) => {
    const middle = around === undefined ? (view.from + view.to) / 2 : around;
    show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  };
  canvas.addEventListener("wheel", (event) => {
    const pixel = event.offsetX;
    if (pixel < LABEL && !event.ctrlKey) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX || event.deltaY) / width() * (view.to - view.from);
      show(view.from + by, view.to + by);
    } else zoom(Math.exp(event.deltaY / 400), timeAt(Math.max(pixel, LABEL)));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, ...view };
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a made-up pointer */ }
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = (drag.x - event.offsetX) / width() * (drag.to - drag.from);
      tip.hidden = true;
      return show(drag.from + by, drag.to + by);
    }
    const row = laneRows.find((one) => event.offsetY >= one.y && event.offsetY < one.y + ROW);
    if (!row || event.offsetX < LABEL) { tip.hidden = true; return; }
    const time = timeAt(event.offsetX), slack = 2 / width() * (view.to - view.from);
    let best = null;
    for (let at = firstAt(row, time - slack); at < row.spans.length && row.spans[at].begin <= time + slack; at++) {
      const span = row.spans[at];
      if (span.end >= time - slack && (!best || span.end - span.begin <= best.end - best.begin)) best = span;
    }
    const step = row.lane.busy[Math.floor(time / data.step)] || 0;
    tip.textContent = best
      ? best.name + "\n" + duration(best.end - best.begin) + " from " + duration(best.begin) + (best.doubtful ? "\nestimated, or not ended" : "")
      : row.lane.title + "\nbusy " + (step / 10).toFixed(1) + " % of this step of " + duration(data.step);
    tip.hidden = false;
    const left = Math.min(event.offsetX + 14, canvas.clientWidth - tip.offsetWidth - 4);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (event.offsetY + 16) + "px";
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", () => show(0, data.length));
  canvas.addEventListener("keydown", (event) => {
    const length = view.to - view.from;
    const keys = {
      ArrowLeft: () => show(view.from - length / 8, view.to - length / 8),
      ArrowRight: () => show(view.from + length / 8, view.to + length / 8),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: () => show(0, data.length),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  by("zoom-in").addEventListener("click", () => zoom(0.5));
  by("zoom-out").addEventListener("click", () => zoom(2));
  by("zoom-all").addEventListener("click", () => show(0, data.length));
  window.addEventListener("resize", () => { draw(); fitAxes(); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const notDrawn = data.not_drawn.map(([what, left, all]) => " " + count(left) + " of " + count(all) + " " + what + " have no known times and are not drawn.").join("");
  by("timeline-note").textContent = "Wheel zooms, drag moves, double click shows all. Rows of threads show outermost calls; dashed spans are estimates or had not ended."
    + (data.spans_left_out ? " " + plural(data.spans_left_out, "shorter span is", "shorter spans are") + " shown only as density (pale), in steps of " + duration(data.step) + "." : "")
    + (data.lanes_left_out ? " " + plural(data.lanes_left_out, "less busy row is", "less busy rows are") + " left out." : "") + notDrawn;
  if (!data.lanes.length) by("timeline-note").textContent = "Nothing with a beginning and an end was recorded." + notDrawn;

  // Histograms.
  const NS = by("namespace").namespaceURI;
  const svg = (tag, attributes, text) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const PER_DECADE = 16;
  const histogram = (row, kind) => {
    const box = make("div", undefined, "histogram");
    // The mean of a class says nothing of single dispatches.
    const what = row.estimated
      ? count(row.estimated) + " of " + count(row.timed) + " durations are means of their classes; single ones differ from these"
      : !row.timed ? "durations not known"
      : plural(row.timed, "duration") + ", median " + duration(row.p50) + ", p95 " + duration(row.p95) + ", longest " + duration(row.max);
    add(box, make("div", row.name + ": " + what, "name"));
    if (!row.histogram.length) return box;
    const low = row.histogram[0][0], high = row.histogram[row.histogram.length - 1][0];
    const columns = high - low + 1, most = Math.max(...row.histogram.map((bucket) => bucket[1]));
    const W = 1000, H = 96, floor = H - 1, wide = W / columns;
    const picture = svg("svg", { viewBox: "0 0 " + W + " " + H, preserveAspectRatio: "none", role: "img", "aria-label": "Histogram of durations" });
    add(picture, svg("line", { x1: 0, x2: W, y1: floor, y2: floor }));
    for (const [bucket, number] of row.histogram) {
      const tall = Math.max(2, (floor - 6) * number / most);
      const bar = svg("rect", { x: (bucket - low) * wide + 1, y: floor - tall, width: Math.max(1, wide - 2), height: tall, fill: "var(--" + kind + ")" });
      const from = Math.pow(10, bucket / PER_DECADE), to = Math.pow(10, (bucket + 1) / PER_DECADE);
      add(bar, svg("title", {}, count(number) + " from " + duration(Math.round(from)) + " to " + duration(Math.round(to))));
      add(picture, bar);
    }
    const axis = make("div", undefined, "axis"), every = Math.max(1, Math.round(columns / 8));
    for (let bucket = low; bucket <= high + 1; bucket += every) {
      const label = make("span", duration(Math.round(Math.pow(10, bucket / PER_DECADE))));
      label.style.left = (100 * (bucket - low) / columns) + "%";
      add(axis, label);
    }
    // Few columns do not fill the width, because bars as wide as that would say nothing.
    const plot = add(make("div"), picture, axis);
    plot.style.width = Math.min(100, 4 * columns) + "%";
    return add(box, plot);
  };
  // Labels that have no room are not shown.
  const fitAxes = () => {
    for (const axis of document.querySelectorAll(".axis")) {
      const end = axis.closest(".histogram").getBoundingClientRect().right;
      let free = -Infinity;
      for (const label of axis.children) {
        label.hidden = false;
        const { left, right } = label.getBoundingClientRect();
        label.hidden = left < free || right > end;
        if (!label.hidden) free = right + 6;
      }
    }
  };

  // Tables.
  const columnsOf = (one) => {
    const kernelsOrCopies = one.id === "kernels" || one.id === "copies";
    const columns = [
      ["Name", (row) => row.name, (row) => row.name + (row.stepped ? " *" : "")],
      ["Count", (row) => row.count, (row) => count(row.count)],
      ["Total", (row) => row.total, (row) => (kernelsOrCopies && row.timed !== row.count ? "≥ " : "") + withError(row.total, row.error)],
      ["Share", (row) => row.total, (row) => percent(row.total, one.total)],
      ["Mean", (row) => row.mean, (row) => withError(row.mean, row.error / row.timed)],
      ["Min", (row) => row.min, (row) => duration(row.min)],
      ["p50", (row) => row.p50, (row) => duration(row.p50)],
      ["p95", (row) => row.p95, (row) => duration(row.p95)],
      ["p99", (row) => row.p99, (row) => duration(row.p99)],
      ["Max", (row) => row.max, (row) => duration(row.max)],
    ];
    if (one.rows.some((row) => row.bytes)) {
      const rate = (row) => row.total ? row.bytes[1] / row.total : 0;
      columns.splice(2, 0, ["Bytes", (row) => row.bytes[0], (row) => bytes(row.bytes[0])]);
      columns.push(["GB/s", rate, (row) => row.total ? rate(row).toFixed(2) : "-"]);
    }
    return columns;
  };
  for (const one of data.tables) {
    one.total = sum(one.rows, "total");
    const kind = one.id === "kernels" ? "kernel" : one.id === "copies" ? "copy" : "call";
    const columns = columnsOf(one);
    const card = make("section", undefined, "card");
    card.id = "table-" + one.id;
    const search = make("input");
    search.type = "search";
    search.placeholder = "Filter names";
    search.setAttribute("aria-label", "Filter names of " + one.title);
    const head = add(make("div", undefined, "head"), make("h2", one.title), search);
    const element = make("table", undefined, "sortable"), body = make("tbody"), heading = make("tr");
    let order = 2 + (columns[2][0] === "Bytes" ? 1 : 0), descending = true, selected = one.rows[0];
    const picture = make("div");
    const fill = () => {
      const wanted = search.value.toLowerCase();
      const value = columns[order][1];
      const sorted = one.rows.filter((row) => row.name.toLowerCase().includes(wanted)).sort((a, b) => {
        const [p, q] = [value(a), value(b)];
        const way = typeof p === "string" ? p.localeCompare(q) : p - q;
        return descending ? -way : way;
      });
      body.replaceChildren(...sorted.map((row) => {
        const line = make("tr", undefined, row === selected ? "selected" : "");
        columns.forEach(([name, , text]) => {
          const unmeasured = !row.timed && !["Name", "Count", "Bytes"].includes(name);
          // The mean of a class says nothing of single dispatches.
          const ofClasses = row.estimated && ["Min", "p50", "p95", "p99", "Max"].includes(name);
          const cell = make("td", unmeasured || ofClasses ? "-" : text(row));
          if (name === "Share" && one.total) {
            cell.className = "bar";
            cell.style.setProperty("--tone", "var(--" + kind + ")");
            const bar = make("i");
            bar.style.width = (100 * row.total / one.total) + "%";
            add(cell, bar);
          }
          if (name === "Count" && row.timed !== row.count) cell.title = count(row.count - row.timed) + " of " + count(row.count) + ": how long they took is not known";
          add(line, cell);
        });
        line.addEventListener("click", () => { selected = row; fill(); });
        return line;
      }));
      [...heading.children].forEach((cell, index) => {
        if (index === order) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
      picture.replaceChildren(selected ? histogram(selected, kind) : "");
      fitAxes();
    };
    columns.forEach(([name], index) => {
      const cell = make("th", name);
      cell.addEventListener("click", () => {
        descending = index === order ? !descending : index !== 0;
        order = index;
        fill();
      });
      add(heading, cell);
    });
    search.addEventListener("input", fill);
    add(element, add(make("thead"), heading), body);
    add(card, head, add(make("div", undefined, "wrap"), element), picture);
    const notes = [];
    if (one.rows.some((row) => row.stepped)) notes.push("* The kernel single-steps its first instruction: each duration includes that.");
    if (one.rows.some((row) => row.error)) notes.push("±: standard error of estimates.");
    if (one.id === "kernels" && data.estimates) notes.push("Estimates: " + data.estimates + ".");
    if (one.left_out) notes.push(plural(one.left_out, "name", "names") + " with less time " + (one.left_out === 1 ? "is" : "are") + " left out.");
    if (notes.length) add(card, make("p", notes.join(" "), "note"));
    add(by("tables"), card);
    fill();
  }

  // Agents.
  by("gpu").hidden = !data.agents.length;
  for (const agent of data.agents) {
    const left = make("div"), right = make("div"), meter = make("div", undefined, "meter"), fillBar = make("i");
    fillBar.style.width = Math.min(100, 100 * agent.busy / data.length) + "%";
    add(left, make("h3", agent.title), make("div", busyShare(agent) + " busy with kernels" + (agent.meaning === "nothing" ? "" : ": " + atLeast(agent) + duration(agent.busy) + " of " + duration(data.length)) + active(agent)), add(meter, fillBar));
    if (agent.untimed) add(left, make("p", count(agent.untimed) + " of " + count(agent.kernels) + " kernels: how long they took is not known. What is proven is in the time, and what is possible in the range. Time in which such a kernel can have run is no gap.", "note warn"));
    const [least, most] = agent.longest_range, parts = agent.gap_count - agent.gaps.count;
    if (most) {
      const bounds = duration(least) === duration(most) ? duration(most) : "between " + duration(least) + " and " + duration(most);
      add(left, make("h3", "Gaps" + (agent.gap_count ? ": " + (agent.partial ? "at least " : "") + count(agent.gap_count) : "")), make("p", "The longest is " + bounds + "."
        + (parts ? " Only a part is known of " + count(parts) + ", marked \u2265: such a kernel can have run beside it." : ""), "note"));
      for (const [begin, length, isPart] of agent.longest) {
        const jump = make("button", (isPart ? "\u2265 " : "") + duration(length), "link");
        jump.addEventListener("click", () => { show(begin - length / 2, begin + length * 1.5); by("overview").scrollIntoView({ behavior: "smooth" }); });
        add(left, add(make("div"), jump, " from " + duration(begin)));
      }
    }
    if (agent.gaps.timed) add(right, histogram(agent.gaps, "kernel"));
    add(by("agents"), add(make("div", undefined, "agent"), left, right));
  }

  // Latencies.
  by("latency").hidden = !data.latencies.length;
  for (const row of data.latencies) add(by("latencies"), histogram(row, "call"));

  // Memory.
  const curve = (one) => {
    const element = make("div", undefined, "histogram"), last = data.length, high = Math.max(one.peak, 1);
    const picture = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": one.title + ": bytes allocated over time" });
    const at = (time) => (Math.min(time, last) / last * 1000).toFixed(1), up = (size) => (98 - size / high * 94).toFixed(1);
    let path = "M0 98";
    one.points.forEach(([time, size], index) => {
      const before = index ? one.points[index - 1][1] : 0;
      path += "L" + at(time) + " " + up(before) + "L" + at(time) + " " + up(size);
    });
    const end = one.points.length ? one.points[one.points.length - 1][1] : 0;
    path += "L1000 " + up(end) + "L1000 98Z";
    add(picture, svg("path", { d: path, fill: "var(--copy)" }));
    return add(element, make("div", one.title + ": " + bytes(one.peak) + " at its peak, " + bytes(end) + " at the end", "name"), picture);
  };
  by("memory").hidden = !data.memory.length;
  for (const one of data.memory) add(by("curves"), curve(one));

  // Account.
  const plainTable = (names, lines) => {
    const element = make("table"), head = make("tr"), body = make("tbody");
    names.forEach((name) => add(head, make("th", name)));
    for (const cells of lines) {
      const line = make("tr");
      cells.forEach((cell) => add(line, cell instanceof Node ? cell : make("td", String(cell))));
      add(body, line);
    }
    return add(make("div", undefined, "wrap"), add(element, add(make("thead"), head), body));
  };
  const account = by("account");
  if (data.losses.length) {
    add(account, plainTable(["Domain", "Seen", "Written", "Unfinished", "Lost"], data.losses.map((row) =>
      [row.domain, count(row.seen), count(row.written), count(row.unfinished), make("td", count(row.lost), row.lost ? "bad" : "good")])));
    if (data.complete === false) add(account, make("p", "The account is not complete: the recorder was killed. Calls that were open then are missing.", "note warn"));
  } else add(account, make("p", "The capture has no account of losses.", "bad"));
  if (data.qualities.some(([, kernel, copy]) => kernel + copy)) {
    add(account, make("h3", "How well the GPU's times are known"));
    add(account, plainTable(["Quality", "Kernels", "Copies"], data.qualities.map(([name, kernel, copy]) => [name, count(kernel), count(copy)])));
  }
  if (data.unfinished.length) {
    add(account, make("h3", "Calls that had not returned, longest first (" + count(data.unfinished_calls) + ")"));
    add(account, plainTable(["Function", "Process", "Thread", "Open for"], data.unfinished.map(([name, pid, tid, age]) => [name, pid, tid, duration(age)])));
  }

  // Remarks.
  by("remarks").hidden = !data.notices.length;
  data.notices.forEach((text) => add(by("notices"), make("li", text)));
  if (data.more_notices) add(by("notices"), make("li", data.more_notices + " more"));

  draw();
  fitAxes();
  document.documentElement.dataset.ready = "yes";
})();
