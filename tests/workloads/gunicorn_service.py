"""A service of gunicorn with one worker of gevent, until killed. Prints `ready PID PORT` of the worker.

Each request has a greenlet, which gives way to others in the middle of its work.
"""

import os

import gevent
import gunicorn.app.base


def total(count):
    return sum(number * number for number in range(count))


def answer(environ, start_response):
    before = total(20000)
    gevent.sleep(0)
    body = str(before + total(20000)).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def ready(worker):
    print("ready", os.getpid(), worker.sockets[0].getsockname()[1], flush=True)


class Service(gunicorn.app.base.BaseApplication):
    """Configured by this file alone."""

    def load_config(self):
        self.cfg.set("bind", "127.0.0.1:0")
        self.cfg.set("workers", 1)
        self.cfg.set("worker_class", "gevent")
        self.cfg.set("loglevel", "warning")
        self.cfg.set("post_worker_init", ready)

    def load(self):
        return answer


Service().run()
