"""Exact sums of groups of values as digits, which are integers, so that no order of additions matters.

`words[g, k]` counts units of 2^(32 (low + k) - 1075) in the sum of group g of doubles, of 2^(32 k) in one of integers.
A value changes up to three neighbouring digits by less than 2^32 each; `carry` brings them back to 0 to 2^32 - 1. The
last digit has the sign and the carries.

Functions that are called for each value are written out where they are used: calls take five times as long.
"""

import math

import numpy as np

from promising.summaries.kernels.jit import kernel

# Memory may be read-only; writable arrays are accepted, too.
INTS = "Array(int64, 1, 'C', readonly=True)"
FLOATS = "Array(float64, 1, 'C', readonly=True)"
IDS = "Array(int32, 1, 'C', readonly=True)"

LOW = np.int64(0xFFFFFFFF)
MANTISSA = np.int64((1 << 52) - 1)
HIDDEN = np.int64(1 << 52)
BEYOND = np.int64(0x7FF)  # the exponent of infinities and NaN
UNIT = 1075  # the last bit of a double with exponent e, as stored, is worth 2^(e - 1075)
SLICE = 1 << 14  # values of which the sum of a bin is exact
BIN = 38  # bits of a bin: with a slice's 14 and the sign they fit a double


@kernel(
    [
        f"void({IDS}, {INTS}, int64[::1], int64[::1], int64[::1])",
        f"void({IDS}, {FLOATS}, int64[::1], float64[::1], float64[::1])",
    ]
)
def tally(ids, values, count, least, greatest):
    """Count values that may be NaN, and find the least and greatest of the others."""
    for i in range(ids.size):
        g = np.uint32(ids[i])
        x = values[i] + 0  # -0.0 is 0.0
        count[g] += 1
        if x < least[g]:
            least[g] = x
        if x > greatest[g]:
            greatest[g] = x


@kernel([f"void({INTS}, int64, int64, int64[::1])", f"void({FLOATS}, int64, int64, float64[::1])"])
def edges(values, first, last, out):
    """The least and greatest of values[first:last], of which there are some; none is NaN."""
    a = b = c = d = p = q = s = t = values[first]
    full = first + (last - first) // 4 * 4
    for i in range(first, full, 4):
        w, x, y, z = values[i], values[i + 1], values[i + 2], values[i + 3]
        a, b, c, d = min(a, w), min(b, x), min(c, y), min(d, z)
        p, q, s, t = max(p, w), max(q, x), max(s, y), max(t, z)
    for i in range(full, last):
        a, p = min(a, values[i]), max(p, values[i])
    out[0], out[1] = min(a, b, c, d) + 0, max(p, q, s, t) + 0  # -0.0 is 0.0


@kernel(f"void({IDS}, {INTS}, int64[:,::1])")
def add_ints(ids, values, words):
    for i in range(ids.size):
        g = np.uint32(ids[i])
        words[g, 0] += values[i] & LOW
        words[g, 1] += values[i] >> 32


@kernel(
    [
        f"int64({IDS}, {FLOATS}, boolean, int64, int64[:,::1], int64)",
        f"int64({IDS}, {INTS}, boolean, int64, int64[:,::1], int64)",
    ]
)
def add_floats(ids, values, squared, at, words, low):
    """Add values[at:] or their squares as doubles, in any order.

    Returns the first that needs other digits, or is not finite: it has not been added.
    """
    ends = words.shape[1] - 3
    for i in range(at, values.size):
        x = np.float64(values[i])
        if squared:
            x *= x
        bits = np.float64(x).view(np.int64)
        e = (bits >> 52) & BEYOND
        m = bits & MANTISSA
        if e != 0:
            m |= HIDDEN
        else:
            e = np.int64(1)
        k = (e >> 5) - low
        if k < 0 or k >= ends or e == BEYOND:
            if m != 0:
                return i
            continue
        g = np.uint32(ids[i])
        sign = bits >> 63
        first = (m & LOW) << (e & 31)
        rest = (first >> 32) + ((m >> 32) << (e & 31))
        words[g, k] += ((first & LOW) ^ sign) - sign
        words[g, k + 1] += ((rest & LOW) ^ sign) - sign
        words[g, k + 2] += ((rest >> 32) ^ sign) - sign
    return values.size


@kernel("float64(int64, int64)")
def unit(top, bin):
    """Adding and subtracting it rounds values below 2^top to the first so many bins."""
    return math.ldexp(1.5, top + 53 - (BIN + 1) * bin)


@kernel(
    [
        f"boolean({FLOATS}, boolean, int64, int64, int64, float64[::1])",
        f"boolean({INTS}, boolean, int64, int64, int64, float64[::1])",
    ]
)
def bins(values, squared, first, last, top, out):
    """The sum of up to `SLICE` values or squares below 2^top as three doubles, each exact. Returns whether it is all.

    A bin has up to `BIN` bits and a sign of every value. Doubles with the exponent of the bin's `unit` are integers by
    their bits; the processor adds several of those at once, as the order of integers does not matter.
    """
    part = values[first:last]
    one, two, three = unit(top, 1), unit(top, 2), unit(top, 3)
    first_zero = np.float64(one).view(np.int64)
    second_zero = np.float64(two).view(np.int64)
    third_zero = np.float64(three).view(np.int64)
    a = b = c = rest = np.int64(0)
    for i in range(part.size):
        x = np.float64(part[i])
        if squared:
            x *= x
        p = x + one
        q = x - (p - one)
        s = q + two
        t = q - (s - two)
        u = t + three
        a += np.float64(p).view(np.int64) - first_zero
        b += np.float64(s).view(np.int64) - second_zero
        c += np.float64(u).view(np.int64) - third_zero
        rest |= np.float64(t - (u - three)).view(np.int64)
    out[0] = math.ldexp(np.float64(a), top - BIN)
    out[1] = math.ldexp(np.float64(b), top - BIN - (BIN + 1))
    out[2] = math.ldexp(np.float64(c), top - BIN - 2 * (BIN + 1))
    return rest == 0


@kernel("boolean(float64[::1], int64[:,::1], int64, int64, boolean)")
def enter_bins(found, words, low, g, write):
    """Add the sums of bins to a group, or find out whether they have all digits that this needs.

    A sum's mantissa may begin with zeros below the first digit.
    """
    for x in found:
        if x == 0.0:
            continue
        bits = np.float64(x).view(np.int64)
        e = (bits >> 52) & BEYOND
        m = bits & MANTISSA
        if e != 0:
            m |= HIDDEN
        else:
            e = np.int64(1)
        lost = max(32 * low - e, 0)
        if lost > 52 or m & ((np.int64(1) << lost) - 1) != 0:
            return False
        m >>= lost
        e += lost
        k = (e >> 5) - low
        if k + 3 >= words.shape[1]:
            return False
        if write:
            sign = bits >> 63
            first = (m & LOW) << (e & 31)
            rest = (first >> 32) + ((m >> 32) << (e & 31))
            words[g, k] += ((first & LOW) ^ sign) - sign
            words[g, k + 1] += ((rest & LOW) ^ sign) - sign
            words[g, k + 2] += ((rest >> 32) ^ sign) - sign
    return True


@kernel(
    [
        f"boolean({FLOATS}, boolean, int64, int64, int64, int64, float64[::1], float64[:,::1])",
        f"boolean({INTS}, boolean, int64, int64, int64, int64, int64[::1], float64[:,::1])",
    ]
)
def measure(values, whole, first, last, top, steep, bounds, found):
    """See `measure_runs`, of one run with values."""
    edges(values, first, last, bounds)
    exact = True
    if whole:
        low = high = np.int64(0)
        for i in range(first, last):
            low += np.int64(values[i]) & LOW
            high += np.int64(values[i]) >> 32
        found[0, 0], found[0, 1] = low, high
    else:
        exact = bins(values, False, first, last, top, found[0])
    if found.shape[0] > 1:
        exact &= bins(values, True, first, last, steep, found[1])
    return exact


@kernel(
    [
        f"boolean({INTS}, {IDS}, {FLOATS}, boolean, int64, int64, float64[:,::1], float64[:,:,::1])",
        f"boolean({INTS}, {IDS}, {INTS}, boolean, int64, int64, int64[:,::1], float64[:,:,::1])",
    ]
)
def measure_runs(starts, order, values, whole, top, steep, bounds, found):
    """Measure runs of up to `SLICE` values: values[starts[r]:starts[r + 1]] or, if there is an `order`, those at the
    places in it. All passes over a run find it in the processor's cache.

    bounds[r]: the least and greatest of a run with values. found[r, 0]: the bins of the sum of its values, which are
    below 2^top, or, if they are `whole`, the sums of their lower and upper 32 bits. found[r, 1], if there is room: the
    bins of their squares, below 2^steep. Everything is exact if it returns True.
    """
    wide = 0
    for r in range(starts.size - 1):
        wide = max(wide, starts[r + 1] - starts[r])
    near = np.empty(wide if order.size > 0 else 0, values.dtype)
    exact = True
    for r in range(starts.size - 1):
        first, last = starts[r], starts[r + 1]
        if first == last:
            continue
        if order.size > 0:
            for i in range(first, last):
                near[i - first] = values[np.uint32(order[i])]
            exact &= measure(near, whole, 0, last - first, top, steep, bounds[r], found[r])
        else:
            exact &= measure(values, whole, first, last, top, steep, bounds[r], found[r])
    return exact


@kernel(
    [
        f"void({IDS}, {INTS}, int64[:,::1], int64[::1], int64[::1], int64[::1])",
        f"void({IDS}, {INTS}, float64[:,::1], int64[::1], float64[::1], float64[::1])",
    ]
)
def enter_bounds(groups, starts, bounds, count, least, greatest):
    """Add the numbers of values of runs and their bounds to groups[r]."""
    for r in range(groups.size):
        if starts[r] < starts[r + 1]:
            g = np.uint32(groups[r])
            count[g] += starts[r + 1] - starts[r]
            least[g] = min(least[g], bounds[r, 0])
            greatest[g] = max(greatest[g], bounds[r, 1])


@kernel(f"void({IDS}, float64[:,:,::1], int64[:,::1])")
def enter_digits(groups, found, words):
    """Add the sums of integers in found[r, 0] to groups[r]."""
    for r in range(groups.size):
        g = np.uint32(groups[r])
        words[g, 0] += np.int64(found[r, 0, 0])
        words[g, 1] += np.int64(found[r, 0, 1])


@kernel(f"int64({IDS}, float64[:,:,::1], int64, int64, int64[:,::1], int64)")
def enter_runs(groups, found, which, at, words, low):
    """Add the bins in found[r, which] to groups[r], from `at` on. Returns the first that needs other digits."""
    for r in range(at, groups.size):
        if not enter_bins(found[r, which], words, low, groups[r], False):
            return r
        enter_bins(found[r, which], words, low, groups[r], True)
    return groups.size


@kernel("UniTuple(int64, 2)(float64[:,:,::1], int64)")
def reach(found, which):
    """The exponent of the last bit that a bin in found[:, which] has, and the greatest of any; 1 and 0 if all are 0."""
    least, most = np.int64(BEYOND), np.int64(0)
    for r in range(found.shape[0]):
        for k in range(found.shape[2]):
            bits = np.float64(found[r, which, k]).view(np.int64)
            e = (bits >> 52) & BEYOND
            m = bits & MANTISSA
            if e != 0:
                m |= HIDDEN
            else:
                e = np.int64(1)
            if m != 0:
                most = max(most, e)
                while m & 1 == 0:
                    m >>= 1
                    e += 1
                least = min(least, e)
    if most == 0:
        return np.int64(1), np.int64(0)
    return least, most


@kernel([f"void({FLOATS}, boolean, float64[::1])", f"void({INTS}, boolean, float64[::1])"])
def magnitudes(values, squared, found):
    """The least and the greatest magnitude of values, or of their squares, that is neither 0 nor infinite nor NaN."""
    least, most = np.inf, 0.0
    for i in range(values.size):
        x = abs(np.float64(values[i]))
        if squared:
            x *= x
        if 0.0 < x < np.inf:
            least, most = min(least, x), max(most, x)
    found[0], found[1] = least, most


@kernel("void(int64[:,::1])")
def carry(words):
    """Bring all digits but the last to 0 to 2^32 - 1."""
    for g in range(words.shape[0]):
        for k in range(words.shape[1] - 1):
            words[g, k + 1] += words[g, k] >> 32
            words[g, k] &= LOW


@kernel(
    [
        f"void({IDS}, {INTS}, {INTS}, {INTS}, int64[::1], int64[::1], int64[::1])",
        f"void({IDS}, {INTS}, {FLOATS}, {FLOATS}, int64[::1], float64[::1], float64[::1])",
    ]
)
def merge_bounds(into, counts, lower, upper, count, least, greatest):
    """Add group r, with counts[r] values from lower[r] to upper[r], to group into[r]."""
    for r in range(into.size):
        g = np.uint32(into[r])
        count[g] += counts[r]
        least[g] = min(least[g], lower[r])
        greatest[g] = max(greatest[g], upper[r])


@kernel(f"void({IDS}, int64[:,::1], int64, int64, int64[:,::1])")
def merge(into, other, offset, sign, words):
    """Add row r of `other`, times the sign, to row into[r], from digit `offset` on."""
    for r in range(into.size):
        g = np.uint32(into[r])
        for k in range(other.shape[1]):
            words[g, offset + k] += sign * other[r, k]


@kernel("void(int64[:,::1], int64, float64[::1])")
def rounded(words, scale, out):
    """Sums as the nearest doubles, to even; infinite beyond. Digits are carried; the first counts 2^scale."""
    wide = words.shape[1]
    digits = np.zeros(wide + 1, np.int64)
    for g in range(words.shape[0]):
        sign = np.int64(-1) if words[g, wide - 1] < 0 else np.int64(1)
        rest = np.int64(0)
        for k in range(wide):  # the magnitude; the last digit may fill two
            rest += sign * words[g, k]
            digits[k] = rest & LOW
            rest >>= 32
        digits[wide] = rest
        top = wide
        while top >= 0 and digits[top] == 0:
            top -= 1
        if top < 0:
            out[g] = 0.0
            continue
        high = 32 * top
        while digits[top] >> (high - 32 * top) != 0:
            high += 1  # bits of the whole number
        least = max(high - 53, -1074 - scale, 0)  # the last bit that the double has
        m = np.int64(0)
        for k in range(top, -1, -1):
            if 32 * k >= least:
                m = (m << 32) | digits[k]
            elif 32 * k + 32 > least:
                m = (m << (32 * k + 32 - least)) | (digits[k] >> (least - 32 * k))
        if least > 0:
            k, bit = (least - 1) >> 5, (least - 1) & 31
            more = m & 1 == 1 or digits[k] & ((np.int64(1) << bit) - 1) != 0
            for j in range(k):
                more |= digits[j] != 0
            if more and (digits[k] >> bit) & 1 == 1:
                m += 1
        power = least + scale
        value = np.inf if power > 971 or (power == 971 and m == 1 << 53) else math.ldexp(np.float64(m), power)
        out[g] = sign * value
