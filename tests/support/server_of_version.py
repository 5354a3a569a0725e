"""A server that says that it is Redis of some version, and knows nothing else."""

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager

from support.ports import served_in_background


@contextmanager
def server_of_version(version: str | None) -> Iterator[tuple[str, set[str]]]:
    """A server that speaks enough of the protocol for a client to connect. Yields its URL and the commands it received."""
    asked: set[str] = set()

    class Client(socketserver.StreamRequestHandler):
        speaks_resp3 = False

        def handle(self) -> None:
            while line := self.rfile.readline():
                words = [self._word() for _ in range(int(line[1:]))]
                asked.add(words[0])
                self.wfile.write(self._hello(words[1:]) if words[0] == "HELLO" else self._answer(words[0]))

        def _word(self) -> str:
            length = int(self.rfile.readline()[1:])
            return self.rfile.read(length + 2)[:-2].decode().upper()

        def _hello(self, asked: list[str]) -> bytes:
            self.speaks_resp3 |= asked[:1] == ["3"]
            told = {"mode": "standalone", "role": "master", **({"version": version} if version else {})}
            words = "".join(f"+{name}\r\n+{value}\r\n" for name, value in told.items())
            end = ":3\r\n" if asked[:1] == ["3"] else ":2\r\n"
            begin = f"%{len(told) + 1}" if asked[:1] == ["3"] else f"*{2 * len(told) + 2}"
            return f"{begin}\r\n{words}+proto\r\n{end}".encode()

        def _answer(self, command: str) -> bytes:
            if command == "INFO" and version is None:
                return b"-NOPERM unknown command\r\n"
            if command == "GET":
                return b"_\r\n" if self.speaks_resp3 else b"$-1\r\n"
            said = f"# Server\r\nredis_version:{version}\r\n" if command == "INFO" else "PONG"
            return f"${len(said)}\r\n{said}\r\n".encode() if command == "INFO" else f"+{said}\r\n".encode()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Client)
    server.daemon_threads = True
    with served_in_background(server):
        yield f"redis://127.0.0.1:{server.server_address[1]}/0", asked
