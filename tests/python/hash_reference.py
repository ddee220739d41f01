"""Random numbers and hashes by definition, in plain Python: Philox4x32-10 (Salmon
et al. 2011), the draws of core/rng.h, and k-means in Hamming space."""

import math

import torch

MASK32 = 0xFFFFFFFF
PLANES, OFFSETS, STARTS, EMPTY, ROUNDS = range(5)  # streams of one hash_seed


def philox(seed, stream, counter):
    x = [counter & MASK32, counter >> 32, stream & MASK32, stream >> 32]
    k0, k1 = seed & MASK32, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(p1 >> 32) ^ x[1] ^ k0, p1 & MASK32, (p0 >> 32) ^ x[3] ^ k1, p0 & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return x[0] | x[1] << 32, x[2] | x[3] << 32


class Rng:
    def __init__(self, seed, stream, counter=0):
        self.seed, self.stream, self.counter = seed & (2**64 - 1), stream, counter

    def words(self):
        self.counter += 1
        return philox(self.seed, self.stream, self.counter - 1)

    def normal(self):
        a, b = self.words()
        radius, angle = ((a >> 11) + 1) / 2**53, (b >> 11) / 2**53
        return math.sqrt(-2 * math.log(radius)) * math.cos(2 * math.pi * angle)

    def below(self, bound):
        while True:
            product = self.words()[0] * bound
            if product % 2**64 >= (2**64 - bound) % bound:
                return product >> 64


def gaussian(d_key, bits, seed, stream):
    """[bits, d_key] float64."""
    rng = Rng(seed, stream)
    rows = [[rng.normal() for _ in range(d_key)] for _ in range(bits)]
    return torch.tensor(rows, dtype=torch.float64)


def clusters_of(queries, clusters, iterations=10, bits=63, hash_bias=True, hash_seed=0):
    """The cluster of each query [n, K] of one sequence and head, a list."""
    planes = gaussian(queries.shape[1], bits, hash_seed, PLANES)
    rng = Rng(hash_seed, OFFSETS)
    offsets = [rng.normal() if hash_bias else 0.0 for _ in range(bits)]
    products = (queries.double() @ planes.t()).tolist()
    hashes = [[x > c for x, c in zip(row, offsets)] for row in products]
    n = len(hashes)
    count = min(clusters, n)
    positions, rng = list(range(n)), Rng(hash_seed, STARTS)
    centres = []
    for c in range(count):
        other = c + rng.below(n - c)
        positions[c], positions[other] = positions[other], positions[c]
        centres.append(hashes[positions[c]])

    def assign():
        out = []
        for code in hashes:
            distances = [sum(a != b for a, b in zip(code, c)) for c in centres]
            out.append(distances.index(min(distances)))
        return out

    for turn in range(iterations - 1):
        assignment = assign()
        for c in range(count):
            members = [code for code, a in zip(hashes, assignment) if a == c]
            if members:
                totals = [sum(bit) for bit in zip(*members)]
                centres[c] = [2 * total > len(members) for total in totals]
            else:
                word = Rng(hash_seed, EMPTY, turn * clusters + c).words()[0] >> (64 - bits)
                centres[c] = [bool(word >> b & 1) for b in range(bits)]
    return assign() if n else []


def buckets_of(queries, bits, turn, hash_seed=0):
    """The bucket of each query [n, K] in a round of the reformer, a list."""
    directions = gaussian(queries.shape[1], bits, hash_seed, ROUNDS + turn)
    products = queries.double() @ directions.t()
    both = torch.cat([products, -products], dim=1)
    return [row.index(max(row)) for row in both.tolist()]
