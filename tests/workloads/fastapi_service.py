"""A service of FastAPI on one asyncio loop, until killed. Prints `ready PID PORT`; requests may come from then on.

Its answer is computed by a generator expression in a plain function, which a task calls before and after it awaits.
"""

import asyncio
import os
import socket

import fastapi
import uvicorn

app = fastapi.FastAPI()


def total(count):
    return sum(number * number for number in range(count))


@app.get("/total")
async def answer():
    before = total(20000)
    await asyncio.sleep(0)
    return {"total": before + total(20000)}


listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(64)
print("ready", os.getpid(), listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
