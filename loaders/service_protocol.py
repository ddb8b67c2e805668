"""The interface that loaders need: a session in this process or over the network."""

from typing import Protocol

from promising.index.load_plan import LoadPlan
from promising.index.prepared_load import Attached


class Service(Protocol):
    def load_plan(self, stream: str) -> LoadPlan: ...

    def attach(self, stream: str, path: str, token: str) -> Attached: ...
