"""Updates of HyperLogLog registers, on hashes."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel("void(uint64[::1], int64, uint8[::1])")
def raise_registers(hashes, lg_k, registers):
    """The low `lg_k` bits of a hash select a register; it retains the greatest rank, 1 + zeros that end the rest."""
    mask = np.uint64((1 << lg_k) - 1)
    stop = np.uint64(1) << np.uint64(64 - lg_k - 1)
    for i in range(hashes.size):
        at = np.int64(hashes[i] & mask)
        rest = (hashes[i] >> np.uint64(lg_k)) | stop
        rank = 1
        while rest & np.uint64(1) == np.uint64(0):
            rest >>= np.uint64(1)
            rank += 1
        if rank > registers[at]:
            registers[at] = rank
