"""Parses templates with Jinja2's own lexer and parser, within bounds that are counted on the way."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser

MAX_TEMPLATE_CHARS = 1_000_000
"""The limit on the characters of one template, including its plain text."""
MAX_TEMPLATE_TOKENS = 5_000
"""The limit on the tokens of a template; each piece of plain text counts as one."""
MAX_PIPELINE_TOKENS = 50_000
"""The same for all templates of a pipeline together: parsing them takes a second or less."""
MAX_TEMPLATE_DEPTH = 100
"""How deep the parts of a template may nest; a chain of operators is as deep as it is long."""
MAX_PARSER_DEPTH = 400
"""How deep the parser may call itself, in frames."""


class _Environment(Environment):
    """Jinja2's environment, of which only the lexer and parser are used."""

    def _tokenize(
        self,
        source: str,
        name: str | None,
        filename: str | None = None,
        state: str | None = None,
    ) -> TokenStream:
        tokens = self.lexer.tokeniter(source, name, filename, state)
        return TokenStream(_counted(self.lexer.wrap(tokens, name, filename)), name, filename)


def count_tokens(text: str, most: int, *, expression: bool = False) -> int:
    """Return how many tokens a template has, counting no further than `most`."""
    tokens = _ENVIRONMENT.lexer.tokeniter(text, None, None, "variable" if expression else None)
    try:
        return sum(1 for _ in islice((one for one in tokens if one[1] != "whitespace"), most))
    except TemplateSyntaxError:
        return 0  # it is refused later, with a better message


def alone_in(text: str) -> str | None:
    """Return the expression of a template that is one `{{ ... }}`, without its braces, spaces around
    ignored; None for any other template. Only its tokens up to the first `}}` are read."""
    tokens = _ENVIRONMENT.lexer.tokeniter(text.strip(), None, None)
    parts: list[str] = []
    try:
        if next(tokens, _NO_TOKEN)[1] != "variable_begin":
            return None
        for _, kind, part in islice(tokens, 2 * MAX_TEMPLATE_TOKENS):
            if kind == "variable_end":
                return "".join(parts) if next(tokens, None) is None else None
            parts.append(part)
    except TemplateSyntaxError:
        pass  # it is refused later, with a better message
    return None


def parse_template(text: str) -> nodes.Template:
    """Return the syntax tree of a template; raise TemplateSyntaxError if it is invalid or too large."""
    tree: nodes.Template = _checked(lambda: _parser(text, None).parse())
    return tree


def parse_expression(text: str) -> nodes.Expr:
    """Return the syntax tree of an expression without braces; raise TemplateSyntaxError if it is invalid
    or too large."""

    def parse() -> nodes.Expr:
        parser = _parser(text, "variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            raise TemplateSyntaxError("chunk after expression", parser.stream.current.lineno)
        return tree

    tree: nodes.Expr = _checked(parse)
    return tree


def walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Yield a node and all nodes below it, parents first."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(node.iter_child_nodes()))


class _Parser(Parser):
    """Jinja2's parser, counting the depth of its own recursion."""

    frames = 0

    def _deeper(self, parse: Any, frames: int, *args: Any) -> Any:
        self.frames += frames
        if self.frames > MAX_PARSER_DEPTH:
            self.fail("it nests too deep")
        try:
            return parse(*args)
        finally:
            self.frames -= frames

    def parse_condexpr(self) -> nodes.Expr:
        tree: nodes.Expr = self._deeper(super().parse_condexpr, 15)
        return tree

    def parse_not(self) -> nodes.Expr:
        tree: nodes.Expr = self._deeper(super().parse_not, 3)
        return tree

    def parse_unary(self, with_filter: bool = True) -> nodes.Expr:
        tree: nodes.Expr = self._deeper(super().parse_unary, 3, with_filter)
        return tree

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        found: nodes.Node | list[nodes.Node] = self._deeper(super().parse_statement, 6)
        return found


_ENVIRONMENT = _Environment(autoescape=False, cache_size=0)
_NO_TOKEN = (0, "", "")


def _parser(text: str, state: str | None) -> _Parser:
    if len(text) > MAX_TEMPLATE_CHARS:
        raise TemplateSyntaxError(f"it has more than {MAX_TEMPLATE_CHARS:,} characters", 1)
    return _Parser(_ENVIRONMENT, text, state=state)


def _counted(tokens: Iterable[Token]) -> Iterator[Token]:
    for count, token in enumerate(tokens):
        if count >= MAX_TEMPLATE_TOKENS:
            raise TemplateSyntaxError(
                f"it has more than {MAX_TEMPLATE_TOKENS:,} words and symbols", token.lineno
            )
        yield token


def _checked(parse: Callable[[], nodes.Node]) -> Any:
    try:
        tree = parse()
    except ValueError:
        raise TemplateSyntaxError("it has a number that is too long", 1) from None
    _check_depth(tree)
    return tree


def _check_depth(tree: nodes.Node) -> None:
    level = [tree]
    for _ in range(MAX_TEMPLATE_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    raise TemplateSyntaxError("it nests too deep", level[0].lineno)
