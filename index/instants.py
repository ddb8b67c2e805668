"""How far times reach, and the instants before and after all of them.

Times and spans are whole microseconds in 64 bits with a sign; times count from the epoch. Every sentinel of time in the
house is one of these. Kernels are given what they need of them.
"""

FARTHEST = 1 << 61
"""No event time lies further from the epoch, either way (73,000 years), and no span is longer: a lateness, a window,
what a summary reaches back. So a time plus or minus a span is from `BEGINNING` to `END`."""

BEGINNING = -(1 << 62)
"""Before every event time: where a watermark stands that nothing has moved yet, and the greatest of no times. A span
can be subtracted from it twice."""

END = 1 << 62
"""After every event time: the end of a window that has none, and the least of no times. A span can be added to it once;
`END - BEGINNING` does not fit 64 bits."""

EVER = (BEGINNING, END)
"""The window of all event times. Its edges are in packages of loads, and must not change."""

NEVER = END - 1
"""When a result of a standing query ends that only a retraction ends. A time plus a window may come to more, and is as
good as that. Clients are sent it, so it must not change."""
