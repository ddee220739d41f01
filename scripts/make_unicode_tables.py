#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc and nfc_tables.cc from Debian's package
unicode-data: scripts/make_unicode_tables.py [--data DIR] [--out DIR]

What the tokenizers ask of Unicode: letters, numbers, white space and word
characters for the splitter; canonical composition (NFC) for the normaliser.
"""
import argparse
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAST = 0x10FFFF
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic, not by table


def rows(path):
    """Fields of each line of a Unicode data file, comments dropped."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if line:
                yield [field.strip() for field in line.split(";")]


def code_points(field):
    first, _, last = field.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def with_property(path, *wanted):
    """Code points whose line carries these fields after the first."""
    found = set()
    for fields in rows(path):
        if tuple(fields[1:]) == wanted:
            found.update(code_points(fields[0]))
    return found


def read_unicode_data(path):
    """category, combining class and canonical mapping, by code point."""
    category, combining, mapping = {}, {}, {}
    first = None
    for fields in rows(path):
        point = int(fields[0], 16)
        if fields[1].endswith(", First>"):
            first = point
            continue
        span = range(point if first is None else first, point + 1)
        first = None
        for p in span:
            category[p] = fields[2]
            if fields[3] != "0":
                combining[p] = int(fields[3])
        if fields[5] and not fields[5].startswith("<"):
            mapping[point] = [int(part, 16) for part in fields[5].split()]
    return category, combining, mapping


def boundaries(value_of, bits):
    """start << bits | value wherever the value changes, from 0 on."""
    starts, last = [], None
    for point in range(LAST + 1):
        value = value_of(point)
        if value != last:
            starts.append(point << bits | value)
        last = value
    return starts


def character_classes(data, category):
    """0 other, 1 letter, 2 number, 3 white space; 4 is added for \\w."""
    space = with_property(data / "PropList.txt", "White_Space")
    word = with_property(data / "DerivedCoreProperties.txt", "Alphabetic")
    word |= with_property(data / "PropList.txt", "Join_Control")

    def value(point):
        kind = category.get(point, "Cn")
        group = 3 if point in space else {"L": 1, "N": 2}.get(kind[0], 0)
        in_word = point in word or kind[0] == "M" or kind in ("Nd", "Pc")
        return group | (4 if in_word else 0)

    return boundaries(value, 3)


def decompositions(data, mapping):
    """(point, a, b) sorted by point, b = 0 for one character; and the order of
    those that compose, by (a, b)."""
    excluded = with_property(data / "DerivedNormalizationProps.txt",
                             "Full_Composition_Exclusion")
    table = []
    for point, parts in sorted(mapping.items()):
        assert point not in HANGUL and len(parts) <= 2
        # The runtime follows the first part only.
        assert len(parts) == 1 or parts[1] not in mapping
        table.append((point, parts[0], parts[1] if len(parts) == 2 else 0))
    order = [i for i, (point, _, b) in enumerate(table)
             if b and point not in excluded]
    order.sort(key=lambda i: table[i][1:])
    return table, order


def array(kind, name, values, per_line):
    lines = [", ".join(values[i:i + per_line]) + ","
             for i in range(0, len(values), per_line)]
    return (f"constexpr {kind} {name}Data[] = {{\n" + "\n".join(lines)
            + "\n};\n",
            f"constinit const std::span<const {kind}> {name}({name}Data);\n")


def write(path, version, arrays):
    path.write_text(
        "// Written by scripts/make_unicode_tables.py from Debian's package\n"
        f"// unicode-data, Unicode {version}. Facts taken from data files "
        "(c) Unicode, Inc.,\n"
        "// used under the Unicode licence, "
        "https://www.unicode.org/license.txt\n"
        "// clang-format off\n"
        '#include "text/unicode_tables.h"\n\n'
        "namespace tarn {\nnamespace {\n\n"
        + "\n".join(data for data, _ in arrays)
        + "\n}  // namespace\n\n"
        + "".join(span for _, span in arrays)
        + "\n}  // namespace tarn\n", encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path,
                        default=pathlib.Path("/usr/share/unicode"))
    parser.add_argument("--out", type=pathlib.Path,
                        default=ROOT / "src/runtime")
    args = parser.parse_args()
    data = args.data
    category, combining, mapping = read_unicode_data(data / "UnicodeData.txt")
    props = data / "DerivedNormalizationProps.txt"
    unsafe = with_property(props, "NFC_QC", "N")
    unsafe |= with_property(props, "NFC_QC", "M") | set(combining)
    table, order = decompositions(data, mapping)
    head = (data / "PropList.txt").read_text(encoding="utf-8").split("\n")[0]
    version = re.search(r"-([0-9.]+)\.txt", head).group(1)

    def hexes(values):
        return [f"0x{value:X}" for value in values]

    write(args.out / "unicode_tables.cc", version, [
        array("uint32_t", "kCharacterClasses",
              hexes(character_classes(data, category)), 7)])
    write(args.out / "nfc_tables.cc", version, [
        array("uint32_t", "kCombiningClasses",
              hexes(boundaries(lambda p: combining.get(p, 0), 8)), 7),
        array("uint32_t", "kNfcUnsafe",
              hexes(boundaries(lambda p: int(p in unsafe), 1)), 8),
        array("uint64_t", "kDecompositions",
              hexes(p << 42 | a << 21 | b for p, a, b in table), 4),
        array("uint16_t", "kCompositionOrder", [str(i) for i in order], 13)])


if __name__ == "__main__":
    main()
