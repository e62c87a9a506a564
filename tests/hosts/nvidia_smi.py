#!/usr/bin/python3 -IS
"""Says what nvidia-smi says, of eight H200s as /etc/gpus.json changes them: {"dead": {"3": "hangs" or "lost"}, "used": {"2":
[[pid, name, MiB]]}, "failing": [5]}. Only the words that `deploy.gpus` asks with, without headers and units."""

import json
import sys
import time
from pathlib import Path

STATE = json.loads(Path("/etc/gpus.json").read_text())
given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
assert given.pop("format") == "csv,noheader,nounits", given
index = given.pop("id")
what, fields = given.popitem()
bus = f"00000000:{0x18 + 16 * int(index):02X}:00.0"
if int(index) > 7:
    sys.exit("No devices were found")
if STATE["dead"].get(index) == "hangs":
    time.sleep(600)
if STATE["dead"].get(index) == "lost":
    print(f"Unable to determine the device handle for GPU{index}: {bus}: Unknown Error")
    sys.exit(255)
used = STATE["used"].get(index, [])
if what == "query-gpu":
    failing = int(index) in STATE["failing"]
    values = {
        "uuid": f"GPU-5f3a000{index}-aaaa-bbbb-cccc-00000000000{index}",
        "name": "NVIDIA H200",
        "driver_version": "580.95.05",
        "pci.bus_id": bus,
        "memory.total": 143771,
        "memory.used": sum(size for _, _, size in used),
        "ecc.errors.uncorrected.volatile.total": 2 if failing else 0,
        "remapped_rows.pending": "Yes" if failing else "No",
        "remapped_rows.failure": "No",
    }
    print(", ".join(str(values[field]) for field in fields.split(",")))
else:
    assert (what, fields) == ("query-compute-apps", "pid,process_name,used_memory"), given
    for row in used:
        print(", ".join(map(str, row)))
