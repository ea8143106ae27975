"""Tools for chat templates: functions with type hints and a docstring become JSON schemas."""
import inspect
import re
import typing
from typing import Any, Callable, Dict, Tuple, Union

_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", list: "array", dict: "object",
          type(None): "null", Any: "any"}


def _type(hint: Any) -> Dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _NAMES:
        return {} if hint is Any else {"type": _NAMES[hint]}
    if origin is Union:
        rest = [_type(a) for a in inner if a is not type(None)]
        out = rest[0] if len(rest) == 1 else {"type": [r.get("type", "string") for r in rest]}
        return {**out, "nullable": True} if type(None) in inner else out
    if origin in (list, tuple):
        return {"type": "array", **({"items": _type(inner[0])} if inner else {})}
    if origin is dict:
        return {"type": "object", **({"additionalProperties": _type(inner[1])} if len(inner) == 2 else {})}
    if origin is typing.Literal:
        return {"type": _NAMES.get(type(inner[0]), "string"), "enum": list(inner)}
    raise TypeError(f"a tool's argument has the type hint {hint!r}, which has no JSON schema")


def _docstring(function: Callable[..., Any]) -> Tuple[str, Dict[str, str], str]:
    """Returns the description, those of the arguments, and that of the result, from a docstring in Google's style."""
    text = inspect.cleandoc(function.__doc__ or "")
    if not text:
        raise ValueError(f"the tool {function.__name__} needs a docstring that says what it does")
    parts = re.split(r"^(Args|Arguments|Returns|Raises):\s*$", text, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2]))
    found = re.findall(r"^\s+(\w+)\s*(?:\([^)]*\))?:\s*(.*?)(?=^\s+\w+\s*(?:\([^)]*\))?:|\Z)",
                       sections.get("Args", sections.get("Arguments", "")), flags=re.M | re.S)
    return parts[0].strip(), {name: " ".join(d.split()) for name, d in found}, " ".join(sections.get("Returns", "").split())


def tool_json(tool: Any) -> Dict[str, Any]:
    """Returns the JSON schema of a tool.  A dictionary is taken as it is."""
    if isinstance(tool, dict):
        return tool
    if not callable(tool):
        raise TypeError(f"a tool is a JSON schema or a function, not {type(tool).__name__}")
    description, arguments, result = _docstring(tool)
    hints = typing.get_type_hints(tool)
    properties: Dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(tool).parameters.items():
        if name not in hints or name not in arguments:
            raise ValueError(f"the argument {name!r} of the tool {tool.__name__} needs a type hint and a line under Args")
        properties[name] = {**_type(hints[name]), "description": arguments[name]}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    out: Dict[str, Any] = {"name": tool.__name__, "description": description, "parameters": parameters}
    if "return" in hints:
        out["return"] = {**_type(hints["return"]), **({"description": result} if result else {})}
    return {"type": "function", "function": out}
