# Writes a source that holds a file: cmake -DFILE=page.html -DOUT=page_source.cc -P embed.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT}.new "#include \"serve/page/page.h\"

namespace tarn::serve {
namespace {

constexpr unsigned char kPage[] = {
${bytes}};

}  // namespace

std::string_view PageSource() {
  return {reinterpret_cast<const char*>(kPage), sizeof(kPage)};
}

}  // namespace tarn::serve
")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
