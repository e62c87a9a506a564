"""What `ServerArgs` says to each of some settings, on top of arguments that start: null, or the error's text.

Reads {"base": {...}, "settings": [{...}, ...]}, prints the list of answers.
"""

from __future__ import annotations

import json
import sys

from sglang.srt.server_args import ServerArgs


def main() -> None:
    wanted = json.load(sys.stdin)
    answers = []
    for setting in wanted["settings"]:
        try:
            ServerArgs(**(wanted["base"] | setting))
            answers.append(None)
        except ValueError as error:
            answers.append(str(error))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
