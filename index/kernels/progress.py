"""The watermark before each tuple of a batch, under MAX JUMP."""

from promising.summaries.kernels.jit import kernel

WATERMARK, COUNTED, LOWER, HIGHER = range(4)  # places in the state; the last two are the doubted times
NONE = -(1 << 62)


@kernel("void(int64[::1], int64, int64, int64)")
def settle(state, lateness, jump, now):
    """Count doubted times that the watermark has come within `jump` of, until none is left."""
    while True:
        reached = min(state[COUNTED] - lateness, now)
        if reached > state[WATERMARK]:
            state[WATERMARK] = reached
        if state[LOWER] == NONE or state[LOWER] - jump > state[WATERMARK]:
            return
        state[COUNTED] = max(state[COUNTED], state[LOWER])
        state[LOWER], state[HIGHER] = state[HIGHER], NONE


@kernel("void(Array(int64, 1, 'C', readonly=True), int64[::1], int64, int64, int64, int64[::1])")
def pace(times, state, lateness, jump, now, before):
    """Move the state by each tuple in turn; `before` gets the watermark before it.

    A time further than `jump` ahead of the watermark is doubted; the least of three such times counts. At most two
    stay doubted, in ascending order.
    """
    settle(state, lateness, jump, now)
    for i in range(times.size):
        before[i] = state[WATERMARK]
        t = times[i]
        if t - jump <= state[WATERMARK]:
            state[COUNTED] = max(state[COUNTED], t)
        elif t == state[LOWER] or t == state[HIGHER]:
            continue
        elif state[LOWER] == NONE:
            state[LOWER] = t
        elif state[HIGHER] == NONE:
            state[LOWER], state[HIGHER] = min(state[LOWER], t), max(state[LOWER], t)
        else:
            least = min(state[LOWER], t)
            most = max(state[HIGHER], t)
            state[LOWER], state[HIGHER] = state[LOWER] + state[HIGHER] + t - least - most, most
            state[COUNTED] = max(state[COUNTED], least)
        settle(state, lateness, jump, now)
