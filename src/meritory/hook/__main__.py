"""The script that agent clients run: `python -I -S __main__.py --harness NAME`.

It only loads `main.py`. Python caches the compiled form of a module, but not of a script, and every
prompt waits for the compiler.
"""

import os
import sys

try:
    from _frozen_importlib_external import SourceFileLoader

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
    hook = type(sys)("meritory_hook_main")
    hook.__file__ = path
    SourceFileLoader(hook.__name__, path).exec_module(hook)
    hook.run(sys.argv[1:])
finally:
    # No traceback: errors print nothing.
    os._exit(0)
