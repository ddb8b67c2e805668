"""What the loaders need of a service: a session in this process, or one over the network."""

from typing import Protocol

from promising.index.load_plan import LoadPlan
from promising.index.prepared_load import Attached


class Service(Protocol):
    """A service that packages are attached to."""

    def load_plan(self, stream: str) -> LoadPlan: ...

    def attach(self, stream: str, path: str, token: str) -> Attached: ...
