"""Small training programs in Python's own words, which report well or badly."""

import sys

RISING = """
import json, time
for k in range(1, 1000):
    print(json.dumps({"examples": 10 * k, "metric": k / 10}), flush=True)
    time.sleep(0.005)
"""
FAILING = "import os; print('loading'); print('the key is', os.environ.get('MY_API_KEY')); raise SystemExit(3)"
SILENT = "pass"
GARBAGE = r"import os; os.write(1, bytes(range(256)) * 2000); print('\n{examples}')"
BACKWARDS = "print('{\"examples\": 20}'); print('{\"examples\": 10}'); import time; time.sleep(100)"
NAN = 'print(\'{"examples": 20, "metric": NaN}\'); import time; time.sleep(100)'
ENDLESS = "import time; print('waiting', flush=True); time.sleep(1000)"
FORKING = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
print('{"examples": 10, "metric": 0.5}')
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
FLOODING = "while True: print('a line that reports nothing')"
ENDS_EARLY = 'print(\'{"examples": 10, "metric": 0.5}\')'


def build_command(code: str) -> str:
    """Build the command line of a program, with a placeholder of each setting that it does not look at."""
    quoted = code.replace("'", "'\"'\"'")
    return f"{sys.executable} -c '{quoted}' {{batch_size}} {{lr}} {{seed}}"
