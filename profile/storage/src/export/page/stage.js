// Draws the canvas of the timeline: lanes, names, arrows, marks and the axis. Has no effect other than drawing.
//
// `on` is the timeline: its events (`model`), the visible interval (`view`), its canvas and the arrows of the chosen
// event.

const Stage = (() => {
  const ROW = 16;
  const GAP = 6;
  const AXIS = 22;
  // Width in pixels from which an event shows its name.
  const NAMED = 34;
  // With more visible names than this, only wider events show theirs: drawing text takes longer than everything else.
  const NAMES_MANY = 600;
  const NAMED_OF_MANY = 70;
  const MONO = "11px ui-monospace, monospace";

  let on = null;
  let colours = null;
  let strip = null;

  const xOf = (moment) => (moment - on.view.from) * on.view.width / on.view.length;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

  function draw(timeline) {
    on = timeline;
    const { view, paper } = on;
    colours = colours || Picture.colours();
    paper.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    paper.fillStyle = colours.ground;
    paper.fillRect(0, 0, view.width, view.height);
    labels(paper, lanes(paper));
    counters(paper);
    steps(paper);
    arrows(paper);
    marks(paper);
    axis(paper);
  }

  // Visible lanes: one line of pixels per row, stretched to its height.
  function lanes(paper) {
    const { model, view, rowsShown } = on;
    const wide = on.canvas.width;
    const most = Math.ceil(view.height / ROW) + 2;
    if (!strip || strip.image.width !== wide || strip.image.height < most) {
      const canvas = document.createElement("canvas");
      canvas.width = wide;
      canvas.height = most;
      const image = new ImageData(wide, most);
      strip = { canvas, paper: canvas.getContext("2d", { willReadFrequently: true }), image, pixels: new Uint32Array(image.data.buffer) };
    }
    strip.pixels.fill(colours.groundPixel);
    const named = [];
    const rows = [];
    const scale = wide / view.length;
    view.tops.forEach((laneTop, place) => {
      const shown = rowsShown(place);
      const top = laneTop - view.scroll;
      if (top > view.height || top + shown * ROW < AXIS) return;
      const first = Math.max(0, Math.floor((AXIS - top) / ROW));
      const last = Math.min(shown, Math.ceil((view.height - top) / ROW));
      for (let row = first; row < last && rows.length < most; row++) {
        const start = named.length;
        Picture.paint(model.lanes[place].rows[row], view.from, scale, wide, strip.pixels, rows.length * wide, colours.shades, named, NAMED * view.ratio);
        rows.push([top + row * ROW, start, named.length]);
      }
    });
    strip.paper.putImageData(strip.image, 0, 0, 0, 0, wide, rows.length);
    paper.imageSmoothingEnabled = false;
    rows.forEach(([top], line) => paper.drawImage(strip.canvas, 0, line, wide, 1, 0, top, view.width, ROW - 1));
    return { named, rows };
  }

  // Counters below the lanes: per pixel the highest value, scaled to the overall maximum, or to 100 % for a share.
  function counters(paper) {
    const { model, view } = on;
    paper.fillStyle = colours.faint;
    model.counters.forEach((counter, place) => {
      const top = view.counterTops[place] - view.scroll;
      if (top > view.height || top + ROW < AXIS) return;
      const whole = counter.unit === "share" ? 1 : counter.most;
      const { at, values } = counter;
      let step = Math.max(0, Events.firstAbove(at, view.from, 0, at.length) - 1);
      for (let x = 0; x < view.width && step < at.length; x++) {
        const next = view.from + (x + 1) * view.length / view.width;
        if (at[step] >= next) continue;
        let highest = values[step];
        while (step + 1 < at.length && at[step + 1] < next) highest = Math.max(highest, values[++step]);
        const height = highest > 0 ? Math.max(1, Math.min(1, highest / whole) * (ROW - 1)) : 0;
        paper.fillRect(x, top + ROW - 1 - height, 1, height);
      }
    });
  }

  function labels(paper, { named, rows }) {
    const { model, view } = on;
    paper.font = MONO;
    paper.textBaseline = "middle";
    const one = paper.measureText("0").width;
    const least = named.length / 4 > NAMES_MANY ? NAMED_OF_MANY - 6 : 0;
    for (const [top, start, end] of rows) {
      for (let at = start; at < end; at += 4) {
        const left = named[at + 1] / view.ratio;
        const room = (named[at + 2] - named[at + 1]) / view.ratio - 6;
        if (room < least) continue;
        const name = Events.shortName(model, named[at]);
        const letters = Math.floor(room / one);
        const shown = name.length > letters ? name.slice(0, Math.max(0, letters - 1)) + "…" : name;
        // On its own colour, on a pale one while another event is searched for, or on that of a match.
        paper.fillStyle = ["#16181c", colours.faint, colours.onMark][named[at + 3]];
        // Letters of other scripts may be wider than these.
        if (/^[ -~…]*$/.test(shown)) paper.fillText(shown, left + 3, top + ROW / 2);
        else paper.fillText(shown, left + 3, top + ROW / 2, room);
      }
    }
  }

  function line(paper, x, colour, dash, top, bottom) {
    paper.strokeStyle = colour;
    paper.setLineDash(dash);
    paper.beginPath();
    paper.moveTo(Math.round(x) + 0.5, Math.max(top, AXIS - 6));
    paper.lineTo(Math.round(x) + 0.5, Math.min(bottom, on.view.height));
    paper.stroke();
    paper.setLineDash([]);
  }

  // Begins of visible steps, across the lanes of their rank, if there is room between them.
  function steps(paper) {
    const { model, view, rowsShown } = on;
    const ranks = new Map();
    model.lanes.forEach((lane, place) => {
      const top = view.tops[place] - view.scroll;
      const bottom = top + rowsShown(place) * ROW;
      const of = ranks.get(lane.rank);
      ranks.set(lane.rank, { top: of ? of.top : top, bottom, before: -Infinity });
    });
    for (const { event, rank } of model.steps) {
      const x = xOf(model.begin[event]);
      const of = ranks.get(rank);
      if (x > view.width) break;
      if (x < 0 || x - of.before < 8 || of.bottom < AXIS || of.top > view.height) continue;
      line(paper, x, colours.faint, [2, 3], of.top, of.bottom);
      of.before = x;
    }
  }

  // Where an event is drawn: the middle of its row, even if that is above or below the visible area.
  function middleOf({ model, view, rowsShown }, event) {
    const place = Events.laneOf(model, event);
    const row = Math.min(model.row[event], rowsShown(place) - 1);
    return view.tops[place] - view.scroll + row * ROW + ROW / 2;
  }

  // Arrows from a launch to its work, or from work to the wait for it.
  function arrows(paper) {
    const { model } = on;
    for (const [from, to] of on.causes) {
      const end = Math.min(Events.endOf(model, from), Math.max(model.begin[from], model.begin[to]));
      const [x, y, toX, toY] = [xOf(end), middleOf(on, from), xOf(model.begin[to]), middleOf(on, to)];
      const bend = Math.max(20, Math.abs(toX - x) / 2);
      paper.strokeStyle = paper.fillStyle = colours.mark;
      paper.lineWidth = 1.5;
      paper.beginPath();
      paper.moveTo(x, y);
      paper.bezierCurveTo(x + bend, y, toX - bend, toY, toX, toY);
      paper.stroke();
      paper.beginPath();
      paper.moveTo(toX, toY);
      paper.lineTo(toX - 7, toY - 4);
      paper.lineTo(toX - 7, toY + 4);
      paper.fill();
      paper.lineWidth = 1;
    }
  }

  // The selection, the cursor and the chosen event.
  function marks(paper) {
    const { model, view } = on;
    const selected = view.mark === null ? view.range : [Math.min(view.mark, view.cursor), Math.max(view.mark, view.cursor)];
    if (selected) {
      const left = clamp(xOf(selected[0]), -2, view.width + 2);
      const right = clamp(xOf(selected[1]), -2, view.width + 2);
      paper.fillStyle = colours.mark;
      paper.globalAlpha = 0.13;
      paper.fillRect(left, AXIS, right - left, view.height);
      paper.globalAlpha = 1;
      paper.fillRect(left, AXIS - 3, Math.max(1, right - left), 3);
    }
    const x = xOf(view.cursor);
    if (x >= 0 && x <= view.width) line(paper, x, colours.mark, [], 0, view.height);
    if (view.chosen >= 0) {
      const left = clamp(xOf(model.begin[view.chosen]), -4, view.width + 4);
      const right = clamp(xOf(Events.endOf(model, view.chosen)), -4, view.width + 4);
      paper.strokeStyle = colours.ink;
      paper.lineWidth = 2;
      paper.strokeRect(left, middleOf(on, view.chosen) - ROW / 2, Math.max(2, right - left), ROW - 1);
      paper.lineWidth = 1;
    }
  }

  function axis(paper) {
    const { view } = on;
    paper.fillStyle = colours.ground;
    paper.fillRect(0, 0, view.width, AXIS - 3);
    paper.font = "11px system-ui, sans-serif";
    paper.textBaseline = "middle";
    const apart = Picture.distance(view.length * 110 / view.width);
    paper.strokeStyle = colours.line;
    for (let at = Math.ceil(view.from / apart) * apart; at <= view.from + view.length; at += apart) {
      const x = xOf(at);
      paper.fillStyle = colours.line;
      paper.fillRect(Math.round(x), 0, 1, AXIS - 4);
      paper.fillStyle = colours.faint;
      paper.fillText(Picture.moment(at, apart), x + 4, 8);
    }
    paper.fillStyle = colours.line;
    paper.fillRect(0, AXIS - 4, view.width, 1);
  }

  // Drops the cached colours, for a switch between dark and light.
  function forgetColours() { colours = null; }

  return { ROW, GAP, AXIS, draw, middleOf, forgetColours };
})();
