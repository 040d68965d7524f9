"""Expressions and templates of all kinds used in honest pipelines, over one scope."""

from typing import Any

SCOPE: dict[str, Any] = {
    "input": {
        "name": "ada lovelace",
        "title": "The <Analytical> Engine & 'Notes'",
        "text": "one two three\nfour  five\tsix",
        "wide": "Straße Ünïcödé 漢字 😀",
        "number": 42,
        "negative": -7,
        "price": 12.345,
        "zero": 0,
        "yes": True,
        "no": False,
        "nothing": None,
        "empty": "",
        "numbers": [3, 1, 2, 3],
        "words": ["pear", "Apple", "fig", "apple"],
        "orders": [
            {"id": "a", "total": 10, "paid": True, "who": {"city": "Bern"}},
            {"id": "b", "total": 60.5, "paid": False, "who": {"city": "Ulm"}},
            {"id": "c", "total": 75, "paid": True, "who": {"city": "bern"}},
        ],
        "map": {"b": 2, "a": 1, "C": 3},
        "nested": [[1, 2], [3], []],
        "tree": [{"name": "x", "children": [{"name": "y", "children": []}]}],
        "a-b": "dashed",
    },
    "nodes": {
        "plan": {"output": {"queries": ["q1", "q2"], "score": 0.75}, "error": None, "state": "ok"},
        "look-up": {"output": {"rows": [{"v": 1}, {"v": 2}]}, "error": None, "state": "ok"},
    },
    "item": {"v": 5},
    "index": 3,
    "round": 2,
    "previous": {"draft": "text"},
    "output": 6.4,
}

EXPRESSIONS = [
    line.strip()
    for line in r"""
    {'k': 1}[0:0] is defined
    {'k': 1}[[1]] is defined
    input.number
    input['name']
    input.name.upper()
    input["a-b"]
    input.numbers[0]
    input.numbers[-1]
    input.numbers[1:3]
    input.numbers[::-1]
    input.numbers[:2]
    input.name[0]
    input.name[2:5]
    input.orders[1].who.city
    input.orders.1.who.city
    nodes['look-up'].output.rows
    nodes.plan.output.queries | length
    1 + 2
    input.number + 0.5
    input.number - input.negative
    input.number * 2
    input.number / 5
    input.number // 5
    input.number % 5
    input.negative // 2
    input.negative % 3
    2 ** 10
    2 ** -1
    2.5 ** 2
    (input.price * 100) | round | int
    -input.number
    +input.price
    - - 3
    'a' + 'b'
    'ab' * 3
    3 * 'ab'
    [1] + [2]
    [0] * 3
    (1, 2) + (3,)
    'n=' ~ input.number ~ ' ' ~ input.yes ~ input.nothing
    input.name ~ input.numbers
    1 == 1.0
    1 < 2 < 3
    1 < 2 > 5
    input.number >= 42
    input.number != 42
    'a' < 'b'
    [1, 2] == [1, 2]
    {'a': 1} == {'a': 1}
    [1, 2] < [1, 3]
    input.nothing == none
    input.nothing is none
    input.nothing is not none
    'fig' in input.words
    'x' not in input.words
    'ada' in input.name
    'b' in input.map
    2 in input.numbers
    [3] in input.nested
    3 in range(5)
    input.yes and input.number
    input.zero or 'other'
    not input.zero
    not input.yes or input.no
    input.no and input.missing
    input.yes or input.missing
    'big' if input.number > 10 else 'small'
    ('big' if input.number > 10) or 'small'
    'a' if input.no else 'b' if input.no else 'c'
    (input.missing | default({})).x | default(1)
    input.missing | default('none')
    input.empty | default('none', true)
    input.empty | default('none')
    input.missing is defined
    input.number is defined
    input.missing is undefined
    (input.missing.x is defined) if input.missing is defined else false
    [1, 'two', 3.0, none, true, [4], {'five': 5}]
    {'a': input.number, 'b': [1, 2], 'c': {'d': none}}
    {'a': 1, 'a': 2}
    (1, 2, 3)
    []
    {}
    'it\'s'
    "tab\there\nnew"
    'é\u00e9\U0001F600'
    1_000_000
    0x1f
    1e3
    1.5e-3
    true
    none
    input.name | upper
    input.name | lower
    input.name | title
    'it is-a (test) [of] {title} <case>' | title
    input.wide | title
    input.name | capitalize
    input.wide | upper
    input.wide | lower
    input.number | string
    input.numbers | string
    input.orders | string
    input.name | length
    input.wide | length
    input.map | length
    input.text | wordcount
    input.title | escape
    input.title | e
    input.title | forceescape
    input.title | e | e
    '<b>bold</b> &amp; more' | striptags
    'a<!-- c --><i>b' | striptags
    input.title | safe
    input.name | replace('a', 'A')
    input.name | replace('a', 'A', 1)
    input.name | replace('', '-')
    'a.b.c' | replace('.', '')
    '  pad ' | trim
    'xxpadxx' | trim('x')
    input.name | center(20)
    'x' | center
    input.text | indent
    input.text | indent(2, true)
    input.text | indent('> ', first=true, blank=true)
    'a\n\nb\n' | indent(3)
    'a\n\nb\n' | indent(3, blank=true)
    '' | indent
    input.text | truncate(10)
    input.text | truncate(10, true)
    input.text | truncate(10, true, '…')
    input.text | truncate(12, false, '...', 0)
    input.name | truncate(255)
    'a long line of words to wrap here' | wordwrap(10)
    'averyveryverylongword indeed' | wordwrap(8)
    'averyveryverylongword in-deed' | wordwrap(8, false)
    'one two\nthree four' | wordwrap(5, wrapstring=' | ')
    'half-hearted re-run' | wordwrap(6, break_on_hyphens=false)
    'a b&c=d/é' | urlencode
    {'q': 'a b', 'r': 'ü/'} | urlencode
    [('a', 1), ('b', '&')] | urlencode
    42 | urlencode
    {'class': 'x', 'id': 3, 'none': none} | xmlattr
    {'class': '"q"'} | xmlattr(false)
    '%s is %d and %.2f' | format('x', 42, 3.14159)
    '%(a)s-%(b)03d' | format(a='x', b=7)
    'x' % [1, 2]
    '' % []
    'x' % input.missing
    'x' % range(3)
    '%5s|%-5s|%05d|%+d|%x|%o|%e|%g|%%' | format('a', 'b', 42, 7, 255, 8, 12345.678, 0.0001)
    '%s %s' % ('a', [1, 2])
    '%r' % 'q'
    '%d%%' % 5
    '{} {}'.format('a', 1)
    '{1} {0}'.format('a', 'b')
    '{name:>10}|{n:08.3f}|{n:,.2f}'.format(name='x', n=1234.5)
    '{0[a]} {1.name}'.format({'a': 1}, {'name': 'n'})
    '{:b} {:x} {:e} {:%} {:^7}'.format(5, 255, 12345.0, 0.25, 'mid')
    '{!r} {!s}'.format('q', 'q')
    '{{}} {}'.format(1)
    '{a}'.format_map({'a': 2})
    '1,234'.replace(',', '') | int
    '42' | int
    '42.7' | int
    'x' | int
    'x' | int(7)
    'ff' | int(base=16)
    '0b101' | int(0, 2)
    42.9 | int
    true | int
    '3.5' | float
    'x' | float
    'x' | float(1.5)
    3 | float
    2.5 | round
    3.14159 | round(2)
    3.14159 | round(2, 'ceil')
    3.14159 | round(2, 'floor')
    1234 | round(-2)
    -5 | abs
    -5.5 | abs
    1000 | filesizeformat
    1500000 | filesizeformat
    1500000 | filesizeformat(true)
    1 | filesizeformat
    input.orders | tojson
    input.map | tojson(indent=2)
    input.title | tojson
    'ü😀\n"' | tojson
    [1, 2.5, none, true] | tojson
    input.numbers | first
    input.numbers | last
    input.words | first | upper
    input.numbers | sum
    input.orders | sum(attribute='total')
    input.orders | sum('total', 100)
    input.nested | sum(start=[])
    input.numbers | min
    input.numbers | max
    input.words | min
    input.words | max(case_sensitive=true)
    input.orders | max(attribute='total')
    input.orders | min(attribute='who.city')
    input.numbers | sort
    input.numbers | sort(reverse=true)
    input.words | sort
    [{'k': 1}, {'k': 1}] | sort
    [none, none] | sort(reverse=true)
    input.words | sort(case_sensitive=true)
    input.orders | sort(attribute='total', reverse=true)
    input.orders | sort(attribute='who.city,total')
    input.numbers | unique | list
    input.words | unique | list
    input.words | unique(true) | list
    input.orders | unique(attribute='paid') | list
    [1, 1.0, 2, 2.5, true, 'a', 'A', none, 2.0] | unique | list
    [(1, 2), (1.0, 2), (1, (2, 'a')), (1, (2.0, 'a'))] | unique | list
    [input.orders[0]] | first | first
    [input.orders[0]] | first | last
    input.map | dictsort
    input.map | dictsort(true)
    input.map | dictsort(false, 'value')
    input.map | dictsort(reverse=true, by='value')
    input.map | items | list
    input.map | list
    input.map.items() | list
    input.map.keys() | list
    input.map.values() | list
    input.map.values() | sum
    input.map.get('a')
    input.map.get('z')
    input.map.get('z', 9)
    input.numbers | join(', ')
    input.words | join
    input.orders | join('/', attribute='id')
    input.numbers | map('string') | join('-')
    input.orders | map(attribute='id') | list
    input.orders | map(attribute='who.city') | list
    input.orders | map(attribute='missing', default=0) | list
    input.words | map('upper') | list
    input.words | map('replace', 'a', 'o') | list
    input.nested | map('length') | list
    input.nested | map('sum') | list
    input.nested | map('join', '+') | list
    input.nested | map(attribute=0, default='-') | list
    input.orders | selectattr('paid') | list
    input.orders | rejectattr('paid') | list
    input.orders | selectattr('total', 'gt', 50) | list | length
    input.orders | selectattr('who.city', 'equalto', 'Ulm') | map(attribute='id') | list
    input.orders | selectattr('id', 'in', ['a', 'c']) | map(attribute='id') | list
    input.orders | rejectattr('total', '>=', 60) | list
    input.orders | selectattr('missing', 'undefined') | list | length
    input.numbers | select('odd') | list
    input.numbers | select('divisibleby', 3) | list
    input.numbers | reject('eq', 3) | list
    [0, 1, '', 'x'] | select | list
    input.words | select('in', ['fig', 'pear']) | list
    input.numbers | reverse | list
    input.name | reverse
    input.numbers | batch(3) | list
    input.numbers | batch(3, 0) | list
    input.numbers | slice(3) | list
    input.numbers | slice(3, 'x') | list
    'abc' | list
    range(5) | list
    range(2, 10, 3) | list
    range(3) | map('string') | list
    range(10) | sum
    dict(a=1, b=2)
    dict({'a': 1}, b=3)
    dict([('a', 1)])
    input.orders | groupby('paid') | list
    input.orders | groupby('who.city') | map(attribute='grouper') | list
    input.orders | groupby('who.city', case_sensitive=true) | map('first') | list
    (input.orders | groupby('paid') | first).list | length
    input.number is number
    input.number is integer
    input.price is float
    input.name is string
    input.map is mapping
    input.numbers is sequence
    input.numbers is iterable
    input.yes is boolean
    input.yes is true
    input.no is false
    input.number is even
    input.number is odd
    input.number is divisibleby 7
    input.number is divisibleby(5)
    input.name is lower
    'ABC' is upper
    input.number is eq 42
    input.number is gt(40)
    input.number is not lt 40
    'a' is in 'abc'
    input.nothing is sameas none
    input.title | e is escaped
    input.number is equalto 42 and input.yes
    input.name.title()
    input.name.split()
    input.name.split('a')
    input.name.split('a', 1)
    input.name.rsplit(' ', 1)
    input.text.splitlines()
    input.name.partition(' ')
    input.name.rpartition('a')
    ', '.join(input.words)
    input.name.startswith('ada')
    input.name.endswith(('x', 'e'))
    input.name.find('l')
    input.name.rfind('l')
    input.name.index('d')
    input.name.count('a')
    input.name.strip('a')
    input.name.lstrip('a')
    input.name.rstrip('e')
    input.name.removeprefix('ada ')
    input.name.removesuffix('lace')
    input.name.swapcase()
    input.name.casefold()
    input.name.capitalize()
    input.name.center(20, '*')
    input.name.ljust(15, '.')
    input.name.rjust(15)
    '42'.zfill(5)
    'a\tb'.expandtabs(4)
    '42'.isdigit()
    'abc'.isalpha()
    'a b'.isspace()
    'Abc'.istitle()
    'abc'.isidentifier()
    input.numbers.index(2)
    input.numbers.count(3)
    (nodes.plan.output or {}).score
    (output * output - input.number) | abs < 0.000001
    output > 6 and output < 7
    round > 1
    previous.draft | length > 3
    index + 1
    item.v * 2
    [input.number, input.price] | max
    input.number | string | length
    'x' ~ (1 if input.yes else 0)
    input.numbers | list | tojson
    (input.orders | map(attribute='total') | sum) / (input.orders | length)
    {'total': input.orders | sum(attribute='total'), 'ids': input.orders | map(attribute='id') | list}
    (1, 2)[0]
    {'a': {'b': 3}}.a.b
    '%s' % input.map
    'ä' ~ 'ö' == 'äö'
    input.numbers | sort | first
    (input.numbers | sort)[1:3] | join('')
    range(input.numbers | length) | list
    input.words | map('length') | max
    [[1, 2], [3, 4]] | map('first') | list
    not (input.missing is defined)
    1 if 1 in [1] else 2
    '' == input.empty
    [] == input.nested[2]
    input.nested[2] | first is undefined
    input.nested[2] | length == 0
    5 | string ~ 'x'
    (1.0 * 3) | int
    7 // 2 * 2 + 7 % 2
    1 + 2 * 3 ** 2
    -2 ** 2
    not 1 == 2
    """.splitlines()
    if line.strip()
]

TEMPLATES = [
    "plain text",
    "Dear {{ input.name | title }},",
    "{{ input.number }}{{ input.yes }}{{ input.nothing }}{{ input.price }}",
    "a{# comment #}b",
    "{{ input.numbers }} and {{ input.map }}",
    "{% for o in input.orders -%}\n{{ loop.index }}. {{ o.total }}\n{% endfor -%}",
    (
        "{% for x in input.numbers %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
        "{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}"
    ),
    (
        "{% for x in input.numbers %}{{ loop.previtem | default('-') }}<{{ x }}>"
        "{{ loop.nextitem | default('-') }} {% endfor %}"
    ),
    "{% for x in input.numbers %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for o in input.orders %}{% if loop.changed(o.paid) %}{{ o.id }}{% endif %}{% endfor %}",
    "{% for x in input.numbers if x > 1 %}{{ loop.index }}={{ x }} {% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in input.numbers if x > 9 %}x{% else %}none{% endfor %}",
    "{% for k, v in input.map.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in input.map | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in input.map %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for g in input.orders | groupby('paid') %}{{ g.grouper }}:{{ g.list | length }} {% endfor %}",
    (
        "{% for paid, some in input.orders | groupby('paid') %}{{ paid }}{{ some | map(attribute='id') |"
        " join }} {% endfor %}"
    ),
    "{% for row in input.nested %}{% for x in row %}{{ loop.index }}/{{ x }} {% endfor %}|{% endfor %}",
    "{% for c in 'abc' %}{{ c }}-{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    (
        "{% for n in input.tree recursive %}{{ n.name }}{{ loop.depth }}"
        "({{ loop(n.children) }}){% endfor %}"
    ),
    "{% if input.number > 40 %}a{% elif input.number > 10 %}b{% else %}c{% endif %}",
    "{% if input.no %}a{% elif input.yes %}b{% endif %}",
    "{% if input.no %}a{% endif %}!",
    "{% if input.missing is defined %}x{% else %}y{% endif %}",
    "{% set x = 5 %}{{ x }}{% set x = x + 1 %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x %}block {{ input.number }}{% endset %}[{{ x }}]",
    "{% set x | upper %}block{% endset %}[{{ x }}]",
    "{% set x = 0 %}{% for i in input.numbers %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set y = i %}{% endif %}{{ y | default('-') }}{% endfor %}",
    "{% if input.yes %}{% set z = 1 %}{% else %}{% set z = 2 %}{% endif %}{{ z }}",
    "{% if input.no %}{% set item = 1 %}{% endif %}{{ item.v }}",
    (
        "{% set ns = namespace(n=0) %}{% for i in input.numbers %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}"
    ),
    (
        "{% set ns = namespace(found=false, all=[]) %}{% for o in input.orders %}{% if o.total > 50 %}"
        "{% set ns.found = true %}{% set ns.all = ns.all + [o.id] %}{% endif %}{% endfor %}"
        "{{ ns.found }}{{ ns.all }}"
    ),
    "{% with a = 1, b = input.number %}{{ a }}{{ b }}{% endwith %}",
    "{% with %}{% set q = 2 %}{{ q }}{% endwith %}",
    "{% filter upper %}shout {{ input.name }}{% endfilter %}",
    "{% filter replace('a', 'o') | title %}banana man{% endfilter %}",
    "{% macro m(x, y=2) %}<{{ x }},{{ y }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(y=4, x=5) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }} {{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% set g = 7 %}{% macro m() %}{{ g }}{% endmacro %}{{ m() }}",
    (
        "{% macro box(title) %}[{{ title }}: {{ caller() }}]{% endmacro %}"
        "{% call box('t') %}inner {{ input.number }}{% endcall %}"
    ),
    (
        "{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}"
        "{% call(v) each(input.numbers) %}({{ v }}){% endcall %}"
    ),
    "{% macro a(x) %}a{{ x }}{% endmacro %}{% macro b(x) %}{{ a(x) }}b{% endmacro %}{{ b(1) }}",
    "{% set input = [1] %}{% for x in input %}{{ x }}{% endfor %}",
    "{% raw %}{{ not.this }}{% endraw %}",
    "a\n{%- if true %}\n b\n{%- endif %}\n",
    "{{ '{{' }} {{ \"}}\" }}",
    "{{- input.number -}}   x",
    "{% for x in input.numbers %}{{ x }}{{ ', ' if not loop.last else '' }}{% endfor %}",
    "Context:\n{% for o in input.orders %}- {{ o.id }} ({{ '%.1f' | format(o.total) }})\n{% endfor %}",
    "{{ input.orders | tojson }}",
    "{{ input.text | indent(4) }}",
    "{{ (nodes.plan.output.queries + ['q3']) | join(' OR ') }}",
]
