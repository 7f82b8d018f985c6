"""shuffled.py - a model of random weights with a real vocabulary: the demo's file with the blocks of its Q8_0 matrices shuffled. What
it says has nothing to do with its training. Only the standard library.

    shuffled.make("tests/x.gguf", "y.gguf", seed)
"""
import random
import struct

BLOCK = {8: (32, 34)}  # Q8_0: weights, bytes
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 4

    def take(self, form):
        v = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return v[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, n = self.take("I"), self.take("Q")
            for _ in range(n):
                self.value(of)
            return None
        self.at += SIZES[kind]
        return struct.unpack_from("<I", self.data, self.at - 4)[0] if SIZES[kind] == 4 else None


def make(source, target, seed):
    with open(source, "rb") as f:
        data = bytearray(f.read())
    r = Reader(data)
    assert data[:4] == b"GGUF" and r.take("I") == 3
    tensors, pairs, align, chosen = r.take("Q"), r.take("Q"), 32, []
    for _ in range(pairs):
        key, kind = r.string(), r.take("I")
        value = r.value(kind)
        align = value if key == "general.alignment" else align
    for _ in range(tensors):
        r.string()
        n = 1
        for _ in range(r.take("I")):
            n *= r.take("Q")
        kind, offset = r.take("I"), r.take("Q")
        if kind in BLOCK:
            chosen.append((offset, n // BLOCK[kind][0], BLOCK[kind][1]))
    assert chosen
    start = (r.at + align - 1) // align * align
    rng = random.Random(seed)
    for offset, n, size in chosen:
        at = start + offset
        blocks = [data[at + i * size:at + (i + 1) * size] for i in range(n)]
        rng.shuffle(blocks)
        data[at:at + n * size] = b"".join(blocks)
    with open(target, "wb") as f:
        f.write(data)
