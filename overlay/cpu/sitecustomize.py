"""Python runs this at the start of every process that has this folder on its path, also in those that SGLang spawns."""

import cpu_engine

cpu_engine.install()
