"""Tools for chat templates: functions with type hints and a docstring become JSON schemas."""
import enum
import inspect
import json
import re
import sys
import types
import typing
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_NAMES = {**_SCALARS, list: "array", tuple: "array", dict: "object"}
_UNIONS = (Union, getattr(types, "UnionType", Union))  # Python 3.10 has `int | str`


class TypeHintParsingException(TypeError, ValueError):
    """A type hint of a tool is missing, or has no JSON schema."""


class DocstringParsingException(ValueError):
    """A tool's docstring lacks something."""


def _type(hint: Any) -> Dict[str, Any]:
    """Returns the JSON schema of a type hint.  The order of keys is what templates print."""
    origin = typing.get_origin(hint)
    inner: typing.Tuple[typing.Any, ...] = typing.get_args(hint)
    if hint is Any:
        return {}
    if origin is None and hint in _NAMES:
        return {"type": _NAMES[hint]}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _values([member.value for member in hint], hint)
    if origin in _UNIONS:
        rest = [_type(a) for a in inner if a is not type(None)]
        return {**_any_of(rest), **({"nullable": True} if type(None) in inner else {})}
    if origin in (list, tuple, dict) and not inner:  # typing.List without what it holds
        return {"type": _NAMES[origin]}
    if origin is list:
        return {"type": "array", "items": _type(inner[0])}
    if origin is tuple and len(inner) > 1 and ... not in inner:
        return {"type": "array", "prefixItems": [_type(a) for a in inner]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type([*inner][1])}
    if origin is typing.Literal:
        return _values(list(inner), hint)
    raise TypeHintParsingException(f"a tool's argument has the type hint {hint!r}, which has no JSON schema")


def _values(values: List[Any], hint: Any) -> Dict[str, Any]:
    if not values or any(type(v) not in _SCALARS for v in values):
        raise TypeHintParsingException(f"a tool's argument has the type hint {hint!r}; its values have to be numbers, texts, truth values or None")
    return {"type": _one_or_several(dict.fromkeys(_SCALARS[type(v)] for v in values)), "enum": values}


def _any_of(schemas: List[Dict[str, Any]]) -> Dict[str, Any]:
    if len(schemas) == 1:
        return schemas[0]
    if all(list(s) == ["type"] and isinstance(s["type"], str) for s in schemas):
        return {"type": _one_or_several(sorted({s["type"] for s in schemas}))}
    return {"anyOf": schemas}


def _one_or_several(names: Any) -> Union[str, Sequence[str]]:
    found = list(names)
    return found[0] if len(found) == 1 else found


def _arguments(section: str) -> Dict[str, str]:
    """Returns the descriptions of arguments.  Lines that are indented deeper than an argument continue its description."""
    found: Dict[str, str] = {}
    name, indent = "", 0
    for line in filter(str.strip, section.split("\n")):
        depth, text = len(line) - len(line.lstrip()), line.strip()
        begins = re.match(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)", text)
        if begins and (not name or depth <= indent):
            name, indent = begins[1], depth
            found[name] = begins[2]
        elif name:
            found[name] = f"{found[name]} {text}".strip()
    return found


def _docstring(function: Callable[..., Any]) -> Tuple[str, Dict[str, str], str]:
    """Returns the description, those of the arguments, and that of the result, from a docstring in Google's style."""
    text = inspect.cleandoc(function.__doc__ or "")
    if not text:
        raise DocstringParsingException(f"the tool {_name(function)} needs a docstring that says what it does")
    parts = re.split(r"^(Args|Arguments|Returns|Raises):\s*$", text, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2]))
    arguments = _arguments(sections.get("Args", sections.get("Arguments", "")))
    return parts[0].strip(), arguments, sections.get("Returns", "").strip()


def _name(tool: Any) -> str:
    return getattr(tool, "__name__", type(tool).__name__)


def _choices(text: str, name: str, tool: Any) -> List[Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise DocstringParsingException(f"the choices of the argument {name!r} of the tool {_name(tool)} are no JSON list: {text}")
    return [c.strip() if isinstance(c, str) else c for c in found]


def _hints(tool: Any) -> Dict[str, Any]:
    """Returns the type hints as they are written: before Python 3.11 typing makes an Optional of each with the default None."""
    if sys.version_info >= (3, 11) or not hasattr(tool, "__annotations__"):
        return typing.get_type_hints(tool)
    function = inspect.unwrap(tool)
    bare = types.SimpleNamespace(__annotations__=function.__annotations__)  # an object without defaults
    return typing.get_type_hints(bare, getattr(function, "__globals__", {}))


def tool_json(tool: Any) -> Dict[str, Any]:
    """Returns the JSON schema of a tool.  A dictionary is taken as it is."""
    return tool if isinstance(tool, dict) else get_json_schema(tool)


def get_json_schema(tool: Callable[..., Any]) -> Dict[str, Any]:
    """Returns the JSON schema of a function, as chat templates show tools to a model.

    Its docstring says what it does and, under ``Args:``, what each argument means; each argument has a type hint.
    ``(choices: ["a", "b"])`` at the end of a description becomes an enum.  Raises ValueError or TypeError with what lacks.
    """
    if not callable(tool):
        raise TypeError(f"a tool is a JSON schema or a function, not {type(tool).__name__}")
    description, arguments, result = _docstring(tool)
    hints = _hints(tool)
    properties: Dict[str, Any] = {}
    required = []
    for i, (name, parameter) in enumerate(inspect.signature(tool).parameters.items()):
        if not i and name in ("self", "cls") and name not in hints:
            continue
        if name not in hints or name not in arguments:
            kind = TypeHintParsingException if name not in hints else DocstringParsingException
            raise kind(f"the argument {name!r} of the tool {_name(tool)} needs a type hint and a line under Args")
        description_of = arguments[name]
        choices = re.search(r"\(choices:\s*(.*?)\)\s*$", description_of, re.I)
        properties[name] = _type(hints[name])
        if choices:
            properties[name]["enum"] = _choices(choices[1], name, tool)
            description_of = description_of[:choices.start()].strip()
        properties[name]["description"] = description_of
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    out: Dict[str, Any] = {"name": _name(tool), "description": description, "parameters": parameters}
    if "return" in hints:
        try:  # the model never writes the result, so a hint without a schema is left out
            out["return"] = {**_type(hints["return"]), **({"description": result} if result else {})}
        except TypeError:
            pass
    return {"type": "function", "function": out}
