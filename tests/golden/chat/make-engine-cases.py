#!/usr/bin/env python3
"""Writes engine.jsonl: small templates with the results of Jinja2, configured as Transformers
configures it (text, or the error).  "refused" is the message with which kvik refuses a feature by name.
Needs jinja2 3.1.6: python3 make-engine-cases.py > engine.jsonl"""
import json
import re
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class TemplateNamespace(jinja2.utils.Namespace):
    pass


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


VARS = {
    "s": "  Hello, World  ", "t": "a,b,,c", "u": "naïve ÄÖß ǆ İstanbul 你好 😀", "e": "", "n": 7,
    "m": -3, "f": 2.5, "big": 123456789012345678, "tiny": 1.5e-7, "huge": 1e22, "yes": True,
    "no": False, "nil": None, "l": [3, 1, 2], "w": ["pear", "Apple", "fig", "apple"], "nest": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": [1, "x"], "items": "own", "k y": {"z": None}}, "q": "it's \"q\" \\ \n\t\x07",
    "html": "<b>&'\"</b>", "lines": "one\ntwo\r\n\nfour", "users": [
        {"name": "Bo", "age": 30, "tag": {"x": 1}}, {"name": "al", "age": 4, "tag": {"x": 2}},
        {"name": "Cy", "age": 30}],
    "sigma": "ΑΣ ΑΣΑ Σ", "md": "x </think> y </think> z",
}


def cases():
    for line in EXPRESSIONS.strip().split("\n"):
        for part in line.split(" ¦ "):
            yield "{{ " + part + " }}"
    yield from STATEMENTS
    yield from ERRORS


# One expression each, separated by ¦.
EXPRESSIONS = r"""
1 + 2 * 3 ¦ 7 // 2 ¦ -7 // 2 ¦ 7 % -3 ¦ -7 % 3 ¦ 7 / 2 ¦ 2 ** 10 ¦ 2 ** -1 ¦ 2 ** 3 ** 2 ¦ -2 ** 2
7.5 // 2 ¦ -7.5 % 2 ¦ 1e3 ¦ 1.0 ¦ .5 + 1 if false else 3 ¦ 1_000 ¦ 0x1F ¦ 0b101 ¦ 0o17 ¦ 1e-5
1e16 ¦ 123456789.123456789 ¦ 0.1 + 0.2 ¦ 1/3 ¦ 100.0 ¦ 1e100 ¦ 5e-324 ¦ 1.7976931348623157e308
true + 1 ¦ true == 1 ¦ 1 == 1.0 ¦ 'a' == 1 ¦ none == none ¦ [1] == [1.0] ¦ (1,) == [1]
{'a': 1} == {'a': 1.0} ¦ 1 < 2 < 3 ¦ 1 < 3 < 2 ¦ 'a' < 'b' ¦ [1, 2] < [1, 3] ¦ not 1 ¦ not not e
1 and 2 ¦ 0 and 2 ¦ 0 or 'x' ¦ '' or none or 3 ¦ 1 in [1] ¦ 'a' in 'cat' ¦ 'z' not in 'cat'
'a' in {'a': 1} ¦ 3 in range(5) ¦ 7 in range(0, 10, 2) ¦ (1, 2) in [(1, 2)]
x is defined or y is undefined ¦ 1 if x ¦ 2 if x else 3 ¦ '' if not x
'a' ~ 1 ~ none ~ true ~ 1.0 ~ x ~ [] ¦ 'a' 'b' "c" ¦ 'a' * 3 ¦ 3 * 'ab' ¦ [1] * 2 ¦ [1] + [2]
(1,) + (2,) ¦ () ¦ (1,) ¦ (1, 2) ¦ [] ¦ {} ¦ {'a': 1, 2: 'b', none: true, (1, 2): []}
[1, 'a', none, true, 1.5, [2], {'k': 'v'}] ¦ '\x41\u00e9\n\t\\ \q \101' ¦ "a'b" ¦ 'a"b'
s.strip() ¦ s.lstrip() ¦ s.rstrip() ¦ s.strip(' H') ¦ s.upper() ¦ s.lower() ¦ u.upper() ¦ u.lower()
u.title() ¦ u.capitalize() ¦ u.swapcase() ¦ u.casefold() ¦ sigma.lower() ¦ sigma.title()
'they\'re bill\'s'.title() ¦ s.title() ¦ t.split(',') ¦ t.split(',', 1) ¦ t.rsplit(',', 1)
s.split() ¦ ' a  b c '.split(none, 1) ¦ ' a  b c '.rsplit(none, 1) ¦ 'abc'.split('b', 0)
u.split(' ') ¦ lines.splitlines() ¦ lines.splitlines(true)
'a\x0bb\x0cc\x1cd\x85e\u2028f'.splitlines() ¦ ''.splitlines() ¦ 'a\n'.splitlines()
t.replace(',', ';') ¦ t.replace(',', ';', 1) ¦ 'abc'.replace('', '-') ¦ 'abc'.replace('', '-', 2)
''.replace('', 'x') ¦ '你好'.replace('', '-') ¦ t.find('b') ¦ u.find('你') ¦ u.rfind('你')
t.find('zz') ¦ t.index('b') ¦ t.rindex(',') ¦ t.count(',') ¦ 'aaa'.count('aa') ¦ 'abc'.count('')
'你好'.count('') ¦ t.find(',', 2) ¦ t.find(',', -2) ¦ t.find('a', 1, 2) ¦ 'abc'.find('', 3)
'abc'.find('', 4) ¦ 'abc'.rfind('') ¦ t.startswith('a') ¦ t.startswith(('x', 'a'))
t.endswith(('c',)) ¦ t.startswith('b', 2) ¦ t.endswith('b', 0, 3) ¦ 'ab'.partition('-')
'a-b-c'.partition('-') ¦ 'a-b-c'.rpartition('-') ¦ 'abc'.rpartition('-') ¦ 'xabc'.removeprefix('x')
'abcx'.removesuffix('x')
'-'.join(['a', 'b']) ¦ '-'.join('abc') ¦ 'abc'.center(8, '*') ¦ 'abcd'.center(7) ¦ 'abc'.center(8)
'ab'.center(7, '.') ¦ 'a'.center(4, '.') ¦ 'abc'.ljust(5, '.') ¦ 'abc'.rjust(5) ¦ '-42'.zfill(6)
'42'.zfill(5) ¦ 'a\tb'.expandtabs(4) ¦ 'abc'.isalpha() ¦ 'ab1'.isalnum() ¦ '12'.isdigit()
'²'.isdigit() ¦ '½'.isnumeric() ¦ '٣'.isdecimal() ¦ ' '.isspace() ¦ ''.isspace() ¦ 'Ab'.istitle()
'ABC'.isupper() ¦ 'abc'.islower() ¦ 'a1'.isidentifier() ¦ '1a'.isidentifier() ¦ 'é'.isascii()
''.isascii() ¦ '\n'.isprintable()
'abc'[0] ¦ 'abc'[-1] ¦ 'abc'[5] ¦ u[-2] ¦ u[::-1] ¦ 'abcdef'[1:4] ¦ 'abcdef'[::2] ¦ 'abcdef'[::-2]
'abcdef'[4:1:-1] ¦ 'abcdef'[-3:] ¦ 'abcdef'[:-3] ¦ 'abc'[10:] ¦ 'abc'[:10] ¦ l[0] ¦ l[-1] ¦ l[9]
l[1:] ¦ l[::-1] ¦ l[:] ¦ (1, 2, 3)[1:] ¦ nest[1][1][0] ¦ range(10)[2:8:3] ¦ range(3)[1] ¦ range(3)
range(1, 10, 3) ¦ range(5, 0, -2) | list ¦ range(0) ¦ d.b ¦ d['b'] ¦ d['items'] ¦ d.nope
d['k y'].z ¦ d.get('b') ¦ d.get('x') ¦ d.get('x', 5) ¦ d.keys() ¦ d.values() ¦ d.items()
d['nope'] is defined ¦ d.keys() | list ¦ users[0].name ¦ users.0.name ¦ users[-1]['tag'] is defined
nil.x is defined
'%s' % 'a' ¦ '%s %s' % ('a', 1) ¦ '%d' % 3.9 ¦ '%5d|%-5d|%05d' % (1, 2, 3) ¦ '%+d % d' % (1, 2)
'%.2f' % 3.14159 ¦ '%8.3f|%-8.1f|%08.2f' % (1.5, 2.5, -3.5) ¦ '%x %X %o %#x' % (255, 255, 8, 255)
'%e %g %G' % (12345.678, 0.00001234, 1e20) ¦ '%r %s' % ('q', 'q') ¦ '%%'
'%5s|%-5s|%.2s' % ('abc', 'abc', 'abc') ¦ '%(a)s' % {'a': 1} ¦ '%c%c' % ('x', 65) ¦ '%*d' % (5, 42)
'%s' % l ¦ '%s' % none ¦ '%i' % true
'{}'.format(1) ¦ '{} {}'.format(1, 'a') ¦ '{0} {1} {0}'.format('a', 'b') ¦ '{a}'.format(a=1)
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') ¦ '{:*^7}'.format('ab')
'{:05d}|{:+d}|{:,}'.format(42, 42, 1234567) ¦ '{:.2f}'.format(3.14159)
'{:x} {:#b} {:o}'.format(255, 5, 8) ¦ '{!r}'.format('a') ¦ '{{}}'.format()
'{0[0]} {0[1]}'.format(l) ¦ '{0[b]}'.format(d) ¦ '{:{w}}'.format('a', w=4)
'{:.3}'.format('abcdef') ¦ '{:e}'.format(1234.5) ¦ '{:%}'.format(0.25)
'{:10.2f}|'.format(3.14159) ¦ '{:g}'.format(1e10) ¦ '{}'.format(none) ¦ '{}'.format(l)
'{:5}|'.format(1) ¦ '{:,.2f}'.format(1234567.891)
s | trim ¦ s | trim(' H') ¦ s | upper ¦ s | lower ¦ u | title ¦ "a-b (c) {d} [e] <f> it's" | title
u | capitalize ¦ n | string ¦ nil | string ¦ t | replace(',', ';') ¦ t | replace(',', ';', 2)
5 | replace('5', 'x') ¦ w | join ¦ w | join('-') ¦ users | join(', ', attribute='name')
[1, none, x] | join('|') ¦ d | join(',') ¦ lines | indent ¦ lines | indent(2, true)
lines | indent(2, false, true) ¦ lines | indent('> ')
lines | indent(width=1, first=true, blank=true) ¦ 'a\n' | indent(2) ¦ '' | indent(2)
'' | indent(2, true) ¦ '\n\n' | indent(2, true, true) ¦ 'ab' | center(6) ¦ 'a b-c d_e' | wordcount
'foo bar baz qux' | truncate(9) ¦ 'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11) ¦ 'foo bar baz qux' | truncate(11, false, '...', 0)
'%s-%s' | format(1, 2) ¦ '%(x)s' | format(x=3) ¦ 'a b&c/d' | urlencode
html | escape ¦ html | e ¦ html | safe ¦ html | safe ~ html ¦ html | escape ~ html
(html | safe) + html ¦ html + (html | safe) ¦ (html | safe) | escape ¦ (html | safe) | upper
(html | safe).lower() + '<' ¦ (html | safe)[0] + '<' ¦ (html | safe) | forceescape
(html | safe) | length ¦ '%s' % (html | safe) ¦ (html | safe) is escaped
(html | safe) | replace('b', '<') ¦ [html | safe] ¦ ((html | safe) | trim) + '<'
((html | safe) | string) + '<' ¦ (html | safe) * 2 + '<' ¦ (html | safe).split('&')
l | sort ¦ l | sort(reverse=true) ¦ w | sort ¦ w | sort(case_sensitive=true)
users | sort(attribute='age') | map(attribute='name') | list
users | sort(attribute='age,name') | map(attribute='name') | list ¦ l | first ¦ l | last
[] | first ¦ [] | last ¦ '' | first ¦ 'abc' | first ¦ 'abc' | last ¦ l | length ¦ d | length
u | length ¦ x | length ¦ l | count ¦ d | list ¦ 'abc' | list ¦ l | reverse | list
'abc' | reverse ¦ w | unique | list ¦ w | unique(true) | list
users | unique(attribute='age') | map(attribute='name') | list ¦ l | min ¦ l | max ¦ w | min
[] | max ¦ users | max(attribute='age') ¦ l | sum ¦ users | sum(attribute='age')
l | sum(start=10) ¦ [] | sum ¦ [[1], [2]] | sum(start=[]) ¦ d | dictsort
d | dictsort(reverse=true) ¦ {'b': 1, 'A': 2} | dictsort ¦ {'b': 1, 'A': 2} | dictsort(true)
{'b': 1, 'A': 2} | dictsort(by='value') ¦ d | items | list ¦ x | items | list
users | groupby('age') | list ¦ users | groupby('age') | map('first') | list
users | groupby('tag.x', default=0) | map(attribute='grouper') | list
[1, 2, 3, 4, 5] | batch(2) | list ¦ [1, 2, 3, 4, 5] | batch(2, 'x') | list
[1, 2, 3, 4, 5] | slice(2) | list ¦ [1, 2, 3, 4, 5] | slice(3, 'x') | list
users | map(attribute='name') | list ¦ users | map(attribute='tag.x') | list
users | map(attribute='tag', default='-') | list ¦ nest | map(attribute=0) | list
w | map('upper') | list ¦ w | map('replace', 'p', 'b') | list ¦ l | map('string') | join
[0, 1, '', 'a', none] | select | list ¦ [0, 1, '', 'a', none] | reject | list
l | select('odd') | list ¦ l | reject('odd') | list ¦ l | select('gt', 1) | list
l | select('>', 1) | list ¦ users | selectattr('tag') | map(attribute='name') | list
users | selectattr('age', 'eq', 30) | map(attribute='name') | list
users | rejectattr('age', 'eq', 30) | map(attribute='name') | list
users | selectattr('tag', 'defined') | list | length ¦ l | select('in', [1, 2]) | list
d | attr('get') is defined
'3' | int ¦ '3.9' | int ¦ 'x' | int ¦ 'x' | int(5) ¦ '0x1f' | int(base=16) ¦ '1f' | int(0, 16)
' 42 ' | int ¦ '1_000' | int ¦ 3.99 | int ¦ -3.99 | int ¦ nil | int ¦ true | int ¦ '3.5' | float
'x' | float ¦ 'x' | float(1.5) ¦ 3 | float ¦ '1e3' | float ¦ 'inf' | float ¦ 'nan' | float
7.5 | round ¦ 2.5 | round ¦ 3.14159 | round(2) ¦ 3.14159 | round(2, 'floor')
3.14159 | round(2, 'ceil') ¦ 1234 | round(-2) ¦ 1250 | round(-2) ¦ 7 | round ¦ 0.5 | round
1.005 | round(2) ¦ -3 | abs ¦ -3.5 | abs ¦ x | default('z') ¦ e | default('z')
e | default('z', true) ¦ e | d('z', boolean=true) ¦ x.y | default('z') ¦ nil | default('z')
nil | default('z', true) ¦ x | default
d | tojson ¦ users | tojson ¦ q | tojson ¦ u | tojson ¦ u | tojson(ensure_ascii=true)
d | tojson(indent=2) ¦ d | tojson(indent='--') ¦ d | tojson(indent=0) ¦ [] | tojson(indent=2)
{} | tojson(indent=2) ¦ [[], {}, [1]] | tojson(indent=1) ¦ d | tojson(sort_keys=true)
d | tojson(separators=(',', ':')) ¦ d | tojson(indent=2, separators=(', ', ' = '))
[1.0, 1e20, 1e-7, 0.1, -0.0, 1e16, 123456.789] | tojson ¦ {1: 2, none: 3, true: 4, 1.5: 5} | tojson
(1, 2) | tojson ¦ html | tojson ¦ '\x7f\x1f\u2028' | tojson ¦ none | tojson ¦ true | tojson
('inf' | float) | tojson ¦ nest | tojson(indent=4)
q ¦ [q] ¦ [u] ¦ ['\x00\x7f\xa0\xad\u200b\u2028\ue000😀'] ¦ [html | safe] ¦ d ¦ users
[nil, yes, no, f, big, tiny, huge] ¦ -0.0 ¦ 1e22 ¦ 1e15 ¦ 1e17 ¦ tiny ¦ huge ¦ big * 10 ¦ big // 7
-big % 1000 ¦ f * n ¦ f - n ¦ [x] ¦ {'a': x} ¦ 1.0 // 3 ¦ 0.1 * 3 ¦ 1e308 * 10 ¦ -1e308 * 10
2 ** 0.5 ¦ 10 ** 15 ¦ 10.0 ** 15 ¦ 10.0 ** 16 ¦ 5 // 2.0 ¦ -5 // 2 ¦ -5 % 3.0 ¦ true and false ¦ +5
- 5 ¦ --5 ¦ -n | abs ¦ -m | abs ¦ (n, m) ¦ n, m
n is number ¦ f is number ¦ yes is number ¦ n is integer ¦ yes is integer ¦ f is float ¦ n is float
s is string ¦ l is string ¦ l is iterable ¦ s is iterable ¦ n is iterable ¦ x is iterable
d is iterable ¦ d is mapping ¦ l is mapping ¦ l is sequence ¦ s is sequence ¦ d is sequence
n is sequence ¦ (1, 2) is sequence ¦ range(3) is sequence ¦ (l | map('string')) is sequence
(l | map('string')) is iterable ¦ nil is none ¦ x is none ¦ yes is true ¦ 1 is true ¦ no is false
yes is boolean ¦ 1 is boolean ¦ n is odd ¦ n is even ¦ n is divisibleby 7 ¦ n is divisibleby(3)
n is eq 7 ¦ n is equalto 7 ¦ n is ne 7 ¦ n is lt 8 ¦ n is gt 8 ¦ n is le 7 ¦ n is ge 7
n is sameas 7 ¦ l is sameas l ¦ [1] is sameas [1] ¦ 'abc' is lower ¦ 'ABC' is upper
'Abc' is lower ¦ 1 is in [1, 2] ¦ 'x' is filter ¦ 'upper' is filter ¦ 'odd' is test
range is callable ¦ n is callable ¦ s is not string ¦ x is not defined ¦ d.get is callable
1.0 is eq 1
dict(a=1, b=2) ¦ dict({'a': 1}, b=2) ¦ dict([('a', 1), ('b', 2)]) ¦ namespace(a=1).a
namespace({'a': 1}).a ¦ namespace().x is defined ¦ l.index(1) ¦ l.count(1) ¦ (1, 1).count(1)
l.copy() ¦ d.copy() == d ¦ cycler('a', 'b').next() ¦ range(3) | list ¦ range(2, 5) | sum
md.split('</think>')[-1].lstrip() ¦ md.split('</think>')[0].rstrip('\n').split('<think>')[-1]
'</think>' in md ¦ (md.split('</think>') | last).strip() ¦ users[0].items() | list
users | length > 2 and users[0].age >= 30 ¦ users[-1:][0].name
(users | selectattr('age', 'gt', 10) | list)[0].name ¦ {'a': {'b': {'c': 1}}}.a.b.c
[[1, 2], [3]][0][1] ¦ 'a.b.c'.split('.')[1] ¦ l[n - 7] ¦ l[-n + 5] ¦ d['a'][1] ¦ d.a[0]
"""

STATEMENTS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}  \n  b\n  {% endif %}\nc", "  {%+ if true %}x{% endif %}",
    "{% if true +%}\nx{% endif %}", "a  {%- if true -%}  b  {%- endif -%}  c", "a {{- 1 -}} b", "a\n {{ 1 }}\n b\n",
    "{# c #}\nx", "a {#- c -#} b", "  {# c #}\nx", "{# a {{ b }} {% c %} #}x", "{% raw %}{{ x }}{% if %}{% endraw %}y",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "a\n  {% raw %}\n b\n  {% endraw %}\nc", "x\n\n", "x\n", "\n", "", "a\r\nb\rc\n",
    "{{ '\n' }}|", "{{ 'a\\\nb' }}", "{%if true%}x{%endif%}", "{{1}}{{2}}", "{ {1} }", "{{ {'a': {'b': 1}}.a.b }}", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}",
    "  {% set x = 1 %}  \n  {{ x }}  \n", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x | length }}",
    "{% set x | upper | trim %} a b {% endset %}{{ x }}", "{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "{% if false %}{% set s = 5 %}{% endif %}{{ s }}", "{% for i in l %}{{ i }}{% else %}none{% endfor %}", "{% for i in [] %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in x %}{{ i }}{% else %}undef{% endfor %}", "{% for k in d %}{{ k }},{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for c in 'aé你' %}[{{ c }}]{% endfor %}", "{% for i in l if i > 1 %}{{ i }}:{{ loop.index }}/{{ loop.length }}:{{ loop.last }} {% endfor %}",
    "{% for i in l if i > 5 %}{{ i }}{% else %}none{% endfor %}", "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% continue %}{% else %}else{% endfor %}", "{% for i in l %}{% break %}{% else %}else{% endfor %}", "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "{% for i in nest recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for i in l | map('string') %}{{ i }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "{% for u in users %}{{ loop.index }}. {{ u.name }}{% if u.tag is defined %} {{ u.tag.x }}{% endif %}\n{% endfor %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f(1, c=9) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}",
    "{% macro f(a) %}[{{ a }}]{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}body{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}+{{ b }}{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ f() }}{% set y = 2 %}{{ f() }}",
    "{% macro f() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ f() }}{{ z is defined }}", "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}", "{{ f is defined }}{% macro f() %}{% endmacro %}{{ f is defined }}{{ f.name }}",
    "{% macro a() %}<{{ caller() }}>{% endmacro %}{% macro b() %}({{ caller() }}){% endmacro %}{% call a() %}1{% call b() %}2{% endcall %}3{% endcall %}", "{% macro f(x) %}  {{ x }}  {% endmacro %}[{{ f('a') | trim }}]",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q | length }}", "{% filter upper %}a{{ n }}b{% endfilter %}", "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}",
    "{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}", "{% if x %}a{% else %}b{% endif %}", "{% if not x and n %}a{% endif %}", "{% if l | length > 2 %}y{% endif %}", "{% generation %}g{{ n }}{% endgeneration %}h",
    "{% set x = namespace() %}{% set x.y = 1 %}{{ x.y }}", "{% set it = l | map('string') %}{{ it | list }}{{ it | list }}", "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
    "{% macro f() %}{{ s }}|{{ n }}{% endmacro %}{{ f() }}{% set s = 1 %}{{ f() }}{% if n %}{% set n = 2 %}{% endif %}{{ f() }}",
    "{% macro f() %}{{ s }}{% endmacro %}{{ s | length }}{{ f() }}{% set s = 1 %}{{ f() }}", "{% for i in [1] %}{{ n }}{% endfor %}{% macro n() %}m{% endmacro %}{{ n() }}",
    "{% print n, 'x' %}", "{{ n if n else 'no' }}{{ 'x' if n > 100 }}", "{{ (n if n > 100) is defined }}", "{% for m in [1,2] -%}\n  {{ m }}\n{%- endfor %}", "{%- for m in [1,2] %}\n  {{- m }}\n{% endfor -%}\n end",
    "{% set x = [] %}{% set y = x + [1] %}{{ y }}", "{{ 'a' if yes else 'b' if no else 'c' }}", "{{ [1,2,3,] }}{{ {'a':1,} }}{{ (1,) }}", "{{ dict(**{'a': 1}) }}{{ dict(*[[('b', 2)]]) }}", "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'b': 1, 'a': 2}) }}",
    "{% for i in l %}{% if loop.first %}{% set z = 1 %}{% endif %}{{ z is defined }}{% endfor %}", "{% set x = 1 %}{% set f %}{% set x = 2 %}{{ x }}{% endset %}{{ f }}{{ x }}", "{% block a %}{% endblock %}" if False else "x",
    "{% if 'a' in s or 'World' in s %}y{% endif %}", "{{ loop is defined }}", "{% for a in [1] %}{% endfor %}{{ a is defined }}", "{% macro f(a=[]) %}{{ a }}{% endmacro %}{{ f() }}{{ f([1]) }}", "{{ s | trim | length }}", "{{ not x is defined }}", "{{ x is defined and x or 'no' }}",
    "{{ 1 if n is divisibleby 7 else 2 }}", "{{ n is not none and n is number }}", "{% if n is odd %}o{% endif %}", "{{ [1, 2] | map('string') | join(',') | upper }}", "{{ -1 | abs }}{{ 2 ** 2 | string }}", "{{ 'a' ~ 'b' | upper }}", "{{ 'a' + 'b' | upper }}", "{{ (1, 2) | join }}",
]
ERRORS = [
    "{{ x.y }}", "{{ x() }}", "{{ x + 1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [] + 'a' }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ n() }}", "{{ 'a'.nope() }}", "{{ d.nope() }}", "{{ nil.x.y }}", "{{ d.x.y }}", "{{ l[9].x }}", "{{ 1 < 'a' }}", "{{ l < 1 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ -'a' }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{{ n | length }}", "{{ n | join }}", "{{ x | tojson }}", "{{ range(3) | tojson }}", "{{ (l | map('string')) | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{% for i in n %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% set d.x = 1 %}", "{{ raise_exception('boom: ' ~ n) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "{{ range(1000001) }}", "{{ range(0, 1, 0) }}",
    "{{ ''.join([1]) }}", "{{ 'abc'.split('') }}", "{{ 'a'.index('b') }}", "{{ 'a'.center(5, 'xx') }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % ('a', 'b') }}", "{{ '%(a)s' % 1 }}", "{{ '%y' % 1 }}", "{{ '{}'.format() }}", "{{ '{a}'.format() }}", "{{ '{'.format() }}", "{{ '}'.format() }}", "{{ {[]: 1} }}", "{{ {} | dictsort(by='x') }}", "{{ 1 | dictsort }}", "{{ [1, 'a'] | sort }}", "{{ [1, 'a'] | max }}", "{{ 'abc' | round }}", "{{ nil | abs }}",
    "{{ ''.__class__.__mro__ }}", "{{ l.__class__() }}", "{{ x | items | list }}{{ n | items | list }}", "{{ l[::0] }}", "{{ 'x'.startswith(1) }}", "{{ d.get() }}", "{{ 'a' * 'b' }}", "{{ l * l }}", "{% set ns = namespace(_a=1) %}" if False else "{{ x.y.z }}", "{{ loop.index }}", "{{ (l | map('string')) | length }}", "{{ (l | map('string')) | last }}",
    "{% if %}", "{% if true %}", "{% endif %}", "{% for i in l %}{% endif %}", "{% for %}", "{% nope %}", "{{ 1 + }}", "{{ }}", "{{ (1 }}", "{{ 1) }}", "{{ 'a }}", "{{ a b }}", "{{ 1 2 }}", "{% set %}", "{% set 1 = 2 %}", "{% set x = %}", "{{ x is }}", "{{ x | }}", "{{ x.}}", "{{ x[ }}", "{# never closed", "{% raw %} never closed", "{{ never closed", "{% break %}", "{{ 1 | nosuchfilter }}", "{{ 1 is nosuchtest }}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ 1 ! 2 }}", "{% else %}", "{% endfor %}", "{% for x in y %}{% else %}{% else %}{% endfor %}", "{{ $ }}", "{{ 1a }}", "{% if true %}{% endfor %}{% endif %}", "{% call 1 %}{% endcall %}", "{{ x is string is number }}", "{% set x %}a", "{% macro f() %}", "{{ [1, }}", "{{ {1 }}", "{{ {'a': } }}", "\n\n{{ x.y }}\n", "{% for i in l %}\n\n{{ i.a.b }}\n{% endfor %}", "a\nb\n{% nope %}\n",
]


# Features that kvik refuses: a pattern of the template, and a part of the message.
REFUSED = [
    (r"\\101", "an octal escape in a string is not supported"),
    (r"1_000 }}|0x1F|0b101|0o17", "a number with a leading zero or an underscore is not supported"),
    (r"'a' 'b'", "a string directly after another string is not supported"),
    (r"\(1, 2\): ", "a tuple as a key is not supported"),
    (r"\.(casefold|center|ljust|rjust|zfill|expandtabs|istitle|isidentifier|isascii|isprintable|swapcase|isalnum|isnumeric|isdecimal|isupper|islower)\(",
     r"the string method '\1' is not supported"),
    (r"(?<!\bl)(?<!\))\.(count|index|rindex|partition|rpartition)\(",
     r"the string method '\1' is not supported"),
    (r"rsplit\(none", "rsplit() without a separator is not supported"),
    (r"\.(find|startswith|endswith)\('\W?\w*', -?\d", r"the argument 'start' of \1() is not supported"),
    (r"^{{ range\((?:3|0|1, 10, 3|10)\)(?:\[2:8:3\])? }}$", "printing a range is not supported"),
    (r"^{{ d\.(keys|values|items)\(\) }}$", r"printing a dict_\1 is not supported"),
    (r"format\(x=3", "named arguments of the filter 'format' are not supported"),
    (r"'%[-+0-9x(*ec]|'%\.2s|%5s", "formats know %s, %r, %d, %i, %f and %.2f"),
    (r"'{[^}{']+}|'{:{w}", "format() with a field other than {} is not supported"),
    (r"select\('>'", "the test '>' is not supported"),
    (r"d\.copy\(", "the dictionary method 'copy' is not supported"),
    (r"\| (urlencode|forceescape|groupby|batch|slice|attr)\b", r"the filter '\1' is not supported"),
    (r" is (escaped|filter|test|lower|upper)\b", r"the test '\1' is not supported"),
    (r"attribute='age,name'", "sorting by several attributes is not supported"),
    (r"int\(base=16|int\(0, 16", "the argument 'base' of int() is not supported"),
    (r"'floor'|'ceil'", "the argument 'method' of round() is not supported"),
    (r"round\(-2\)", "rounding to tens or hundreds is not supported"),
    (r"(?:\bl|\))\.(copy|count|index)\(", r"the list method '\1' is not supported"),
    (r"\b(cycler|joiner)\(", r"the function '\1' is not supported"),
    (r"dict\(\[", "dict() of a list is not supported"),
    (r"2 \*\* -1", "** with a negative exponent is not supported"),
    (r"\d\.\d (//|%|\*\*) |\d (//|%|\*\*) -?\d\.\d", "between numbers with a point is not supported"),
    (r"\[1, 2\] < \[", "the order of two of type list is not supported"),
    (r"{{ \[1\] \* 2", "multiplying a list is not supported"),
    (r"{{ \+5", "the sign + before a value is not supported"),
    (r"recursive", "a recursive loop is not supported"),
    (r"loop\.(depth|changed)", r"loop.\1 is not supported"),
    (r"{{ (varargs|caller)\b", r"\1 is not supported"),
    (r"{%-? *(with|print|call|raw|filter)\b", r"the tag '\1' is not supported"),
    (r"\(\*+[\[{]", "*args or **kwargs in a call is not supported"),
]


def refusal(source):
    """Returns the message of the first pattern that the template has, or None."""
    for pattern, sentence in REFUSED:
        if m := re.search(pattern, source):
            return m.expand(sentence) if m.groups() and m.group(1) else sentence.replace("\\1", "")
    return None


def main():
    env = environment()
    for source in cases():
        row = {"template": source}
        try:
            row["rendered"] = env.from_string(source).render(**VARS)
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, KeyError, OverflowError,
                ZeroDivisionError, IndexError, SyntaxError) as e:
            row["raises"] = {"type": type(e).__name__, "message": str(e)}
            if getattr(e, "lineno", None):
                row["raises"]["line"] = e.lineno
        if refusal(source):
            row["refused"] = refusal(source)
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    if sys.argv[1:] == ["--vars"]:
        print(json.dumps(VARS, ensure_ascii=False))
    else:
        main()
