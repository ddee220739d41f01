#include "kernels/hash/hash_ref.h"

#include <utility>

#include "core/rng.h"

namespace tarn {
namespace {

using Code = std::vector<bool>;

Rows Directions(size_t d_key, int64_t bits, int64_t hash_seed,
                uint64_t stream) {
  Rng rng(static_cast<uint64_t>(hash_seed), stream);
  Rows directions(bits, std::vector<double>(d_key));
  for (auto& direction : directions) {
    for (double& x : direction) x = rng.Normal();
  }
  return directions;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
  return sum;
}

int Distance(const Code& a, const Code& b) {
  int distance = 0;
  for (size_t i = 0; i < a.size(); ++i) distance += a[i] != b[i];
  return distance;
}

std::vector<int64_t> Nearest(const std::vector<Code>& codes,
                             const std::vector<Code>& centres) {
  std::vector<int64_t> nearest;
  for (const Code& code : codes) {
    size_t best = 0;
    for (size_t c = 1; c < centres.size(); ++c) {
      if (Distance(code, centres[c]) < Distance(code, centres[best])) best = c;
    }
    nearest.push_back(static_cast<int64_t>(best));
  }
  return nearest;
}

Code RandomCode(const ClusterOptions& options, int64_t turn, size_t c) {
  Rng rng(static_cast<uint64_t>(options.hash_seed), kHashEmptyClusters,
          static_cast<uint64_t>(turn * options.clusters) + c);
  const uint64_t word = rng.Next() >> (64 - options.bits);
  Code code;
  for (int64_t b = 0; b < options.bits; ++b) code.push_back(word >> b & 1);
  return code;
}

// The bits that more than half of the members have.
Code Majority(const std::vector<Code>& members, int64_t bits) {
  Code code;
  for (int64_t b = 0; b < bits; ++b) {
    size_t set = 0;
    for (const Code& member : members) set += member[b];
    code.push_back(2 * set > members.size());
  }
  return code;
}

}  // namespace

std::vector<int64_t> ReferenceClusters(const Rows& queries,
                                       const ClusterOptions& options) {
  if (queries.empty()) return {};
  const Rows planes = Directions(queries[0].size(), options.bits,
                                 options.hash_seed, kHashPlanes);
  Rng offsets(static_cast<uint64_t>(options.hash_seed), kHashOffsets);
  std::vector<Code> codes(queries.size());
  for (const auto& plane : planes) {
    const double offset = options.hash_bias ? offsets.Normal() : 0.0;
    for (size_t i = 0; i < queries.size(); ++i) {
      codes[i].push_back(Dot(queries[i], plane) > offset);
    }
  }
  std::vector<Code> shuffled = codes, centres;
  Rng starts(static_cast<uint64_t>(options.hash_seed), kHashStarts);
  for (size_t c = 0;
       c < codes.size() && c < static_cast<size_t>(options.clusters); ++c) {
    std::swap(shuffled[c], shuffled[c + starts.Below(codes.size() - c)]);
    centres.push_back(shuffled[c]);
  }
  for (int64_t turn = 0; turn + 1 < options.iterations; ++turn) {
    const std::vector<int64_t> cluster = Nearest(codes, centres);
    for (size_t c = 0; c < centres.size(); ++c) {
      std::vector<Code> members;
      for (size_t i = 0; i < codes.size(); ++i) {
        if (cluster[i] == static_cast<int64_t>(c)) members.push_back(codes[i]);
      }
      centres[c] = members.empty() ? RandomCode(options, turn, c)
                                   : Majority(members, options.bits);
    }
  }
  return Nearest(codes, centres);
}

std::vector<int32_t> ReferenceBuckets(const Rows& queries, int64_t bits,
                                      int64_t round, int64_t hash_seed) {
  std::vector<int32_t> buckets;
  if (queries.empty()) return buckets;
  const Rows directions =
      Directions(queries[0].size(), bits, hash_seed,
                 kHashRounds + static_cast<uint64_t>(round));
  for (const auto& query : queries) {
    std::vector<double> both;
    for (const auto& direction : directions)
      both.push_back(Dot(query, direction));
    for (int64_t b = 0; b < bits; ++b) both.push_back(-both[b]);
    size_t best = 0;
    for (size_t b = 1; b < both.size(); ++b) {
      if (both[b] > both[best]) best = b;
    }
    buckets.push_back(static_cast<int32_t>(best));
  }
  return buckets;
}

}  // namespace tarn
