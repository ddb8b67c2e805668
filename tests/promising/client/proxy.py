"""A way to a service that a test can cut: whoever is connected loses the connection, in the middle of what is sent."""

import contextlib
import socket
import threading


class Proxy:
    """Passes bytes on between clients and the service at `target`, until it is cut."""

    def __init__(self, target: str) -> None:
        self.to(target)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._shut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End all connections; new ones are taken."""
        with self._lock:
            gone, self._open = self._open, set()
        for end in gone:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def to(self, target: str) -> None:
        """New connections lead to another place."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def shut(self, shut: bool = True) -> None:
        """Take no new connections, or take them again."""
        self._shut = shut

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()  # so that it takes no connection beside the cut
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._shut:
                client.close()
                continue
            try:
                service = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self.connections += 1
            with self._lock:
                self._open |= {client, service}
            for source, sink in ((client, service), (service, client)):
                self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink)))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
