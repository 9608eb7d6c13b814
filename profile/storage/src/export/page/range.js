// Sums over a time interval: tables by name, device time, and flame graphs.

const Ranges = (() => {
  // Limit on rows of a table and on boxes of a flame graph.
  const ROWS_SHOWN = 200;

  // Calls `use` for every event that overlaps the interval, upper rows first.
  function each(model, lane, from, to, use) {
    for (const row of lane.rows) {
      let place = Events.firstAbove(row.end, from, 0, row.count);
      for (; place < row.count && row.begin[place] < to; place++) {
        use(row.event[place], Math.max(row.begin[place], from), Math.min(row.end[place], to));
      }
    }
  }

  // Exclusive time by event: of nested events the innermost counts.
  function sums(model, from, to) {
    const own = new Float64Array(model.shown);
    const rows = [new Map(), new Map()];
    for (const lane of model.lanes) {
      each(model, lane, from, to, (event, first, last) => {
        own[event] += last - first;
        const parent = model.parent[event];
        // An event that outlives its parent takes from it only their common time.
        if (parent >= 0) own[parent] -= Math.max(0, Math.min(last, Events.endOf(model, parent)) - first);
      });
    }
    for (const lane of model.lanes) {
      const by = rows[Number(lane.stream)];
      each(model, lane, from, to, (event, first, last) => {
        const name = model.names[model.name[event]];
        let row = by.get(name);
        if (!row) by.set(name, row = { name, kind: model.classes[model.name[event]], count: 0, own: 0, all: 0 });
        if (own[event] > 0) row.count += 1;
        row.own += Math.max(0, own[event]);
        row.all += last - first;
      });
    }
    const order = (by) => [...by.values()].filter((row) => row.count > 0)
      .sort((a, b) => b.own - a.own || (a.name < b.name ? -1 : 1));
    return { own, host: order(rows[0]), device: order(rows[1]) };
  }

  // For each device, the time in which any of its streams had work.
  function devices(model, from, to) {
    const spans = new Map();
    for (const lane of model.lanes) {
      if (!lane.stream) continue;
      const key = lane.rank + " " + lane.device;
      if (!spans.has(key)) spans.set(key, { rank: lane.rank, device: lane.device, spans: [] });
      // Outermost events cover all others, except those that outlive their parents.
      each(model, lane, from, to, (event, first, last) => spans.get(key).spans.push([first, last]));
    }
    return [...spans.values()].map(({ rank, device, spans }) => {
      let busy = 0;
      let until = from;
      for (const [first, last] of spans.sort((a, b) => a[0] - b[0])) {
        busy += Math.max(0, last - Math.max(first, until));
        until = Math.max(until, last);
      }
      return { rank, device, busy };
    });
  }

  // Two trees by name: events on threads, and device work below the call that launched it.
  function trees(model, own, from, to) {
    const made = (name, kind, parent) => ({ name, kind, parent, all: 0, children: new Map(), depth: parent ? parent.depth + 1 : 0 });
    const host = made("threads", 7, null);
    const device = made("devices", 7, null);
    const below = (node, event) => {
      const key = model.name[event];
      let child = node.children.get(key);
      if (!child) node.children.set(key, child = made(model.names[key], model.classes[key], node));
      return child;
    };
    const nodes = [new Map(), new Map()];
    // The path of a thread's event, from the outermost event.
    const path = (tree, event) => {
      const open = [];
      const known = nodes[tree];
      let at = event;
      while (at >= 0 && !known.has(at)) { open.push(at); at = model.parent[at]; }
      let node = at >= 0 ? known.get(at) : [host, device][tree];
      while (open.length) {
        const next = open.pop();
        node = below(node, next);
        known.set(next, node);
      }
      return node;
    };
    for (const lane of model.lanes) {
      each(model, lane, from, to, (event) => {
        const time = own[event];
        if (time <= 0) return;
        let node;
        if (!lane.stream) node = path(0, event);
        else node = below(model.cause[event] >= 0 ? path(1, model.cause[event]) : device, event);
        for (; node; node = node.parent) node.all += time;
      });
    }
    return { host, device };
  }

  const time = (ns) => amount(Math.round(ns), "ns");

  function table(title, rows, length) {
    const out = make("table");
    const head = make("tr");
    for (const [text, style] of [["Time", "number"], ["Of range", "number"], ["Count", "number"], [title, ""]]) head.append(make("th", text, style));
    out.append(head);
    for (const row of rows.slice(0, ROWS_SHOWN)) {
      const line = make("tr");
      line.append(make("td", time(row.own), "number"), make("td", share(row.own, length), "number"), make("td", row.count.toLocaleString("en"), "number"));
      const cell = make("td", undefined, "name");
      cell.append(dot(row.kind), row.name.length > 200 ? row.name.slice(0, 200) + "…" : row.name);
      cell.title = row.name;
      line.append(cell);
      out.append(line);
    }
    const part = make("section");
    part.append(out);
    if (rows.length === 0) part.append(make("p", "nothing", "empty"));
    if (rows.length > ROWS_SHOWN) part.append(make("p", "… " + counted(rows.length - ROWS_SHOWN, "more name"), "empty"));
    return part;
  }

  function dot(kind) {
    const mark = make("i");
    mark.style.background = "var(--" + Timeline.KINDS[kind][0] + ")";
    return mark;
  }

  // Boxes from the root down; a click zooms one to the width of the page.
  function flame(root) {
    const frame = make("div", undefined, "flame");
    const describe = (of) => of.name + " (" + time(of.all) + ", " + share(of.all, root.all) + ")";
    const byName = (of) => [...of.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const draw = (zoom) => {
      frame.replaceChildren();
      icicle(frame, zoom, frame.clientWidth || 1000, byName, (box, of) => {
        box.textContent = (of.kind > 1 ? of.name : Events.shortKernel(of.name)).slice(0, 300);
        box.style.background = "var(--" + Timeline.KINDS[of.kind][0] + ")";
        box.title = describe(of);
        if (of === zoom) box.classList.add("zoomed");
        box.onclick = () => { draw(of); focusZoomed(frame); };
      });
    };
    return { frame, draw: () => draw(root) };
  }

  // Everything about the selected interval, as one element.
  function show(model, from, to, into) {
    const length = to - from;
    const { own, host, device } = sums(model, from, to);
    const exact = Math.min(length, 999999);
    into.replaceChildren(make("h2", "selected: " + time(length) + " from " + Picture.moment(from, exact / 100) + " to " + Picture.moment(to, exact / 100)));
    const busy = devices(model, from, to);
    const several = new Set(model.lanes.map((lane) => lane.rank)).size > 1;
    const words = busy.map((of) => (several ? "rank " + of.rank + " " : "") + "gpu" + of.device + " busy " + time(of.busy) + " (" + share(of.busy, length) + ")");
    if (words.length) into.append(make("p", words.slice(0, 64).join(" · "), "busy"));
    const drawn = trees(model, own, from, to);
    const flames = [["Work of devices, below what launched it", drawn.device], ["Threads", drawn.host]];
    for (const [title, root] of flames) {
      if (root.all === 0) continue;
      const { frame, draw } = flame(root);
      into.append(make("h3", title), frame);
      draw();
    }
    const tables = make("div", undefined, "tables");
    tables.append(table("work of devices", device, length), table("threads, innermost", host, length));
    into.append(tables);
  }

  return { show, sums, devices, trees };
})();
