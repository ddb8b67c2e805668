"""A session on a service over gRPC, with the methods, results and errors of the local one.

Nothing here compiles kernels: a client starts as fast as gRPC and Arrow load.
"""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.client.session import RemoteSession as RemoteSession
    from promising.client.session import connect as connect

__getattr__, __dir__, __all__ = lazy(__name__, {"session": ["RemoteSession", "connect"]})
