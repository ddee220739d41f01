"""Small templates, each about one filter, test, method, operator or error."""

# Evaluated over CONTEXT. What transformers writes, or that it raises, is the golden.
CONTEXT = {
    "n": 5,
    "half": 0.5,
    "yes": True,
    "nil": None,
    "text": "Hello, World",
    "spaced": "  a  b\t\n c ",
    "wide": "Grüße 日本 \U0001f600",
    "list": [3, 1, 2],
    "rows": [{"k": "b", "v": 1}, {"k": "A", "v": 2}, {"k": "b", "v": 3}],
    "map": {"z": 1, "a": {"items": [1]}, "keys": "own", "get": "g"},
    "empty": {"l": [], "d": {}, "s": ""},
}

_VALUES = ["n", "half", "yes", "nil", "text", "list", "map", "nothing", "empty.l", "(1, 'a')"]
_FILTERS = (
    "abs batch(2) capitalize center(9) count d default('x') dictsort e escape first float "
    "forceescape indent int items join join('-') last length list lower map('string') max min "
    "reject reject('odd') reverse round safe select select('string') slice(2) sort string sum "
    "title tojson trim truncate(5,leeway=0) unique upper urlencode wordcount "
    "attr('upper') rejectattr('k') selectattr('k')"
).split()
_TESTS = (
    "boolean callable defined escaped even false float integer iterable lower mapping none "
    "number odd sequence string true undefined upper filter test divisibleby(2) eq(5) ne(5) "
    "lt(5) le(5) gt(1) ge(1) in([5,'x']) sameas(none) equalto('x')"
).split()
_OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in"]
_OPERATORS += ["not in", "and", "or"]

_SINGLE = [
    # methods of text
    "{{ text.split(', ') }}", "{{ text.split('l', 1) }}", "{{ text.split('') }}",
    "{{ spaced.split() }}", "{{ spaced.split(None, 0) }}", "{{ spaced.rsplit(maxsplit=1) }}",
    "{{ spaced.split(sep=' ', maxsplit=3) }}", "{{ 'a,b,c'.rsplit(',', 1) }}",
    "{{ text.strip('Hd') }}", "{{ spaced.strip() }}", "{{ spaced.lstrip() ~ '|' }}",
    "{{ spaced.rstrip() ~ '|' }}", "{{ text.strip(5) }}", "{{ text.find('o', 5) }}",
    "{{ text.index('zz') }}", "{{ text.rindex('o') }}", "{{ text.count('l', 3) }}",
    "{{ text.startswith(('x', 'He')) }}", "{{ text.startswith('e', 1) }}",
    "{{ text.endswith('World', 0, 5) }}", "{{ text.startswith(1) }}",
    "{{ text.replace('l', 'L', 2) }}", "{{ text.replace('l') }}", "{{ text.replace('l', 1) }}",
    "{{ '-'.join(['a', 'b']) }}", "{{ '-'.join([1]) }}", "{{ '-'.join('abc') }}",
    "{{ text.join(5) }}", "{{ text.partition('zz') }}", "{{ text.rpartition('zz') }}",
    "{{ text.encode is callable }}", "{{ text.nothing }}", "{{ text.nothing() }}",
    "{{ text.upper }}", "{{ wide.upper() }}", "{{ wide.center(14, '日') }}", "{{ wide[1:7:2] }}",
    "{{ wide | length }}", "{{ wide.find('日') }}", "{{ text.zfill(20) }}", "{{ text.ljust('x') }}",
    "{{ 'a\\tb'.expandtabs is defined }}", "{{ 'aB'.swapcase() }}", "{{ text.isidentifier() }}",
    "{{ ''.isprintable() }}{{ ''.isspace() }}{{ '1'.isdecimal() }}{{ 'Ⅷ'.isnumeric() }}",
    "{{ 'x'.removeprefix('x') ~ '|' }}", "{{ text.splitlines(5) }}", "{{ 'a\\x1cb'.splitlines() }}",
    "{{ text.title(1) }}", "{{ text.__class__ }}", "{{ text.__class__.__mro__ }}", "{{ ''['__class__'] }}",
    # items, attributes and slices
    "{{ list[0] }}{{ list[-1] }}{{ list[9] }}", "{{ list['x'] }}", "{{ list.0 }}", "{{ list[1.0] }}",
    "{{ list[true] }}", "{{ list[::-1] }}", "{{ list[::0] }}", "{{ list['a':] }}", "{{ list[-9:9] }}",
    "{{ list[:n] }}", "{{ map.z }}{{ map['z'] }}", "{{ map.keys }}", "{{ map['keys'] }}",
    "{{ map.get('z') }}", "{{ map.get('q', 7) }}", "{{ map.get() }}", "{{ map.get([]) }}",
    "{{ map[[]] }}", "{{ map.a['items'] }}", "{{ map.a.items() | list }}", "{{ map.update({}) }}",
    "{{ map.pop is defined }}", "{{ map.pop('z') }}", "{{ list.append }}|", "{{ list.append(1) }}",
    "{{ list.append is defined }}", "{{ list.sort() }}", "{{ nothing.x }}", "{{ nothing['x'] }}",
    "{{ n.x }}|", "{{ n.x.y }}", "{{ nil.x }}|", "{{ nil['x'] }}|", "{{ nil[0] }}|", "{{ n() }}",
    "{{ nothing() }}", "{{ text[0:2, 3] }}", "{{ map[1:2] }}|", "{{ n[1:2] }}|", "{{ range(3)[1] }}",
    "{{ (1, 2)[0] }}", "{{ [1, 2, 3][n - 4:] }}", "{{ map['a', 'b'] }}|", "{{ empty.s[0] }}|",
    # literals
    "{{ [] }}{{ {} }}{{ () }}{{ (1,) }}{{ [1,] }}{{ {'a': 1,} }}", "{{ 1_0 }}", "{{ 1. }}", "{{ .5 }}",
    "{{ 1e5 }}{{ 1E-7 }}{{ 1.5e300 }}", "{{ 00 }}", "{{ 01 }}", "{{ 0xff }}{{ 0b1 }}{{ 0O7 }}",
    "{{ 'a' 'b' }}", "{{ 'a\\nb' }}", "{{ '\\x4a' }}", "{{ '\\xZZ' }}", "{{ '\\u00e9\\U0001F600' }}",
    "{{ '\\'' }}", "{{ True }}{{ false }}{{ None }}{{ none }}", "{{ (1 }}", "{{ [1 }}", "{{ 1 2 }}",
    "{{ }}", "{{ 'x }}", "{{ $ }}", "{{ a..b }}", "{{ {'a'} }}", "{{ {[]: 1} }}", "{{ {(1,): 2} }}",
    "{{ 9223372036854775807 }}", "{{ 1 if }}", "{{ is }}", "{{ not }}", "{{ 1 is }}", "{{ x | }}",
    # operators
    "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ 2 ** 3 ** 2 }}", "{{ -2 ** 2 }}", "{{ (-2) ** 2 }}", "{{ 7 % -3 }}",
    "{{ -7 // 2 }}{{ 7 // -2 }}{{ -7 % 2 }}", "{{ 7.5 // 2 }}{{ -7.5 // 2 }}{{ 7.5 % -2 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 4 ** 0.5 }}",
    "{{ 'ab' * 2 }}{{ 2 * 'ab' }}{{ 'ab' * -1 }}{{ [1] * 2 }}{{ (1,) * 2 }}", "{{ 'a' * 1.5 }}",
    "{{ 1 ~ 2 ~ none ~ [1] ~ nothing }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}",
    "{{ -text }}", "{{ +text }}", "{{ -yes }}{{ +yes }}", "{{ - - 1 }}", "{{ not 1 == 2 }}",
    "{{ 1 < 2 == true }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1, 'a'] < [1, 2] }}",
    "{{ [1, 2] < [1, 2, 0] }}", "{{ 'a' in 'cat' }}{{ 'x' not in 'cat' }}", "{{ 1 in 'cat' }}",
    "{{ 1 in 5 }}", "{{ 'a' in none }}", "{{ [] in map }}", "{{ 1 in [1.0] }}{{ true in [1] }}",
    "{{ 1 == true }}{{ 0 == false }}{{ '1' == 1 }}{{ [1] == (1,) }}{{ none == false }}",
    "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}", "{{ 1 if yes else 2 if nil else 3 }}",
    "{{ (1 if nil) is defined }}", "{{ 1 if nil }}|", "{{ true and none }}{{ '' or 0 }}",
    "{{ 2 > 1 and 1 > 0 or 1 / 0 }}", "{{ 1 is odd and 2 is even }}", "{{ 1 is odd is even }}",
    "{{ 5 is not odd }}", "{{ not 5 is odd }}", "{{ n is eq 5 }}", "{{ 'a' is in 'cat' }}",
    "{{ 'a' is in ['a'] and true }}", "{{ n is divisibleby 5 }}", "{{ 1 is nope }}",
    "{{ -1 | abs }}", "{{ 1 + -1 | abs }}", "{{ 'a' + 'b' | upper }}", "{{ text|upper|lower|length }}",
    "{{ text.upper()|lower }}", "{{ (text ~ 'x')|length }}", "{{ 1 | nope }}",
    "{% if nil %}{{ 1 | nope }}{% endif %}ok", "{{ 1 | nope if nil else 2 }}",
    "{% if yes %}{{ 1 | nope }}{% endif %}", "{% for i in [] %}{{ 1 | nope }}{% endfor %}",
    "{% if nil %}{% for i in [] %}{{ 1 | nope }}{% endfor %}{% endif %}",
    # filters with arguments
    "{{ nothing | default }}|", "{{ nil | default('d', true) }}", "{{ list | join(', ') }}",
    "{{ rows | join('-', attribute='k') }}", "{{ rows | map(attribute='v') | sum }}",
    "{{ rows | sum(attribute='v', start=10) }}", "{{ rows | sort(attribute='k') | map(attribute='v') | list }}",
    "{{ rows | sort(attribute='k,v', reverse=true) | map(attribute='v') | list }}",
    "{{ rows | sort(attribute='k', case_sensitive=true) | map(attribute='v') | list }}",
    "{{ rows | unique(attribute='k') | map(attribute='v') | list }}", "{{ rows | max(attribute='v') }}",
    "{{ rows | min(attribute='k') }}", "{{ rows | selectattr('v', 'gt', 1) | list | length }}",
    "{{ rows | selectattr('q', 'undefined') | list | length }}", "{{ rows | selectattr | list }}",
    "{{ rows | rejectattr('k', 'equalto', 'b') | list }}", "{{ rows | map('attr', 'k') | list }}",
    "{{ rows | map(attribute='q', default='?') | list }}", "{{ rows | map | list }}",
    "{{ rows | map('nope') | list }}", "{{ list | select('nope') | list }}", "{{ list | select('gt', 1) | list }}",
    "{{ ['a', 1] | sort }}", "{{ [none, none] | sort }}", "{{ {'a': none, 'b': none} | dictsort(by='value') }}",
    "{{ map | dictsort }}", "{{ map | dictsort(by='q') }}", "{{ list | batch(2, 0) | list }}",
    "{{ list | slice(2, 'x') | list }}", "{{ list | slice(0) | list }}", "{{ list | first }}{{ list | last }}",
    "{{ text | replace('l', 1) }}", "{{ 5 | replace(5, 6) }}", "{{ text | trim('Hd') }}", "{{ text | indent(2) }}",
    "{{ 'a\\nb\\n\\nc' | indent }}", "{{ 'a\\nb\\n\\nc\\n' | indent('> ', true, true) }}", "{{ '' | indent }}|",
    "{{ 5 | indent }}", "{{ text | truncate(5) }}", "{{ text | truncate(8, true) }}", "{{ text | truncate(2) }}",
    "{{ text | center(20) }}|", "{{ '%s %s' | format(1, 2) }}", "{{ '%s' | format(1, 2) }}",
    "{{ '%s %s' | format(1) }}", "{{ '%d' | format('x') }}", "{{ '%(a)s' | format(a=2) }}", "{{ '%q' | format(1) }}",
    "{{ '%5.2f|%-6d|%+d|% d|%05d|%e|%g|%x|%X|%o|%#x' | format(3.14159, 42, 7, 7, 42, 1e10, 1e-10, 255, 255, 8, 255) }}",
    "{{ '%i%%' | format(3.9) }}", "{{ '%s' % [1] }}", "{{ '%s' % {'a': 1} }}", "{{ 'x' % 1 }}", "{{ 'x' % [] }}",
    "{{ '%c' % 'a' }}", "{{ '%.2s' % 'abc' }}", "{{ '%' % 1 }}",
    "{{ 2.675 | round(2) }}{{ 2.5 | round }}{{ 3.5 | round }}{{ -2.5 | round }}", "{{ 1234.5 | round(-2) }}",
    "{{ 1234 | round(-2) }}", "{{ 2.4 | round(method='ceil') }}", "{{ 2.4 | round(method='up') }}",
    "{{ '12' | int + 1 }}", "{{ ' 1_000 ' | int }}", "{{ '1__0' | int }}", "{{ 'ff' | int(base=16) }}",
    "{{ '0b11' | int(base=0) }}", "{{ '1e3' | int }}", "{{ 'inf' | int }}", "{{ 'nan' | float }}", "{{ '1e400' | float }}",
    "{{ none | int }}", "{{ [] | int(5) }}", "{{ '-3.7' | int }}", "{{ '+5' | int }}", "{{ '' | int }}", "{{ '-' | float }}",
    "{{ list | tojson(indent=1) }}", "{{ map | tojson(sort_keys=true) }}", "{{ wide | tojson(ensure_ascii=true) }}",
    "{{ map | tojson(separators=(',', ':')) }}", "{{ nothing | tojson }}", "{{ range(2) | tojson }}",
    "{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}", "{{ {(1,): 2} | tojson }}", "{{ (1, 2) | tojson }}",
    "{{ map.items() | tojson }}", "{{ [1e400, 0.1, 1e-7] | tojson }}", "{{ '\\x00\\x7f\\u2028</script>' | tojson }}",
    "{{ 'a' | tojson(indent='--') }}{{ [1] | tojson(indent='--') }}", "{{ namespace(a=1) | tojson }}",
    "{{ '<a>' | safe + '<b>' }}", "{{ '<a>' | e ~ '<b>' }}", "{{ ('<' | safe) | upper }}", "{{ ['<' | safe] }}",
    "{{ 'a b-c (d' | title }}{{ \"it's\" | title }}{{ 'ß' | title }}", "{{ 'ßa' | capitalize }}{{ 'ǆa' | capitalize }}",
    "{{ text | list | reverse | join }}", "{{ list | reverse | list }}", "{{ list | reverse | length }}",
    "{{ list | map('string') | length }}", "{{ list | select is iterable }}",
    "{% set g = list | select %}{{ g | list }}{{ g | list }}", "{{ (list | select) and 1 }}", "{{ rows | items }}",
    "{{ 'a-b' | wordcount }}", "{{ text | attr('nope') }}|", "{{ map | attr('z') }}|", "{{ 'é/ ?' | urlencode }}",
    "{{ text | upper(1) }}", "{{ text | default(1, 2, 3) }}", "{{ text | replace }}", "{{ list | join(d='x') }}",
    "{{ list | first(1) }}", "{{ n | sort }}", "{{ n | length }}", "{{ n | list }}", "{{ n | join }}", "{{ text | sum }}",
    # functions
    "{{ range(3) }}{{ range(1, 3) }}{{ range(1, 9, 3) }}", "{{ range(0) | list }}", "{{ range() }}", "{{ range(1, 2, 0) }}",
    "{{ range('a') }}", "{{ range(1000000) | length }}", "{{ range(3, 0, -1) | list }}", "{{ dict() }}{{ dict(a=1) }}",
    "{{ dict([(1, 2)], b=3) }}", "{{ dict([1]) }}", "{{ dict(1, 2) }}", "{{ namespace(_a=1) }}",
    "{{ raise_exception('no') }}", "{{ raise_exception() }}", "{{ strftime_now('%Y') }}", "{{ strftime_now(1) }}",
    "{{ lipsum_unknown() }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set x.y = 1 %}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns['a'] }}{{ ns.b is defined }}",
    "{% set text = 'own' %}{{ text }}", "{% set range = 1 %}{{ range }}",
    # statements
    "{% for i in list %}{{ i }}{% endfor %}{{ i is defined }}", "{% for i in 5 %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}", "{% for a in map %}{{ a }}{% endfor %}", "{% for i in list if i > 1 %}{{ loop.index }}{{ i }}{{ loop.last }}{% else %}x{% endfor %}",
    "{% for i in list %}{% set n = i %}{% endfor %}{{ n }}", "{% for i in list %}{{ n }}{% set n = i %}{{ n }}{% endfor %}",
    "{% if yes %}{% set n = 1 %}{% endif %}{{ n }}", "{% for n in list %}{% endfor %}{{ n }}",
    "{% break %}", "{% for i in list %}{% break %}{{ i }}{% endfor %}", "{% if yes %}", "{% endif %}", "{% else %}", "{% nope %}",
    "{% for i in list %}{% endif %}", "{% set %}", "{% set a %}x", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% for none in list %}{% endfor %}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{{ n }}{% set n = 1 %}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}{{ m(b=1) }}", "{% macro m() %}{{ caller }}{% endmacro %}{{ m() }}|",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% macro m(a=n) %}{{ a }}{% endmacro %}{% set n = 9 %}{{ m() }}",
    "{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m }}",
    "{% call(x) [1] %}{% endcall %}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% filter nope %}a{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% set x | upper %}a{% endset %}{{ x }}", "{% with %}{% set q = 1 %}{% endwith %}{{ q is defined }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "{% if list: %}x{% endif %}", "{% if 1, %}t{% endif %}", "{{ 1, 2 }}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do 1 %}",
    "{# open", "{{ open", "{% open", "{% raw %}x", "{% raw %} {{ x }} {% endraw %}", "}} %} #}", "{", "{ {", "", "\n", "a\r\nb\rc\n\n",
    "{% for x in list %}{{ loop.index }}{{ loop.nope is defined }}{% endfor %}", "{{ loop is defined }}", "{{ loop.index }}",
    "{% for x in list %}{% for y in list %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in list %}{{ loop | length }}{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}", "{% for x in list %}{{ loop.cycle() }}{% endfor %}",
    "{{ varargs }}|{{ kwargs }}|{{ caller }}|", "{{ self is defined or true }}", "{% generation %}a{% endgeneration %}b", "{%- generation -%} a {%- endgeneration -%}",
]  # fmt: skip


def expressions() -> list[str]:
    """All of them, without repetition."""
    # urlencode of lists and objects is not supported.
    found = [
        f"{{{{ {value} | {name} }}}}"
        for name in _FILTERS
        for value in _VALUES
        if name != "urlencode" or value not in ("list", "map", "empty.l", "(1, 'a')")
    ]
    found += [f"{{{{ {value} is {name} }}}}" for name in _TESTS for value in _VALUES]
    for operator in _OPERATORS:
        found += [f"{{{{ {a} {operator} {b} }}}}" for a in _VALUES for b in _VALUES]
    found += _SINGLE
    return list(dict.fromkeys(found))
