#!/usr/bin/env python3
"""The numbers of plan.h for programs that are not C: a module with the same names, where `depths` is a tuple.

Run as a program it prints them for a shell: NAME=value lines, with depths="0 2048 7000".
"""

import os
import re

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan.h")) as _f:
    _text = _f.read()
_numbers = {name: int(value) for name, value in re.findall(r"^    ([A-Z_]+) = (\d+),", _text, re.M)}
globals().update(_numbers)
depths = tuple(int(x) for x in re.search(r"\bdepths\[DEPTHS\] = \{([\d, ]+)\}", _text)[1].split(","))
if len(depths) != _numbers["DEPTHS"]:
    raise SystemExit(f"plan.h: DEPTHS is {_numbers['DEPTHS']}, and depths has {len(depths)} numbers")

if __name__ == "__main__":
    for _name, _value in _numbers.items():
        print(f"{_name}={_value}")
    print(f'depths="{" ".join(map(str, depths))}"')
