"""What other tools take for a trace: `trace_peers.py import|critical-path FILE.json.gz`, `perfetto FILE.pftrace`.

One line `events seconds bytes peak`, as `trace_rate` prints it: size of the file, and the peak of resident memory.
"""

import os
import resource
import sys
import time

# Times as they are; else HTA cuts them to whole microseconds, which takes it longer.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"


def hta(path):
    """HolisticTraceAnalysis with one trace as rank 0."""
    from hta.trace_analysis import TraceAnalysis

    return TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))


def import_trace(path):
    begin = time.perf_counter()
    analysis = hta(path)
    return len(analysis.t.get_trace(0)), time.perf_counter() - begin


def critical_path(path):
    """Of the first step, since HTA wants an annotation; reading the trace is not in its time."""
    analysis = hta(path)
    begin = time.perf_counter()
    graph, _ = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    return graph.number_of_edges(), time.perf_counter() - begin


def perfetto(path):
    """Perfetto's own classes; its trace processor is a program that the package fetches when it is first used."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    begin = time.perf_counter()
    with open(path, "rb") as file:
        trace = Trace.FromString(file.read())
    events = sum(packet.HasField("track_event") for packet in trace.packet)
    return events, time.perf_counter() - begin


ways = {"import": import_trace, "critical-path": critical_path, "perfetto": perfetto}
way, path = sys.argv[1:]
# HTA talks while it works; what is asked for is the last line.
events, seconds = ways[way](os.path.abspath(path))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(events, seconds, os.path.getsize(path), peak)
