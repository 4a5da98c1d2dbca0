"""A server as far as its life is concerned: answers /health, keeps a stubborn child, may hang or fail."""

import http.server
import signal
import subprocess
import sys
import time

_CHILD = (
    "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)]; time.sleep(600)"
)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main(how: str, port: int) -> None:
    if how == "fails":
        print("noise\nvspec: this host does not fit: no such field\nmore noise", flush=True)
        raise SystemExit(3)
    child = subprocess.Popen([sys.executable, "-c", _CHILD])
    print(f"child {child.pid}", flush=True)
    if how == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if how in ("hangs", "deaf"):
        time.sleep(600)
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
