// The timeline tab: lanes of streams and threads on a canvas, navigated by mouse and keys, and details of the chosen
// event. Times are nanoseconds since the first event.

const Timeline = (() => {
  // Colour and name of each class of event.
  const KINDS = [
    ["gpu_kernel", "kernel"], ["communication", "communication"], ["memory", "copy or fill"], ["gpu_api", "call"],
    ["operator", "operator"], ["python", "python"], ["range", "range"], ["unresolved", "other"], ["thread", "off the CPU"],
    ["range", "step"],
  ];
  const { ROW, GAP, AXIS } = Stage;
  // Shortest visible interval, nanoseconds.
  const LENGTH_MIN = 500;
  const ARROWS_MAX = 64;
  const RANKS_NAMED = 16;
  const KEYS = "W S + − zoom · A D move · ← → move the cursor · ↑ ↓ rows · n N next and previous event · c what caused it"
    + " · Enter zoom to it · Space begins and ends a selection · 0 everything · Home End ends · Esc drops the selection,"
    + " then the zoom. Wheel zooms, drag moves, Shift and drag selects; Shift and wheel, or the wheel on names, scrolls.";

  let model = null;
  let parts = null;
  let asked = false;
  const view = {
    from: 0, length: 1, scroll: 0, cursor: 0, chosen: Events.NONE, mark: null, range: null,
    width: 0, height: 0, gutter: 0, ratio: 1, lane: 0, row: 0, folded: new Set(), tops: [], counterTops: [],
  };
  // Target of the animation, reached after some frames.
  let goal = null;
  // Arrows from a launch to its work, or from work to the wait for it.
  let causes = [];
  let searched;
  let found = 0;
  let frames = 0;

  const whole = () => Math.max(model.length, 1);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));
  const rowsShown = (place) => (view.folded.has(place) ? 1 : model.lanes[place].rows.length);

  function element(tag, className, parent, text) {
    const made = make(tag, text, className);
    parent.append(made);
    return made;
  }

  function build() {
    const root = make("div", undefined, "timeline");
    parts = { root };
    const bar = element("p", "bar", root);
    const button = (text, title, use) => {
      const made = element("button", "", bar, text);
      made.type = "button";
      made.title = title;
      made.onclick = () => { use(); parts.canvas.focus({ preventScroll: true }); };
      return made;
    };
    button("Whole run", "0", () => act("everything"));
    button("+", "zoom in: +", () => act("closer"));
    button("−", "zoom out: −", () => act("farther"));
    button("Zoom to it", "the selection, or else the chosen event: Enter", () => act("fit"));
    button("Fold lanes", "show only the outermost row of each lane", fold);
    parts.facts = element("span", "empty", bar);
    parts.legend = element("span", "kinds", bar);
    parts.left = element("p", "empty", root);
    const stage = element("div", "stage", root);
    parts.canvas = element("canvas", "", stage);
    parts.canvas.tabIndex = 0;
    parts.canvas.setAttribute("role", "application");
    parts.canvas.setAttribute("aria-label", "Events over time");
    parts.lanes = element("div", "lanes", stage);
    parts.sight = element("span", "sight", parts.lanes);
    parts.event = element("p", "event", root);
    parts.event.setAttribute("role", "status");
    parts.keys = element("p", "empty keys", root, KEYS);
    parts.keys.id = "timeline-keys";
    parts.canvas.setAttribute("aria-describedby", parts.keys.id);
    parts.range = element("section", "range", root);
    parts.paper = parts.canvas.getContext("2d", { alpha: false });
    mouse(parts.canvas);
    parts.lanes.addEventListener("wheel", (event) => { scroll(event.deltaY); event.preventDefault(); }, { passive: false });
    addEventListener("keydown", key, true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { Stage.forgetColours(); redraw(); });
  }

  // Called whenever the tab is drawn.
  function show(into, search) {
    if (!parts) build();
    if (into.firstChild !== parts.root) into.replaceChildren(parts.root);
    if (!model && !asked) {
      asked = true;
      parts.left.textContent = "reading events …";
      Timeline.ready = Events.unpack(byId("events").textContent).then(begin, failed);
    }
    if (!model) return;
    if (searched !== search) {
      searched = search;
      found = Events.find(model, search);
    }
    byId("matched").textContent = search ? "matched: " + counted(found, "event") : "";
    measure();
    if (view.range) Ranges.show(model, ...view.range, parts.range);
  }

  function failed(error) {
    parts.left.textContent = "The events of this page cannot be read: " + error.message;
  }

  function begin(unpacked) {
    model = unpacked;
    byId("events").textContent = "";
    view.length = whole();
    parts.facts.textContent = counted(model.shown, "event") + " · " + counted(model.lanes.length, "lane") + " · "
      + (model.counters.length ? counted(model.counters.length, "counter") + " · " : "") + amount(model.length, "ns");
    const used = new Set(model.names.map((_, name) => KINDS[model.classes[name]][0]));
    for (const [colour, name] of KINDS.slice(0, 9)) {
      if (!used.has(colour)) continue;
      const item = element("span", "", parts.legend);
      element("i", "", item).style.background = "var(--" + colour + ")";
      item.append(name);
    }
    parts.left.textContent = notes().join(" ");
    parts.left.hidden = parts.left.textContent === "";
    // The user may have opened another tab in the meantime.
    if (state.tab === "timeline") show(byId("view"), state.search);
  }

  // Lists what this page lacks, and whose times differ.
  function notes() {
    const notes = [];
    if (model.unaligned.length > 0) {
      const named = model.unaligned.slice(0, RANKS_NAMED).join(", ") + (model.unaligned.length > RANKS_NAMED ? ", …" : "");
      notes.push("Clocks not aligned with rank " + model.firstRank + "'s, as no chain of collectives leads there: rank" +
        (model.unaligned.length === 1 ? " " : "s ") + named + ". Times of these ranks cannot be compared with its.");
    }
    const left = model.total - model.shown;
    if (left > 0) {
      notes.push("A page holds up to 1,000,000 events: it shows those that begin in the first " + amount(model.until, "ns") + " of "
        + amount(model.length, "ns") + ", and " + left.toLocaleString("en") + " of " + model.total.toLocaleString("en") + " later ones " + (left === 1 ? "is" : "are") + " left out.");
    }
    if (model.namesLeftOut > 0) notes.push("Names of " + counted(model.namesLeftOut, "event") + " found no room.");
    if (model.countersLeftOut > 0) notes.push(counted(model.countersLeftOut, "more counter") + " found no room.");
    if (model.tooDeep > 0) notes.push("Not drawn: " + counted(model.tooDeep, "event") + " with more than " + Events.ROWS_MAX + " around.");
    return notes;
  }

  // Computes all sizes from that of the window.
  function measure() {
    const { canvas, root } = parts;
    view.ratio = window.devicePixelRatio || 1;
    const width = root.clientWidth || 1000;
    view.gutter = clamp(Math.round(width * 0.16), 90, 240);
    view.width = Math.max(100, width - view.gutter);
    let top = AXIS;
    view.tops = model.lanes.map((_, place) => { const at = top; top += rowsShown(place) * ROW + GAP; return at; });
    view.counterTops = model.counters.map(() => { const at = top; top += ROW + GAP; return at; });
    view.content = top;
    const above = parts.canvas.getBoundingClientRect().top + window.scrollY;
    // The details of the chosen event stay visible.
    view.height = clamp(top, 120, Math.max(240, window.innerHeight - above - 95));
    view.scroll = clamp(view.scroll, 0, view.content - view.height);
    canvas.style.width = view.width + "px";
    canvas.style.height = view.height + "px";
    canvas.style.marginLeft = view.gutter + "px";
    canvas.width = Math.round(view.width * view.ratio);
    canvas.height = Math.round(view.height * view.ratio);
    parts.lanes.style.width = view.gutter + "px";
    parts.lanes.style.height = view.height + "px";
    redraw();
  }

  function redraw() {
    if (!frames) frames = requestAnimationFrame(frame);
  }

  function frame() {
    frames = 0;
    if (goal) approach();
    draw();
    if (goal) redraw();
  }

  // Moves a part of the way to the target.
  function approach() {
    const part = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : 0.35;
    const near = Math.abs(goal.length - view.length) < view.length * 0.004 && Math.abs(goal.from - view.from) < view.length * 0.002;
    if (part === 1 || near) {
      Object.assign(view, goal);
      goal = null;
      return;
    }
    // Both ends move by the same share of their distance; lengths change by ratio.
    const length = view.length * (goal.length / view.length) ** part;
    const done = goal.length === view.length ? part : (length - view.length) / (goal.length - view.length);
    view.from += (goal.from - view.from) * done;
    view.length = length;
  }

  function go(from, length) {
    length = clamp(length, Math.min(LENGTH_MIN, whole()), whole());
    goal = { from: clamp(from, 0, whole() - length), length };
    redraw();
  }

  const target = () => goal || view;

  // Zooms around a moment, which keeps its position.
  function zoom(factor, moment) {
    const { from, length } = target();
    const wanted = clamp(length * factor, Math.min(LENGTH_MIN, whole()), whole());
    go(moment - (moment - from) * wanted / length, wanted);
  }

  const momentAt = (x) => view.from + x * view.length / view.width;

  function draw() {
    Stage.draw({ model, view, rowsShown, causes, canvas: parts.canvas, paper: parts.paper });
    gutter();
  }

  // Names of the visible lanes.
  function gutter() {
    const shown = [];
    view.tops.forEach((laneTop, place) => {
      const top = laneTop - view.scroll;
      const height = rowsShown(place) * ROW;
      if (top <= view.height && top + height >= AXIS) shown.push([place, Math.max(top, AXIS), top + height]);
    });
    const counters = [];
    view.counterTops.forEach((counterTop, place) => {
      const top = counterTop - view.scroll;
      if (top <= view.height && top + ROW >= AXIS) counters.push([place, Math.max(top, AXIS), top + ROW]);
    });
    const sight = amount(Math.round(view.length), "ns") + " in sight";
    if (parts.sight.textContent !== sight) parts.sight.textContent = sight;
    const key = view.gutter + " " + view.lane + " " + [...shown, ...counters].map(([place, top, end]) => place + ":" + top + ":" + end).join(" ");
    if (parts.lanes.dataset.key === key) return;
    parts.lanes.dataset.key = key;
    parts.lanes.replaceChildren(...shown.map(([place, top, end]) => {
      const lane = model.lanes[place];
      const name = make("button", (lane.rows.length > 1 ? (view.folded.has(place) ? "▸ " : "▾ ") : "") + lane.label, "lane");
      name.type = "button";
      name.title = lane.label + ": " + counted(lane.count, "event");
      if (lane.rows.length > 1) name.setAttribute("aria-expanded", String(!view.folded.has(place)));
      name.style.top = top + "px";
      name.style.height = Math.max(0, Math.min(ROW, end - top)) + "px";
      if (lane.stream) name.classList.add("stream");
      if (place === view.lane) name.classList.add("chosen");
      name.onclick = () => {
        if (lane.rows.length < 2) return;
        if (!view.folded.delete(place)) view.folded.add(place);
        measure();
        parts.canvas.focus({ preventScroll: true });
      };
      return name;
    }));
    for (const [place, top, end] of counters) {
      const counter = model.counters[place];
      const name = element("span", "lane counter", parts.lanes, counter.label);
      name.title = counter.label + ": up to " + counterValue(counter, counter.most);
      name.style.top = top + "px";
      name.style.height = Math.max(0, Math.min(ROW, end - top)) + "px";
    }
    parts.lanes.append(parts.sight);
  }

  // A value of a counter as text.
  function counterValue(counter, value) {
    if (value === undefined) return "not known yet";
    if (counter.unit === "share") return (value * 100).toFixed(1) + "%";
    if (counter.unit === "bytes") return amount(Math.round(value), "bytes");
    if (counter.unit === "bytes/s") return amount(Math.round(value), "bytes") + "/s";
    const number = Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(2);
    return { null: number, count: number, "count/s": number + "/s", celsius: number + " °C" }[counter.unit] || number + " " + counter.unit;
  }

  function counterAt(y) {
    const place = view.counterTops.findIndex((top) => y + view.scroll >= top && y + view.scroll < top + ROW);
    return y > AXIS && place >= 0 ? model.counters[place] : null;
  }

  function tellCounter(counter, moment) {
    const said = [counterValue(counter, Events.valueAt(counter, moment)) + " at " + Picture.moment(moment, 10), "most " + counterValue(counter, counter.most)];
    if (counter.thinned) said.push("of many values, the highest of each part of the time");
    parts.event.replaceChildren(make("strong", counter.label), make("br"), said.join(" · "));
  }

  function fold() {
    const nested = model.lanes.map((_, place) => place).filter((place) => model.lanes[place].rows.length > 1);
    if (nested.every((place) => view.folded.has(place))) view.folded.clear();
    else nested.forEach((place) => view.folded.add(place));
    measure();
  }

  function scroll(distance) {
    view.scroll = clamp(view.scroll + distance, 0, view.content - view.height);
    redraw();
  }

  // Details of an event as text: its name and its known properties.
  function words(event) {
    const place = Events.laneOf(model, event);
    const lane = model.lanes[place];
    const kind = model.classes[model.name[event]];
    const said = [amount(model.duration[event], "ns") + " at " + Picture.moment(model.begin[event], 10), KINDS[kind][1], lane.label];
    if (model.bytes[event] > 0) said.push(amount(model.bytes[event], "bytes"));
    if (model.correlation[event] > 0) said.push("correlation " + model.correlation[event]);
    const cause = model.cause[event];
    if (lane.stream && cause >= 0) {
      const delay = model.begin[event] - model.begin[cause] - model.duration[cause];
      said.push("by " + Events.shortName(model, cause) + " on " + model.lanes[Events.laneOf(model, cause)].label + ", "
        + (delay < 0 ? "which ended " + amount(-delay, "ns") + " later" : amount(delay, "ns") + " earlier"));
    } else if (lane.stream) said.push(cause === Events.OUTSIDE ? "its launch is not in this page" : "its launch is not known");
    else if (cause >= 0) said.push("waited for " + Events.shortName(model, cause) + " on " + model.lanes[Events.laneOf(model, cause)].label);
    const step = Events.stepAt(model, event);
    if (step >= 0 && step !== event) said.push(model.names[model.name[step]]);
    return said.join(" · ");
  }

  function tell(event) {
    if (event < 0) { parts.event.replaceChildren(); return; }
    const name = model.names[model.name[event]];
    const strong = make("strong", name.length > 600 ? name.slice(0, 600) + "…" : name);
    parts.event.replaceChildren(strong, make("br"), words(event));
  }

  function choose(event, follow) {
    view.chosen = event;
    causes = [];
    if (event >= 0) {
      const place = Events.laneOf(model, event);
      [view.lane, view.row] = [place, Math.min(model.row[event], Events.ROWS_MAX - 1)];
      const cause = model.cause[event];
      if (cause >= 0) causes.push([cause, event]);
      if (!model.lanes[place].stream) {
        for (const work of Events.causedBy(model, event, ARROWS_MAX)) causes.push([event, work]);
      }
      if (follow) bringIntoSight(event);
    }
    tell(event);
    redraw();
  }

  function bringIntoSight(event) {
    const y = Stage.middleOf({ model, view, rowsShown }, event);
    if (y < AXIS + ROW) scroll(y - AXIS - 2 * ROW);
    else if (y > view.height - ROW) scroll(y - view.height + 2 * ROW);
    view.cursor = model.begin[event];
    keepCursor();
  }

  // Scrolls in time if the cursor would leave the visible interval.
  function keepCursor() {
    view.cursor = clamp(view.cursor, 0, whole() - 1);
    const { from, length } = target();
    if (view.cursor < from) go(view.cursor - length / 10, length);
    else if (view.cursor >= from + length) go(view.cursor - length * 0.9, length);
    redraw();
  }

  function rowAt(y) {
    for (let place = 0; place < view.tops.length; place++) {
      const row = Math.floor((y + view.scroll - view.tops[place]) / ROW);
      if (row >= 0 && row < rowsShown(place)) return model.lanes[place].rows[row];
    }
    return null;
  }

  function eventAt(x, y) {
    const row = y > AXIS && rowAt(y);
    return row ? Events.at(row, momentAt(x), 3 * view.length / view.width) : Events.NONE;
  }

  function select(from, to) {
    view.mark = null;
    view.range = to - from >= 1 ? [Math.floor(from), Math.ceil(to)] : null;
    if (view.range) Ranges.show(model, ...view.range, parts.range);
    else parts.range.replaceChildren();
    redraw();
  }

  function mouse(canvas) {
    let down = null;
    canvas.onpointerdown = (event) => {
      if (event.button !== 0 || !model) return;
      canvas.setPointerCapture(event.pointerId);
      down = { x: event.offsetX, y: event.offsetY, from: view.from, scroll: view.scroll, selects: event.shiftKey, moved: false };
      goal = null;
      if (down.selects) { view.range = null; view.mark = view.cursor = momentAt(down.x); }
    };
    canvas.onpointermove = (event) => {
      if (!model) return;
      if (!down) {
        const counter = counterAt(event.offsetY);
        if (counter) { tellCounter(counter, momentAt(event.offsetX)); return; }
        const over = eventAt(event.offsetX, event.offsetY);
        tell(over >= 0 ? over : view.chosen);
        return;
      }
      const [x, y] = [event.offsetX - down.x, event.offsetY - down.y];
      down.moved = down.moved || Math.abs(x) + Math.abs(y) > 3;
      if (!down.moved) return;
      if (down.selects) view.cursor = clamp(momentAt(event.offsetX), 0, whole());
      else {
        view.from = clamp(down.from - x * view.length / view.width, 0, whole() - view.length);
        view.scroll = clamp(down.scroll - y, 0, view.content - view.height);
      }
      redraw();
    };
    canvas.onpointerup = canvas.onpointercancel = (event) => {
      if (!down) return;
      const { selects, moved } = down;
      down = null;
      if (selects) {
        const mark = view.mark === null ? view.cursor : view.mark;
        select(Math.min(mark, view.cursor), Math.max(mark, view.cursor));
      } else if (!moved) {
        view.cursor = clamp(momentAt(event.offsetX), 0, whole() - 1);
        choose(eventAt(event.offsetX, event.offsetY), false);
      }
    };
    canvas.ondblclick = () => act("fit");
    canvas.addEventListener("wheel", (event) => {
      if (!model) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey) scroll((event.deltaY || event.deltaX) * lines);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX * lines / view.width);
      else zoom(1.0025 ** clamp(event.deltaY * lines, -400, 400), momentAt(event.offsetX));
    }, { passive: false });
  }

  // Moves by a share of the visible interval.
  function pan(part) {
    const { from, length } = target();
    go(from + part * length, length);
  }

  const KEY = {
    w: "closer", W: "closer", "+": "closer", "=": "closer", s: "farther", S: "farther", "-": "farther", a: "left", A: "left",
    d: "right", D: "right", ArrowLeft: "back", ArrowRight: "on", ArrowUp: "up", ArrowDown: "down", n: "next", N: "previous",
    c: "cause", Enter: "fit", " ": "select", 0: "everything", Home: "first", End: "last", Escape: "drop", PageUp: "pageUp", PageDown: "pageDown",
  };

  function key(event) {
    if (state.tab !== "timeline" || !model || event.ctrlKey || event.metaKey || event.altKey) return;
    const within = event.target.tagName;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(within)) return;
    // The list of tabs has these keys while it has the focus.
    if (event.key in TAB_KEYS && byId("tabs").contains(document.activeElement)) return;
    if (within === "BUTTON" && (event.key === "Enter" || event.key === " ")) return;
    const action = KEY[event.key];
    if (!action || (action === "drop" && !drops())) return;
    event.preventDefault();
    event.stopPropagation();
    act(action);
  }

  const drops = () => view.mark !== null || view.range !== null || target().length < whole();

  function act(action) {
    if (!model) return;
    const { from, length } = target();
    const seen = view.cursor >= from && view.cursor <= from + length;
    const around = seen ? view.cursor : from + length / 2;
    const moved = (to) => { view.cursor = to; keepCursor(); };
    ({
      closer: () => zoom(0.5, around),
      farther: () => zoom(2, around),
      left: () => pan(-0.15),
      right: () => pan(0.15),
      back: () => moved(view.cursor - length / 100),
      on: () => moved(view.cursor + length / 100),
      up: () => otherRow(-1),
      down: () => otherRow(1),
      next: () => beside(1),
      previous: () => beside(-1),
      cause: () => cause(),
      fit: () => fit(),
      select: () => mark(),
      everything: () => go(0, whole()),
      first: () => { go(0, whole()); moved(0); },
      last: () => moved(whole()),
      drop: () => drop(),
      pageUp: () => scroll(-view.height * 0.8),
      pageDown: () => scroll(view.height * 0.8),
    })[action]();
  }

  function beside(distance) {
    if (view.chosen < 0) return otherRow(0);
    choose(Events.beside(model, view.chosen, distance), true);
  }

  // Goes to the nearest event of the row above or below.
  function otherRow(distance) {
    let [place, row] = [view.lane, Math.min(view.row, rowsShown(view.lane) - 1) + distance];
    if (row < 0 && place > 0) { place -= 1; row = rowsShown(place) - 1; }
    if (row >= rowsShown(place) && place + 1 < model.lanes.length) { place += 1; row = 0; }
    row = clamp(row, 0, rowsShown(place) - 1);
    [view.lane, view.row] = [place, row];
    const cursor = view.cursor;
    const found = model.lanes[place].rows[row];
    choose(found && found.count ? Events.at(found, cursor, Infinity) : Events.NONE, true);
    if (model.begin[view.chosen] <= cursor) { view.cursor = cursor; keepCursor(); }
  }

  // Follows an arrow: from work to its launch, from a call to its work.
  function cause() {
    const arrow = causes.find(([, to]) => to === view.chosen) || causes[0];
    if (arrow) choose(arrow[0] === view.chosen ? arrow[1] : arrow[0], true);
  }

  function fit() {
    const isThere = view.range && Math.abs(view.from - view.range[0]) < 1 && Math.abs(view.length - view.range[1] + view.range[0]) < 1;
    if (view.range && !isThere) return go(view.range[0], view.range[1] - view.range[0]);
    if (view.chosen < 0) return zoom(0.5, view.cursor);
    const length = Math.max(Events.endOf(model, view.chosen) - model.begin[view.chosen], 1);
    go(model.begin[view.chosen] - length * 0.1, length * 1.2);
  }

  function mark() {
    if (view.mark === null) { view.range = null; view.mark = view.cursor; parts.range.replaceChildren(); redraw(); }
    else select(Math.min(view.mark, view.cursor), Math.max(view.mark, view.cursor));
  }

  function drop() {
    if (view.mark !== null || view.range) select(0, 0);
    else go(0, whole());
  }

  return { KINDS, show, act, draw: () => draw(), select, choose: (event) => choose(event, true), ready: null, view, model: () => model };
})();
