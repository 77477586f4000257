"""Finds functions and their lengths: by the syntax tree in Python, by matching braces in C++."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

CONTROL = {"if", "for", "while", "switch", "catch", "do", "else", "try"}
NO_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b(?![^(]*\()")
LITERALS = re.compile(
    r'R"(?P<d>[^()\s\\]{0,16})\((?s:.*?)\)(?P=d)"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"|' + r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # a quote between digits separates them
    r"|//[^\n]*|/\*(?s:.*?)\*/"
)


@dataclass(frozen=True)
class Function:
    name: str
    line: int
    lines: int


def python_functions(source: str) -> Iterator[Function]:
    """Every function with its decorators; a docstring does not count as length."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
            yield Function(node.name, node.lineno, node.end_lineno - node.lineno + 1 - docstring)


def without_literals(source: str) -> str:
    """The same lines with strings and comments blanked, and preprocessor directives (macros with them)."""
    blanked = LITERALS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), blanked, flags=re.M)


def brace_functions(source: str) -> Iterator[Function]:
    """Every function definition of C++: a `{` whose head, since the last `;`, `{` or `}`, is a call's form.

    Lambdas inside a function are part of it; those at namespace level count by themselves.
    """
    text = without_literals(source)
    stack: list[tuple[str, int, bool]] = []  # head, its line, whether it begins a function
    head, head_line, line, depth = "", 1, 1, 0
    for character in text:
        if character == "\n":
            line += 1
        if character in "()":
            depth += 1 if character == "(" else -1
        if character == "{":
            inside = any(is_function for *_, is_function in stack)
            stack.append((head, head_line, not inside and _is_function(head)))
            head = ""
        elif character == "}":
            began, began_line, is_function = stack.pop()
            if is_function:
                yield Function(_name(began), began_line, line - began_line + 1)
            head = ""
        elif character == ";" and depth == 0:
            head = ""
        else:
            if not head.strip():
                head_line = line
            head += character


def _is_function(head: str) -> bool:
    words = head.split()
    if "(" not in head or not words or words[0] in CONTROL or NO_FUNCTION.search(head):
        return False
    return not re.search(r"=\s*$", head)


def _name(head: str) -> str:
    match = re.search(r"([~\w:]+|operator\s*\S+?)\s*\(", head)
    return match[1] if match else head.strip()[:40]
