"""Strict reading of plain data into Records: every problem at once, each with its path and, for a near miss, a suggestion."""

import difflib
import types
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

R = TypeVar("R")


def convert(value: Any, type_: type[R], path: str = "") -> tuple[R | None, list[str]]:
    """``value`` as ``type_`` and no problems, or None and one line for each problem, in the order of the data.

    >>> class Point(msgspec.Struct, forbid_unknown_fields=True):
    ...     x: int
    ...     why: str = ""
    >>> convert({"x": "1", "whi": ""}, Point, "p")[1]
    ['p.x: expected int, got str', 'p.whi: unknown key; did you mean "why"?']
    """
    problems = _problems(value, type_, path)
    if problems:
        return None, problems
    try:
        return msgspec.convert(value, type_), []
    except msgspec.ValidationError as error:
        return None, [f"{path or 'configuration'}: {_plain(error)}"]


def _problems(value: Any, type_: Any, path: str) -> list[str]:
    inner = _strip(type_)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        return (
            _struct_problems(value, inner, path)
            if isinstance(value, dict)
            else [f"{path or 'configuration'}: expected a table, got {_name(value)}"]
        )
    if get_origin(inner) is tuple and isinstance(value, list) and _is_struct(get_args(inner)[0]):
        found = [p for i, item in enumerate(value) for p in _problems(item, get_args(inner)[0], f"{path}[{i}]")]
        return found or _leaf_problems(value, type_, path)
    return _leaf_problems(value, type_, path)


def _struct_problems(value: dict[str, Any], struct: type[msgspec.Struct], path: str) -> list[str]:
    fields = _fields(struct)
    dot = f"{path}." if path else ""
    problems = []
    for name, item in value.items():
        if name in fields:
            problems += _problems(item, fields[name].type, dot + name)
        else:
            near = difflib.get_close_matches(name, fields, n=1)
            problems.append(
                f"{dot}{name}: unknown key" + (f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(sorted(fields))}")
            )
    problems += [f"{dot}{name}: required, and missing" for name, f in fields.items() if f.required and name not in value]
    if not problems:  # what spans several fields is checked when they are right one by one
        problems += _leaf_problems(value, struct, path)
    return problems


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {f.encode_name: f for f in msgspec.structs.fields(struct)}


def _leaf_problems(value: Any, type_: Any, path: str) -> list[str]:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        message = _plain(error)
        choices = _choices(type_)
        near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
        if choices and isinstance(value, str):
            message = f"{value!r} is none of {', '.join(choices)}" + (f'; did you mean "{near[0]}"?' if near else "")
        return [f"{path or 'configuration'}: {message}"]
    return []


def _plain(error: msgspec.ValidationError) -> str:
    message = str(error).split(" - at `$", 1)[0].replace("`", "")
    return message[:1].lower() + message[1:]


def _strip(type_: Any) -> Any:
    """The struct or tuple inside Annotated and Optional."""
    if hasattr(type_, "__metadata__"):
        return _strip(get_args(type_)[0])
    if get_origin(type_) in (Union, types.UnionType):
        inner = [a for a in get_args(type_) if a not in (type(None), msgspec.UnsetType)]
        return _strip(inner[0]) if len(inner) == 1 else type_
    return type_


def _is_struct(type_: Any) -> bool:
    inner = _strip(type_)
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


def _choices(type_: Any) -> list[str]:
    from typing import Literal

    inner = _strip(type_)
    return [str(a) for a in get_args(inner)] if get_origin(inner) is Literal else []


def _name(value: Any) -> str:
    return {dict: "table", list: "array", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}.get(
        type(value), type(value).__name__
    )
