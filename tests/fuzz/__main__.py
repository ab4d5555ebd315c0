"""`python -m tests.fuzz --inputs 100000`: so many inputs for each parser, a table of what became of them.

python -m tests.fuzz --parser table --inputs 20000 --seed 7
python -m tests.fuzz --parser table --show 1234 --seed 7 > bad.bin      the input of that number
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.fuzz.parsers import PARSERS
from tests.fuzz.runner import fuzz, reproduce


def main() -> int:
    """Run, print, and fail if there is a finding."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz")
    reader.add_argument("--parser", action="append", choices=sorted(PARSERS))
    reader.add_argument("--inputs", type=int, default=1000)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--show", type=int, metavar="NUMBER")
    reader.add_argument("--json", action="store_true")
    given = reader.parse_args()
    if given.show is not None:
        sys.stdout.buffer.write(reproduce(given.parser[0], given.seed, given.show))
        return 0
    results = []
    for parser in given.parser or PARSERS:
        began = time.perf_counter()
        result = fuzz(parser, given.inputs, given.seed)
        results.append(result)
        print(f"{parser:14} {result.inputs:9,} inputs {result.answers:9,} answers {result.refusals:9,} refusals "
              f"{len(result.findings):5} findings {time.perf_counter() - began:6.0f} s", file=sys.stderr)  # fmt: skip
        for number, what in list(result.findings.items())[:20]:
            print(f"  {number}: {what}", file=sys.stderr)
    if given.json:
        print(json.dumps([vars(result) for result in results], indent=1))
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
