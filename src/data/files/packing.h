// Packed bytes for the tests of what reads them.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <string>

namespace tarn {

/// One gzip part.
inline std::string Gzipped(const std::string& bytes) {
  z_stream stream = {};
  // 16: with gzip's header and trailer.
  if (deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    std::abort();
  }
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// One zstd frame with a checksum.
inline std::string Zstandard(const std::string& bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress2(context, packed.data(), packed.size(),
                                     bytes.data(), bytes.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size)) std::abort();
  packed.resize(size);
  return packed;
}

}  // namespace tarn
