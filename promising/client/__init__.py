"""A session on a service, over gRPC: the methods, results and errors of the one in process.

Nothing here compiles anything: a client starts in the time that gRPC and Arrow take to load.
"""

from promising.client.session import RemoteSession, connect

__all__ = ["RemoteSession", "connect"]
