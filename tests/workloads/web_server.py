"""A small web service: threads of `http.server` answer with JSON, and a client of its own process asks, until killed.

Owns: a usual mix of waiting, parsing and computing. Because: rules for training must find nothing here, although there
is a loader, a cache and a log.
"""

import http.client
import http.server
import json
import logging
import os
import sys
import time


class Catalog:
    """Items, and the words that lead to them."""

    def __init__(self, items):
        self.items = {number: {"id": number, "name": f"item {number}", "price": number % 97} for number in range(items)}

    def search(self, low, high):
        """Items of a range of prices, cheapest first."""
        found = [item for item in self.items.values() if low <= item["price"] < high]
        return sorted(found, key=lambda item: (item["price"], item["id"]))[:20]


CATALOG = Catalog(2000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers `/search?LOW-HIGH`."""

    protocol_version = "HTTP/1.1"
    # Head and body in one packet: the client would acknowledge the first after 40 ms only.
    wbufsize = -1

    def do_GET(self):
        low, _, high = self.path.partition("?")[2].partition("-")
        self.answer(CATALOG.search(int(low), int(high)))

    def answer(self, items):
        body = json.dumps({"items": items, "count": len(items)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form, *values):
        logging.info(form, *values)


def ask(port):
    """Asks without end, with a pause between two requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(sys.maxsize):
        connection.request("GET", f"/search?{number % 50}-{number % 50 + 10}")
        json.load(connection.getresponse())
        time.sleep(0.0005)


logging.basicConfig(level=logging.INFO, filename=os.devnull)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if os.fork() == 0:
    try:
        ask(server.server_address[1])
    except OSError:
        # The server is gone.
        os._exit(0)
print("ready", flush=True)
server.serve_forever()
