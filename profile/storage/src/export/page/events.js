"use strict";
// Single events of a trace, unpacked into columns of numbers, and queries over them. Independent of the screen.
//
// An event is identified by its number. The events of each lane are placed into rows, nested events below their
// parents. Events of one row never overlap, so begins and ends are both sorted, and every query is a binary search.

const Events = (() => {
  // Deeper events are not drawn; each row costs memory and height.
  const ROWS_MAX = 256;
  const NONE = -1;
  const OUTSIDE = -2;
  const STEP = 9;

  // Decodes base64 of gzip into bytes.
  async function bytesOf(text) {
    const letters = atob(text.trim());
    const packed = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // Reads consecutive varints.
  function reader(bytes, from) {
    let at = from;
    return () => {
      let byte = bytes[at++];
      if (byte < 0x80) return byte;
      let value = byte & 0x7f;
      let scale = 0x80;
      do {
        byte = bytes[at++];
        value += (byte & 0x7f) * scale;
        scale *= 0x80;
      } while (byte >= 0x80);
      return value;
    };
  }

  const signed = (value) => (value % 2 === 0 ? value / 2 : -(value + 1) / 2);

  async function unpack(text) {
    const bytes = await bytesOf(text);
    const size = new DataView(bytes.buffer).getUint32(0, true);
    const model = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    columns(model, reader(bytes, 4 + size));
    model.classes = Uint8Array.from(model.names, (name) => name[0]);
    model.names = model.names.map((name) => name[1]);
    model.short = new Array(model.names.length);
    model.parent = new Int32Array(model.shown).fill(NONE);
    model.row = new Uint16Array(model.shown);
    model.tooDeep = 0;
    for (const lane of model.lanes) lane.rows = rowsOf(model, lane);
    model.steps = stepsOf(model);
    for (const counter of model.counters) {
      counter.at = Float64Array.from(counter.at);
      counter.values = Float64Array.from(counter.values);
      counter.most = counter.values.reduce((most, value) => Math.max(most, value), 0);
    }
    return model;
  }

  function columns(model, next) {
    const count = model.shown;
    const begin = new Float64Array(count);
    const duration = new Float64Array(count);
    const name = new Uint32Array(count);
    const cause = new Int32Array(count);
    const correlation = new Float64Array(count);
    const bytes = new Float64Array(count);
    let first = 0;
    for (const lane of model.lanes) { lane.first = first; first += lane.count; }
    const each = (of, step) => {
      for (const lane of model.lanes) {
        let before = 0;
        for (let at = lane.first; at < lane.first + lane.count; at++) before = step(of, at, before, lane);
      }
    };
    each(begin, (of, at, before) => (of[at] = before + next()));
    each(duration, (of, at) => { of[at] = next(); });
    each(name, (of, at) => { of[at] = next(); });
    each(cause, (of, at, before) => {
      const value = next();
      if (value < 2) { of[at] = value === 0 ? NONE : OUTSIDE; return before; }
      return (of[at] = before + signed(value - 2));
    });
    each(correlation, (of, at, before, lane) => (lane.stream ? (of[at] = before + signed(next())) : 0));
    each(bytes, (of, at, before, lane) => { if (lane.stream) of[at] = next(); return 0; });
    Object.assign(model, { begin, duration, name, cause, correlation, bytes });
  }

  // End of an event; an event of zero duration can still be pointed at.
  const endOf = (model, event) => model.begin[event] + Math.max(model.duration[event], 1);

  // Places the events of a lane into rows. A row holds the events that began while an event of the row above was open.
  // On a thread, an event that outlives its parent is not part of it: the parent is drawn only up to the begin of that
  // event.
  function rowsOf(model, lane) {
    const open = [];
    const counts = [];
    const until = lane.first + lane.count;
    const ends = Float64Array.from({ length: lane.count }, (_, at) => endOf(model, lane.first + at));
    for (let event = lane.first; event < until; event++) {
      const [begin, end] = [model.begin[event], ends[event - lane.first]];
      while (open.length) {
        const top = open[open.length - 1] - lane.first;
        if (ends[top] > begin && (lane.stream || ends[top] >= end)) break;
        ends[top] = Math.min(ends[top], begin);
        open.pop();
      }
      const row = open.length;
      if (row > 0) model.parent[event] = open[row - 1];
      if (row < ROWS_MAX) counts[row] = (counts[row] || 0) + 1;
      else model.tooDeep += 1;
      model.row[event] = Math.min(row, ROWS_MAX);
      open.push(event);
    }
    const rows = counts.map((count) => ({
      count: 0, begin: new Float64Array(count), end: new Float64Array(count), event: new Uint32Array(count),
      kind: new Uint8Array(count), busy: new Float64Array(count + 1), found: null,
    }));
    for (let event = lane.first; event < until; event++) {
      if (model.row[event] === ROWS_MAX) continue;
      const row = rows[model.row[event]];
      const at = row.count++;
      row.begin[at] = model.begin[event];
      row.end[at] = ends[event - lane.first];
      row.event[at] = event;
      row.kind[at] = model.classes[model.name[event]];
      row.busy[at + 1] = row.busy[at] + row.end[at] - row.begin[at];
    }
    return rows;
  }

  // Training steps, sorted by begin.
  function stepsOf(model) {
    const steps = [];
    model.lanes.forEach((lane) => {
      if (lane.stream) return;
      for (let event = lane.first; event < lane.first + lane.count; event++) {
        if (model.classes[model.name[event]] === STEP) steps.push({ event, rank: lane.rank });
      }
    });
    return steps.sort((a, b) => model.begin[a.event] - model.begin[b.event]);
  }

  // Index of the first value above `least` in a sorted array. Searches near `from` first.
  function firstAbove(values, least, from, count) {
    let low = from;
    let step = 1;
    while (low + step < count && values[low + step] <= least) { low += step; step *= 2; }
    let high = Math.min(low + step, count);
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (values[middle] <= least) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The value of a counter at a moment; undefined before the first value.
  const valueAt = (counter, moment) => counter.values[firstAbove(counter.at, moment, 0, counter.at.length) - 1];

  // The event of a row at a moment, or the nearest one within some distance.
  function at(row, moment, within) {
    const place = firstAbove(row.end, moment, 0, row.count);
    const near = (other) => {
      if (other < 0 || other >= row.count) return Infinity;
      return Math.max(row.begin[other] - moment, moment - row.end[other], 0);
    };
    const best = near(place) <= near(place - 1) ? place : place - 1;
    return near(best) <= within ? row.event[best] : NONE;
  }

  const laneOf = (model, event) => {
    let low = 0;
    let high = model.lanes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (model.lanes[middle].first <= event) low = middle;
      else high = middle - 1;
    }
    return low;
  };

  // The next or the previous event of the same row.
  function beside(model, event, distance) {
    const row = model.lanes[laneOf(model, event)].rows[model.row[event]];
    if (!row) return event;
    const place = firstAbove(row.begin, model.begin[event], 0, row.count) - 1 + distance;
    return place >= 0 && place < row.count ? row.event[place] : event;
  }

  // The work that a call launched.
  function causedBy(model, call, most) {
    const found = [];
    for (const lane of model.lanes) {
      if (!lane.stream) continue;
      for (let event = lane.first; event < lane.first + lane.count && found.length < most; event++) {
        if (model.cause[event] === call) found.push(event);
      }
    }
    return found;
  }

  // The step of the same rank in which an event, or its launch, began.
  function stepAt(model, event) {
    const of = model.cause[event] >= 0 && model.lanes[laneOf(model, event)].stream ? model.cause[event] : event;
    const rank = model.lanes[laneOf(model, of)].rank;
    const moment = model.begin[of];
    const step = model.steps.findLast((step) =>
      step.rank === rank && model.begin[step.event] <= moment && moment < endOf(model, step.event));
    return step ? step.event : NONE;
  }

  // A short name: for a kernel, without template arguments.
  function shortName(model, event) {
    const number = model.name[event];
    const known = model.short[number];
    if (known !== undefined) return known;
    const name = model.names[number];
    return (model.short[number] = model.classes[number] > 1 ? name : shortKernel(name));
  }

  const shortKernel = (name) => name.replace(/^void /, "").split(/[<(]/)[0].split("::").pop() || name;

  // Marks the events whose name matches: for each row, the number of matches before each event. Returns the total.
  function find(model, expression) {
    let all = 0;
    const isFound = expression && Uint8Array.from(model.names, (name) => Number(expression.test(name)));
    for (const lane of model.lanes) {
      for (const row of lane.rows) {
        row.found = expression ? new Uint32Array(row.count + 1) : null;
        for (let place = 0; expression && place < row.count; place++) {
          row.found[place + 1] = row.found[place] + isFound[model.name[row.event[place]]];
        }
        all += expression ? row.found[row.count] : 0;
      }
    }
    return all;
  }

  return { NONE, OUTSIDE, STEP, ROWS_MAX, unpack, endOf, firstAbove, valueAt, at, laneOf, beside, causedBy, stepAt, find, shortName, shortKernel };
})();
