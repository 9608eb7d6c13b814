"""A program that does little but launch kernels: DRIVER HELPER PYTHON_FRAMES NATIVE_FRAMES.

For the cost of a launch, and the slowdown of a loop. The helper is launch_loop.c, the driver accelerator.c. Prints
"ready PID". Each input line "LAUNCHES ROUNDS" is answered by the nanoseconds of the thread's CPU time for that many
launches in one native loop, with ROUNDS of work before each; "python LAUNCHES ROUNDS" by those of a loop in Python.
"""

import ctypes
import os
import sys
import time

driver = ctypes.CDLL(sys.argv[1])
helper = ctypes.CDLL(sys.argv[2])
python_frames, native_frames = int(sys.argv[3]), int(sys.argv[4])
launch_below = helper.launch_below
launch_below.restype = ctypes.c_uint64
launch_below.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint]
launch = ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p)


def native_loop(launches, rounds):
    return launch_below(launch, launches, rounds, native_frames)


def python_loop(launches, rounds):
    begin = time.thread_time_ns()
    for _ in range(launches):
        launch_below(launch, 1, rounds, native_frames)
    return time.thread_time_ns() - begin


def deeper(frames, loop, launches, rounds):
    if frames == 0:
        return loop(launches, rounds)
    return deeper(frames - 1, loop, launches, rounds)


print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    *loop, launches, rounds = line.split()
    loop = python_loop if loop else native_loop
    print(deeper(python_frames, loop, int(launches), int(rounds)), flush=True)
