"""What text is read from HTML whose optional tags are left out, and what is front matter of Markdown."""

import pytest

from hocket.workers.retrieval.extraction import extract

START = "<!doctype html><html lang=en><head><meta charset=utf-8><title>Care guide</title>"
HEADS = {
    "closed": START + "</head><body>",
    "not closed": START + "<body>",
    "not closed, without a body's tag": START,
    "with a style": START + "<style>p {}</style><body>",
    "with a script": START + "<script>var a = '<p>';</script><body>",
    "with a noscript": START + "<noscript><link rel=stylesheet href=a.css></noscript><body>",
    "with a template": START + "<template><p>Not yet.</p></template><body>",
    "with a comment": START + "<!-- <body> --><body>",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_page_is_read_from_where_its_head_ends_whether_or_not_it_is_closed(name: str) -> None:
    page = HEADS[name] + "<h1>Care</h1><p>The giraffe eats leaves."
    document = extract(page.encode(), "care.html")
    assert (document.title, document.text) == ("Care guide", "Care\n\nThe giraffe eats leaves.")


def test_text_ends_the_head_as_it_does_in_browsers() -> None:
    assert extract(f"{START} The giraffe".encode(), "a.html").text == "The giraffe"


def test_a_page_that_has_only_a_head_has_no_text() -> None:
    with pytest.raises(Exception, match="no text"):
        extract(START.encode(), "a.html")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a<p>b<ul><li>c<li>d</ul><p>e", "a\n\nb\n\nc\nd\n\ne"),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>e", "a\nb\nc\nd\n\ne"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>c", "a | b\n1 | 2\n\nc"),
        ("<table><thead><tr><th>a<th>b<tbody><tr><td>1<td>2</table>", "a | b\n\n1 | 2"),
        ("<select><option>a<option>b</select>", "a\nb"),
        ("<table><tr>\n<td>a\n<td>b\n<tr>\n<td>1\n<td>2\n</table>", "a | b\n1 | 2"),
    ],
)
def test_paragraphs_items_and_cells_need_no_end_tags(page: str, text: str) -> None:
    assert extract(page.encode(), "a.html").text == text


FRONT = {
    "keys": "title: Care\nauthor: Ann\n",
    "a list and a nested mapping": "title: Care\ntags:\n- a\n- b\nauthors:\n  - name: Ann\n",
    "comments and blank lines": "# of the zoo\n\ntitle: Care\n\n# end\n",
    "a text of several lines": "title: Care\nsummary: >\n  One\n\n  Two\n",
    "quoted and spaced keys": "title: Care\n\"og:type\": a\n'x': 1\ndate created: 2024\nog:url: b\n",
    "a list over lines": "title: Care\ntags: [\n  a,\n]\n",
    "a key without a value": "draft:\ntitle: Care\n",
    "odd keys": "author(s): Ann\nC++: 1\n2fa: yes\nsee, also: y\nx@y: z\n\U0001f992: a\ntitle: Care\n",
    "odd keys at the beginning": "2fa: yes\ntitle: Care\n",
    "an emoji at the beginning": "\U0001f992: a\ntitle: Care\n",
    "a parenthesis at the beginning": "(draft): yes\ntitle: Care\n",
    "a merged mapping": "<<: *all\ntitle: Care\n",
    "a key after a mark": "title: Care\n? a\n: b\n&a other: c\n",
}


@pytest.mark.parametrize("name", FRONT)
@pytest.mark.parametrize("end", ["---", "...", "--- "])
def test_front_matter_gives_the_title_and_is_not_text(name: str, end: str) -> None:
    document = extract(f"---\n{FRONT[name]}{end}\nThe giraffe.\n".encode(), "a.md")
    assert (document.title, document.text) == ("Care", "The giraffe.\n")


def test_empty_front_matter_is_not_text() -> None:
    assert extract(b"---\n---\nThe giraffe.\n", "a.md").text == "The giraffe.\n"


RULED = {
    "prose": "---\n\nThe giraffe eats leaves.\n\n---\n\nThe end.\n",
    "a heading": "---\n# Care\n\n---\nThe end.\n",
    "a list": "---\n- leaves\n- twigs\n\n---\nThe end.\n",
    "a numbered list": "---\n1. Food: leaves\n2. Drink: water\n\n---\nThe end.\n",
    "a quotation": "---\n> Note: leaves\n\n---\nThe end.\n",
    "an emphasis": "---\n**Note**: leaves\n\n---\nThe end.\n",
    "an address": "---\nhttps://example.com/\n\n---\nThe end.\n",
    "prose that begins like a key": "---\nNote: the giraffe\neats leaves.\n\n---\nThe end.\n",
    "code": "---\n    title: a\n\n---\nThe end.\n",
    "marked code": "---\n`a`: the giraffe\n\n---\nThe end.\n",
    "a heading and prose": "---\n\n# Safety\n\nDo not touch.\n\n---\nThe end.\n",
    "a footnote": "---\n[^1]: The giraffe\n\n---\nThe end.\n",
    "a tag": "---\n<p style='color: red'>The giraffe</p>\n\n---\nThe end.\n",
    "a template": "---\n{{ animal }}\n\n---\nThe end.\n",
    "no second rule": "---\ntitle: a\n",
}


@pytest.mark.parametrize("name", RULED)
def test_text_between_two_rules_is_text(name: str) -> None:
    assert extract(RULED[name].encode(), "a.md").text == RULED[name]


@pytest.mark.parametrize(
    "front", ['{"title": "Care"}', '{\n"title": "Care",\n  "a": 1\n}', "{title: Care}"]
)
def test_front_matter_in_braces_is_not_text(front: str) -> None:
    assert extract(f"---\n{front}\n---\nThe giraffe.\n".encode(), "a.md").text == "The giraffe.\n"


def test_lines_that_end_otherwise_are_front_matter_too() -> None:
    assert extract(b"\xef\xbb\xbf---\r\ntitle: Care\r\n---\r\nText.", "a.md").title == "Care"
