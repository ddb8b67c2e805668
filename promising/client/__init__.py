"""A session on a service, over gRPC: the methods, results and errors of the one in process.

Nothing here compiles anything: a client starts in the time that gRPC and Arrow take to load.
"""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.client.session import RemoteSession as RemoteSession
    from promising.client.session import connect as connect

__getattr__, __dir__, __all__ = lazy(__name__, {"session": ["RemoteSession", "connect"]})
