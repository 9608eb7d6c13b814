#!/usr/bin/env python3
"""Reads an export with the classes and schemas of those who own its format, and prints the totals that it holds.

    totals.py FORMAT FILE [SCHEMA]

One JSON object: metric to total. Whatever the format's owners would not accept ends the program with an error.
"""
import csv
import json
import os
import sys


def add(totals, metric, value):
    totals[metric] = totals.get(metric, 0) + value


def speedscope(path, schema):
    import jsonschema

    with open(path) as file, open(schema) as rules:
        document = json.load(file)
        jsonschema.validate(document, json.load(rules))
    totals = {}
    frames = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
        assert all(0 <= frame < frames for stack in profile["samples"] for frame in stack)
        add(totals, profile["name"], sum(profile["weights"]))
    return totals


def no_unknown_fields(message):
    """A field that the owners' definition does not have is one that we made up."""
    from google.protobuf import unknown_fields

    open_messages = [message]
    while open_messages:
        at = open_messages.pop()
        unknown = unknown_fields.UnknownFieldSet(at)
        assert len(unknown) == 0, f"{at.DESCRIPTOR.name}: field {unknown[0].field_number} is unknown"
        for field, value in at.ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue
            open_messages.extend(value if field.is_repeated else [value])


def add_step(values, key, at_ns, value):
    """Adds up a counter over time: each value holds until the next."""
    before = values.setdefault(key, [at_ns, value, 0.0])
    values[key] = [at_ns, value, before[2] + before[1] * (at_ns - before[0])]


def by_time(values, totals):
    """What the counters of CPU time say of all of it, for those who know when each part of it was used."""
    used = sum(sum_ for (name, *_), (_, _, sum_) in values.items() if name == "cpu-time")
    assert abs(used - totals["cpu-time"]) < 1e-6 * totals["cpu-time"], (used, totals)


def perfetto(path, _):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    assert trace.IsInitialized()
    no_unknown_fields(trace)
    names, annotations, tracks, open_slices, totals, drawn = {}, {}, {}, {}, {}, 0
    values = {}
    for packet in trace.packet:
        for name in packet.interned_data.event_names:
            names[name.iid] = name.name
        for name in packet.interned_data.debug_annotation_names:
            annotations[name.iid] = name.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        stack = open_slices.setdefault(event.track_uuid, [])
        assert event.track_uuid in tracks
        if event.type == event.TYPE_SLICE_BEGIN:
            assert event.name_iid in names
            if not stack:
                drawn -= packet.timestamp
            assert not stack or packet.timestamp >= stack[-1]
            stack.append(packet.timestamp)
            for annotation in event.debug_annotations:
                name = annotations[annotation.name_iid]
                if name.startswith("own "):
                    add(totals, name[4:], annotation.uint_value)
        elif event.type == event.TYPE_COUNTER:
            track = tracks[event.track_uuid]
            # The machine is of no process.
            of_machine = track.name.startswith("system:") and not track.HasField("parent_uuid")
            assert track.HasField("counter") and (of_machine or track.parent_uuid in tracks)
            add_step(values, (track.name, track.uuid), packet.timestamp, event.double_counter_value)
        else:
            assert event.type == event.TYPE_SLICE_END
            assert packet.timestamp >= stack.pop()
            if not stack:
                drawn += packet.timestamp
    assert not any(open_slices.values())
    by_time(values, totals)
    totals["drawn"] = drawn
    return totals


def otlp(path, _):
    from opentelemetry.proto.profiles.v1development import profiles_pb2

    data = profiles_pb2.ProfilesData()
    with open(path, "rb") as file:
        data.ParseFromString(file.read())
    no_unknown_fields(data)
    tables = data.dictionary
    # Entry 0 of every table is the zero value.
    assert tables.string_table[0] == ""
    for table in ("mapping", "location", "function", "link", "attribute", "stack"):
        first = getattr(tables, table + "_table")[0]
        assert first == type(first)(), table
    for location in tables.location_table:
        assert location.mapping_index < len(tables.mapping_table)
        assert all(line.function_index < len(tables.function_table) for line in location.lines)
        assert all(index < len(tables.attribute_table) for index in location.attribute_indices)
    for stack in tables.stack_table:
        assert all(0 < index < len(tables.location_table) for index in stack.location_indices)
    totals = {}
    for resource in data.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                metric = tables.string_table[profile.sample_type.type_strindex]
                seen = set()
                for sample in profile.samples:
                    identity = (sample.stack_index, tuple(sorted(sample.attribute_indices)), sample.link_index)
                    assert identity not in seen, "a stack stands twice"
                    seen.add(identity)
                    assert 0 < sample.stack_index < len(tables.stack_table)
                    add(totals, metric, sum(sample.values))
    return totals


def hatchet(path, _):
    import hatchet as ht

    with open(path) as file:
        roots = json.load(file)
    graph = ht.GraphFrame.from_literal(roots[:1])
    totals = {}
    for column in graph.dataframe.columns:
        # `time (ns)` is one of the others by the name that Proton's viewer looks for.
        if column != "time (ns)" and (column.endswith((" (ns)", " (bytes)")) or column == "samples"):
            totals[column.split(" (")[0]] = int(graph.dataframe[column].sum())
    column = next(column for column in graph.dataframe.columns if column.endswith(" (ns)"))
    assert graph.tree(metric_column=column)
    return totals


def chrome(path, _):
    with open(path) as file:
        trace = json.load(file)
    totals, ends, values = {}, {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            add_step(values, (event["name"], event["pid"]), round(event["ts"] * 1000), event["args"]["value"])
        if event["ph"] != "X":
            continue
        key = (event["pid"], event["tid"])
        ends[key] = max(ends.get(key, 0), round(event["ts"] * 1000) + round(event["dur"] * 1000))
        for name, value in event["args"].items():
            if name.startswith("own "):
                add(totals, name[4:], value)
    by_time(values, totals)
    totals["drawn"] = sum(ends.values())
    return totals


def hta(path, _):
    """What Meta's HolisticTraceAnalysis makes of a trace, in whole microseconds, to which it rounds down."""
    from hta.trace_analysis import TraceAnalysis

    trace = TraceAnalysis(trace_files={0: path}, trace_dir="/")
    kinds, _ = trace.get_gpu_kernel_breakdown(visualize=False)
    launches = trace.get_cuda_kernel_launch_stats(visualize=False)[0]
    busy = trace.get_temporal_breakdown(visualize=False)
    assert len(trace.get_idle_time_breakdown(visualize=False)[0]) > 0
    return {
        **{kind.lower(): int(sum_) for kind, sum_ in zip(kinds["kernel_type"], kinds["sum"])},
        "launched kernels": len(launches),
        "launch delay": int(launches["launch_delay"].sum()),
        "idle": int(busy["idle_time(us)"].sum()),
    }


def as_json(path, _):
    with open(path) as file:
        document = json.load(file)
    totals = {}
    for place, context in enumerate(document["contexts"]):
        assert context["parent"] is None or context["parent"] < place
        for metric, figures in context["values"].items():
            add(totals, metric, figures[1])
    return totals


def as_csv(path, _):
    totals = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            for name, value in list(row.items())[8::2]:
                add(totals, name, int(value))
    return totals


def folded(path, _):
    with open(path) as file:
        return {"cpu-time": sum(int(line.rsplit(" ", 1)[1]) for line in file)}


def duckdb(path, _):
    import duckdb as db

    rows = db.sql(f"select metric, sum(sum)::bigint from '{path}/values-*.parquet' group by metric").fetchall()
    return dict(rows)


def pandas(path, _):
    import glob

    import pandas as pd

    values = pd.concat(pd.read_parquet(file) for file in glob.glob(f"{path}/values-*.parquet"))
    return {metric: int(total) for metric, total in values.groupby("metric")["sum"].sum().items()}


def polars(path, _):
    import polars as pl

    values = pl.scan_parquet(f"{path}/values-*.parquet").group_by("metric").agg(pl.col("sum").sum()).collect()
    return dict(values.iter_rows())


READERS = {
    "speedscope": speedscope, "perfetto": perfetto, "otlp": otlp, "hatchet": hatchet, "chrome": chrome,
    "json": as_json, "csv": as_csv, "folded": folded, "duckdb": duckdb, "pandas": pandas, "polars": polars,
    "hta": hta,
}

if __name__ == "__main__":
    name, path, *schema = sys.argv[1:]
    totals = READERS[name](path, *(schema or [None]))
    print(json.dumps({metric: total for metric, total in totals.items() if total}), flush=True)
    # Threads of pyarrow that still run while the interpreter is taken down abort the process now and then
    # ("terminate called without an active exception"); the answer stands by then.
    os._exit(0)
