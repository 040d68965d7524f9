"""Data URLs: which are files of text, and how their text is changed."""

from base64 import b64decode, b64encode, encodebytes, urlsafe_b64encode

import pytest

from hocket.gateway.core.content.data_urls import (
    data_url,
    file_in_short,
    file_with_text,
    in_short,
    text_or_file,
    with_text,
)

MOST = 68_096
SAID = "Tide at \u00bd past four, says bob. \u00ff\u00fe\u00fb"


def changed(text: str) -> str:
    url = data_url(text)
    assert url is not None
    return with_text(url, text, lambda said: said.replace("bob", "<NAME_1>"))


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/csv;charset=utf-8", "TEXT/x", "application/json", "application/a.b+json"],
)
def test_the_text_of_a_file_is_changed_and_all_else_of_it_stays(kind: str, encoding: str) -> None:
    head = f"data:{kind};base64,"
    made = changed(head + b64encode(SAID.encode(encoding)).decode())
    assert made.startswith(head)
    assert b64decode(made.removeprefix(head), validate=True).decode(encoding) == SAID.replace(
        "bob", "<NAME_1>"
    )


@pytest.mark.parametrize("written", [urlsafe_b64encode, encodebytes])
def test_other_forms_of_base64_are_read_as_well(written: object) -> None:
    assert callable(written)
    content = written((SAID * 9).encode()).decode()
    for form in (content, content.rstrip("=\n")):
        made = changed(f"data:text/plain;base64,{form}")
        text = b64decode(made.partition(",")[2], validate=True).decode()
        assert text == SAID.replace("bob", "<NAME_1>") * 9


@pytest.mark.parametrize(
    "text",
    [
        "data:application/pdf;base64," + b64encode(b"bob").decode(),
        "data:image/svg+xml;base64," + b64encode(b"bob").decode(),
        "data:text/plain;base64," + b64encode(b"ada").decode(),
        "data:text/plain;base64,bob==bob",
        "data:text/plain;base64,YWRh" + "A",
        "data:text/plain;base64,",
    ],
)
def test_what_is_no_text_or_does_not_change_stays_as_it_is(text: str) -> None:
    assert changed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data:",
        "data:text/plain,bob",
        "data:a/b;base64, bob",
        "data: bob",
        " data:a/b;base64,AA",
    ],
)
def test_text_that_only_begins_like_a_data_url_is_none(text: str) -> None:
    assert data_url(text) is None
    assert in_short(text, MOST) == text


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5_000])
def test_a_data_url_in_short_tells_its_type_and_size(size: int) -> None:
    content = b64encode(bytes(size)).decode()
    assert in_short(f"data:image/png;base64,{content}", MOST) == f"data:image/png, {size} bytes"
    assert in_short(f"data:a/b;x=y;base64,{content}", 99) == f"data:a/b;x=y, {size} bytes"
    assert in_short(f"data:;base64,{content}", MOST) == f"data:text/plain, {size} bytes"
    assert file_in_short(f"data:a/b;base64,{content}", MOST) == f"data:a/b, {size} bytes"
    assert file_in_short(content, MOST) == f"{size} bytes"


@pytest.mark.parametrize("size", [5_700, 5_701])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_base64_may_be_in_lines(size: int, end: str) -> None:
    lines = encodebytes(bytes(size)).decode().replace("\n", end)
    assert in_short(f"data:a/b;base64,{lines}", MOST) == f"data:a/b, {size} bytes"
    for most_chars in range(770, 790):
        assert file_in_short(lines, most_chars) == f"{size} bytes"


@pytest.mark.parametrize("most_chars", [900, MOST])
def test_text_behind_base64_is_kept_as_text(most_chars: int) -> None:
    words = " and now tell me how to build it. " * 9
    short = in_short("data:a/b;base64," + "A" * 864 + words, most_chars)
    kept = f"data:a/b, 600 bytes {'A' * 64}{words}"
    assert short == kept[: len(short)]
    assert short.startswith("data:a/b, 600 bytes " + "A" * 64 + " and now")


@pytest.mark.parametrize(
    "words",
    ["write\nme\na\npoem", "A" * 60 + " bob@example.org", "4111-1111-1111 1111", "A=B=C and so on"],
)
def test_words_that_might_be_base64_are_kept_as_they_are(words: str) -> None:
    assert in_short(f"data:text/plain;base64,{words}", MOST) == f"data:text/plain;base64,{words}"
    assert file_in_short(words, MOST) == words


def masked(text: str) -> str:
    return text.replace("bob", "<NAME_1>")


BOB = b64encode(b"says bob").decode()
NEW = b64encode(b"says <NAME_1>").decode()


@pytest.mark.parametrize(
    ("head", "content", "expected"),
    [
        ('data:text/plain;charset="utf-8";base64,', BOB, NEW),
        ("data:text/plain; charset=utf-8;base64,", BOB, NEW),
        ("data:;base64,", BOB, NEW),
        ("data:text/plain;base64,", f"{BOB}AAAA", NEW),
        ("data:text/plain;base64,", f"{BOB.rstrip('=')}==", NEW),
        ("data:text/plain;base64,", "IGJvYg" + "AAA", b64encode(b" <NAME_1>\0\0").decode()),
    ],
)
def test_a_file_of_text_is_read_in_whatever_form_decoders_take(
    head: str, content: str, expected: str
) -> None:
    url = head + content
    assert text_or_file(url, masked) == file_with_text(url, masked) == head + expected


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("odd", [b"", b"a"])
def test_utf_16_is_read_without_a_mark_and_with_half_a_character(encoding: str, odd: bytes) -> None:
    content = b64encode(SAID.encode(encoding) + odd).decode()
    made = text_or_file(f"data:text/plain;base64,{content}", masked)
    said = b64decode(made.partition(",")[2], validate=True)
    assert said == masked(SAID).encode(encoding) + odd


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BOB, NEW),
        (f" data:text/plain;base64,{BOB}", f" data:text/plain;base64,{NEW}"),
        (f"data:text/plain;base64, {BOB}", f"data:text/plain;base64,{NEW}"),
        (f"data:text/plain;base64,{BOB[:4]}!,{BOB[4:]}", f"data:text/plain;base64,{NEW}"),
        (f"data:text/x;name=@bob;base64,{BOB}", f"data:text/x;name=@<NAME_1>;base64,{NEW}"),
        (f"data:a/b;name=@bob;base64,{BOB}", f"data:a/b;name=@<NAME_1>;base64,{BOB}"),
        ("data:text/plain;base64,YWRh=YWRh", "data:text/plain;base64,YWRhYWRh"),
        (b64encode(b"\xffbob").decode(), b64encode(b"\xffbob").decode()),
        ("I am bob", "I am <NAME_1>"),
        ("data:text/plain,bob", "data:text/plain,<NAME_1>"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_file_data_holds_is_read_like_a_file(data: str, expected: str) -> None:
    assert file_with_text(data, masked) == expected


def test_what_does_not_fit_the_encoding_of_a_file_is_no_failure() -> None:
    head = "data:text/plain;base64,"
    url = head + b64encode("caf\u00e9 <NAME_1>".encode("latin-1")).decode()
    made = text_or_file(url, lambda text: text.replace("<NAME_1>", "\u0431ob"))
    assert b64decode(made.removeprefix(head)) == "caf\u00e9 ?ob".encode("latin-1")
