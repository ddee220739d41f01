"""The parts that need no generator: the reader of the two public headers, and what
the front-matter documents say about versions."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/docs"))
import c_headers  # noqa: E402

C = (ROOT / "include/tarn/tarn.h").read_text()
CPP = (ROOT / "include/tarn/tarn.hpp").read_text()


def flat(text):
    return " ".join(text.split())


def code_of(page):
    return flat(" ".join(re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)))


def test_every_declaration_of_tarn_h_appears_once():
    page = code_of(c_headers.c_page(C))
    functions = re.findall(r"^TARN_API [^;]*;", C, re.MULTILINE)
    assert len(functions) > 30
    for function in functions:
        assert page.count(flat(function)) == 1, function
    body = C.split('extern "C" {')[1].split("#ifdef __cplusplus")[0]
    for name in re.findall(r"\bTARN_(?!API)\w+", body):
        assert name in page or f"`{name}`" in c_headers.c_page(C), name


def test_every_comment_of_tarn_h_is_there():
    """Compares the words of all comments, in order, without marks and escapes."""
    page = re.sub(r"[`\\]", "", c_headers.c_page(C))
    body = C.split('extern "C" {')[1].split("#ifdef __cplusplus")[0]
    comments = re.findall(r"^/\*.*?\*/", body, re.DOTALL | re.MULTILINE)
    assert len(comments) > 30
    for comment in comments:
        if not comment.startswith("/* ---"):
            words = re.sub(r"[`\\]", "", c_headers.plain(comment))
            assert flat(words) in flat(page), comment


def test_a_comment_belongs_to_what_follows():
    page = c_headers.c_page(C)
    step = page.split("### tarn_step\n")[1].split("\n### ")[0]
    assert "TARN_API tarn_status tarn_step(" in step
    assert step.rstrip().endswith("Consumes one token. Constant time and memory for linear models.")


@pytest.mark.parametrize("name", ["Error", "Model", "State"])
def test_public_members_of_classes_are_there(name):
    page = c_headers.cpp_page(CPP).split(f"\n## {name}\n")[1].split("\n## ")[0]
    body = CPP.split(f"class {name} ")[1].split("\n private:")[0]
    methods = set(re.findall(r"^  (?:[\w:<>&*\[\]]+ )*(\w+)\(", body, re.MULTILINE))
    assert methods, name
    for method in methods:
        assert f"{method}(" in code_of(page), method
    assert "_ = " not in page and "internal::" not in page and "return " not in page


def test_declarations_of_cpp_are_whole():
    page = code_of(c_headers.cpp_page(CPP))
    for wanted in (
        "static Model Open(const std::string& path, const ModelOptions& options = {});",
        "std::int32_t Sample(const SamplerOptions& options = {}) const;",
        "Error(tarn_status code, const char* message);",
        "State(State&& other) noexcept;",
        "bool operator==(const State& other) const;",
        "struct SamplerOptions { double temperature = 0.8;",
    ):
        assert wanted in page, wanted
    assert "Check(" not in page  # namespace internal


def test_one_version_everywhere():
    version = re.search(r"project\(tarn VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert f'"{version}"' in (ROOT / "python/tarn/__init__.py").read_text()
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    major_minor = ".".join(version.split(".")[:2])
    assert f"| {major_minor} |" in (ROOT / "SECURITY.md").read_text()


def test_soname_is_as_told():
    text = (ROOT / "src/capi/CMakeLists.txt").read_text()
    assert "SOVERSION ${PROJECT_VERSION_MAJOR}" in text
    assert "libtarn.so.0" in (ROOT / "docs/versioning.md").read_text()
