"""Puts a patched SGLang on a host and proves that it serves: facts, plan, steps, health, proof; and the way back.

One direction: `facts` says what a host has, `inputs` what it should have, `plan` turns both into steps, `rollout` runs
them. `plan` shows the same step objects that `apply` runs. Only a `Host` (`host`; here the `sandbox`) touches a machine.

Exit codes: 0 nothing to do or done as planned; 1 failed before any change; 2 usage; 3 rolled back, the old release
serves; 4 a person is needed, said with what and where.
"""
