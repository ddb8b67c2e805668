"""The memory of queries, from the settings."""

from promising.errors import BadSettings
from promising.index.memory import half_of_machine
from promising.query.query_memory import QueryLimits
from promising.settings import Settings

LEAST = 1 << 20  # bytes: less holds not even the first steps of a query


def query_limits(settings: Settings) -> QueryLimits:
    """The limits; raises BadSettings if they contradict each other or the machine."""
    limits = settings.limits
    machine = 2 * half_of_machine()
    total = limits.max_query_bytes_total or machine // 4
    client = limits.max_query_bytes_per_client or total // 2
    query = limits.max_query_bytes or min(total // 8, client)
    if total > machine:
        raise BadSettings(
            f"limits.max_query_bytes_total is {total:,}, and this machine has {machine:,} bytes of memory; leave it out"
            " for a quarter of them"
        )
    sizes = {"max_query_bytes": query, "max_query_bytes_per_client": client, "max_query_bytes_total": total}
    for name, size in sizes.items():
        if size < LEAST:
            raise BadSettings(f"limits.{name} is {size:,} bytes; {LEAST:,} is the least with which queries run")
    for (small, less), (large, more) in (
        (("max_query_bytes", query), ("max_query_bytes_per_client", client)),
        (("max_query_bytes_per_client", client), ("max_query_bytes_total", total)),
    ):
        if less > more:
            raise BadSettings(
                f"limits.{small} is {less:,}, more than limits.{large}, {more:,}: lower it, or raise the other"
            )
    return QueryLimits(query, client, total)
