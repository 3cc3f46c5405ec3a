"""A small application in Python: a catalogue in memory, searched by each request. `python3 catalogue.py PORT`"""

import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

random.seed(1)
WORDS = ["".join(random.choices("aeioubdfgklmnprst", k=6)) for _ in range(2000)]
ITEMS = [{"id": n, "title": " ".join(random.choices(WORDS, k=6)), "price": random.random()} for n in range(60_000)]
INDEX = {}
for item in ITEMS:
    for word in item["title"].split():
        INDEX.setdefault(word, []).append(item["id"])


class Catalogue(BaseHTTPRequestHandler):
    """Answers every path with what one word finds."""

    def do_GET(self):
        found = [ITEMS[n] for n in INDEX[WORDS[len(self.path) % len(WORDS)]][:20]]
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing: a log line per request would be measured too."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Catalogue).serve_forever()
